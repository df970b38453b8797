//! Out of memory, with handler and extension in one control group: whichever the kernel kills, what holds is what holds for its death.

use super::rows::{at_a_death, in_ms, is_delete};
use super::*;
use testkit::dynamo::Operation;
use testkit::evidence::figure;
use testkit::memory::MemoryGroup;
use testkit::moments::Lateness;
use testkit::sandbox::{Outcome, Role};
use testkit::sidecar::Sidecar;

const ROW: &str = "out-of-memory";

/// As small functions have it.
const LIMIT: u64 = 128 << 20;

const LEASE_MS: u64 = 2_000;

/// How long the platform takes to notice a death: what is seen before that is not its doing.
const NOTICE: Duration = Duration::from_millis(300);

/// The handler takes memory under a lock until the kernel kills; `score` makes the extension the likelier victim.
async fn run_out(score: u32) {
    let group = match MemoryGroup::new(LIMIT) {
        Ok(group) => group,
        Err(why) => {
            eprintln!("SKIPPED: no control group with a memory limit can be made here: {why}");
            return figure(ROW, "a run", format!("skipped: no control group with a memory limit can be made: {why}"));
        }
    };
    let lateness = Lateness::watch();
    let db = Dynamo::start().await;
    let runtime = Program::python(repository("tests/functions/python/runtime.py"));
    let extension = Program::new(built("leasekeeper"));
    let env = environment(&db).notice(NOTICE).runtime(group.run(&runtime, 0)).extension(group.run(&extension, score));
    let env = env.start().await.unwrap();
    let contender = Sidecar::start(&db, "contender", &[]).await;
    let mut waiting = contender.connect().await;
    let allocate = json!({"do": "allocate"});
    let mut call = env.begin(steps([acquire_for("k", LEASE_MS), say("holds"), allocate, say("told"), for_ever()]));
    env.wait_for_log(Role::Runtime, "holds").await.unwrap();
    let taken = tokio::spawn(async move { waiting.acquire("k", LEASE_MS, 20_000).await.map(|_| waiting) });
    let outcome = call.outcome().await;
    let kills = group.kills();
    assert!((1..=2).contains(&kills), "the kernel's count: {kills}");
    // What a killed extension leaves can be too little for what the handler asks for, and then the kernel kills both.
    let both = kills == 2;
    let victim = env.ends()[0];
    let role = if both { Role::Extension } else { victim.role };
    let taken = taken.await.unwrap().expect("it was free, or its lease ran out");

    let log = db.requests_for("k");
    let moment = |since| db.front().moment(since);
    let takeover =
        log.iter().find(|r| r.client == "contender" && r.operation == Operation::PutItem && r.status == Some(200));
    let takeover = takeover.expect("it has the lock").at;
    let deletes: Vec<_> = log.iter().filter(|r| is_delete(r) && r.client.is_empty()).collect();
    match (role, outcome) {
        (Role::Runtime, Outcome::Error { kind, .. }) => {
            assert_eq!((kind.as_str(), score), ("Runtime.ExitError", 0));
            let [delete] = deletes[..] else { panic!("one delete was expected: {deletes:?}") };
            let took = moment(delete.at).saturating_duration_since(victim.at);
            figure(ROW, "killed: the handler, as by runtime-dies: free after its death", in_ms(took));
            assert!(took <= at_a_death(&lateness), "{took:?}");
            assert!(takeover >= delete.at);
        }
        (Role::Extension, Outcome::Error { kind, .. }) => {
            assert!(kind == "Extension.Crash" || both, "{kind}");
            assert!(both || env.log_text(Role::Runtime).contains("told"), "its connection's end told the handler");
            assert!(deletes.is_empty(), "nobody is left to delete it");
            let last = log.iter().rfind(|r| r.client.is_empty() && r.status == Some(200)).expect("it was held").at;
            let after = takeover - last;
            figure(
                ROW,
                "killed: the extension, as by extension-dies: a lease of 2 s taken over after its last write",
                in_ms(after),
            );
            assert!(after >= Duration::from_millis(LEASE_MS), "{after:?}");
        }
        (role, outcome) => panic!("{role:?} was killed, and the caller got {outcome:?}"),
    }
    drop((taken, contender));
    call.over().await;
    granted(&env.invoke(steps([acquire("k")])).await.outcome.json()[0]);
}

#[tokio::test]
async fn when_handler_and_extension_are_out_of_memory_what_holds_is_what_holds_for_the_one_that_is_killed() {
    run_out(0).await;
}

/// The kernel goes by size, so it takes some help to make the extension its victim.
#[tokio::test]
async fn when_the_extension_is_what_the_kernel_kills_the_handler_is_told_and_the_lease_runs_out() {
    run_out(1_000).await;
}
