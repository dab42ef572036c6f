//! The `saggar` binary.
fn main() {}
