//! Checks and tests of the project.
fn main() {}
