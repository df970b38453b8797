//! What the program answers without running.

use leasekeeper_extension::settings::VARIABLES;
use std::process::{Command, Output};

/// Runs it with nothing in its environment: were it to listen, it would not end.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_leasekeeper")).args(arguments).env_clear().output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn help_is_short_and_names_every_variable() {
    let (code, stdout, stderr) = run(&["--help"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with("Usage: leasekeeper [--help | --version]\n"), "{stdout}");
    for variable in VARIABLES {
        assert!(stdout.contains(variable.name), "{} is missing in:\n{stdout}", variable.name);
    }
}

#[test]
fn version_is_one_line() {
    let expected = format!("leasekeeper {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]), (Some(0), expected, String::new()));
}

#[test]
fn anything_else_is_an_error_with_the_usage() {
    for arguments in [&["--hlep"] as &[&str], &["run"], &[""], &["--help", "--version"], &["--table", "locks"]] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.contains(&format!("unexpected arguments: {arguments:?}")), "{stderr}");
        assert!(stderr.contains("Usage: leasekeeper"), "{stderr}");
    }
}
