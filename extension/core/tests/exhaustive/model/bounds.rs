//! How far a search goes, and what is broken on purpose in it.

use leasekeeper_core::{Micros, WrongRule};

/// No bound: what it counts is not part of the state then.
pub(crate) const MANY: u8 = u8::MAX;

/// An assumption of the exclusion promise, or of the store's, that a search breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Slow clocks lose one microsecond a tick more than the margin pays for.
    SlowDrift,
    /// Fast clocks gain ten microseconds a tick more than it pays for.
    FastDrift,
    /// A sleep may stop boot and wall clock together.
    BothClocksStop,
    /// Somebody deletes the row by hand.
    RowDeletedByHand,
    /// A layer below sends a plain Put twice.
    PutSentTwice,
}

/// A mistake made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Renewals go on the owner alone.
    RenewOnOwner,
    /// Takeovers go on the owner alone.
    TakeoverOnOwner,
    /// Takeovers go without a condition.
    TakeoverUnconditional,
    /// Deletes go without a condition.
    DeleteUnconditional,
    /// Answers are taken before the clocks are read.
    AnswerBeforeTime,
    /// A guard is not told invalid before its release is sent.
    ValidUntilReleased,
    /// What is given up for a cause of the extension's own is released, though its client still believes.
    EarlyDelete,
    /// One of the core's own rules.
    Core(WrongRule),
}

/// Which pairs of clock rates a tick may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rates {
    /// One client's clocks are as slow as the promise allows, the other's as fast.
    Opposite,
    /// Slow, true or fast, for each client on its own, anew in every tick.
    Any,
}

/// The rate of a client's clocks in one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rate {
    Slow,
    True,
    Fast,
}

#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// The lease, in ticks. In one tick a slow clock counts 18 units, a true one 19, a fast one 20: a rate error of 1/19,
    /// the most that the margin of 9/10 pays for. After so many ticks the lease of 20 units a tick is over by a fast clock
    /// in the very instant in which the validity of 18 is over by a slow one.
    pub(crate) ticks: u64,
    /// One unit.
    pub(crate) unit: Micros,
    pub(crate) rates: Rates,
    /// Ticks that end 19 microseconds early: instants just before the ends that fall on ticks.
    pub(crate) short_ticks: u8,
    /// How many acquires each client makes.
    pub(crate) asks: [u8; 2],
    /// How many of them at once.
    pub(crate) at_once: usize,
    /// How long an acquire waits, in ticks of a true clock; as long as it takes without.
    pub(crate) wait: Option<u64>,
    /// Requests whose sender stops waiting for the answer: the request may land at any later time, or never.
    pub(crate) unknown: u8,
    /// Answers that say at once that they say nothing, or that nothing was done.
    pub(crate) refusals: u8,
    /// Wake-ups that a client misses, be it starved, stopped or frozen.
    pub(crate) sleeps: u8,
    /// A sleep may be a freeze that stops the boot and the monotonic clock, or the monotonic and the wall clock.
    pub(crate) freezes: bool,
    /// Conditional writes that arrive a second time, at any later time.
    pub(crate) resends: u8,
    /// Processes that die and are started anew.
    pub(crate) crashes: u8,
    /// Leases that the extension gives up for a cause of its own while their client may still believe.
    pub(crate) give_ups: u8,
    /// How many ticks in all; without, all that can ever happen within the other bounds.
    pub(crate) horizon: Option<u8>,
    pub(crate) broken: Option<Broken>,
    pub(crate) mistake: Option<Mistake>,
}

impl Bounds {
    /// Two clients that acquire once, in a world without faults.
    pub(crate) const PLAIN: Self = Self {
        ticks: 2,
        unit: 1_000_000,
        rates: Rates::Opposite,
        short_ticks: 0,
        asks: [1, 1],
        at_once: 1,
        wait: None,
        unknown: 0,
        refusals: 0,
        sleeps: 0,
        freezes: false,
        resends: 0,
        crashes: 0,
        give_ups: 0,
        horizon: None,
        broken: None,
        mistake: None,
    };

    pub(crate) fn lease(&self) -> Micros {
        20 * self.ticks * self.unit
    }

    /// What a clock of this rate counts in one tick, or in a short one.
    pub(crate) fn tick(&self, rate: Rate, short: bool) -> Micros {
        // True time is cut by 19 microseconds, the least that all rates divide.
        let units = self.unit - u64::from(short);
        match rate {
            Rate::Slow => 18 * units - u64::from(self.broken == Some(Broken::SlowDrift)),
            Rate::True => 19 * units,
            Rate::Fast => 20 * units + if self.broken == Some(Broken::FastDrift) { 10 } else { 0 },
        }
    }

    pub(crate) fn pairs(&self) -> &'static [[Rate; 2]] {
        use Rate::{Fast, Slow, True};
        match self.rates {
            Rates::Opposite => &[[Slow, Fast], [Fast, Slow]],
            Rates::Any => &[
                [Slow, Slow],
                [Slow, True],
                [Slow, Fast],
                [True, Slow],
                [True, True],
                [True, Fast],
                [Fast, Slow],
                [Fast, True],
                [Fast, Fast],
            ],
        }
    }

    /// What any clock may count in one tick.
    fn steps(&self) -> impl Iterator<Item = Micros> {
        let whole = self.pairs().iter().flatten().map(|rate| self.tick(*rate, false));
        let short = self.pairs().iter().flatten().map(|rate| self.tick(*rate, true));
        whole.chain(short.filter(|_| self.short_ticks > 0))
    }

    /// The least that a clock counts between two readings that differ.
    pub(crate) fn shortest_step(&self) -> Micros {
        self.steps().min().unwrap_or(1)
    }

    /// Every reading is a multiple of this: times between two multiples cannot be told apart.
    pub(crate) fn grain(&self) -> Micros {
        let gcd = |mut a: u64, mut b: u64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        self.steps().fold(0, gcd)
    }

    /// Every pause of a growing sequence is over by the next tick, wherever in the sequence it stands.
    pub(crate) fn swallows_pauses(&self) -> bool {
        self.shortest_step() >= 1_200_000
    }
}
