//! onced: a dedupe appliance.
pub mod engine;
pub mod http;
pub mod model;
