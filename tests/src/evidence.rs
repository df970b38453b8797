//! Figures that tests measure, for the documents that `make lifecycle` and `make proof` write.

use std::fmt::Display;

/// Notes what was measured for a row of `tests/evidence/*.json`: `figure("hard-timeout", "free after the deadline", "12 ms")`.
/// It is a line of the test's output, as crates that do not know this one write it too. The same `what` may be noted
/// many times: the document shows the range.
pub fn figure(row: &str, what: &str, value: impl Display) {
    println!("figure: {row} | {what} | {value}");
}
