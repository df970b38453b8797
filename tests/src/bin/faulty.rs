//! The extension's process with a fault: whichever of its tasks logs a line with `provoke` in it panics there.
//!
//! Nothing in the product knows of this. A connection's task logs lines that are no requests, the driver's task logs the key of
//! each grant: a test picks the task by what it sends.

use leasekeeper_extension::lifecycle::Mode;
use leasekeeper_extension::{process, settings};
use std::fmt::Debug;
use std::process::ExitCode;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::{fmt, registry};

struct Fault;

impl<S: Subscriber> Layer<S> for Fault {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Look);
    }
}

struct Look;

impl Visit for Look {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        // What is said of the panic must not bring on the next.
        assert!(!format!("{value:?}").contains("provoke"), "a fault, as the test asked for");
    }
}

fn main() -> ExitCode {
    let (bootstrap, settings) = settings::read_env();
    let ours = || Targets::new().with_target("leasekeeper_extension", Level::DEBUG);
    let log = registry().with(fmt::layer().with_ansi(false).with_filter(ours())).with(Fault.with_filter(ours()));
    tracing::subscriber::set_global_default(log).expect("the first one of the process");
    process::run(Mode::detect(process::environment), bootstrap, settings)
}
