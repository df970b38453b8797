//! The document's tables, held against what the commands do.

use crate::{finish, leasekeeper};
use std::collections::BTreeSet;
use testkit::dynamo::{COMMANDS, Dynamo, row};
use testkit::programs::repository;

fn document() -> String {
    std::fs::read_to_string(repository("docs/COMMANDS.md")).expect("the document is there")
}

/// The rows of the table under this heading, cell by cell.
fn rows(document: &str, heading: &str) -> Vec<Vec<String>> {
    let table = document.split(heading).nth(1).expect("the table is there");
    let lines = table.lines().skip(1).skip_while(|line| line.starts_with("|---"));
    let lines = lines.take_while(|line| line.starts_with("| "));
    lines.map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The actions between backticks.
fn actions(cell: &str) -> BTreeSet<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter_map(|word| word.strip_prefix("dynamodb:")).map(str::to_owned).collect()
}

#[tokio::test]
async fn each_command_sends_the_actions_that_the_document_lists_and_no_others() {
    let document = document();
    let listed = rows(&document, "| command | what it does | IAM actions on the table |");
    let of = |command: &str| {
        let row = listed.iter().find(|row| row[0] == format!("`{command}`"));
        actions(&row.unwrap_or_else(|| panic!("{command} is not in {listed:?}"))[2])
    };
    for (command, arguments) in [
        ("inspect", &["inspect", "k", "--for", "100"] as &[&str]),
        ("list", &["list"]),
        ("break", &["break", "k", "--if-version", "v"]),
        ("table check", &["table", "check"]),
        ("table create", &["table", "create", "--table", "fresh"]),
    ] {
        let dynamo = Dynamo::start().await;
        dynamo.put_raw(row("k", "o", "v", 20_000));
        let ended = finish(leasekeeper(&dynamo, COMMANDS, arguments).spawn().expect("it starts")).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let sent: BTreeSet<String> = dynamo.requests().iter().map(|sent| format!("{:?}", sent.operation)).collect();
        let mut allowed = of(command);
        if command == "table create" {
            allowed.extend(of("table check"));
        }
        assert_eq!(sent, allowed, "{command}");
    }
}

#[test]
fn the_exit_codes_are_those_of_the_help() {
    let document = document();
    let listed: BTreeSet<String> = rows(&document, "| code | means |").into_iter().map(|row| row[0].clone()).collect();
    let output = std::process::Command::new(testkit::programs::built("leasekeeper")).args(["run", "--help"]).output();
    let help = String::from_utf8(output.expect("it runs").stdout).expect("UTF-8");
    let codes = help.split("Exit codes:").nth(1).expect("the help names them");
    let numbers = codes.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    assert_eq!(listed, numbers.map(str::to_owned).collect::<BTreeSet<_>>());
}
