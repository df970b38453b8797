//! INVOKE and the handler's first request race each other: a lease belongs to the request id that its client named.

use super::*;
use testkit::dynamo::Operation;
use testkit::evidence::figure;
use tokio::task::JoinSet;

const ROW: &str = "invoke-race";
const ROUNDS: usize = 50;
/// How far INVOKE is from the runtime's event, in milliseconds.
const APART: i64 = 20;

/// What one round has come to: was the lock's row written before INVOKE was out?
struct Round {
    put_first: bool,
}

/// One environment that leaks a lease in each of its invocations, and is frozen after each.
async fn rounds(seed: u64) -> Vec<Round> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).start().await.unwrap();
    let mut seen = Vec::new();
    let mut leaked: Option<u64> = None;
    for number in 0..ROUNDS {
        let offset = rng.i64(-APART..=APART);
        env.set_invoke_offset(offset);
        let replay = format!("seed {seed}, round {number}, INVOKE at {offset} ms");
        let key = format!("k{number}");
        // The acquire is the handler's first deed, on the connection that holds the old lease.
        let told = if leaked.is_some() { event_within(1_000) } else { say("nothing is leaked yet") };
        let event = steps([acquire(&key), told, sleep_ms(APART.unsigned_abs() + 15), check(), keep()]);
        let done = env.invoke(event).await;
        let answer = done.outcome.json();
        let grant = granted(&answer[0]);
        if let Some(old) = leaked {
            let event = &answer[1];
            assert_eq!(
                (&event["event"], &event["lease"], &event["reason"]),
                (&json!("lost"), &json!(old), &json!("thaw")),
                "{replay}: the old lease: {answer}"
            );
        }
        let checked = answer.as_array().unwrap().last().unwrap();
        assert!(checked["ok"]["valid_ms"].is_u64(), "{replay}: the new lease: {answer}");
        let row = db.item(&key).expect("held");
        assert_eq!(row["owner"]["S"], grant["owner"], "{replay}");
        assert_eq!(row["request_id"]["S"], done.id, "{replay}: the lease of its own invocation");
        let put = &db.requests_for(&key)[0];
        let invoke = done.delivered + Duration::from_millis(offset.max(0).unsigned_abs());
        seen.push(Round { put_first: db.front().moment(put.at) < invoke });
        leaked = grant["lease"].as_u64();
    }
    assert_eq!(db.count(Operation::PutItem), ROUNDS, "one write for each lease");
    assert_eq!(db.count(Operation::UpdateItem), 0, "no old lease was renewed");
    seen
}

#[tokio::test]
async fn in_200_rounds_every_lease_belongs_to_its_request_id_whenever_invoke_comes() {
    let mut environments = JoinSet::new();
    for seed in 1..=4 {
        environments.spawn(rounds(seed));
    }
    let seen: Vec<Round> = environments.join_all().await.into_iter().flatten().collect();
    let put_first = seen.iter().filter(|round| round.put_first).count();
    assert!(seen.len() == 200 && (40..160).contains(&put_first), "both orders: {put_first} of {}", seen.len());
    figure(ROW, "rounds with processes", seen.len());
    figure(ROW, "of them with the lock's row written before INVOKE", put_first);
}
