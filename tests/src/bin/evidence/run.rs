//! Runs a table's tests, one after the other so that they measure themselves alone, and reads what they say.

use crate::plan::{Plan, Test};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;
use testkit::programs::repository;

/// What came of a table's tests.
#[derive(Default)]
pub(crate) struct Results {
    /// By test or command: whether it passed. One that is missing did not run.
    pub(crate) passed: BTreeMap<String, bool>,
    /// By row, then by what was measured, in the order noted.
    pub(crate) figures: BTreeMap<String, Vec<(String, String)>>,
    pub(crate) seconds: u64,
}

pub(crate) fn run(plan: &Plan) -> Results {
    let started = Instant::now();
    let mut results = Results::default();
    let mut groups: BTreeMap<(&str, &str), BTreeSet<&Test>> = BTreeMap::new();
    for test in plan.rows.iter().flat_map(|row| &row.tests) {
        groups.entry((&test.package, &test.target)).or_default().insert(test);
    }
    for ((package, target), tests) in groups {
        println!("\n== {package}, {target}: {} tests", tests.len());
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["test", "--quiet", "--locked", "--package", package]);
        match target {
            "lib" => command.arg("--lib"),
            _ => command.args(["--test", target]),
        };
        // `--format pretty`: cargo's --quiet would make the tests themselves say dots only.
        command.args(["--", "--exact", "--test-threads=1", "--show-output", "--format", "pretty"]);
        command.args(tests.iter().map(|test| test.name.as_str()));
        command.envs(&plan.environment);
        say(command, &mut results, |line, results| {
            let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
                return;
            };
            if let Some(test) = tests.iter().find(|test| test.name == name) {
                results.passed.insert(test.to_string(), verdict == "ok");
            }
        });
    }
    let commands: BTreeSet<&String> = plan.rows.iter().flat_map(|row| &row.commands).collect();
    for line in commands {
        println!("\n== {line}");
        let mut command = Command::new("sh");
        command.args(["-c", line]).envs(&plan.environment);
        let passed = say(command, &mut results, |_, _| ());
        results.passed.insert(line.clone(), passed);
    }
    results.seconds = started.elapsed().as_secs();
    results
}

/// Runs it from the repository, shows its lines as they come, and keeps its figures. Whether it succeeded.
fn say(mut command: Command, results: &mut Results, mut each: impl FnMut(&str, &mut Results)) -> bool {
    let mut child = match command.current_dir(repository("")).stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("{command:?} cannot be run: {error}");
            return false;
        }
    };
    let output = child.stdout.take().expect("its output is piped");
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        println!("{line}");
        if let Some(figure) = line.strip_prefix("figure: ") {
            let mut parts = figure.splitn(3, " | ");
            if let (Some(row), Some(what), Some(value)) = (parts.next(), parts.next(), parts.next()) {
                results.figures.entry(row.into()).or_default().push((what.into(), value.into()));
            }
        }
        each(&line, results);
    }
    child.wait().is_ok_and(|status| status.success())
}
