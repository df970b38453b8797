//! Figures that tests measure, for the documents that `make lifecycle` and `make proof` write.

use serde_json::json;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that figures are appended to.
pub const FILE: &str = "LEASEKEEPER_EVIDENCE";

/// Notes what was measured for a row of `tests/evidence/*.json`: `figure("hard-timeout", "free after SHUTDOWN", "12 ms")`.
/// Does nothing unless [`FILE`] names a file. The same `what` of a row may be noted many times: the document shows the range.
///
/// # Panics
/// The file cannot be written: the document would lack what was seen.
pub fn figure(row: &str, what: &str, value: impl Display) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let line = json!({"row": row, "what": what, "value": value.to_string()});
    // One write a line: tests of several processes append to it.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.to_string_lossy()));
}
