//! Two real cores, one row, and everything that a network, clocks and clients may do to them.
//!
//! Time moves in ticks; whatever else happens takes none. A client reads its clocks when it wakes at a tick and whenever
//! something reaches it. Invocations, deadlines, the wait after a thaw and a second key are left to the simulation.

pub(crate) mod bounds;
mod canon;
mod client;
mod ids;
mod schedule;
mod state;
mod table;

use bounds::{Bounds, Broken};
use client::Client;
pub(crate) use schedule::Action;
use schedule::Night;
use state::Left;
pub(crate) use state::State;
use stateright::{Model, Property};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::may_come_twice;

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    /// P1: two guards of the key are believed at once.
    Exclusion,
    /// P3: a write checked under an owner would be accepted after its release was confirmed or it was replaced.
    Effect,
    /// What P2 is without fencing: no state of the row comes back, so its versions stand in one order.
    Order,
    /// The row of a guard was to be ended while its client might still believe.
    EarlyEnd,
    /// A guard that was over became valid again.
    Revival,
}

impl Rule {
    pub(crate) const ALL: [Self; 5] = [Self::Exclusion, Self::Effect, Self::Order, Self::EarlyEnd, Self::Revival];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion (P1)",
            Self::Effect => "effect (P3)",
            Self::Order => "order (P2 without fencing)",
            Self::EarlyEnd => "invalid before its row ends",
            Self::Revival => "no revival",
        }
    }
}

/// How often something happened in a search.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// What a search has come to see: one that never gets to the point proves nothing.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    pub(crate) granted: Count,
    pub(crate) renewed: Count,
    pub(crate) lost: Count,
    pub(crate) refused: Count,
    pub(crate) released: Count,
    pub(crate) unconfirmed: Count,
    /// The row of the other client's guard was taken over.
    pub(crate) taken_over: Count,
    /// ... at the very instant at which that guard ended.
    pub(crate) met: Count,
    /// A row that was nobody's, or this client's own, was replaced.
    pub(crate) replaced: Count,
    /// A write landed after its sender had stopped waiting.
    pub(crate) late: Count,
    pub(crate) resent: Count,
}

/// What is searched: everything that can happen within its bounds.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    pub(crate) bounds: Bounds,
    /// The rules that are looked at: a mistake's first symptom need not be the one that matters.
    rules: Vec<Rule>,
    pub(crate) moments: Arc<Moments>,
}

impl Locks {
    pub(crate) fn new(bounds: Bounds, rules: &[Rule]) -> Self {
        Self { bounds, rules: rules.to_vec(), moments: Arc::default() }
    }

    fn of_client(&self, state: &State, n: usize, actions: &mut Vec<Action>) {
        let Left { refusals, resends, crashes, give_ups, .. } = state.left;
        let client = &state.clients[n];
        for (at, message) in client.messages.iter().enumerate() {
            if message.answer.is_some() {
                actions.push(Action::Reply(n, at));
                continue;
            }
            actions.push(Action::Arrive(n, at));
            if resends > 0 && may_come_twice(&self.bounds, &message.op) {
                actions.push(Action::ArriveTwice(n, at));
            }
            if refusals > 0 && message.awaited() {
                actions.extend([Action::Fail(n, at), Action::Refuse(n, at)]);
            }
        }
        if client.may_ask(self.bounds.at_once) {
            actions.push(Action::Ask(n));
        }
        for (at, guard) in client.guards.iter().enumerate() {
            // Who still believes in what was lost may close its side; who waits for a while may do so for less.
            let waits = !guard.held && !guard.over && self.bounds.wait.is_some();
            if guard.held || (!guard.gone && (waits || guard.belief > 0)) {
                actions.push(Action::Release(n, at));
            }
            if guard.held && give_ups > 0 {
                actions.push(Action::GiveUp(n, at));
            }
        }
        if crashes > 0 && !client.at_rest() {
            actions.push(Action::Crash(n));
        }
    }

    /// How a client may spend the next tick. One with nothing to do is awake: nobody could tell.
    fn nights(&self, client: &Client, sleeps: u8) -> Vec<Night> {
        let mut nights = vec![Night::Awake];
        if sleeps == 0 || client.at_rest() {
            return nights;
        }
        nights.push(Night::Asleep);
        if self.bounds.freezes {
            let [boot, wall] = client.stopped;
            nights.extend((!wall).then_some(Night::OnlyWall));
            nights.extend((!boot).then_some(Night::OnlyBoot));
        }
        if self.bounds.broken == Some(Broken::BothClocksStop) {
            nights.push(Night::NoClock);
        }
        nights
    }
}

impl Model for Locks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What comes after a rule was broken says nothing.
        if state.broken.is_some() {
            return;
        }
        for n in 0..2 {
            self.of_client(state, n, actions);
        }
        if state.left.deletes > 0 && state.table.row.is_some() {
            actions.push(Action::DeleteRow);
        }
        if self.bounds.horizon.is_some_and(|horizon| state.tick >= horizon) {
            return;
        }
        let nights = [0, 1].map(|n| self.nights(&state.clients[n], state.left.sleeps));
        for rates in self.bounds.pairs() {
            for one in &nights[0] {
                for other in &nights[1] {
                    actions.push(Action::Tick(*rates, [*one, *other]));
                    if state.left.short_ticks > 0 {
                        actions.push(Action::ShortTick(*rates, [*one, *other]));
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.step(self, action)?;
        state.key = state.identity(&self.bounds);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(Rule::Exclusion.name(), |_, state: &State| state.keeps(Rule::Exclusion)),
            Property::always(Rule::Effect.name(), |_, state: &State| state.keeps(Rule::Effect)),
            Property::always(Rule::Order.name(), |_, state: &State| state.keeps(Rule::Order)),
            Property::always(Rule::EarlyEnd.name(), |_, state: &State| state.keeps(Rule::EarlyEnd)),
            Property::always(Rule::Revival.name(), |_, state: &State| state.keeps(Rule::Revival)),
        ]
    }
}
