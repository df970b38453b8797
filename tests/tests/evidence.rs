//! The tables of claims, held against the code and against the documents that were written from them.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use testkit::programs::{repository, sources};

#[derive(Deserialize)]
struct Table {
    document: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    row: String,
    case: String,
    #[serde(default)]
    tests: Vec<String>,
    #[serde(default)]
    commands: Vec<String>,
}

const PACKAGES: [(&str, &str); 5] = [
    ("leasekeeper", "runtime-lib"),
    ("leasekeeper-core", "extension/core"),
    ("leasekeeper-extension", "extension"),
    ("leasekeeper-tests", "tests"),
    ("leasekeeper-wire", "runtime-lib/wire"),
];

fn tables() -> Vec<Table> {
    let files = fs::read_dir(repository("tests/evidence")).expect("the tables' folder").flatten();
    let tables: Vec<Table> = files
        .filter(|file| matches!(file.file_name().to_str(), Some("lifecycle.json" | "proof.json")))
        .map(|file| {
            let text = fs::read_to_string(file.path()).expect("a table is UTF-8");
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.path().display()))
        })
        .collect();
    assert_eq!(tables.len(), 2);
    tables
}

#[test]
fn every_claim_names_what_holds_it_and_every_test_it_names_exists() {
    let sources = sources();
    for Row { row, tests, commands, .. } in tables().into_iter().flat_map(|table| table.rows) {
        assert!(!tests.is_empty() || !commands.is_empty(), "nothing holds {row}");
        for test in tests {
            let name = test.rsplit("::").next().unwrap_or_default();
            // Some are made by macros, which are given the name alone.
            assert!(sources.contains(name), "{row} names {test}, which does not exist");
            let mut path = test.split("::");
            let (package, target) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
            let (_, folder) = PACKAGES.iter().find(|(name, _)| *name == package).expect("a package of the workspace");
            let places = [format!("{folder}/tests/{target}.rs"), format!("{folder}/tests/{target}/main.rs")];
            let is_there = target == "lib" || places.iter().any(|place| repository(place).exists());
            assert!(is_there, "{row} names {test}: {folder} has no test target {target}");
        }
    }
}

#[test]
fn every_figure_that_a_test_notes_belongs_to_a_row() {
    let rows: BTreeSet<String> = tables().into_iter().flat_map(|table| table.rows).map(|row| row.row).collect();
    let sources = sources();
    for noted in sources.split("figure(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(rows.contains(noted) || noted.is_empty(), "a figure is noted for {noted}, which is no row");
    }
}

#[test]
fn the_documents_have_every_row_and_none_that_failed() {
    let mut written = 0;
    for Table { document, rows } in tables() {
        let text = fs::read_to_string(repository(&document)).unwrap_or_else(|error| panic!("{document}: {error}"));
        // Before its command was first run, a document says so itself.
        if text.contains("has not been run whole yet") {
            assert!(!text.contains("must hold"), "{document} has a table and says that it has none");
            continue;
        }
        written += 1;
        for Row { row, case, .. } in rows {
            assert!(text.contains(&format!("| {case} |")), "{document} lacks {row}");
        }
        assert!(!text.contains("**failed**"), "{document} was written by a run that failed");
    }
    assert!(written >= 1);
}
