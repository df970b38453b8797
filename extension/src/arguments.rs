//! The command line: it can be asked what this program is, and nothing else. Settings are environment variables.

use leasekeeper_extension::settings::{VARIABLES, Variable};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

/// What shells and most programs exit with when the command itself was wrong.
const WRONG_USAGE: u8 = 2;

/// Answers what was asked by `arguments`, which exclude the program's name; nothing if there are none, and the program is to run.
pub(crate) fn answer(arguments: &[OsString]) -> Option<ExitCode> {
    match arguments {
        [] => None,
        [one] if one == "--help" => Some(say(std::io::stdout(), &usage(), ExitCode::SUCCESS)),
        [one] if one == "--version" => {
            let version = concat!("leasekeeper ", env!("CARGO_PKG_VERSION"), "\n");
            Some(say(std::io::stdout(), version, ExitCode::SUCCESS))
        }
        others => {
            let text = format!("leasekeeper: unexpected arguments: {others:?}\n\n{}", usage());
            Some(say(std::io::stderr(), &text, WRONG_USAGE.into()))
        }
    }
}

/// A reader that has left, such as `head`, is no fault.
fn say(mut out: impl Write, text: &str, code: ExitCode) -> ExitCode {
    let _ = out.write_all(text.as_bytes());
    code
}

fn usage() -> String {
    let mut text = String::from(
        "Usage: leasekeeper [--help | --version]\n\n\
         Holds and renews DynamoDB leases for the clients of a Unix socket: as a Lambda extension,\n\
         or anywhere else until SIGTERM or SIGINT.\n\n\
         Environment variables, with their defaults in brackets:\n",
    );
    for Variable { name, default, meaning } in VARIABLES {
        let _ = writeln!(text, "  {name} [{default}]\n      {meaning}");
    }
    text.push_str("\nRegion, credentials and endpoint are set as for any AWS SDK: AWS_REGION and so on.\n");
    text
}
