//! Who may know whom: the manifests, the one file that reads clocks, and the size of files.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CORE: &str = "leasekeeper-core";
const WIRE: &str = "leasekeeper-wire";
const HELPER: &str = "leasekeeper";
const EXTENSION: &str = "leasekeeper-extension";
const EXAMPLE: &str = "leasekeeper-example";
const TESTS: &str = "leasekeeper-tests";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is inside the workspace").to_path_buf()
}

/// One line of a manifest.
struct Dependency {
    name: String,
    /// `normal`, `build` or `dev`.
    kind: String,
    optional: bool,
}

/// Every package of the workspace with what its manifest asks for.
fn manifests() -> BTreeMap<String, Vec<Dependency>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().expect("there are packages");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("a list, perhaps empty").iter();
            let dependencies = dependencies.map(|dependency| Dependency {
                name: text(&dependency["name"]).expect("a dependency has a name"),
                kind: text(&dependency["kind"]).unwrap_or_else(|| "normal".into()),
                optional: dependency["optional"] == true,
            });
            (text(&package["name"]).expect("a package has a name"), dependencies.collect())
        })
        .collect()
}

/// What a package is built with, without what only its tests need.
fn built_with<'a>(manifests: &'a BTreeMap<String, Vec<Dependency>>, package: &str) -> BTreeSet<&'a str> {
    manifests[package].iter().filter(|d| d.kind != "dev").map(|d| d.name.as_str()).collect()
}

#[test]
fn packages_of_the_workspace_know_only_whom_the_design_lets_them_know() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::from([
        (CORE, BTreeSet::new()),
        (WIRE, BTreeSet::new()),
        (HELPER, BTreeSet::from([WIRE])),
        (EXTENSION, BTreeSet::from([CORE, WIRE])),
        (EXAMPLE, BTreeSet::from([HELPER])),
        (TESTS, BTreeSet::from([CORE, WIRE, HELPER, EXTENSION])),
    ]);
    let manifests = manifests();
    let names: BTreeSet<&str> = manifests.keys().map(String::as_str).collect();
    assert_eq!(names, allowed.keys().copied().collect(), "a package has come or gone: say here whom it may know");
    for (package, dependencies) in &manifests {
        // Tests included: a test that needs another package belongs to the tests package.
        let known: BTreeSet<&str> =
            dependencies.iter().map(|d| d.name.as_str()).filter(|d| names.contains(d)).collect();
        assert_eq!(known, allowed[package.as_str()], "{package}");
    }
}

#[test]
fn the_core_is_built_with_nothing_and_the_wire_with_serde_alone() {
    let manifests = manifests();
    assert_eq!(built_with(&manifests, CORE), BTreeSet::new());
    assert_eq!(built_with(&manifests, WIRE), BTreeSet::from(["serde", "serde_json"]));
}

#[test]
fn a_function_gets_the_aws_sdk_from_the_helper_only_if_it_asks() {
    for dependency in &manifests()[HELPER] {
        let sdk = dependency.name.starts_with("aws-") && dependency.kind != "dev";
        assert!(!sdk || dependency.optional, "{} must be optional", dependency.name);
    }
}

#[test]
fn the_emulator_stays_in_the_tests() {
    for (package, dependencies) in manifests() {
        let emulator = dependencies.iter().any(|d| d.name.contains("dynoxide"));
        assert_eq!(emulator, package == TESTS, "{package}");
    }
}

#[test]
fn only_one_file_of_the_extension_reads_clocks() {
    // Clippy finds the readings; here is looked at who may silence it.
    let rules = fs::read_to_string(root().join("extension/clippy.toml")).expect("extension/clippy.toml is there");
    for method in [
        "std::time::Instant::now",
        "std::time::SystemTime::now",
        "tokio::time::Instant::now",
        "rustix::time::clock_gettime",
    ] {
        assert!(rules.contains(&format!("\"{method}\"")), "{method} is not among the disallowed methods");
    }
    let silencing: Vec<_> = sources(&root().join("extension"))
        .into_iter()
        .filter(|file| fs::read_to_string(file).expect("sources are UTF-8").contains("disallowed_methods"))
        .collect();
    assert_eq!(silencing, [root().join("extension/src/clock.rs")]);
}

#[test]
fn every_file_can_be_read_in_one_sitting() {
    let files = sources(&root());
    assert!(files.len() > 20, "the walk found the sources");
    for file in files {
        let lines = fs::read_to_string(&file).expect("sources are UTF-8").lines().count();
        assert!(lines < 500, "{} has {lines} lines", file.display());
    }
}

/// Every file of code below a directory, without what is built or downloaded.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the project") {
            let path = entry.expect("an entry of the project").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned();
            if path.is_dir() {
                let hidden = name.starts_with('.') && name != ".ci";
                if !hidden && name != "target" && name != "node_modules" && name != "__pycache__" {
                    directories.push(path);
                }
            } else if ["rs", "py", "mjs", "js", "ts"].iter().any(|kind| path.extension().is_some_and(|e| e == *kind))
                || directory.ends_with("scripts")
                || directory.ends_with(".ci")
            {
                found.push(path);
            }
        }
    }
    found
}
