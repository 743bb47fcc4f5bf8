//! The product as one pure function: no clock, no IO, no async.
//!
//! [`transition::apply`] decides every command of every face. What it needs to know comes in, what it
//! decides goes out; who makes the decision durable is none of its business.

pub mod access;
pub mod body;
pub mod command;
pub mod imported;
pub mod json;
pub mod key;
pub mod outcome;
pub mod policy;
pub mod record;
pub mod restored;
pub mod shown;
pub mod time;
pub mod transition;
