//! heatsink.
fn main() {}
