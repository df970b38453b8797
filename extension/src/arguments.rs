//! The command line: what this program is, whether it serves, or which command it performs. Settings are environment variables.

use crate::ping;
use leasekeeper_extension::settings::{VARIABLES, Variable};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

/// What shells and most programs exit with when the command itself was wrong.
const WRONG_USAGE: u8 = 2;

/// Does what `arguments`, which exclude the program's name, ask for; nothing if the program is to serve.
pub(crate) fn answer(arguments: &[OsString]) -> Option<ExitCode> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    match words[..] {
        [] | ["serve"] => None,
        ["ping"] => Some(ping::perform()),
        ["--help" | "-h" | "help"] | ["serve" | "ping", "--help" | "-h"] => Some(say(&usage())),
        ["--version"] => Some(say(concat!("leasekeeper ", env!("CARGO_PKG_VERSION"), "\n"))),
        [one @ ("serve" | "ping"), ..] => {
            Some(wrong(&format!("`{one}` takes no arguments: its settings are environment variables")))
        }
        _ => Some(perform(arguments)),
    }
}

#[cfg(feature = "commands")]
fn perform(arguments: &[OsString]) -> ExitCode {
    leasekeeper_extension::commands::perform(arguments)
}

#[cfg(not(feature = "commands"))]
fn perform(arguments: &[OsString]) -> ExitCode {
    let command = arguments.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    wrong(&format!("`{command}` is no command of this build, which has `serve` and `ping` alone (docs/COMMANDS.md)"))
}

fn wrong(text: &str) -> ExitCode {
    let text = format!("leasekeeper: {text}: see `leasekeeper --help`\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(WRONG_USAGE)
}

/// A reader that has left, such as `head`, is no fault.
fn say(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn usage() -> String {
    #[cfg(feature = "commands")]
    let commands = leasekeeper_extension::commands::SUMMARY;
    #[cfg(not(feature = "commands"))]
    let commands = "";
    let mut text = format!(
        "Usage: leasekeeper [COMMAND] [--help | --version]\n\n\
         Holds and renews DynamoDB leases for the clients of a Unix socket: as a Lambda extension, or anywhere else.\n\n\
         Commands; without one it serves:\n\
         \x20 serve              serve the lock socket as a sidecar, until SIGTERM, SIGINT or SIGHUP\n\
         \x20 ping               does a sidecar answer on the lock socket?\n\
         {commands}\n\
         Environment variables, with their defaults in brackets:\n"
    );
    for Variable { name, default, meaning } in VARIABLES {
        let _ = writeln!(text, "  {name} [{default}]\n      {meaning}");
    }
    text.push_str("\nRegion, credentials and endpoint are set as for any AWS SDK: AWS_REGION and so on.\n");
    text
}
