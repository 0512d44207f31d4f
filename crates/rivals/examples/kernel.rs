//! The measured scenarios of a kernel in network namespaces, on the simulator: side by side.
fn main() {}
