//! The command line of each command.

use super::help::Topic;
use crate::settings::values;
use leasekeeper_wire::MAX_KEY;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::time::Duration;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Inspect {
        key: String,
        /// How long to watch; for the row's whole lease if absent.
        watch: Option<Duration>,
    },
    List {
        prefix: String,
    },
    Break {
        key: String,
        version: String,
    },
    CreateTable {
        deletion_protection: bool,
        point_in_time_recovery: bool,
    },
    CheckTable,
    Run(Run),
}

/// What `run` is to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) key: String,
    /// In milliseconds, as typed: they stand in for the settings of the same name.
    pub(super) wait_ms: Option<u64>,
    pub(super) lease_ms: Option<u64>,
    /// Between SIGTERM and SIGKILL.
    pub(super) kill_after: Duration,
    pub(super) sidecar: bool,
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
}

/// Where the table is, and how answers look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Common {
    pub(super) table: Option<String>,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) json: bool,
}

/// Why there is no command to perform.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// This help was asked for.
    Help(Topic),
    /// What is wrong with the command line.
    Wrong(Option<Topic>, String),
}

/// Reads the arguments after the program's name.
pub(super) fn read(arguments: &[OsString]) -> Result<(Common, Command), Stop> {
    let mut words = arguments.iter().map(|word| word.to_str());
    let topic = match words.next().flatten() {
        Some("inspect") => Topic::Inspect,
        Some("list") => Topic::List,
        Some("break") => Topic::Break,
        Some("table") => Topic::Table,
        Some("run") => Topic::Run,
        _ => {
            return Err(Stop::Wrong(
                None,
                format!("{:?} is no command", arguments.first().cloned().unwrap_or_default()),
            ));
        }
    };
    let mut line = Line { topic, parser: Parser::from_args(&arguments[1..]), common: Common::default() };
    let command = line.command().map_err(|stop| match stop {
        Reading::Help => Stop::Help(topic),
        Reading::Wrong(text) => Stop::Wrong(Some(topic), text),
    })?;
    Ok((line.common, command))
}

enum Reading {
    Help,
    Wrong(String),
}

impl From<lexopt::Error> for Reading {
    fn from(error: lexopt::Error) -> Self {
        Self::Wrong(error.to_string())
    }
}

fn wrong<T>(text: impl Into<String>) -> Result<T, Reading> {
    Err(Reading::Wrong(text.into()))
}

/// One argument that is not everybody's.
enum Own {
    Option(String),
    Value(OsString),
}

struct Line {
    topic: Topic,
    parser: Parser,
    common: Common,
}

impl Line {
    fn command(&mut self) -> Result<Command, Reading> {
        match self.topic {
            Topic::Inspect => self.inspect(),
            Topic::List => self.list(),
            Topic::Break => self.break_row(),
            Topic::Table => self.table(),
            Topic::Run => self.run(),
        }
    }

    fn inspect(&mut self) -> Result<Command, Reading> {
        let (mut key, mut watch) = (None, None);
        while let Some(own) = self.next()? {
            match own {
                Own::Option(name) if name == "for" => self.milliseconds(&mut watch, "--for", 0)?,
                Own::Value(value) if key.is_none() => key = Some(key_of(value)?),
                own => return self.unexpected(own),
            }
        }
        match key {
            Some(key) => Ok(Command::Inspect { key, watch: watch.map(Duration::from_millis) }),
            None => wrong("which KEY?"),
        }
    }

    fn list(&mut self) -> Result<Command, Reading> {
        let mut prefix = None;
        while let Some(own) = self.next()? {
            match own {
                Own::Option(name) if name == "prefix" => self.text(&mut prefix, "--prefix")?,
                own => return self.unexpected(own),
            }
        }
        Ok(Command::List { prefix: prefix.unwrap_or_default() })
    }

    fn break_row(&mut self) -> Result<Command, Reading> {
        let (mut key, mut version) = (None, None);
        while let Some(own) = self.next()? {
            match own {
                Own::Option(name) if name == "if-version" => self.text(&mut version, "--if-version")?,
                Own::Value(value) if key.is_none() => key = Some(key_of(value)?),
                own => return self.unexpected(own),
            }
        }
        match (key, version) {
            (Some(key), Some(version)) => Ok(Command::Break { key, version }),
            (None, _) => wrong("which KEY?"),
            (Some(_), None) => wrong(
                "--if-version is required: `leasekeeper inspect` shows the row's version, and whether its holder is alive",
            ),
        }
    }

    fn table(&mut self) -> Result<Command, Reading> {
        let (mut what, mut protection, mut no_recovery) = (None, false, false);
        while let Some(own) = self.next()? {
            match own {
                Own::Option(name) if name == "deletion-protection" => {
                    self.flag(&mut protection, "--deletion-protection")?
                }
                Own::Option(name) if name == "no-point-in-time-recovery" => {
                    self.flag(&mut no_recovery, "--no-point-in-time-recovery")?;
                }
                Own::Value(value) if what.is_none() => what = Some(value),
                own => return self.unexpected(own),
            }
        }
        match what.as_ref().and_then(|what| what.to_str()) {
            Some("create") => {
                Ok(Command::CreateTable { deletion_protection: protection, point_in_time_recovery: !no_recovery })
            }
            Some("check") if protection || no_recovery => {
                wrong("`table check` changes nothing: it takes no such option")
            }
            Some("check") => Ok(Command::CheckTable),
            _ => wrong("`table create` or `table check`?"),
        }
    }

    fn run(&mut self) -> Result<Command, Reading> {
        let mut run = Run::default();
        let (mut key, mut kill_after) = (None, None);
        while let Some(own) = self.next()? {
            match own {
                Own::Option(name) => match name.as_str() {
                    "key" => self.text(&mut key, "--key")?,
                    "wait-ms" => self.milliseconds(&mut run.wait_ms, "--wait-ms", 0)?,
                    "lease-ms" => self.milliseconds(&mut run.lease_ms, "--lease-ms", leasekeeper_wire::MIN_LEASE_MS)?,
                    "kill-after-ms" => self.milliseconds(&mut kill_after, "--kill-after-ms", 0)?,
                    "sidecar" => self.flag(&mut run.sidecar, "--sidecar")?,
                    _ => return self.unexpected(Own::Option(name)),
                },
                // What follows is the command's own, whatever it looks like.
                Own::Value(program) => {
                    run.command = std::iter::once(program).chain(self.parser.raw_args()?).collect();
                    break;
                }
            }
        }
        run.kill_after = kill_after.map_or(Duration::from_secs(5), Duration::from_millis);
        run.key = match key {
            Some(key) => key_of(key.into())?,
            None => return wrong("--key is required"),
        };
        if run.command.is_empty() {
            return wrong("which COMMAND? It follows after `--`");
        }
        let named = &self.common;
        if run.sidecar && (named.table.is_some() || named.region.is_some() || named.endpoint.is_some()) {
            return wrong(
                "the sidecar has its own table: --sidecar goes with none of --table, --region, --endpoint-url",
            );
        }
        if self.common.json {
            return wrong("standard output is the command's: there is no --json");
        }
        Ok(Command::Run(run))
    }

    /// The next argument that is this command's own; everybody's are taken.
    fn next(&mut self) -> Result<Option<Own>, Reading> {
        loop {
            let name = match self.parser.next()? {
                None => return Ok(None),
                Some(Arg::Value(value)) => return Ok(Some(Own::Value(value))),
                Some(Arg::Short('h')) => return Err(Reading::Help),
                Some(Arg::Long(name)) => name.to_owned(),
                Some(other @ Arg::Short(_)) => return Err(other.unexpected().into()),
            };
            match name.as_str() {
                "help" => return Err(Reading::Help),
                "json" => {
                    let mut json = self.common.json;
                    self.flag(&mut json, "--json")?;
                    self.common.json = json;
                }
                "table" => {
                    let mut table = self.common.table.take();
                    self.text(&mut table, "--table")?;
                    let named = values::table(table.as_deref().unwrap_or_default());
                    self.common.table = Some(named.map_err(|must| Reading::Wrong(format!("--table must be {must}")))?);
                }
                "region" => {
                    let mut region = self.common.region.take();
                    self.text(&mut region, "--region")?;
                    self.common.region = region;
                }
                "endpoint-url" => {
                    let mut endpoint = self.common.endpoint.take();
                    self.text(&mut endpoint, "--endpoint-url")?;
                    self.common.endpoint = endpoint;
                }
                _ => return Ok(Some(Own::Option(name))),
            }
        }
    }

    fn unexpected<T>(&self, own: Own) -> Result<T, Reading> {
        match own {
            Own::Option(name) => wrong(format!("--{name} is unknown")),
            Own::Value(value) => wrong(format!("{value:?} is one argument too many")),
        }
    }

    fn text(&mut self, into: &mut Option<String>, name: &str) -> Result<(), Reading> {
        let value = self.parser.value()?;
        let Ok(value) = value.into_string() else { return wrong(format!("{name} is not UTF-8")) };
        if value.is_empty() {
            return wrong(format!("{name} is empty"));
        }
        match into.replace(value) {
            None => Ok(()),
            Some(_) => wrong(format!("{name} is given twice")),
        }
    }

    fn flag(&mut self, into: &mut bool, name: &str) -> Result<(), Reading> {
        if std::mem::replace(into, true) { wrong(format!("{name} is given twice")) } else { Ok(()) }
    }

    /// A day at most, as for the settings.
    fn milliseconds(&mut self, into: &mut Option<u64>, name: &str, least: u64) -> Result<(), Reading> {
        let mut typed = None;
        self.text(&mut typed, name)?;
        let typed = typed.unwrap_or_default();
        match values::milliseconds(least..=leasekeeper_wire::MAX_WAIT_MS)(&typed) {
            Err(must) => wrong(format!("{name} is {typed:?}: it must be {must}")),
            Ok(_) if into.is_some() => wrong(format!("{name} is given twice")),
            Ok(time) => {
                *into = u64::try_from(time.as_millis()).ok();
                Ok(())
            }
        }
    }
}

/// What the lock protocol takes for a key.
fn key_of(value: OsString) -> Result<String, Reading> {
    match value.into_string() {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) => Ok(key),
        Ok(key) => wrong(format!("the key has {} bytes: it must have 1 to {MAX_KEY}", key.len())),
        Err(_) => wrong("the key is not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Common, Command), Stop> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        super::read(&words)
    }

    #[test]
    fn a_commands_own_options_and_everybodys_come_in_any_order() {
        let (common, command) = read("inspect --json c:1 --for 250 --table locks --region=eu-west-1").unwrap();
        assert_eq!(command, Command::Inspect { key: "c:1".into(), watch: Some(Duration::from_millis(250)) });
        assert!(common.json);
        assert_eq!((common.table.as_deref(), common.region.as_deref()), (Some("locks"), Some("eu-west-1")));
        let (_, command) = read("table --deletion-protection create").unwrap();
        assert_eq!(command, Command::CreateTable { deletion_protection: true, point_in_time_recovery: true });
    }

    #[test]
    fn what_follows_the_program_is_its_own() {
        for line in ["run --key k --wait-ms 0 -- make --key x -- y", "run --wait-ms=0 --key k make --key x -- y"] {
            let (_, command) = read(line).unwrap();
            let Command::Run(run) = command else { panic!("{command:?}") };
            assert_eq!(run.command, ["make", "--key", "x", "--", "y"], "{line}");
            assert_eq!((run.key.as_str(), run.wait_ms, run.sidecar), ("k", Some(0), false), "{line}");
        }
    }

    #[test]
    fn help_is_given_wherever_it_is_asked_for_but_not_for_the_command_that_is_run() {
        for (line, topic) in
            [("inspect --help", Topic::Inspect), ("run -h", Topic::Run), ("table create --help", Topic::Table)]
        {
            assert_eq!(read(line), Err(Stop::Help(topic)), "{line}");
        }
        assert!(matches!(read("run --key k -- ls --help"), Ok((_, Command::Run(_)))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("inspekt k", "\"inspekt\" is no command"),
            ("inspect", "which KEY?"),
            ("inspect k l", "\"l\" is one argument too many"),
            ("inspect k --for", "missing argument for option '--for'"),
            ("inspect k --for 1s", "--for is \"1s\": it must be a whole number of milliseconds from 0 to 86400000"),
            ("inspect k --for 1 --for 2", "--for is given twice"),
            ("inspect k --watch", "--watch is unknown"),
            ("inspect k -x", "invalid option '-x'"),
            ("inspect k --json=yes", "unexpected argument for option '--json'"),
            ("inspect k --table a/b", "--table must be the name"),
            ("list all", "\"all\" is one argument too many"),
            ("break k", "--if-version is required"),
            ("break k --if-version=", "--if-version is empty"),
            ("list --region=", "--region is empty"),
            ("list --endpoint-url=", "--endpoint-url is empty"),
            ("break --if-version v", "which KEY?"),
            ("table", "`table create` or `table check`?"),
            ("table drop", "`table create` or `table check`?"),
            ("table check --deletion-protection", "changes nothing"),
            ("run --key k", "which COMMAND?"),
            ("run --key k --", "which COMMAND?"),
            ("run -- ls", "--key is required"),
            ("run --key= -- ls", "--key is empty"),
            ("run --key k --lease-ms 99 -- ls", "from 100 to 86400000"),
            ("run --key k --sidecar --table locks -- ls", "the sidecar has its own table"),
            ("run --key k --json -- ls", "no --json"),
        ] {
            match read(line) {
                Err(Stop::Wrong(_, text)) => assert!(text.contains(part), "{line}: {text}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        assert!(
            matches!(read(&format!("inspect {}", "k".repeat(2_049))), Err(Stop::Wrong(_, text)) if text.contains("2049"))
        );
    }
}
