//! onced: a dedupe appliance.
pub mod model;
