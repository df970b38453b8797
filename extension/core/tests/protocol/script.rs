//! One core whose time, answers and wishes are given by hand.

use crate::common::rng::Draws;
pub(crate) use crate::common::{MS, SECOND};
use leasekeeper_core::{Acquire, Answer, Config, Core, Input, LeaseId, Now, Op, Output, Row, Seen, StoreRequest};

/// More inputs than this are a loop without an end.
const MOST_INPUTS: u64 = 400_000;

pub(crate) struct Script {
    pub(crate) core: Core<u64>,
    pub(crate) now: Now,
    draws: Draws,
    /// How often `handle` was called.
    pub(crate) handled: u64,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let now = Now { boot: 50_000_000, mono: 40_000_000, wall: 1_700_000_000_000_000 };
        let draws = Draws::new(1_000_000, 1, None);
        let mut script = Self { core: Core::new(config), now, draws, handled: 0 };
        script.tick();
        script
    }

    /// Gives one input at the present time; returns all that comes out.
    pub(crate) fn give(&mut self, input: Input<u64>) -> Vec<Output<u64>> {
        self.handled += 1;
        assert!(self.handled < MOST_INPUTS, "the core never comes to rest");
        self.core.handle(self.now, input, &mut self.draws);
        let outputs: Vec<_> = std::iter::from_fn(|| self.core.poll()).collect();
        if let Some(delay) = self.core.next_wakeup() {
            assert!(delay > 0, "a wake-up must lie ahead");
        }
        outputs
    }

    pub(crate) fn tick(&mut self) -> Vec<Output<u64>> {
        self.give(Input::Tick)
    }

    pub(crate) fn answer(&mut self, request: &StoreRequest<u64>, answer: Answer<u64>) -> Vec<Output<u64>> {
        self.give(Input::Answer(request.no, answer))
    }

    /// Moves all clocks without a reading: what the core finds later is a jump.
    pub(crate) fn jump(&mut self, micros: u64) {
        self.step(micros, micros, micros as i64);
    }

    /// Moves each clock by its own amount, without a reading.
    pub(crate) fn step(&mut self, boot: u64, mono: u64, wall: i64) {
        self.now.boot += boot;
        self.now.mono += mono;
        self.now.wall = self.now.wall.checked_add_signed(wall).expect("the wall clock starts far from 0");
    }

    /// Lets time pass as a driver does, waking whenever the core asks for it.
    pub(crate) fn pass(&mut self, micros: u64) -> Vec<Output<u64>> {
        let mut outputs = Vec::new();
        let mut left = micros;
        let mut idle_wakes = 0;
        while left > 0 {
            let step = self.core.next_wakeup().map_or(left, |delay| delay.min(left));
            left -= step;
            self.jump(step);
            let new = self.tick();
            idle_wakes = if new.is_empty() && step < 100 { idle_wakes + 1 } else { 0 };
            assert!(idle_wakes < 50, "busy loop: {idle_wakes} wake-ups in a row that did nothing");
            outputs.extend(new);
        }
        outputs
    }

    /// Passes time until something is sent, at most `micros`; returns the first request and how long it took.
    pub(crate) fn until_send(&mut self, micros: u64) -> Option<(StoreRequest<u64>, u64)> {
        let mut passed = 0;
        while passed < micros {
            let step = self.core.next_wakeup()?.min(micros - passed);
            passed += step;
            let sent = sends(&self.pass(step));
            if let Some(first) = sent.into_iter().next() {
                return Some((first, passed));
            }
        }
        None
    }

    /// Acquires a free key; the first Put is answered after `rtt`.
    pub(crate) fn hold(&mut self, lease: LeaseId, key: u64, lease_ms: u64, rtt: u64) -> Row<u64> {
        let put = one_send(&self.give(Input::Acquire(acquire(lease, key, lease_ms, 0))));
        self.pass(rtt);
        let row = row_of(&put);
        let outputs = self.answer(&put, Answer::Done);
        assert!(granted(&outputs, lease), "{outputs:?}");
        row
    }

    pub(crate) fn valid(&mut self, lease: LeaseId) -> Option<u64> {
        self.tick();
        self.core.valid_for(lease)
    }
}

/// An acquire outside any invocation, without limits.
pub(crate) fn acquire(lease: LeaseId, key: u64, lease_ms: u64, wait: u64) -> Acquire<u64> {
    Acquire { lease, key, lease_ms, wait, scope: None, remaining: None, max_hold: None }
}

pub(crate) fn row(owner: u64, version: u64, lease_ms: u64) -> Row<u64> {
    Row { owner, version, lease_ms }
}

/// Seen under a key: this row.
pub(crate) fn shows(row: &Row<u64>) -> Seen<u64> {
    Seen::Row(row.clone())
}

pub(crate) fn sends(outputs: &[Output<u64>]) -> Vec<StoreRequest<u64>> {
    outputs
        .iter()
        .filter_map(|output| match output {
            Output::Send(request) => Some(request.clone()),
            _ => None,
        })
        .collect()
}

/// The one request among the outputs.
pub(crate) fn one_send(outputs: &[Output<u64>]) -> StoreRequest<u64> {
    let sent = sends(outputs);
    assert_eq!(sent.len(), 1, "one request expected in {outputs:?}");
    sent.into_iter().next().expect("one")
}

pub(crate) fn row_of(request: &StoreRequest<u64>) -> Row<u64> {
    match &request.op {
        Op::Create { row } | Op::Replace { row, .. } => row.clone(),
        other => panic!("a Put expected, not {other:?}"),
    }
}

pub(crate) fn granted(outputs: &[Output<u64>], id: LeaseId) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Granted { lease, .. } if *lease == id))
}

/// The version that a renewal writes.
pub(crate) fn renewed_version(request: &StoreRequest<u64>) -> u64 {
    match &request.op {
        Op::Renew { new, .. } => *new,
        other => panic!("a renewal expected, not {other:?}"),
    }
}
