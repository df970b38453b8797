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
fn help_is_short_and_names_every_command_and_variable() {
    for arguments in [&["--help"] as &[&str], &["serve", "--help"], &["ping", "-h"], &["help"]] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.starts_with("Usage: leasekeeper [COMMAND] [--help | --version]\n"), "{stdout}");
        for command in ["serve", "run", "ping", "inspect", "list", "break", "table create", "table check"] {
            assert!(stdout.contains(&format!("\n  {command}")), "{command} is missing in:\n{stdout}");
        }
        for variable in VARIABLES {
            assert!(stdout.contains(variable.name), "{} is missing in:\n{stdout}", variable.name);
        }
    }
}

#[test]
fn each_command_has_a_help_of_its_own_with_its_exit_codes() {
    for command in ["run", "inspect", "list", "break", "table"] {
        let (code, stdout, stderr) = run(&[command, "--help"]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{command}");
        assert!(stdout.starts_with(&format!("Usage: leasekeeper {command}")), "{stdout}");
        assert!(stdout.contains("Exit codes: 0 done, 2 wrong usage"), "{stdout}");
        assert!(stdout.lines().all(|line| line.chars().count() <= 130), "{stdout}");
    }
}

#[test]
fn version_is_one_line() {
    let expected = format!("leasekeeper {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]), (Some(0), expected, String::new()));
}

#[test]
fn a_sidecar_that_does_not_answer_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("lock.sock");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasekeeper"));
    let output = command.arg("ping").env_clear().env("LEASEKEEPER_SOCKET", &socket).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    assert!(stderr.contains("no sidecar answers in time") && stderr.contains("lock.sock"), "{stderr}");
}

#[test]
fn anything_else_is_an_error_that_says_where_help_is() {
    for (arguments, help) in [
        (&["--hlep"] as &[&str], "`leasekeeper --help`"),
        (&["inspekt", "k"], "`leasekeeper --help`"),
        (&[""], "`leasekeeper --help`"),
        (&["--help", "--version"], "`leasekeeper --help`"),
        (&["--table", "locks"], "`leasekeeper --help`"),
        (&["serve", "--drain-ms", "1"], "`leasekeeper --help`"),
        (&["ping", "now"], "`leasekeeper --help`"),
        (&["run"], "`leasekeeper run --help`"),
        (&["break", "k"], "`leasekeeper break --help`"),
    ] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.starts_with("leasekeeper: ") && stderr.contains(help), "{arguments:?}: {stderr}");
    }
}
