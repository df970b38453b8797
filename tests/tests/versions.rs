//! One version and one pair of licences for everything that is published.

use serde_json::Value;
use std::fs;
use testkit::programs::repository;

fn text(path: &str) -> String {
    let path = repository(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between `before` and the next quotation mark, for every `before` in the text.
fn quoted_after<'t>(text: &'t str, before: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(before).skip(1).map(|rest| rest.split('"').next().unwrap_or_default())
}

#[test]
fn everything_has_the_workspaces_version() {
    let version = env!("CARGO_PKG_VERSION");
    let manifest = text("Cargo.toml");
    let own: Vec<_> = manifest.lines().filter(|line| line.starts_with("leasekeeper")).collect();
    assert!(own.len() >= 3, "packages of the workspace that depend on each other: {own:?}");
    for line in own {
        let asked: Vec<_> = quoted_after(line, "version = \"").collect();
        assert_eq!(asked, [version], "{line}");
    }
    let package: Value = serde_json::from_str(&text("layer/nodejs/leasekeeper/package.json")).expect("JSON");
    assert_eq!(package["version"], version, "package.json");
    let python = text("layer/python/leasekeeper/__init__.py");
    assert_eq!(quoted_after(&python, "__version__ = \"").collect::<Vec<_>>(), [version], "__init__.py");
    let changes = text("CHANGELOG.md");
    let latest = changes.lines().find_map(|line| line.strip_prefix("## ")).expect("a version in CHANGELOG.md");
    assert_eq!(latest.split_whitespace().next(), Some(version), "CHANGELOG.md: the first heading");
}

#[test]
fn what_is_published_alone_brings_its_licences() {
    let packages = ["extension", "extension/core", "runtime-lib", "runtime-lib/wire", "layer/python"];
    for package in packages.into_iter().chain(["layer/nodejs/leasekeeper"]) {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert_eq!(text(&format!("{package}/{licence}")), text(licence), "{package}/{licence}");
        }
    }
}
