//! The documents' tables, held against the code: settings, error codes, and the tests that promises and invariants name.

use leasekeeper_extension::settings::VARIABLES;
use leasekeeper_wire::{Code, LostReason};
use std::fs;
use testkit::programs::{repository, sources};

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_table_of_settings_is_the_codes_own() {
    let readme = read("README.md");
    let shown: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `LEASEKEEPER_")).collect();
    let expected: Vec<String> = VARIABLES
        .iter()
        .map(|variable| format!("| `{}` | {} | {} |", variable.name, variable.default, variable.meaning))
        .collect();
    assert!(shown == expected, "the README's table of settings must have exactly these rows:\n{}", expected.join("\n"));
}

/// What stands between backticks, in order.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_error_code_and_reason_is_explained_and_known() {
    let readme = read("README.md");
    let section =
        readme.split("## Errors").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section on errors");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let codes: Vec<&str> = rows.filter_map(|row| quoted(row).next()).collect();
    for code in &codes {
        let known: Code = serde_json::from_value((*code).into()).expect("any word is a code");
        assert_ne!(known, Code::Unknown, "{code} is no code");
    }
    assert_eq!(codes.len(), 10, "{codes:?}");
    let reasons = section.lines().find(|line| line.starts_with("Reasons of")).expect("the reasons of loss");
    let reasons: Vec<&str> = quoted(reasons).skip(1).collect();
    for reason in &reasons {
        let known: LostReason = serde_json::from_value((*reason).into()).expect("any word is a reason");
        assert_ne!(known, LostReason::Unknown, "{reason} is no reason");
    }
    assert_eq!(reasons.len(), 10, "{reasons:?}");
}

#[test]
fn every_test_and_file_that_a_promise_or_an_invariant_names_exists() {
    let sources = sources();
    for (document, heading, column, least) in
        [("README.md", "## Promises", 3, 7), ("ARCHITECTURE.md", "## Invariants", 2, 10)]
    {
        let text = read(document);
        let section = text.split(heading).nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the section");
        let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
        let named: Vec<&str> = rows.filter_map(|row| row.split(" | ").nth(column - 1)).flat_map(quoted).collect();
        assert!(named.len() >= least, "{document} names {named:?}");
        for name in named {
            let exists =
                if name.contains('/') { repository(name).exists() } else { sources.contains(&format!("fn {name}(")) };
            assert!(exists, "{document} names {name}, which does not exist");
        }
    }
}
