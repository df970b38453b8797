//! Bad input and bad surroundings: each command says one plain sentence, has its exit code, and changes nothing.

use crate::{COMMANDS, Ended, finish, leasekeeper, perform};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Fault, Operation, row};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

/// Every command that needs a table, and the first action that it needs.
const COMMAND_LINES: [(&[&str], Operation, &str); 6] = [
    (&["inspect", "k"], Operation::GetItem, "dynamodb:GetItem"),
    (&["list"], Operation::Scan, "dynamodb:Scan"),
    (&["break", "k", "--if-version", "v"], Operation::GetItem, "dynamodb:GetItem"),
    (&["table", "check"], Operation::DescribeTable, "dynamodb:DescribeTable"),
    (&["table", "create"], Operation::CreateTable, "dynamodb:CreateTable"),
    (&["run", "--key", "free", "--wait-ms", "0", "--", "touch", "ran"], Operation::PutItem, "dynamodb:PutItem"),
];

async fn with(dynamo: &Dynamo, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = leasekeeper(dynamo, COMMANDS, arguments);
    let home = scratch();
    command.current_dir(home.path()).envs(variables.iter().copied());
    let ended = finish(command.spawn().expect("the program starts")).await;
    assert!(!home.path().join("ran").exists(), "no command runs without its lock: {ended:?}");
    ended
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A table with one row, which must stay as it is.
async fn with_a_row() -> Dynamo {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "o", "v", 20_000));
    dynamo
}

fn assert_untouched(dynamo: &Dynamo, arguments: &[&str]) {
    assert_eq!(dynamo.item("k"), Some(row("k", "o", "v", 20_000)), "{arguments:?}");
    assert_eq!(dynamo.item("free"), None, "{arguments:?}");
}

#[tokio::test]
async fn an_unknown_option_is_named_with_where_help_is_and_nothing_is_asked_of_the_table() {
    let dynamo = with_a_row().await;
    for (arguments, _, _) in COMMAND_LINES {
        // Before a `--`: what follows it is the command's own.
        let (first, rest) = arguments.split_first().expect("a command");
        let wrong = [&[*first, "--frobnicate"], rest].concat();
        let help = format!("`leasekeeper {first} --help`");
        perform(&dynamo, &wrong).await.assert_failed(2, &["--frobnicate", &help]);
    }
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn a_missing_table_is_named_with_its_region() {
    let dynamo = with_a_row().await;
    for (arguments, _, action) in COMMAND_LINES.into_iter().filter(|(arguments, _, _)| !arguments.contains(&"create")) {
        let missing = with(&dynamo, arguments, &[("LEASEKEEPER_TABLE", "missing")]).await;
        let parts = [action, "there is no table `missing` in Region eu-central-1", "--table", "table create"];
        missing.assert_failed(78, &parts);
        assert_untouched(&dynamo, arguments);
    }
    let elsewhere = perform(&dynamo, &["list", "--table", "missing", "--region", "us-east-1"]).await;
    elsewhere.assert_failed(78, &["no table `missing` in Region us-east-1"]);
}

#[tokio::test]
async fn no_table_and_no_possible_table_are_told_before_anything_is_asked() {
    let dynamo = with_a_row().await;
    for (arguments, _, _) in COMMAND_LINES {
        let mut command = leasekeeper(&dynamo, COMMANDS, arguments);
        command.env_remove("LEASEKEEPER_TABLE");
        let none = finish(command.spawn().expect("the program starts")).await;
        none.assert_failed(78, &["--table", "LEASEKEEPER_TABLE"]);
        let wrong = with(&dynamo, arguments, &[("LEASEKEEPER_TABLE", "a table")]).await;
        wrong.assert_failed(78, &["LEASEKEEPER_TABLE is \"a table\": it must be the name"]);
        let (first, rest) = arguments.split_first().expect("a command");
        let typed = [&[*first, "--table", "a table"], rest].concat();
        perform(&dynamo, &typed).await.assert_failed(2, &["--table must be the name"]);
    }
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn a_wrong_setting_is_named_by_what_needs_it_and_stands_in_nobody_elses_way() {
    let dynamo = with_a_row().await;
    let wrong = [("LEASEKEEPER_LEASE_MS", "5")];
    let run = with(&dynamo, COMMAND_LINES[5].0, &wrong).await;
    run.assert_failed(78, &["LEASEKEEPER_LEASE_MS is \"5\": it must be a whole number of milliseconds"]);
    assert!(dynamo.requests().is_empty());
    with(&dynamo, &["list"], &wrong).await.assert_done(&["1 lock row;"]);
}

#[tokio::test]
async fn a_missing_permission_names_the_action_and_is_not_asked_for_again() {
    for (arguments, operation, action) in COMMAND_LINES {
        let dynamo = with_a_row().await;
        dynamo.fail(operation, Fault::AccessDenied).always();
        let denied = with(&dynamo, arguments, &[]).await;
        denied.assert_failed(77, &[action, "`locks`", "AccessDeniedException", "policy allows the action"]);
        assert_eq!(dynamo.requests().len(), 1, "{arguments:?}");
        assert_untouched(&dynamo, arguments);
    }
}

#[tokio::test]
async fn missing_credentials_are_told() {
    let dynamo = with_a_row().await;
    for (arguments, _, action) in COMMAND_LINES {
        let mut command = leasekeeper(&dynamo, COMMANDS, arguments);
        command.env_remove("AWS_ACCESS_KEY_ID").env("HOME", "/nonexistent");
        let denied = finish(command.spawn().expect("the program starts")).await;
        denied.assert_failed(77, &["no credentials", action, "aws sts get-caller-identity"]);
    }
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn credentials_of_a_profiles_process_are_found() {
    let dynamo = with_a_row().await;
    let home = scratch();
    let profile =
        "[default]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"s\"}'\n";
    std::fs::create_dir(home.path().join(".aws")).expect("a directory");
    std::fs::write(home.path().join(".aws/config"), profile).expect("a file");
    let mut command = leasekeeper(&dynamo, COMMANDS, &["list"]);
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").env("HOME", home.path());
    finish(command.spawn().expect("the program starts")).await.assert_done(&["1 lock row;"]);
}

#[tokio::test]
async fn an_unreachable_endpoint_is_told_soon_after_a_few_attempts() {
    let dynamo = with_a_row().await;
    // Nobody listens on a port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr()).expect("a port").port();
    let endpoint = format!("http://127.0.0.1:{port}");
    for (arguments, _, action) in COMMAND_LINES {
        let (first, rest) = arguments.split_first().expect("a command");
        let line = [&[*first, "--endpoint-url", &endpoint], rest].concat();
        let unreachable = with(&dynamo, &line, &[]).await;
        unreachable
            .assert_failed(69, &[action, "Connection refused", "check the Region, the endpoint and the network"]);
    }
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn whoever_waits_for_an_endpoint_that_does_not_answer_is_told_so() {
    let dynamo = with_a_row().await;
    // Connections are taken, and nobody reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", silent.local_addr().expect("it is bound"));
    for command in [&["inspect", "k"] as &[&str], &["list"], &["break", "k", "--if-version", "v"], &["table", "check"]]
    {
        let line = [command, &["--endpoint-url", &endpoint]].concat();
        let mut child = leasekeeper(&dynamo, COMMANDS, &line).spawn().expect("the program starts");
        let mut said = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let first = timeout(Duration::from_secs(4), said.next_line()).await.expect("it says so soon");
        let first = first.expect("UTF-8").expect("it has not ended");
        assert!(first.starts_with("leasekeeper: no answer to dynamodb:"), "{first}");
        assert!(first.ends_with("so far; it is tried for 15 s at most"), "{first}");
        child.kill().await.expect("a child of ours can be killed");
    }
}

#[tokio::test]
async fn a_store_that_is_down_for_a_moment_is_asked_again_and_one_that_stays_down_is_told() {
    for (arguments, operation, action) in COMMAND_LINES.into_iter().take(4) {
        let dynamo = with_a_row().await;
        dynamo.fail(operation, Fault::InternalError).always();
        let down = with(&dynamo, arguments, &[]).await;
        down.assert_failed(69, &[action, "InternalServerError"]);
        assert_eq!(dynamo.requests().len(), 3, "{arguments:?}");
        assert_untouched(&dynamo, arguments);
    }
    let dynamo = with_a_row().await;
    dynamo.fail(Operation::Scan, Fault::Throttle).times(2);
    perform(&dynamo, &["list"]).await.assert_done(&["1 lock row;"]);
}

#[tokio::test]
async fn no_region_and_an_endpoint_that_is_no_url_are_told() {
    let dynamo = with_a_row().await;
    for (arguments, _, action) in COMMAND_LINES {
        let mut command = leasekeeper(&dynamo, COMMANDS, arguments);
        command.env_remove("AWS_REGION").env_remove("AWS_DEFAULT_REGION").env("HOME", "/nonexistent");
        let none = finish(command.spawn().expect("the program starts")).await;
        none.assert_failed(78, &["no Region is set (AWS_REGION)", action]);
        let (first, rest) = arguments.split_first().expect("a command");
        for endpoint in ["localhost:8000", "http://", "local host", "http://[::1"] {
            let line = [&[*first, "--endpoint-url", endpoint], rest].concat();
            let told = with(&dynamo, &line, &[]).await;
            told.assert_failed(78, &[action, endpoint, "an endpoint is a URL, such as http://localhost:8000"]);
            assert!(!told.err.contains("Request {") && !told.err.contains("lease_ms"), "{told:?}");
        }
        let line = [&[*first, "--endpoint-url", "ftp://localhost"], rest].concat();
        with(&dynamo, &line, &[]).await.assert_failed(69, &[action, "unsupported scheme ftp"]);
    }
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn a_sidecar_that_is_not_there_is_told() {
    let dynamo = with_a_row().await;
    let home = scratch();
    let socket = home.path().join("s/lock.sock");
    let socket = [("LEASEKEEPER_SOCKET", socket.to_str().expect("a path"))];
    for arguments in [&["ping"] as &[&str], &["run", "--sidecar", "--key", "free", "--", "true"]] {
        let missing = with(&dynamo, arguments, &socket).await;
        missing.assert_failed(69, &["no sidecar answers", "s/lock.sock", "leasekeeper serve"]);
        let wrong = with(&dynamo, arguments, &[("LEASEKEEPER_SOCKET", "lock.sock")]).await;
        wrong.assert_failed(78, &["LEASEKEEPER_SOCKET is \"lock.sock\": it must be an absolute path"]);
    }
    assert!(dynamo.requests().is_empty());
}
