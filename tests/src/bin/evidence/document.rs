//! The table as a document: each claim, what was measured for it, and what holds it.

use crate::plan::{Plan, Row};
use crate::run::Results;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;
use testkit::programs::repository;

/// The line between what people write and what is generated.
const MARK: &str = "<!-- What follows is written by the command it names. -->";

pub(crate) enum Verdict {
    Passed,
    /// A test said `skipped:` and why, where this machine cannot do what it needs.
    Skipped,
    /// These failed or did not run.
    Failed(Vec<String>),
}

pub(crate) fn verdict(row: &Row, results: &Results) -> Verdict {
    let held_by = row.tests.iter().map(ToString::to_string).chain(row.commands.iter().cloned());
    let failed: Vec<String> = held_by.filter(|name| results.passed.get(name) != Some(&true)).collect();
    if !failed.is_empty() || (row.tests.is_empty() && row.commands.is_empty()) {
        return Verdict::Failed(failed);
    }
    let figures = results.figures.get(&row.row).map(Vec::as_slice).unwrap_or_default();
    if figures.iter().any(|(_, value)| value.starts_with("skipped")) { Verdict::Skipped } else { Verdict::Passed }
}

/// The whole document: its head as it stands, then the table.
pub(crate) fn write(plan: &Plan, results: &Results) -> String {
    let old = std::fs::read_to_string(repository(&plan.document)).unwrap_or_default();
    let head = old.split(MARK).next().unwrap_or_default().trim_end();
    let mut text = format!("{head}\n\n{MARK}\n\n");
    let _ = writeln!(text, "`{}`, {} s, {}:\n", plan.command, results.seconds, machine());
    text.push_str("| | case | must hold | seen | held by |\n|---|---|---|---|---|\n");
    for row in &plan.rows {
        let mark = match verdict(row, results) {
            Verdict::Passed => "✓".into(),
            Verdict::Skipped => "skipped".into(),
            Verdict::Failed(tests) => format!("**failed**: {}", tests.join(", ")),
        };
        // One that is run on several stores has one name.
        let names: BTreeSet<&str> = row.tests.iter().filter_map(|test| test.name.rsplit("::").next()).collect();
        let held_by: Vec<String> =
            names.into_iter().chain(row.commands.iter().map(String::as_str)).map(|name| format!("`{name}`")).collect();
        let _ = writeln!(
            text,
            "| {mark} | {} | {} | {} | {} |",
            row.case,
            row.holds,
            figures(row, results),
            held_by.join("<br>")
        );
    }
    text
}

/// One line for each thing measured, with its range where it was measured often.
fn figures(row: &Row, results: &Results) -> String {
    let noted = results.figures.get(&row.row).map(Vec::as_slice).unwrap_or_default();
    let mut whats: Vec<&str> = Vec::new();
    for (what, _) in noted {
        if !whats.contains(&what.as_str()) {
            whats.push(what);
        }
    }
    let line = |what: &&str| {
        let values: Vec<&str> = noted.iter().filter(|(of, _)| of == what).map(|(_, value)| value.as_str()).collect();
        format!("{what}: {}", range(&values))
    };
    whats.iter().map(line).collect::<Vec<_>>().join("<br>")
}

/// `3 to 12 ms (20 times)` of figures with one unit; else all of them.
fn range(values: &[&str]) -> String {
    let [first, .., _] = values else { return values.concat() };
    let unit = |value: &str| value.split_once(' ').map(|(_, unit)| unit.to_owned());
    let number = |value: &str| value.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    let numbers: Option<Vec<f64>> = values.iter().map(|value| number(value)).collect();
    match (numbers, unit(first)) {
        (Some(numbers), Some(shared)) if values.iter().all(|value| unit(value).as_ref() == Some(&shared)) => {
            let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{least} to {most} {shared} ({} times)", values.len())
        }
        _ => values.join(", "),
    }
}

/// What it ran on, as far as a figure depends on it.
fn machine() -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(repository("")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let parts = [
        said("git", &["describe", "--always", "--dirty"]).map(|commit| format!("commit {commit}")),
        said("date", &["-u", "+%Y-%m-%d"]),
        Some(format!("{cpus} CPUs")),
        said("rustc", &["--version"]).and_then(|line| line.split(" (").next().map(String::from)),
        said("uname", &["-sr"]).and_then(|line| line.split('-').next().map(String::from)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
