//! onced: a dedupe appliance.
pub mod journal;
pub mod model;
