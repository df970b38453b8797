//! Managed Instances in each language's own way: Rust's tasks, Python's processes (AWS's own client), Node's worker threads.

use super::rows::in_tenths;
use super::*;
use testkit::dynamo::Operation;
use testkit::evidence::figure;
use testkit::programs::{node_path, python_path};
use testkit::sandbox::{Outcome, Role};

const ROW: &str = "managed-instances";
const AT_ONCE: usize = 8;
/// Lambda tells it in whole milliseconds: functions get one more.
const DEADLINE: Duration = Duration::from_millis(900);
/// What a busy machine may take until a process runs.
const SCHEDULING: Duration = Duration::from_millis(250);

fn managed(db: &Dynamo, runtime: Program) -> Builder {
    environment(db).runtime(runtime).managed_instances(AT_ONCE)
}

/// `lambda_runtime::run_concurrent`: tasks of one process.
fn rust(db: &Dynamo) -> Builder {
    managed(db, Program::new(built("concurrent")))
}

/// awslambdaric: a process for each invocation at once.
fn python(db: &Dynamo) -> Builder {
    let interpreter = repository(".tools/awslambdaric/bin/python");
    assert!(interpreter.is_file(), "{} is missing: run `make tools`", interpreter.display());
    let path = std::env::join_paths([python_path(), repository("examples/python")]).unwrap();
    managed(db, Program::new(interpreter).arg("-m").arg("awslambdaric").arg("handler.handler"))
        .env("PYTHONPATH", path.to_string_lossy())
        .env("PYTHONDONTWRITEBYTECODE", "1")
}

/// Two worker threads, each with half of the invocations.
fn node(db: &Dynamo) -> Builder {
    let runtime = Program::node(repository("tests/functions/node/runtime.mjs"));
    managed(db, runtime.arg(repository("examples/node/handler.mjs")))
        .env("NODE_PATH", node_path().to_string_lossy())
        .env("AWS_LAMBDA_NODEJS_WORKER_COUNT", "2")
}

fn key(number: usize) -> String {
    format!("customer:{number}")
}

/// What each of the functions understands.
fn work(number: usize, work_ms: u64) -> Value {
    json!({"key": key(number), "customer_id": number.to_string(), "work_ms": work_ms})
}

/// Every row at once, as soon as all of them are there.
async fn rows_at_once(db: &Dynamo, env: &Sandbox) -> Vec<Value> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let rows: Vec<Value> = (0..AT_ONCE).filter_map(|number| db.item(&key(number))).collect();
        if rows.len() == AT_ONCE {
            return rows;
        }
        assert!(Instant::now() < end, "{} are held at once: {}", rows.len(), env.log_text(Role::Runtime));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn eight_at_once(db: &Dynamo, builder: Builder) -> Vec<Value> {
    let env = builder.start().await.unwrap();
    let calls: Vec<_> = (0..AT_ONCE).map(|number| env.begin(work(number, 1_000))).collect();
    let rows = rows_at_once(db, &env).await;
    let mut answers = Vec::new();
    for (call, row) in calls.into_iter().zip(rows) {
        assert_eq!(row["request_id"]["S"], call.id, "a lease belongs to its own invocation");
        let answer = call.over().await.outcome.json();
        assert_eq!(answer["owner"], row["owner"]["S"], "{answer}");
        answers.push(answer);
    }
    for number in 0..AT_ONCE {
        assert_eq!(db.item(&key(number)), None, "gone with the answer");
        assert_eq!(db.requests_for(&key(number)).len(), 2, "one put, one delete");
    }
    let registered = env.wait_for_log(Role::Extension, "\"registered\"").await.unwrap().text;
    assert!(registered.contains("SHUTDOWN") && !registered.contains("INVOKE"), "{registered}");
    answers
}

#[tokio::test]
async fn eight_tasks_of_a_rust_function_hold_eight_leases_at_once() {
    let db = Dynamo::start().await;
    let answers = eight_at_once(&db, rust(&db)).await;
    assert!(answers.iter().all(|answer| answer["pid"] == answers[0]["pid"]), "one process: {answers:?}");
}

#[tokio::test]
async fn eight_processes_of_a_python_function_under_awslambdaric_hold_eight_leases_at_once() {
    let db = Dynamo::start().await;
    eight_at_once(&db, python(&db)).await;
}

#[tokio::test]
async fn eight_invocations_in_worker_threads_of_a_node_function_hold_eight_leases_at_once() {
    let db = Dynamo::start().await;
    eight_at_once(&db, node(&db)).await;
}

/// An invocation whose work outlasts its time: when its row was gone, since it began. Its process lives on and serves.
async fn past_its_deadline(db: &Dynamo, builder: Builder, language: &str) -> Duration {
    let env =
        builder.timeout(DEADLINE + Duration::from_millis(1)).env("LEASEKEEPER_LEASE_MS", "1500").start().await.unwrap();
    let runtime = env.pid(Role::Runtime);
    let call = env.begin(work(0, 2_500));
    let lost = env.wait_for_log(Role::Extension, "\"deadline\"").await.unwrap().at;
    let gone = gone(db, &key(0)).await;
    let done = call.over().await;
    // The function's own error comes at the same moment, and may be the faster one.
    let over = match &done.outcome {
        Outcome::TimedOut => true,
        Outcome::Error { kind, .. } => kind == "Leasekeeper.Lost",
        Outcome::Response(_) => false,
    };
    assert!(over, "{language}: {done:?}");
    let told = lost - done.asked;
    assert!(told >= DEADLINE, "{language}: told {told:?} after the begin");
    assert!(told < DEADLINE + SCHEDULING, "{language}: told {told:?} after the begin");
    figure(ROW, &format!("{language}: told Lost after its deadline"), in_tenths(told - DEADLINE));
    let again = env.invoke(work(0, 0)).await.outcome.json();
    assert!(again["owner"].is_string(), "{language}: {again}");
    assert_eq!(env.pid(Role::Runtime), runtime, "{language}");
    gone - done.asked
}

#[tokio::test]
async fn a_rust_task_past_its_deadline_is_cancelled_and_then_its_row_goes() {
    let db = Dynamo::start().await;
    let gone = past_its_deadline(&db, rust(&db), "Rust").await;
    assert!(gone >= DEADLINE, "{gone:?}");
}

/// Its code cannot be stopped and may not look: the row stays until nobody can believe in it any more.
#[tokio::test]
async fn a_python_process_past_its_deadline_keeps_its_row_until_its_validity_is_over() {
    let db = Dynamo::start().await;
    let gone = past_its_deadline(&db, python(&db), "Python").await;
    // The last renewal came a third or two into the lease, before the deadline, and is valid for nine tenths from then.
    let log = db.requests_for(&key(0));
    let renewed = log.iter().rfind(|request| request.operation == Operation::UpdateItem).unwrap();
    let deleted = log.iter().find(|request| request.operation == Operation::DeleteItem).unwrap();
    let stood = deleted.at - renewed.at;
    // Less what the renewal was on its way.
    assert!(stood >= Duration::from_millis(1_350 - 50), "deleted {stood:?} after its last renewal");
    assert!(gone < Duration::from_millis(2_500), "not by the handler's own end: {gone:?}");
}

#[tokio::test]
async fn a_node_call_past_its_deadline_rejects_and_then_its_row_goes() {
    let db = Dynamo::start().await;
    let gone = past_its_deadline(&db, node(&db), "Node").await;
    assert!(gone >= DEADLINE, "{gone:?}");
}
