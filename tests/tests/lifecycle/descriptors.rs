//! Many leases and few descriptors.

use super::*;
use std::collections::BTreeMap;
use testkit::evidence::figure;
use testkit::sidecar::{Sidecar, SocketClient};

const ROW: &str = "descriptors";

/// As many as Lambda gives an environment.
const LIMIT: usize = 1_024;

const LEASES: usize = 1_000;

/// The default: 150 renewals a second, for a build that is not optimised.
const LEASE_MS: u64 = 20_000;

/// An extension that may open so many descriptors.
async fn limited(db: &Dynamo, descriptors: usize) -> Sidecar {
    Sidecar::start_in(Program::new("prlimit").arg(format!("--nofile={descriptors}:{descriptors}")), db.env()).await
}

fn open_descriptors(sidecar: &Sidecar) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", sidecar.pid())).expect("it runs").count()
}

/// Sends requests, at most so many at a time as one connection may have unanswered; their answers by the request's number.
async fn ask_all(client: &mut SocketClient, requests: impl Iterator<Item = Value>) -> BTreeMap<u64, Value> {
    let lines: Vec<_> = requests.map(|request| format!("{request}\n")).collect();
    let mut answers = BTreeMap::new();
    for part in lines.chunks(50) {
        client.write(part.concat().as_bytes()).await.expect("the extension reads");
        for _ in part {
            let reply = client.reply().await.expect("the extension lives");
            answers.insert(reply["id"].as_u64().expect("our own numbers"), reply);
        }
    }
    answers
}

#[tokio::test]
async fn a_thousand_leases_of_one_client_are_held_and_renewed_under_1024_descriptors() {
    let db = Dynamo::start().await;
    let sidecar = limited(&db, LIMIT).await;
    let mut client = sidecar.connect().await;
    let acquire =
        |n| json!({"v": 1, "id": n, "op": "acquire", "key": format!("k{n}"), "lease_ms": LEASE_MS, "wait_ms": 20_000});
    let began = Instant::now();
    let granted = ask_all(&mut client, (1..=LEASES).map(acquire)).await;
    let leases: Vec<u64> = granted.values().map(|reply| reply["ok"]["lease"].as_u64().expect("free")).collect();
    assert_eq!(leases.len(), LEASES);
    figure(ROW, "1,000 leases acquired over one connection in", format!("{:.1} s", began.elapsed().as_secs_f64()));

    let mut renewals: BTreeMap<u64, usize> = leases.iter().map(|lease| (*lease, 0)).collect();
    let (mut descriptors, mut to_store) = (0, 0);
    let until = Instant::now() + Duration::from_millis(LEASE_MS * 3);
    while renewals.values().any(|count| *count < 2) {
        assert!(Instant::now() < until, "not all are renewed: {renewals:?}");
        let event = client.event().await;
        assert_ne!(event["event"], "lost", "{event}");
        if event["event"] == "renewed" {
            *renewals.get_mut(&event["lease"].as_u64().expect("a number")).expect("one of ours") += 1;
        }
        descriptors = descriptors.max(open_descriptors(&sidecar));
        to_store = to_store.max(db.front().open());
    }
    let check = |(n, lease): (usize, &u64)| json!({"v": 1, "id": LEASES + n, "op": "check", "lease": lease});
    let checked = ask_all(&mut client, leases.iter().enumerate().map(check)).await;
    assert!(checked.values().all(|reply| reply["ok"]["valid_ms"].is_u64()), "{checked:?}");
    assert!((1..=LEASES).all(|n| db.item(&format!("k{n}")).is_some()));
    figure(ROW, "1,000 leases held over two renewals each: lost", 0);
    figure(ROW, "descriptors that the extension had open at most", descriptors);
    figure(ROW, "connections to DynamoDB at most", to_store);
    // 64 requests at a time, and connections that are on their way to be closed.
    assert!(to_store <= 128, "{to_store} connections");
    assert!(descriptors <= 192, "{descriptors} of {LIMIT}");

    let began = Instant::now();
    drop(client);
    while (1..=LEASES).any(|n| db.item(&format!("k{n}")).is_some()) {
        assert!(began.elapsed() < Duration::from_secs(10), "they are given back with their connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    figure(ROW, "1,000 leases given back in", format!("{:.1} s", began.elapsed().as_secs_f64()));
}

#[tokio::test]
async fn without_descriptors_for_more_connections_those_there_go_on_and_the_log_says_it_once() {
    const LEASE_MS: u64 = 1_500;
    let db = Dynamo::start().await;
    let sidecar = limited(&db, 48).await;
    let mut holder = sidecar.connect().await;
    let grant = holder.acquire("k", LEASE_MS, 0).await.expect("free");
    let mut others = Vec::new();
    for _ in 0..48 {
        others.push(sidecar.connect().await);
    }
    sidecar.logged("ERROR", "no connection can be accepted").await;
    // Tried ten times a second, and renewed twice.
    tokio::time::sleep(Duration::from_millis(LEASE_MS)).await;
    holder.check(grant.lease).await.expect("held and renewed");
    let said = |what: &str| sidecar.log().matches(what).count();
    assert_eq!((said("no connection can be accepted"), said("accepted again")), (1, 0), "{}", sidecar.log());

    others.truncate(10);
    // Whoever comes a second after the last failure.
    let recovered = Instant::now() + Duration::from_secs(5);
    while said("accepted again") == 0 {
        assert!(Instant::now() < recovered, "{}", sidecar.log());
        assert!(sidecar.connect().await.ask(json!({"op": "hello"})).await.is_ok());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((said("no connection can be accepted"), said("accepted again")), (1, 1), "{}", sidecar.log());
    let failures = sidecar.log().lines().find_map(|line| line.split_once("failures=")?.1.trim().parse::<u64>().ok());
    assert!(failures.is_some_and(|failures| failures >= 5), "{failures:?} attempts while it lasted");
    holder.release(grant.lease).await.expect("held");
    drop(others);
}
