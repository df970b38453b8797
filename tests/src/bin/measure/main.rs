//! Start and size of the extension as the layer ships it: medians, each held against its limit.
//!
//! `make measure`, or `target/debug/measure [EXTENSION]`. On a machine that does something else it measures that.

mod process;

use process::Extension;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::dynamo::Dynamo;
use testkit::programs::repository;
use testkit::sandbox::{Program, Sandbox};
use testkit::tls::TlsFront;
use testkit::unlocked::{added, median};
use tokio::time::sleep;

/// Environments that are started, one after the other.
const STARTS: usize = 25;
/// Acquires and releases after which the memory is looked at.
const CYCLES: usize = 100;
/// How many of them count as those of later invocations.
const LATER: usize = 10;
/// What a function's own init takes at least, once the extension has registered: an interpreter starts. Later invocations come
/// after a pause too, or their CPU would be warmer than the first's.
const PAUSE: Duration = Duration::from_millis(50);

/// One line of what is printed.
struct Figure {
    what: &'static str,
    value: f64,
    /// None: only told.
    limit: Option<f64>,
    unit: &'static str,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let layers = repository("target").join(format!("{}-unknown-linux-gnu/release/leasekeeper", std::env::consts::ARCH));
    let extension = std::env::args_os().nth(1).map_or(layers, PathBuf::from);
    if !extension.is_file() {
        return Err(format!("{} is not there: `make layer` builds it", extension.display()).into());
    }
    println!("{}", extension.display());
    let mut figures = starts(&extension).await?;
    figures.push(no_lock(&extension).await?);
    let mut code = ExitCode::SUCCESS;
    for Figure { what, value, limit, unit } in figures {
        let verdict = match limit {
            Some(limit) if value <= limit => format!("  (at most {limit} {unit})"),
            Some(limit) => {
                code = ExitCode::FAILURE;
                format!("  MORE THAN {limit} {unit}")
            }
            None => String::new(),
        };
        println!("{what:.<64} {value:>7.2} {unit}{verdict}");
    }
    Ok(code)
}

async fn starts(extension: &Path) -> Result<Vec<Figure>, Box<dyn Error>> {
    let dynamo = Dynamo::start().await;
    let front = TlsFront::start(dynamo.front().address()).await;
    let mut settings: Vec<_> =
        dynamo.env().into_iter().filter(|(name, _)| *name != "AWS_ENDPOINT_URL_DYNAMODB").collect();
    settings.push(("AWS_ENDPOINT_URL_DYNAMODB", front.endpoint()));
    settings.push(("SSL_CERT_FILE", front.ca_file().display().to_string()));

    let (mut registered, mut fresh, mut used) = (Vec::new(), Vec::new(), Vec::new());
    let (mut first, mut warm, mut at_once, mut factor) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..2 * STARTS {
        let mut started = Extension::start(extension, &settings).await?;
        registered.push(started.registered);
        if round % 2 == 1 {
            at_once.push(started.acquire().await?);
            continue;
        }
        sleep(PAUSE).await;
        fresh.push(started.resident_kib()?);
        let cold = started.acquire().await?;
        let mut later = Vec::new();
        for _ in 0..LATER {
            sleep(PAUSE).await;
            later.push(started.acquire().await?);
        }
        for _ in 1 + LATER..CYCLES {
            started.acquire().await?;
        }
        let later = median(later);
        first.push(cold);
        warm.push(later);
        factor.push((cold.as_secs_f64() / later.as_secs_f64() * 1_000.0) as u64);
        used.push(started.resident_kib()?);
    }
    let ms = |times: Vec<Duration>| median(times).as_secs_f64() * 1_000.0;
    let mib = |sizes: Vec<u64>| median(sizes) as f64 / 1_024.0;
    Ok(vec![
        Figure { what: "process start to registered", value: ms(registered), limit: Some(5.0), unit: "ms" },
        Figure { what: "resident once connected", value: mib(fresh), limit: None, unit: "MiB" },
        Figure { what: "resident after 100 acquires and releases", value: mib(used), limit: Some(10.0), unit: "MiB" },
        Figure { what: "acquire over TLS, warm", value: ms(warm), limit: None, unit: "ms" },
        Figure { what: "acquire over TLS, first of an environment", value: ms(first), limit: None, unit: "ms" },
        Figure {
            what: "the first against the warm",
            value: median(factor) as f64 / 1_000.0,
            limit: Some(2.0),
            unit: "times",
        },
        Figure { what: "acquire over TLS, right after registering", value: ms(at_once), limit: None, unit: "ms" },
    ])
}

async fn no_lock(extension: &Path) -> Result<Figure, Box<dyn Error>> {
    let dynamo = Dynamo::start().await;
    let runtime = || Program::python(repository("tests/functions/python/runtime.py"));
    let without = Sandbox::builder().runtime(runtime()).start().await?;
    let with = Sandbox::builder().extension(extension).runtime(runtime()).envs(dynamo.env()).start().await?;
    let began = Instant::now();
    let value = added(&with, &without).await as f64 / 1_000.0;
    assert!(began.elapsed() > Duration::ZERO && dynamo.requests().is_empty(), "nothing was asked of DynamoDB");
    Ok(Figure { what: "added to an invocation that takes no lock", value, limit: Some(1.0), unit: "ms" })
}
