//! The `leasekeeper` program: command line, settings, log; then the process lives.

mod arguments;
mod ping;

use leasekeeper_extension::lifecycle::Mode;
use leasekeeper_extension::{log, process, settings};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mode = Mode::detect(process::environment);
    // Lambda passes none. Should it ever, leaving would fail the function.
    if mode == Mode::Standalone {
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        if let Some(code) = arguments::answer(&arguments) {
            return code;
        }
    }
    let (bootstrap, settings) = settings::read_env();
    let _written_at_the_end = log::init(&bootstrap);
    process::run(mode, bootstrap, settings)
}
