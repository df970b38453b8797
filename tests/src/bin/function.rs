//! The tests' Rust function: does what its event names under the lock `key`, or holds it for a while, and tells what it saw.

use lambda_runtime::{Context, Diagnostic, Error, FunctionResponse, LambdaEvent, Service, service_fn};
use leasekeeper::{Guard, Lease, LockError, Locks, OnLost};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

#[derive(Deserialize)]
struct Work {
    /// Without one nothing is locked.
    key: Option<String>,
    /// What is done, one after the other: a name and an argument each.
    #[serde(default)]
    deeds: Vec<(String, Value)>,
    /// After so long the call is dropped, by someone around the lock.
    give_up_ms: Option<u64>,
    /// How long to hold the lock beside that.
    #[serde(default)]
    work_ms: u64,
    /// How many threads compute all that time, pinned wherever the process is; 0 sleeps.
    #[serde(default)]
    busy_threads: usize,
}

#[derive(Serialize)]
struct Report {
    owner: String,
    waited_ms: u128,
    renewals: u64,
    /// What `check` said at the end.
    valid_ms: u128,
}

/// What an invocation left behind.
static LEAKED: Mutex<Option<Guard>> = Mutex::new(None);

/// Why the function failed.
#[derive(Debug)]
enum Failure {
    Lock(LockError),
    Own(String),
    GaveUp,
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        let (error_type, error_message) = match failure {
            Failure::Lock(error) => return error.into(),
            Failure::Own(message) => ("Function.Own", message),
            Failure::GaveUp => ("Function.GaveUp", "it took too long".to_owned()),
        };
        Self { error_type: error_type.into(), error_message }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_ansi(false).init();
    let on_lost = if std::env::var_os("FUNCTION_NOTIFY").is_some() { OnLost::Notify } else { OnLost::Cancel };
    let key = |event: &LambdaEvent<Work>| event.payload.key.clone().unwrap_or_default();
    let locked = Locks::from_env().locked_handler(key, under_lock).on_lost(on_lost);
    lambda_runtime::run(service_fn(|event: LambdaEvent<Work>| {
        let mut locked = locked.clone();
        async move {
            let give_up = event.payload.give_up_ms;
            let answer = async {
                let leaked = LEAKED.lock().expect("nothing panics with it").as_ref().map(Guard::lease);
                if let (None, Some(leaked)) = (&event.payload.key, leaked) {
                    return Ok(what_became_of(leaked).await);
                }
                if event.payload.key.is_none() {
                    let done = deeds(&event.payload.deeds, None, &event.context).await;
                    return done.map(|()| Value::Null).map_err(Diagnostic::from);
                }
                match locked.call(event).await.map_err(Diagnostic::from)? {
                    FunctionResponse::BufferedResponse(report) => Ok(serde_json::json!(report)),
                    FunctionResponse::StreamingResponse(_) => unreachable!("a report is no stream"),
                }
            };
            match give_up {
                Some(ms) => {
                    timeout(Duration::from_millis(ms), answer).await.unwrap_or_else(|_| Err(Failure::GaveUp.into()))
                }
                None => answer.await,
            }
        }
    }))
    .await
}

async fn under_lock(event: LambdaEvent<Work>, lease: Lease) -> Result<Report, Failure> {
    println!("held");
    let work = event.payload;
    deeds(&work.deeds, Some(&lease), &event.context).await?;
    let time = Duration::from_millis(work.work_ms);
    if work.busy_threads == 0 {
        sleep(time).await;
    } else {
        // Joined on this very thread: nothing in this process runs but the computation.
        let threads: Vec<_> = (0..work.busy_threads).map(|_| std::thread::spawn(move || compute(time))).collect();
        for thread in threads {
            thread.join().expect("computing does not panic");
        }
    }
    let valid = lease.check().await?;
    let renewals = lease.metrics().await?.renewals;
    let (owner, waited) = (lease.owner().to_owned(), lease.waited());
    Ok(Report { owner, waited_ms: waited.as_millis(), renewals, valid_ms: valid.as_millis() })
}

async fn deeds(deeds: &[(String, Value)], lease: Option<&Lease>, context: &Context) -> Result<(), Failure> {
    let another = async |key: &str| Locks::from_env().acquire(key).context(context).await;
    for (deed, argument) in deeds {
        let time = Duration::from_millis(argument.as_u64().unwrap_or(0));
        let text = argument.as_str().unwrap_or("");
        match deed.as_str() {
            "sleep" => sleep(time).await,
            "block" => std::thread::sleep(time),
            "word" => println!("word {text} {}", monotonic().as_nanos()),
            "child" => println!("child {}", child(text)),
            "checks" => checks(lease.expect("under a lock"), time).await?,
            "leak" => *LEAKED.lock().expect("nothing panics with it") = Some(another(text).await?),
            "also" => another(text).await?.release().await?,
            "empty" => empty(&std::env::temp_dir()),
            "fail" => return Err(Failure::Own(text.to_owned())),
            "panic" => panic!("{text}"),
            "exit" => std::process::exit(i32::try_from(argument.as_i64().unwrap_or(0)).expect("a small number")),
            "abort" => std::process::abort(),
            "kill" => kill_process(getpid(), Signal::KILL).expect("every process may kill itself"),
            other => panic!("unknown deed {other}"),
        }
    }
    Ok(())
}

/// Asks again and again for so long whether the lock is held; tells when it was not.
async fn checks(lease: &Lease, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if let Err(error) = lease.check().await {
            let reason = error.reason().map_or_else(|| "none".to_owned(), |reason| reason.to_string());
            println!("refused {} {reason}", error.code());
            println!("word refused {}", monotonic().as_nanos());
            return Err(error.into());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What is said of a lease that an earlier invocation left behind.
async fn what_became_of(lease: Lease) -> Value {
    let remaining = lease.remaining();
    let reason = timeout(Duration::from_secs(2), lease.lost()).await;
    let reason = reason.map_or_else(|_| "not told".to_owned(), |reason| reason.to_string());
    serde_json::json!({"remaining": remaining.as_secs_f64(), "reason": reason})
}

/// Removes everything in this directory, which has directories only.
fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("it is there").flatten() {
        std::fs::remove_dir_all(entry.path()).expect("nobody is in the way");
    }
}

/// Starts a process that outlives this one, in a group of its own.
fn child(command: &str) -> u32 {
    Command::new("sh").args(["-c", command]).process_group(0).spawn().expect("there is a shell").id()
}

fn compute(time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut sum = 0_u64;
    while Instant::now() < end {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
    sum
}

/// The clock that all processes share.
fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
