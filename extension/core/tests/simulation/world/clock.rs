//! Clocks that run at their own rates, stop and step, read off true time.

use leasekeeper_core::Now;

#[derive(Clone, Debug)]
pub(crate) struct Clock {
    since: u64,
    base: u64,
    /// Parts per million of true time.
    pub(crate) rate: u64,
    running: bool,
}

impl Clock {
    pub(crate) fn new(base: u64, rate: u64) -> Self {
        Self { since: 0, base, rate, running: true }
    }

    pub(crate) fn read(&self, t: u64) -> u64 {
        if self.running { self.base + (t - self.since) * self.rate / 1_000_000 } else { self.base }
    }

    pub(crate) fn run(&mut self, t: u64, running: bool) {
        self.base = self.read(t);
        self.since = t;
        self.running = running;
    }

    pub(crate) fn step(&mut self, t: u64, by: i64) {
        self.base = self.read(t).saturating_add_signed(by);
        self.since = t;
    }
}

/// Boot, mono and wall of one environment.
#[derive(Clone, Debug)]
pub(crate) struct Clocks(pub(crate) [Clock; 3]);

impl Clocks {
    pub(crate) fn read(&self, t: u64) -> Now {
        Now { boot: self.0[0].read(t), mono: self.0[1].read(t), wall: self.0[2].read(t) }
    }

    /// How long in true time until the clock that timers run on has moved by `delay`.
    pub(crate) fn true_delay(&self, delay: u64) -> u64 {
        (delay.min(1 << 40) * 1_000_000).div_ceil(self.0[1].rate)
    }
}

/// The largest step of any clock between two readings: what a holder has to assume has passed.
pub(crate) fn largest_step(from: Now, to: Now) -> u64 {
    let boot = to.boot.saturating_sub(from.boot);
    let mono = to.mono.saturating_sub(from.mono);
    boot.max(mono).max(to.wall.saturating_sub(from.wall))
}

/// What budgets and time-outs count between two readings.
pub(crate) fn timer_step(from: Now, to: Now) -> u64 {
    to.boot.saturating_sub(from.boot).max(to.mono.saturating_sub(from.mono))
}
