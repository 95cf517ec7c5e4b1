//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with us.

/// Reads the words of `ropewalk run`: lines up to an empty one. What follows stands in the files and variables that are
/// read beside them.
pub fn run_command_line(bytes: &[u8]) {
    crate::run::fuzz_command_line(bytes);
}

/// Takes a request for the metrics, in pieces whose size the first byte says.
pub fn metrics_request(bytes: &[u8]) {
    crate::run::fuzz_metrics_request(bytes);
}
