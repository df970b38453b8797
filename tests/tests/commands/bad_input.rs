//! Every command with every kind of bad input: one plain sentence that says what to do, an exit code, and nothing changed.

use crate::{COMMANDS, Ended, finish, leasekeeper};
use serde_json::{Value, json};
use testkit::dynamo::{Dynamo, Fault, Operation, row};
use testkit::sidecar::Sidecar;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Inspect,
    List,
    Break,
    TableCheck,
    TableCreate,
    Run,
    RunThroughSidecar,
    Serve,
    Ping,
}

use Command::{Break, Inspect, List, Ping, Run, RunThroughSidecar, Serve, TableCheck, TableCreate};

const COMMANDS_ALL: [Command; 9] = [Inspect, List, Break, TableCheck, TableCreate, Run, RunThroughSidecar, Serve, Ping];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    WrongFlag,
    MissingTable,
    MissingPermission,
    UnreachableEndpoint,
    /// Another library's row under the key.
    NoLockRow,
}

use Input::{MissingPermission, MissingTable, NoLockRow, UnreachableEndpoint, WrongFlag};

const INPUTS: [Input; 5] = [WrongFlag, MissingTable, MissingPermission, UnreachableEndpoint, NoLockRow];

/// What must come of it.
enum Expected {
    /// This exit code, and these words.
    Fails(i32, &'static [&'static str]),
    /// It is no bad input for this command.
    Fine,
}

use Expected::{Fails, Fine};

const SIDECARS: &str = "this is what the sidecar says";

fn expected(command: Command, input: Input) -> Expected {
    match (input, command) {
        (WrongFlag, Serve | Ping) => Fails(2, &["takes no arguments", "see `leasekeeper --help`"]),
        (WrongFlag, _) => Fails(2, &["--frobnicate is unknown", "see `leasekeeper ", " --help`"]),
        // It asks nothing of the table.
        (_, Ping) => Fine,
        (MissingTable, RunThroughSidecar) => Fails(78, &["there is no table `missing` in Region", SIDECARS]),
        (MissingTable, _) => Fails(78, &["there is no table `missing` in Region", "check the table's name"]),
        (MissingPermission, RunThroughSidecar) => Fails(77, &["AccessDeniedException", SIDECARS]),
        (MissingPermission, _) => Fails(77, &["AccessDeniedException", "dynamodb:", "their policy allows the action"]),
        (UnreachableEndpoint, RunThroughSidecar) => Fails(69, &["Connection refused", SIDECARS]),
        (UnreachableEndpoint, _) => {
            Fails(69, &["Connection refused", "check the Region, the endpoint and the network"])
        }
        // They look at no one key.
        (NoLockRow, List | TableCheck | TableCreate) => Fine,
        (NoLockRow, _) => Fails(65, &["protocol version 1", "`protocol` is missing", "left alone"]),
    }
}

fn arguments(command: Command, key: &str) -> Vec<&str> {
    match command {
        Inspect => vec!["inspect", key],
        List => vec!["list"],
        Break => vec!["break", key, "--if-version", "v"],
        TableCheck => vec!["table", "check"],
        TableCreate => vec!["table", "create"],
        Run => vec!["run", "--wait-ms", "0", "--key", key, "--", "touch", "ran"],
        RunThroughSidecar => vec!["run", "--sidecar", "--wait-ms", "0", "--key", key, "--", "touch", "ran"],
        Serve => vec!["serve"],
        Ping => vec!["ping"],
    }
}

fn foreign() -> Value {
    json!({"key": {"S": "foreign"}, "leaseDuration": {"S": "20000"}})
}

/// Runs the command where this is wrong.
async fn run(dynamo: &Dynamo, command: Command, input: Input) -> Ended {
    let key = match (input, command) {
        (NoLockRow, _) => "foreign",
        (_, Break | Inspect) => "k",
        _ => "free",
    };
    let mut line = arguments(command, key);
    let mut surroundings: Vec<(&str, String)> = Vec::new();
    match input {
        WrongFlag => line.insert(1, "--frobnicate"),
        MissingTable => surroundings.push(("LEASEKEEPER_TABLE", "missing".into())),
        MissingPermission => drop(dynamo.fail(Operation::Any, Fault::AccessDenied).always()),
        UnreachableEndpoint => {
            // Nobody listens on a port that was free a moment ago.
            let bound = std::net::TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr());
            let endpoint = format!("http://{}", bound.expect("a port"));
            surroundings.push(("AWS_ENDPOINT_URL_DYNAMODB", endpoint));
        }
        NoLockRow => {}
    }
    let home = tempfile::tempdir().expect("a directory");
    let mut program = leasekeeper(dynamo, COMMANDS, &line);
    program.current_dir(home.path()).envs(surroundings.iter().map(|(name, value)| (*name, value)));
    let mut sidecar = None;
    if matches!(command, RunThroughSidecar | Ping) {
        let variables: Vec<_> = surroundings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let started = Sidecar::start(dynamo, "sidecar", &variables).await;
        program.env("LEASEKEEPER_SOCKET", started.socket());
        sidecar = Some(started);
    }
    let ended = finish(program.spawn().expect("the program starts")).await;
    assert!(!home.path().join("ran").exists(), "no command runs without its lock: {ended:?}");
    assert!(sidecar.is_none_or(|mut sidecar| sidecar.is_running()), "a sidecar lives on");
    ended
}

fn assert_nothing_changed(dynamo: &Dynamo, cell: &str) {
    assert_eq!(dynamo.item("k"), Some(row("k", "o", "v", 20_000)), "{cell}");
    assert_eq!(dynamo.item("foreign"), Some(foreign()), "{cell}");
    assert_eq!(dynamo.item("free"), None, "{cell}");
    let reads = [
        Operation::GetItem,
        Operation::Scan,
        Operation::DescribeTable,
        Operation::DescribeTimeToLive,
        Operation::DescribeContinuousBackups,
    ];
    let written =
        dynamo.requests().into_iter().find(|sent| sent.status == Some(200) && !reads.contains(&sent.operation));
    assert!(written.is_none(), "{cell}: {written:?}");
}

async fn check(command: Command, input: Input) {
    let cell = format!("{command:?} with {input:?}");
    let expected = expected(command, input);
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "o", "v", 20_000));
    dynamo.put_raw(foreign());
    let ended = run(&dynamo, command, input).await;
    match expected {
        Fails(code, parts) => {
            assert_eq!((ended.code, ended.out.as_str()), (Some(code), ""), "{cell}: {ended:?}");
            for part in parts {
                assert!(ended.err.contains(part), "{cell}: no {part:?} in {ended:?}");
            }
            // The sentence, and what to do.
            assert!(ended.err.starts_with("leasekeeper: ") && ended.err.lines().count() <= 2, "{cell}: {ended:?}");
            // No words of a program.
            for alien in ["{ ", "panicked", "Some(", "Err(", "\u{1b}"] {
                assert!(!ended.err.contains(alien), "{cell}: {ended:?}");
            }
        }
        Fine => assert_eq!(ended.code, Some(0), "{cell}: {ended:?}"),
    }
    assert_nothing_changed(&dynamo, &cell);
}

#[tokio::test]
async fn every_command_says_of_every_bad_input_what_to_do_and_changes_nothing() {
    for input in INPUTS {
        for command in COMMANDS_ALL {
            match (command, input) {
                // A sidecar lives whatever its table is, and answers requests with the cause: through it is how that is seen.
                (Serve, input) if input != WrongFlag => {}
                // To make one is what it is for.
                (TableCreate, MissingTable) => {}
                _ => check(command, input).await,
            }
        }
    }
}
