//! Records as lines of JSON, from one store to another.
//!
//! * [`file`]: the file between them.
//! * [`export`] writes it, [`import`] reads it.

pub(super) mod export;
mod file;
pub(super) mod import;
