//! `make lifecycle` and `make proof`: runs the tests that a table of claims names and writes the table with what they measured.

mod document;
mod plan;
mod run;

use plan::Plan;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: evidence TABLE, one of tests/evidence/TABLE.json");
        return ExitCode::from(2);
    };
    let plan = match Plan::read(&name) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("evidence: {error}");
            return ExitCode::from(2);
        }
    };
    let results = run::run(&plan);
    let text = document::write(&plan, &results);
    if let Err(error) = std::fs::write(testkit::programs::repository(&plan.document), text) {
        eprintln!("evidence: {}: {error}", plan.document);
        return ExitCode::FAILURE;
    }
    println!("\nThe table with its figures: {}", plan.document);
    let count = |state: fn(&document::Verdict) -> bool| {
        plan.rows.iter().filter(|row| state(&document::verdict(row, &results))).count()
    };
    let passed = count(|verdict| matches!(verdict, document::Verdict::Passed));
    let skipped = count(|verdict| matches!(verdict, document::Verdict::Skipped));
    let failed = plan.rows.len() - passed - skipped;
    let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("{passed} passed, {failed} failed{skipped}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
