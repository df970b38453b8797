//! `scripts/check-aws`, as far as that goes without an account: what it does without credentials, and that it cleans up.

use std::path::Path;
use std::process::{Output, Stdio};
use testkit::ministack::Ministack;
use testkit::programs::repository;
use tokio::process::Command;

/// Runs it with nothing in its environment but these variables.
async fn check_aws(home: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let made = Command::new(repository("scripts/python-venv"))
        .args(["python", "scripts/requirements-python.txt"])
        .current_dir(repository("."))
        .stdout(Stdio::null())
        .status()
        .await;
    assert!(made.expect("scripts/python-venv runs").success());
    Command::new(repository(".tools/python/bin/python"))
        .arg(repository("scripts/check-aws"))
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("it runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What follows these words in the lines that begin with them.
fn after<'s>(said: &'s str, words: &'s str) -> Vec<&'s str> {
    said.lines().filter_map(|line| line.trim().strip_prefix(words)).collect()
}

#[tokio::test]
async fn without_credentials_that_work_it_says_so_and_does_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let none = check_aws(home.path(), &["--region", "eu-central-1", "--yes"], &[]).await;
    assert_eq!(none.status.code(), Some(3), "{}", said(&none));
    assert!(said(&none).contains("there are no AWS credentials, so nothing was done"), "{}", said(&none));
    assert!(none.stdout.is_empty(), "{}", said(&none));

    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("its address");
    let endpoint = format!("http://{closed}");
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_ENDPOINT_URL", &endpoint)];
    let useless = check_aws(home.path(), &["--region", "eu-central-1", "--yes"], &keys).await;
    assert_eq!(useless.status.code(), Some(3), "{}", said(&useless));
    assert!(said(&useless).contains("the credentials do not work, so nothing was done"), "{}", said(&useless));

    let wrong = check_aws(home.path(), &["--reigon", "eu-central-1"], &[]).await;
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
}

#[tokio::test]
async fn whatever_its_checks_find_what_it_made_is_removed() {
    let home = tempfile::tempdir().expect("a directory");
    let ministack = Ministack::start("dynamodb,iam,lambda,logs,sts").await;
    // A layer with nothing in it: no lock can be had.
    let layer = home.path().join("layer.zip");
    let empty = [&b"PK\x05\x06"[..], &[0; 18]].concat();
    std::fs::write(&layer, empty).expect("the directory can be written");
    let arguments = ["--region", "eu-central-1", "--yes", "--freeze-s", "1", "--layer", layer.to_str().expect("text")];
    let keys =
        [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_ENDPOINT_URL", ministack.endpoint())];
    let ended = check_aws(home.path(), &arguments, &keys).await;
    let said = said(&ended);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("DIFFERS"), "nothing is right with an empty layer: {said}");
    let (made, mut removed) = (after(&said, "made "), after(&said, "removed "));
    removed.reverse();
    assert_eq!(made.len(), 6, "log group, table, layer, role, its policy, function: {said}");
    assert_eq!(made, removed, "in the reverse order");
}
