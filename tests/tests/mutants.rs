//! The mutations that no test notices: each is explained, and each explanation is of code that is there.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::programs::repository;

/// `tests/evidence/mutants.json`, which `scripts/mutants` holds against a run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    run: Run,
    survivors: Vec<Survivor>,
}

/// What the last run found.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    commit: String,
    date: String,
    /// A hash of the sources that were mutated.
    sources: String,
    packages: BTreeMap<String, Counts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    caught: u64,
    /// Caught too: the tests did not come to an end.
    endless: u64,
    missed: u64,
    /// Not compilable.
    unviable: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    file: String,
    function: String,
    /// The line that is mutated, without its indentation.
    line: String,
    mutation: String,
    /// Why no test can, or need, notice it.
    why: String,
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn record() -> Record {
    serde_json::from_str(&read(&repository("tests/evidence/mutants.json"))).expect("the record's form")
}

/// What the mutation takes away, as far as its description quotes it.
fn mutated(mutation: &str) -> &str {
    let rest = mutation.strip_prefix("replace match guard ").or(mutation.strip_prefix("replace "));
    let rest = rest.or(mutation.strip_prefix("delete match arm ")).or(mutation.strip_prefix("delete "));
    rest.expect("it replaces or deletes").split(" with ").next().expect("split gives one part")
}

#[test]
fn every_explained_survivor_is_a_mutation_of_code_that_is_there() {
    for survivor in record().survivors {
        let Survivor { file, function, line, mutation, why } = survivor;
        let of = format!("{file}, {function}: {mutation}");
        let source = read(&repository(&file));
        let name = function.rsplit("::").next().expect("rsplit gives one part");
        // A closure or an item outside functions has no name of its own.
        let start = source.find(&format!("fn {name}")).unwrap_or_else(|| panic!("{of}: no such function"));
        let place = source[start..].lines().position(|found| found.trim() == line);
        assert!(place.is_some(), "{of}: the line is not there: {line}");
        let whole = mutated(&mutation).starts_with(&function);
        assert!(whole || line.contains(mutated(&mutation)), "{of}: nothing to mutate in {line}");
        assert!(why.len() > 40 && why.ends_with('.'), "{of}: say why no test notices it");
    }
}

#[test]
fn of_the_last_run_at_least_95_of_100_mutations_were_noticed() {
    let Record { run, survivors } = record();
    let mut explained = 0;
    for (package, counts) in &run.packages {
        let noticed = counts.caught + counts.endless;
        let all = noticed + counts.missed;
        explained += counts.missed;
        assert!(all > 50 && noticed * 100 >= all * 95, "{package}: {noticed} of {all}");
        let percent = noticed as f64 / all as f64 * 100.0;
        println!("figure: mutants | noticed, {package} | {noticed} of {all} ({percent:.1} %)");
        println!("figure: mutants | not compilable, {package} | {}", counts.unviable);
    }
    assert_eq!(survivors.len() as u64, explained, "each survivor is explained, and nothing else");
    println!("figure: mutants | explained survivors | {explained}");
    let since =
        if run.sources == fingerprint() { "the sources are as they were" } else { "the sources have changed since" };
    println!("figure: mutants | run | {} at {}: {since}", run.date, run.commit);
}

/// As `scripts/mutants` makes it: FNV-1a over the mutated sources, in the order of their names.
fn fingerprint() -> String {
    let mut value: u64 = 0xCBF2_9CE4_8422_2325;
    for directory in ["extension/core/src", "runtime-lib/wire/src"] {
        let entries = std::fs::read_dir(repository(directory)).expect("a directory of sources");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        for byte in files.iter().flat_map(|file| std::fs::read(file).expect("a source file")) {
            value = (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
    format!("{value:016x}")
}
