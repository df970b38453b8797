//! Structured logs on standard output, which Lambda forwards to CloudWatch.

mod gaps;

use crate::settings::{Bootstrap, LogFormat, Settings};
use gaps::{Dropped, Gaps};
use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// Lines that may wait for a reader of standard output; more are dropped, and counted.
const MAX_LINES: usize = 4_096;

/// How long the end waits for lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log's writer; what waits is written when this is dropped, unless nobody takes it within a second.
pub struct Writer(Option<WorkerGuard>);

impl Drop for Writer {
    fn drop(&mut self) {
        let guard = self.0.take();
        let (done, told) = mpsc::channel();
        // Where the queue is full the guard complains on standard output, the very pipe that takes nothing: a thread that can
        // be left behind.
        let finish = thread::Builder::new().spawn(move || {
            drop(guard);
            // Nobody listens any more where it took too long.
            let _ = done.send(());
        });
        if finish.is_ok() {
            let _ = told.recv_timeout(LAST_LINES);
        }
    }
}

/// Sends this process's events to standard output from now on, until what this returns is dropped.
///
/// A thread of its own writes them: a pipe that nobody empties must not hold up a renewal.
pub fn init(bootstrap: &Bootstrap) -> Writer {
    init_on(bootstrap, io::stdout())
}

/// As [`init`], to another place.
pub fn init_on(bootstrap: &Bootstrap, out: impl io::Write + Send + 'static) -> Writer {
    let lossy = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_LINES).thread_name("log");
    let (dropped, format) = (Dropped::default(), bootstrap.clone());
    let (writer, guard) = lossy.finish(Gaps::new(out, dropped.clone(), move |lines| gap(&format, lines)));
    dropped.get_or_init(|| writer.error_counter());
    let subscriber = subscriber(bootstrap, writer);
    // A second call changes nothing: the first subscriber stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Writer(Some(guard))
}

/// The line that stands for so many dropped ones.
fn gap(bootstrap: &Bootstrap, lines: usize) -> Vec<u8> {
    let written = Written::default();
    let (line, log) = (written.clone(), subscriber(bootstrap, move || written.clone()));
    tracing::subscriber::with_default(log, || {
        tracing::warn!(lines, "log lines are missing here: nobody took them fast enough");
    });
    line.taken()
}

/// What was written, in memory.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn taken(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn subscriber<W>(bootstrap: &Bootstrap, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // The settings have checked the filter. Targets and levels are enough: filters on fields would bring a regex engine along.
    let filter: Targets = bootstrap.log_filter.parse().unwrap_or_default();
    // Boxed: what formats is compiled once, not once for each writer.
    let layer = fmt::layer().with_writer(BoxMakeWriter::new(writer)).with_ansi(false);
    match bootstrap.log_format {
        LogFormat::Text => Box::new(registry().with(layer.with_filter(filter))),
        LogFormat::Json => {
            let json = layer.json().flatten_event(true).with_current_span(false);
            Box::new(registry().with(json.with_filter(filter)))
        }
    }
}

/// A key as logs show it: a short hash unless `LEASEKEEPER_PLAIN_KEYS` says otherwise.
///
/// Keys are customers' ids and addresses: the hash keeps them out of logs that many read, and still lets lines about one
/// key be found together, across environments and versions. It is no secret: who can guess a key can compute its hash.
pub fn key_shown<'a>(settings: &Settings, key: &'a str) -> Cow<'a, str> {
    if settings.plain_keys { Cow::Borrowed(key) } else { Cow::Owned(format!("#{:016x}", fnv1a(key.as_bytes()))) }
}

/// FNV-1a, 64 bits: stable for ever, unlike the standard library's hashers.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(variables: &[(&str, &str)], log: impl FnOnce()) -> String {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        let (bootstrap, _) = crate::settings::read(find);
        let written = Written::default();
        let writer = written.clone();
        tracing::subscriber::with_default(subscriber(&bootstrap, move || writer.clone()), log);
        String::from_utf8(written.taken()).unwrap()
    }

    #[test]
    fn a_json_line_carries_its_fields_at_the_top() {
        let line = logged(&[("LEASEKEEPER_LOG_FORMAT", "json")], || tracing::info!(lease = 7, "granted"));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["level"], &line["message"], &line["lease"]), (&"INFO".into(), &"granted".into(), &7.into()));
    }

    #[test]
    fn the_filter_decides_what_is_logged() {
        let both = || {
            tracing::info!("quiet");
            tracing::warn!("loud");
        };
        let text = logged(&[("LEASEKEEPER_LOG", "warn")], both);
        assert!(text.contains("loud") && !text.contains("quiet"), "{text}");
    }

    #[test]
    fn keys_are_hashed_unless_plain() {
        let settings = |plain| {
            let find = |name: &str| match name {
                "LEASEKEEPER_STORE" => Some("memory".into()),
                "LEASEKEEPER_PLAIN_KEYS" => Some(String::from(plain)),
                _ => None,
            };
            Settings::from_lookup(find).unwrap()
        };
        assert_eq!(key_shown(&settings("true"), "customer:123"), "customer:123");
        // The published test vectors of FNV-1a.
        assert_eq!(key_shown(&settings("false"), ""), "#cbf29ce484222325");
        assert_eq!(key_shown(&settings("false"), "a"), "#af63dc4c8601ec8c");
        assert_eq!(key_shown(&settings("false"), "foobar"), "#85944171f73967e8");
    }
}
