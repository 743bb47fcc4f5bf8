//! The decision.
