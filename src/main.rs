//! onced
fn main() {}
