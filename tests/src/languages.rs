//! The tests' function in each language of a handler: the same events, deeds and words in all three.

use crate::dynamo::Dynamo;
use crate::programs::{built, node_path, python_path, repository};
use crate::rie::RieConfig;
use crate::sandbox::{Builder, Program, Sandbox};
use std::fmt;

/// What a handler is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `tests/src/bin/function.rs`.
    Rust,
    /// `tests/functions/python/locks.py`, in the tests' own Runtime API loop.
    Python,
    /// `tests/functions/node/locks.mjs`, in the tests' own Runtime API loop.
    Node,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Language {
    /// The function.
    ///
    /// # Panics
    /// What it needs was not built or fetched; says what to do.
    pub fn function(self) -> Program {
        match self {
            Self::Rust => Program::new(built("function")),
            Self::Python => {
                let interpreter = repository(".tools/python/bin/python");
                assert!(interpreter.is_file(), "{} is missing: run `make tools`", interpreter.display());
                let loops = repository("tests/functions/python/bootstrap.py");
                // Unbuffered, so that its last words are out before it dies.
                Program::new(interpreter).arg("-u").arg(loops).arg(repository("tests/functions/python/locks.py"))
            }
            Self::Node => {
                // By its path, which AWS's emulator wants.
                let paths = std::env::var_os("PATH").expect("PATH is set");
                let node = std::env::split_paths(&paths).map(|folder| folder.join("node")).find(|path| path.is_file());
                let loops = repository("tests/functions/node/runtime.mjs");
                Program::new(node.expect("node is on PATH"))
                    .arg(loops)
                    .arg(repository("tests/functions/node/locks.mjs"))
            }
        }
    }

    /// The same under AWS's own emulator, and in Python in AWS's own runtime client.
    ///
    /// # Panics
    /// What it needs was not fetched; says what to do.
    pub fn emulated(self, dynamo: &Dynamo, timeout_s: u32) -> RieConfig {
        let mut env: Vec<_> = dynamo.env().into_iter().chain(self.variables()).collect();
        env.push(("LEASEKEEPER_PLAIN_KEYS", "true".to_owned()));
        let (runtime, directory) = match self {
            Self::Python => {
                let interpreter = repository(".tools/awslambdaric/bin/python");
                assert!(interpreter.is_file(), "{} is missing: run `make tools`", interpreter.display());
                let client = Program::new(interpreter).arg("-u").arg("-m").arg("awslambdaric").arg("locks.handler");
                (client, repository("tests/functions/python"))
            }
            Self::Rust | Self::Node => (self.function(), repository(".")),
        };
        RieConfig {
            extension: built("leasekeeper"),
            runtime,
            directory,
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            timeout_s,
            concurrency: None,
        }
    }

    /// Where it finds its package: that of the layer.
    pub fn variables(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Rust => Vec::new(),
            Self::Python => vec![
                ("PYTHONPATH", python_path().to_string_lossy().into_owned()),
                ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ],
            Self::Node => vec![("NODE_PATH", node_path().to_string_lossy().into_owned())],
        }
    }

    /// An environment with this function and the extension.
    pub fn environment(self, dynamo: &Dynamo) -> Builder {
        Sandbox::builder()
            .extension(built("leasekeeper"))
            .runtime(self.function())
            .envs(dynamo.env())
            .envs(self.variables())
            .env("LEASEKEEPER_PLAIN_KEYS", "true")
    }

    /// What Lambda calls an error of Leasekeeper's by this name: `Lost`.
    pub fn error(self, name: &str) -> String {
        match self {
            Self::Python => name.to_owned(),
            Self::Rust | Self::Node => format!("Leasekeeper.{name}"),
        }
    }
}
