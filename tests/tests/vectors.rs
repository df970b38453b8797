//! The shared test vectors of `leasekeeper`'s key templates, and how many vectors there are; `tests/vectors/README.md` has the format.

#[path = "../vectors/cases.rs"]
mod cases;

use cases::text;
use leasekeeper::{Key, KeyTemplate, LockError};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;

fn cases(file: &str) -> Vec<Value> {
    cases::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors"), file)
}

#[test]
fn key_templates_give_the_keys_that_other_languages_give() {
    for case in cases("keys.json") {
        let name = &case["name"];
        let values = case["values"].as_object().expect("values are an object");
        let values: Vec<_> = values.keys().map(|name| (name.as_str(), text(&case["values"], name))).collect();
        let values: Vec<_> = values.iter().map(|(name, value)| (*name, value as &dyn Display)).collect();
        let key: Result<Key, LockError> =
            KeyTemplate::parse(text(&case, "template")).and_then(|template| template.render(&values));
        match key {
            Ok(key) => assert_eq!(json!(key.as_str()), case["key"], "{name}"),
            Err(error) => assert_eq!(json!(error.code()), case["error"], "{name}: {error}"),
        }
    }
}

#[test]
fn there_are_enough_vectors_and_each_has_a_name_of_its_own() {
    let files = [
        "requests_valid.json",
        "requests_invalid.json",
        "server_lines.json",
        "words.json",
        "keys.json",
        "budgets.json",
    ];
    let mut total = 0;
    for file in files {
        let mut names: Vec<String> = cases(file).iter().map(|case| text(case, "name").to_owned()).collect();
        total += names.len();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{file} uses a name twice");
    }
    assert!(total >= 150, "{total}");
}
