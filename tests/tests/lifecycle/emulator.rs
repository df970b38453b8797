//! The same ends under AWS's own emulator, as far as it can show them: its runtime and its extension are the real ones, too.

use super::endings::{endings, under};
use super::rows::{at_a_death, freed, in_ms, in_tenths, is_delete, until_freed};
use super::takeover::taken_in_time;
use super::*;
use leasekeeper::{Guard, LockError};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::Arc;
use testkit::dynamo::{Fault, Operation, Recorded};
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::moments::{Lateness, last_word};
use testkit::rie::{Rie, RieReply};
use testkit::sidecar::Sidecar;
use tokio::task::JoinHandle;

const LANGUAGES: [Language; 3] = [Language::Rust, Language::Python, Language::Node];

/// An error's type and its message.
fn told(reply: &RieReply) -> (String, String) {
    let document: Value = serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("a document: {reply:?}"));
    let text = |name: &str| document[name].as_str().unwrap_or_else(|| panic!("no {name}: {reply:?}")).to_owned();
    (text("errorType"), text("errorMessage"))
}

async fn the_row_is_gone_before_the_response(language: Language) {
    let db = Dynamo::start().await;
    let rie = Rie::start(language.emulated(&db, 10)).await.unwrap();
    for (ending, event) in endings(language) {
        let without = rie.invoke(event.clone()).await.unwrap();
        db.fail(Operation::DeleteItem, Fault::DelayBefore(Duration::from_millis(200))).key(ending);
        let call = rie.invoke(under(ending, &event)).await.unwrap();
        let answered = Instant::now();
        let freed = freed(&db, ending);
        assert!(freed.committed <= answered, "{ending}: {}", rie.log());
        if ending != "returns" {
            assert_eq!(told(&call), told(&without), "{ending}: the handler's own error, as without a lock");
        }
        figure("handler-ends", "RIE: response after the delete by", in_ms(answered - freed.committed));
    }
}

#[tokio::test]
async fn under_the_emulator_too_a_handlers_row_is_gone_before_its_response() {
    for language in LANGUAGES {
        the_row_is_gone_before_the_response(language).await;
    }
}

#[tokio::test]
async fn under_the_emulator_too_a_release_that_hangs_costs_a_second() {
    let db = Dynamo::start().await;
    let _hang = db.fail(Operation::DeleteItem, Fault::Hang).always();
    let rie = Rie::start(Language::Python.emulated(&db, 10)).await.unwrap();
    rie.invoke(json!({"deeds": []})).await.unwrap();
    let lateness = Lateness::watch();
    let reply = rie.invoke(json!({"key": "k", "deeds": [["word", "done"]]})).await.unwrap();
    let took = last_word(&rie.log(), "done").elapsed();
    assert!(reply.body.contains("owner"), "the work is done: {reply:?}");
    assert!(took <= Duration::from_millis(1_030) + lateness.of_turns(8), "{took:?}");
    rie.wait_for_log("release_unconfirmed").await.expect("it is logged");
    figure("release-hangs", "RIE, Python: response after the work's end", in_ms(took));
}

async fn dies(language: Language) {
    let db = Dynamo::start().await;
    let rie = Rie::start(language.emulated(&db, 10)).await.unwrap();
    let mut deaths = vec![("SIGKILL", json!(["kill", null]))];
    if language == Language::Rust {
        // Others have a way to go from their last word to their end, of which the emulator does not tell.
        deaths.extend([
            ("exit(0)", json!(["exit", 0])),
            ("exit(1)", json!(["exit", 1])),
            ("abort", json!(["abort", null])),
        ]);
    }
    for (death, deed) in deaths {
        let lateness = Lateness::watch();
        let reply = rie.invoke(json!({"key": death, "deeds": [["word", "last"], deed]})).await.unwrap();
        assert_eq!(reply.status, 502, "{death}: {reply:?}");
        let last = last_word(&rie.log(), "last");
        let freed = until_freed(&db, death).await;
        assert!(
            freed.asked >= last && freed.asked - last <= at_a_death(&lateness),
            "{death}: {:?}",
            freed.asked - last
        );
        figure("runtime-dies", "RIE: free after the process's last word", in_tenths(freed.committed - last));
    }
}

#[tokio::test]
async fn under_the_emulator_too_a_lock_is_free_within_100_ms_of_its_handlers_death() {
    for language in LANGUAGES {
        dies(language).await;
    }
}

/// In Rust, which has started before any of its invocation's time is used up, however busy the machine is.
#[tokio::test]
async fn under_the_emulator_too_a_hard_timeout_frees_the_lock_and_is_over_at_once() {
    let db = Dynamo::start().await;
    let rie = Rie::start(Language::Rust.emulated(&db, 2)).await.unwrap();
    rie.invoke(json!({"deeds": []})).await.unwrap();
    let lateness = Lateness::watch();
    let deadline = Instant::now() + Duration::from_secs(2);
    let reply = rie.invoke(json!({"key": "k", "deeds": [["block", 60_000]]})).await.unwrap();
    let ended = deadline.elapsed();
    assert!(reply.body.contains("Task timed out"), "{reply:?}");
    let freed = until_freed(&db, "k").await;
    assert!(freed.asked >= deadline, "not before its time is over");
    assert!(freed.committed <= deadline + Duration::from_secs(2), "{:?}", freed.committed - deadline);
    // The emulator tells of a time-out when both processes have ended, for which it looks every 100 ms. The next invocation
    // can begin then. From its timer to its answer there are ten turns of one process or another.
    assert!(ended < Duration::from_millis(200) + lateness.of_turns(10), "{ended:?}");
    rie.wait_for_log("giving locks back\",\"reason\":\"timeout\"").await.expect("the extension was told");
    assert!(rie.invoke(json!({"key": "k"})).await.unwrap().body.contains("owner"));
    figure("hard-timeout", "RIE, Rust: free after the deadline", in_ms(freed.committed - deadline));
    figure("hard-timeout", "RIE, Rust: both processes gone after the deadline", in_ms(ended));
}

#[tokio::test]
async fn under_the_emulator_too_a_forked_child_may_not_use_its_parents_guard_and_holds_no_lock() {
    let db = Dynamo::start().await;
    let rie = Rie::start(Language::Python.emulated(&db, 10)).await.unwrap();
    let lateness = Lateness::watch();
    let deeds = json!([["fork", 100], ["sleep", 300], ["word", "last"], ["kill", null]]);
    let reply = rie.invoke(json!({"key": "k", "deeds": deeds})).await.unwrap();
    assert_eq!(reply.status, 502, "{reply:?}");
    let last = last_word(&rie.log(), "last");
    let freed = until_freed(&db, "k").await;
    assert!(freed.asked >= last, "the child has not released it");
    assert!(freed.asked - last <= at_a_death(&lateness), "{:?}", freed.asked - last);
    rie.wait_for_log("child of a dead parent: release ").await.expect("the child lives on");
    let log = rie.log();
    let uses: Vec<_> = log.lines().filter(|line| line.contains("child of a ")).collect();
    assert_eq!(uses.len(), 10, "{log}");
    assert!(uses.iter().all(|told| told.contains(" refused ForkedGuard protocol")), "{log}");
    figure(
        "child-inherits",
        "RIE: free after the handler's last word, its child living",
        in_tenths(freed.committed - last),
    );
}

const LEASE: Duration = Duration::from_millis(1_200);

/// A handler that blocks holds `k`, has been renewed, and somebody waits for it.
struct Contest {
    db: Dynamo,
    rie: Arc<Rie>,
    call: JoinHandle<std::io::Result<RieReply>>,
    contender: Sidecar,
    lateness: Lateness,
}

impl Contest {
    async fn begin() -> Self {
        let db = Dynamo::start().await;
        let mut config = Language::Python.emulated(&db, 30);
        config.env.push(("LEASEKEEPER_LEASE_MS".to_owned(), LEASE.as_millis().to_string()));
        let rie = Arc::new(Rie::start(config).await.unwrap());
        let contender = Sidecar::start(&db, "contender", &[]).await;
        let lateness = Lateness::watch();
        let invoking = rie.clone();
        let call =
            tokio::spawn(async move { invoking.invoke(json!({"key": "k", "deeds": [["block", 60_000]]})).await });
        let renewed = |log: &[Recorded]| log.iter().any(|request| request.operation == Operation::UpdateItem);
        assert!(db.until(Duration::from_secs(10), renewed).await, "{}", rie.log());
        Self { db, rie, call, contender, lateness }
    }

    /// The contender's wait.
    fn waits(&self) -> JoinHandle<Result<Guard, LockError>> {
        let acquire = self.contender.locks().acquire("k").wait(Duration::from_secs(10));
        tokio::spawn(async move { acquire.await })
    }
}

#[tokio::test]
async fn under_the_emulator_too_a_killed_extension_fails_the_invocation_by_name_and_starts_anew() {
    let mut contest = Contest::begin().await;
    let waits = contest.waits();
    let extension = contest.rie.process("leasekeeper").and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let killed = Instant::now();
    kill_process(extension.expect("it runs"), Signal::KILL).unwrap();
    let reply = (&mut contest.call).await.unwrap().unwrap();
    let took = killed.elapsed();
    assert!(reply.body.contains("Extension.Crash"), "{reply:?} {}", contest.rie.log());
    figure("extension-dies", "RIE: Extension.Crash after the kill", in_ms(took));
    let guard = waits.await.unwrap().expect("abandoned");
    let taken = taken_in_time(&contest.db, "k", LEASE, "contender", &contest.lateness);
    figure("extension-dies", "RIE, lease 1.2 s: taken after the last write", in_ms(taken.after));
    guard.release().await.expect("held by the contender");
    let again = contest.rie.invoke(json!({"key": "k"})).await.unwrap();
    assert!(again.body.contains("owner"), "a socket that was left behind is in nobody's way: {again:?}");
}

#[tokio::test]
async fn under_the_emulator_too_a_lock_outlives_both_its_processes_by_its_lease() {
    let mut contest = Contest::begin().await;
    let waits = contest.waits();
    contest.call.abort();
    // Cancelled, as was asked for: it held the emulator, too.
    let _ = (&mut contest.call).await;
    let Contest { db, rie, contender, lateness, call } = contest;
    drop(Arc::into_inner(rie).expect("nobody else has it"));
    let guard = waits.await.unwrap().expect("abandoned");
    assert!(!db.requests().iter().any(is_delete), "nobody was left to give it back");
    let taken = taken_in_time(&db, "k", LEASE, "contender", &lateness);
    figure("both-die", "RIE, lease 1.2 s: taken after the last write", in_ms(taken.after));
    guard.release().await.expect("held by the contender");
    drop((contender, call));
}
