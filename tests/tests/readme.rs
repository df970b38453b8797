//! The README's table of settings, held against the code.

use leasekeeper_extension::settings::VARIABLES;
use std::fs;
use std::path::Path;

#[test]
fn the_table_of_settings_is_the_codes_own() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(path).expect("README.md is there");
    let shown: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `LEASEKEEPER_")).collect();
    let expected: Vec<String> = VARIABLES
        .iter()
        .map(|variable| format!("| `{}` | {} | {} |", variable.name, variable.default, variable.meaning))
        .collect();
    assert!(shown == expected, "the README's table of settings must have exactly these rows:\n{}", expected.join("\n"));
}
