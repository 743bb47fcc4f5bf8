//! The real process under a mixed load whose clients write down what they were told: they are the judge of what
//! is there after a crash, an error of the disk, or a stop.

mod client;
mod damage;
mod format;
mod kill;
mod line;
mod together;

pub use together::Load;
