//! What was shown and whether it held.

use std::process::ExitCode;

/// Counts the demo's checks.
#[derive(Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report {
    pub(crate) fn scene(&self, title: &str) {
        println!("\n── {title}");
    }

    pub(crate) fn check(&mut self, holds: bool, what: impl AsRef<str>) {
        let (mark, count) = if holds { ("✓", &mut self.passed) } else { ("✗", &mut self.failed) };
        *count += 1;
        println!("   {mark} {}", what.as_ref());
    }

    pub(crate) fn skip(&mut self, what: impl AsRef<str>) {
        self.skipped += 1;
        println!("   – skipped: {}", what.as_ref());
    }

    /// The closing line, which scripts read.
    pub(crate) fn finish(self) -> ExitCode {
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        println!("\n{} passed, {} failed{skipped}", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
