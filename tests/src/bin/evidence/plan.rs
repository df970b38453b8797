//! A table of claims: each row with the tests or the command that hold it.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use testkit::programs::repository;

/// One file of `tests/evidence`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// Where the table is written to; what stands there before its first table line is kept.
    pub(crate) document: String,
    /// What a reader runs to get it anew.
    pub(crate) command: String,
    /// Variables that make tests do more than they do every day.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// Its name in the figures that tests note.
    pub(crate) row: String,
    pub(crate) case: String,
    pub(crate) holds: String,
    #[serde(default)]
    pub(crate) tests: Vec<Test>,
    /// Run from the repository; it holds if this succeeds.
    #[serde(default)]
    pub(crate) commands: Vec<String>,
}

/// `package::target::path::of::the::test`.
#[derive(Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub(crate) struct Test {
    pub(crate) package: String,
    /// An integration test's name, or `lib`.
    pub(crate) target: String,
    pub(crate) name: String,
}

impl FromStr for Test {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, "::").map(String::from);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(package), Some(target), Some(name)) => Ok(Self { package, target, name }),
            _ => Err(format!("{text} is not package::target::test")),
        }
    }
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}::{}", self.package, self.target, self.name)
    }
}

impl Plan {
    pub(crate) fn read(name: &str) -> Result<Self, String> {
        let path = repository(&format!("tests/evidence/{name}.json"));
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
