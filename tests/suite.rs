//! All integration tests in one binary: one link, and suites that share what they need.

// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]
// One binary: what is public here is public to its suites alone.
#![allow(unreachable_pub)]
// Seeds and counts are for people who read a run.
#![allow(clippy::print_stdout)]

mod architecture;
mod corpus;
mod engine;
mod faults;
mod field;
mod model;
mod packaging;
mod process;
mod readme;
mod run;
mod server;
mod support;
mod tools;
mod transfer;
mod trials;
mod vault;
mod webhooks;
