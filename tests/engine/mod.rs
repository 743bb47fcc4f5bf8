//! The engine where decisions, checkpoints, sweeps and restarts meet: so little memory that checkpoints never
//! rest, and starts on directories as a crash leaves them.

mod bodies;
mod interleavings;
mod overtaken;
mod restart;
mod rig;
mod stopping;
mod sweep;
mod units;
mod waiting;
