//! The driver's loop: commands and the store's answers in, requests, replies and events out.

use super::book::{Book, Record, State};
use super::budget::{self, RoundTrips};
use super::follow::Followed;
use super::lateness::Lateness;
use super::queue::Queue;
use super::requests::Sent;
use super::{ClientId, Command, Gone, Surroundings, describe};
use crate::clock;
use crate::settings::Settings;
use crate::store::{Note, Response, Store, Text};
use leasekeeper_core::{Acquire, Config, Entropy, Input, LeaseId, LostReason, Micros, Now, RequestNo, TextCore};
use leasekeeper_wire::{self as wire, Checked, Code, Failure, Metrics, Outcome, Reply};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Leases held, waited for or being given back at a time, lost ones of which a row may be left included: each may keep a
/// request under way.
const MAX_LEASES: usize = 1_024;

/// How often all other tasks get their turn before a timer is served. With one turn what came in is read; with the next it is
/// passed on.
const HEARING: usize = 4;

pub(super) async fn run<S: Store>(
    settings: Result<Settings, String>,
    surroundings: Surroundings,
    store: Arc<S>,
    book: Arc<Mutex<Book>>,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut driver = Driver {
        core: TextCore::new(Config { freezes: surroundings.freezes, ..Config::default() }),
        settings,
        surroundings,
        store,
        answers,
        book,
        sent: BTreeMap::new(),
        queue: Queue::default(),
        trips: RoundTrips::default(),
        lateness: Lateness::default(),
        last_answer: clock::now(),
        asked_last: None,
        followed: None,
        leaving: None,
    };
    loop {
        let wakeup = driver.core.next_wakeup();
        driver.lateness.expect(clock::now(), wakeup);
        let wakeup = wakeup.map(Duration::from_micros);
        tokio::select! {
            // Answers first: they may be what a command would wait for.
            biased;
            Some((no, response)) = answered.recv() => driver.answered(no, response),
            command = commands.recv() => match command {
                Some(command) => driver.command(command),
                None => return,
            },
            () = tokio::time::sleep(wakeup.unwrap_or(Duration::MAX)), if wakeup.is_some() => {
                if driver.surroundings.freezes {
                    hear(&mut driver, &mut answered, &mut commands).await;
                }
                driver.handle(Input::Tick);
            }
        }
        driver.follow();
        driver.leave_if_done();
    }
}

/// Hears what has arrived before time alone renews anything: after a thaw, an INVOKE that lies unread may be about to end the
/// lease's invocation, and a process that gets little processor time finds both its timer and its INVOKE due.
async fn hear<S: Store>(
    driver: &mut Driver<S>,
    answered: &mut mpsc::UnboundedReceiver<(RequestNo, Response)>,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) {
    for _ in 0..HEARING {
        tokio::task::yield_now().await;
    }
    while let Ok((no, response)) = answered.try_recv() {
        driver.answered(no, response);
    }
    while let Ok(command) = commands.try_recv() {
        driver.command(command);
    }
}

pub(super) struct Driver<S> {
    pub(super) core: TextCore,
    /// Why nothing can be locked, where the settings are wrong.
    pub(super) settings: Result<Settings, String>,
    pub(super) surroundings: Surroundings,
    pub(super) store: Arc<S>,
    pub(super) answers: mpsc::UnboundedSender<(RequestNo, Response)>,
    pub(super) book: Arc<Mutex<Book>>,
    /// Requests under way.
    pub(super) sent: BTreeMap<RequestNo, Sent>,
    /// Requests that wait for a place.
    pub(super) queue: Queue,
    pub(super) trips: RoundTrips,
    pub(super) lateness: Lateness,
    pub(super) last_answer: Now,
    /// The invocation that asked for a lock last.
    pub(super) asked_last: Option<Text>,
    pub(super) followed: Option<Followed>,
    /// Told when all that can be given back is.
    pub(super) leaving: Option<oneshot::Sender<()>>,
}

/// Ids and jitter from the operating system's random source, so that clones of a snapshot never share them.
struct Random;

impl Entropy<Text> for Random {
    fn id(&mut self) -> Text {
        uuid::Uuid::new_v4().to_string().into()
    }

    fn jitter(&mut self) -> u64 {
        let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
        (high >> 32) % 1_001
    }
}

impl<S: Store> Driver<S> {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handle(&mut self, input: Input<Text>) {
        let now = clock::now();
        self.lateness.turn(now);
        self.core.handle(now, input, &mut Random);
        while let Some(output) = self.core.poll() {
            self.perform(output, now);
        }
        self.send_queued(now);
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Open { client, outbox } => self.book().open(client, outbox),
            Command::Request { client, id, op } => self.request(client, id, op),
            Command::Close { client, how } => {
                let leases = self.book().close(client);
                for lease in leases {
                    self.handle(match how {
                        Gone::Closed => Input::Release(lease),
                        Gone::Faulted => Input::GiveUp(lease, LostReason::ExtensionFailed),
                    });
                }
            }
            Command::InvocationBegan { request_id, remaining } => {
                self.handle(Input::InvocationBegan { scope: request_id.into(), remaining: Some(micros(remaining)) })
            }
            Command::Follow { request_id, told } => self.followed = Some(Followed::new(request_id.into(), told)),
            Command::Drain { within, done } => {
                self.leaving = Some(done);
                self.book().ending(within);
                self.handle(Input::Drain);
            }
            Command::Shutdown { done } => {
                self.leaving = Some(done);
                self.handle(Input::Shutdown);
            }
        }
    }

    fn request(&mut self, client: ClientId, id: u64, op: wire::Op) {
        match op {
            wire::Op::Hello => {
                let hello = wire::Hello {
                    version: wire::VERSION,
                    features: Vec::new(),
                    server: concat!("leasekeeper ", env!("CARGO_PKG_VERSION")).into(),
                };
                let mut reply = Reply::ok(id, &hello);
                if let (Outcome::Ok(hello), Err(wrong)) = (&mut reply.outcome, &self.settings) {
                    hello["problem"] = wrong.as_str().into();
                }
                self.book().reply(client, &reply);
            }
            wire::Op::Acquire(acquire) => {
                self.asked_last = acquire.request_id.as_deref().map(Into::into);
                if let Err(failure) = self.acquire(client, id, acquire) {
                    tracing::warn!(code = %failure.code, detail = failure.message, "acquire refused");
                    self.book().fail(client, id, failure);
                }
            }
            wire::Op::Check { lease } => self.check(client, id, lease),
            wire::Op::Release { lease } => self.release(client, id, lease),
            wire::Op::Metrics { lease } => {
                let metrics = self.book().of_client(client, lease).map(|record| record.metrics);
                match metrics {
                    Some(metrics) => self.book().reply(client, &Reply::ok(id, &metrics)),
                    None => self.book().fail(client, id, describe::no_such_lease(lease)),
                }
            }
        }
    }

    fn acquire(&mut self, client: ClientId, id: u64, ask: wire::Acquire) -> Result<(), Failure> {
        let settings = self.settings.as_ref().map_err(|wrong| Failure::new(Code::Config, wrong.clone()))?;
        for (field, missing) in [("request_id", ask.request_id.is_none()), ("remaining_ms", ask.remaining_ms.is_none())]
        {
            if self.surroundings.invocations && missing {
                let message = format!(
                    "field {field} is required under Lambda: a lease belongs to one invocation and ends with it"
                );
                return Err(Failure::new(Code::Protocol, message));
            }
        }
        let now = clock::now();
        let lease = ask.lease_ms.map_or(settings.lease, Duration::from_millis);
        if let Some(trip) = self.trips.quickest(now).filter(|trip| lease / 6 <= *trip) {
            let message = format!(
                "a lease of {} ms cannot be held: a request has a sixth of it ({} ms), but the quickest round trip to DynamoDB lately took {} ms; use a lease of at least {} ms (LEASEKEEPER_LEASE_MS)",
                lease.as_millis(),
                (lease / 6).as_millis(),
                trip.as_millis(),
                (trip * 12).as_millis()
            );
            return Err(Failure::new(Code::Config, message));
        }
        if self.book().leases(now) >= MAX_LEASES {
            let message = format!(
                "{MAX_LEASES} locks are held, waited for, being given back, or lost and not over yet: no more at a time; give some back first"
            );
            return Err(Failure::new(Code::Unavailable, message));
        }
        let remaining = ask.remaining_ms.map(Duration::from_millis);
        let wait = budget::wait(settings, ask.wait_ms.map(Duration::from_millis), lease, remaining)
            .map_err(|kept| describe::too_late(remaining.unwrap_or_default(), kept))?;
        let max_hold = settings.max_hold.map(micros);
        let key: Text = ask.key.into();
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(wire::MAX_LEASE_MS);
        let note = Note { request_id: ask.request_id.clone(), ..self.surroundings.note.clone() };
        let record = Record {
            client,
            key: key.clone(),
            lease_ms,
            blocker: None,
            note,
            asked: now,
            written: now,
            metrics: Metrics::default(),
            refusal: None,
            state: State::Acquiring(id),
        };
        let lease = self.book().begin(record, MAX_LEASES, now);
        self.handle(Input::Acquire(Acquire {
            lease,
            key,
            lease_ms,
            wait: micros(wait),
            scope: ask.request_id.map(Into::into),
            remaining: remaining.map(micros),
            max_hold,
        }));
        Ok(())
    }

    fn check(&mut self, client: ClientId, id: u64, lease: LeaseId) {
        self.handle(Input::Tick);
        let valid = self.core.valid_for(lease);
        let mut book = self.book();
        let answer = match (book.of_client(client, lease), valid) {
            (None, _) => Err(describe::no_such_lease(lease)),
            (Some(Record { state: State::Held, .. }), Some(valid)) => Ok(Checked { valid_ms: valid / 1_000 }),
            (Some(record), _) => match record.state {
                State::Lost(reason) => Err(record.lost_failure(reason)),
                // Being given back: no longer this client's to rely on.
                _ => Err(describe::no_such_lease(lease)),
            },
        };
        match answer {
            Ok(checked) => book.reply(client, &Reply::ok(id, &checked)),
            Err(failure) => book.fail(client, id, failure),
        }
    }

    fn release(&mut self, client: ClientId, id: u64, lease: LeaseId) {
        // What time alone has ended is told as lost, not given back.
        self.handle(Input::Tick);
        let mut book = self.book();
        let Some(record) = book.of_client(client, lease) else {
            return book.fail(client, id, describe::no_such_lease(lease));
        };
        match &mut record.state {
            State::Lost(reason) => {
                let reason = *reason;
                let failure = record.lost_failure(reason);
                book.forget(lease);
                book.fail(client, id, failure);
            }
            State::Releasing(requests) => {
                requests.push(id);
                return;
            }
            State::Held => record.state = State::Releasing(vec![id]),
            State::Acquiring(_) => return,
        }
        drop(book);
        // Also for a lost one: its client has let go of it, so its row need not wait for the validity's end.
        self.handle(Input::Release(lease));
    }

    /// Ends a shutdown once nothing is left that could be given back.
    fn leave_if_done(&mut self) {
        let done = self.core.is_idle() && self.sent.is_empty() && self.queue.is_empty();
        if done && let Some(leaving) = self.leaving.take() {
            let _ = leaving.send(());
        }
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX / 4)
}
