//! onced: a dedupe appliance.
pub mod model;
pub mod store;
