//! onced: a dedupe appliance.
pub mod cli;
pub mod config;
pub mod engine;
pub mod error;
pub mod model;
pub mod server;
