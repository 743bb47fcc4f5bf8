//! onced: a dedupe appliance.
pub mod cli;
pub mod config;
pub mod engine;
pub mod error;
pub mod http;
pub mod journal;
pub mod model;
pub mod resp;
pub mod server;
pub mod store;
