//! What people ask of the lock table, and `run`: one command, one process, one exit code.

mod arguments;
mod break_row;
mod help;
mod inspect;
mod list;
mod problem;
mod run;
mod shown;
mod table;
mod table_check;
mod table_create;

pub use help::SUMMARY;

use arguments::{Command, Stop};
use problem::{Kind, Problem};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use table::Table;

/// Performs the command that these arguments, without the program's name, ask for.
pub fn perform(arguments: &[OsString]) -> ExitCode {
    let (common, command) = match arguments::read(arguments) {
        Ok(read) => read,
        Err(Stop::Help(topic)) => {
            say(&topic.text());
            return ExitCode::SUCCESS;
        }
        Err(Stop::Wrong(topic, text)) => {
            let command = topic.map(|topic| format!(" {}", topic.name())).unwrap_or_default();
            return fail(&Problem::new(Kind::Usage, format!("{text}: see `leasekeeper{command} --help`")));
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return fail(&Problem::new(Kind::Fault, format!("the asynchronous runtime cannot be started: {error}")));
        }
    };
    let code = runtime.block_on(async {
        let table = || Table::named(&common);
        let done = match command {
            Command::Inspect { key, watch } => inspect::perform(&table()?, &key, watch, common.json).await,
            Command::List { prefix } => list::perform(&table()?, &prefix, common.json).await,
            Command::Break { key, version } => break_row::perform(&table()?, &key, &version, common.json).await,
            Command::CreateTable { deletion_protection, point_in_time_recovery } => {
                table_create::perform(&table()?, deletion_protection, point_in_time_recovery, common.json).await
            }
            Command::CheckTable => table_check::perform(&table()?, common.json).await,
            Command::Run(run) => return run::perform(&run, &common).await,
        };
        done.map(|()| ExitCode::SUCCESS)
    });
    // A look-up of a host name must not hold the end back.
    runtime.shutdown_background();
    match code {
        Ok(code) => code,
        Err(problem) => fail(&problem),
    }
}

fn fail(problem: &Problem) -> ExitCode {
    note(&problem.to_string());
    ExitCode::from(problem.kind.code())
}

/// What was asked for. A reader that has left, such as `head`, is no fault.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// What is said beside it, for people.
fn note(text: &str) {
    let _ = std::io::stderr().write_all(format!("leasekeeper: {text}\n").as_bytes());
}
