//! The model alone: nothing here opens a file, a socket or a clock.

mod exhaustive;
mod json;
mod paper;
mod rules;
mod script;
mod tables;
mod verbs;
