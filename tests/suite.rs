//! All integration tests in one binary: one link, and suites that share what they need.

// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]

mod corpus;
mod model;
mod server;
mod support;
