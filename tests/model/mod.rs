//! The model alone: nothing here opens a file, a socket or a clock.

mod json;
