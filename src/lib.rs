//! onced: a dedupe appliance.
pub mod engine;
pub mod http;
pub mod journal;
pub mod model;
pub mod resp;
pub mod store;
