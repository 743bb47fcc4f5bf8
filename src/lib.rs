//! onced: a dedupe appliance.
pub mod engine;
pub mod model;
