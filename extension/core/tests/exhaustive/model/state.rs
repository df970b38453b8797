//! One state: two clients, the row, what is left of the bounds; and each step from it.

use super::bounds::{Bounds, Broken, MANY, Rate};
use super::canon::Canon;
use super::client::{Client, Guard, Message};
use super::ids::{FIRST_LEASE, Id};
use super::schedule::{Action, Night};
use super::table::Table;
use super::{Locks, Rule};
use leasekeeper_core::{Answer, Input, LeaseId};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What is left of the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    unknown: u8,
    pub(super) short_ticks: u8,
    pub(super) refusals: u8,
    pub(super) sleeps: u8,
    pub(super) resends: u8,
    pub(super) crashes: u8,
    pub(super) give_ups: u8,
    pub(super) deletes: u8,
}

/// Takes `n` from what is left; `None` if there is less.
fn spend(left: &mut u8, n: u8) -> Option<()> {
    if *left != MANY {
        *left = left.checked_sub(n)?;
    }
    Some(())
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) tick: u8,
    pub(crate) table: Table,
    pub(crate) clients: [Arc<Client>; 2],
    pub(super) left: Left,
    /// A rule that the last step has broken.
    pub(crate) broken: Option<Rule>,
    ids: u32,
    leases: LeaseId,
    /// Its identity; what the search compares.
    pub(super) key: u64,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.key);
    }
}

impl State {
    /// Nothing is asked for yet, and no clock has moved.
    pub(super) fn start(bounds: &Bounds) -> Self {
        let Bounds { unknown, short_ticks, refusals, sleeps, resends, crashes, give_ups, .. } = *bounds;
        let resends = if bounds.broken == Some(Broken::PutSentTwice) { 1 } else { resends };
        let deletes = u8::from(bounds.broken == Some(Broken::RowDeletedByHand));
        let mut state = Self {
            tick: 0,
            table: Table::default(),
            clients: bounds.asks.map(|asks| Arc::new(Client::new(bounds, asks))),
            left: Left { unknown, short_ticks, refusals, sleeps, resends, crashes, give_ups, deletes },
            broken: None,
            ids: 0,
            leases: FIRST_LEASE,
            key: 0,
        };
        state.key = state.identity(bounds);
        state
    }

    pub(super) fn fail(&mut self, model: &Locks, broken: Option<Rule>) {
        self.broken = self.broken.or(broken.filter(|rule| model.rules.contains(rule)));
    }

    fn handle(&mut self, model: &Locks, n: usize, input: Input<Id>) {
        let client = Arc::make_mut(&mut self.clients[n]);
        let (broken, confirmed) = client.handle(&model.bounds, input, &mut self.ids, &model.moments);
        self.fail(model, broken);
        for owner in confirmed {
            let broken = self.table.close(owner);
            self.fail(model, broken);
        }
    }

    /// The sender of a request stops waiting for its answer.
    fn give_up_waiting(&mut self, model: &Locks, n: usize, at: usize) -> Option<()> {
        spend(&mut self.left.unknown, 1)?;
        let client = Arc::make_mut(&mut self.clients[n]);
        let message = client.messages.get_mut(at).filter(|message| message.awaited())?;
        let no = std::mem::take(&mut message.no);
        client.messages.retain(|message| message.awaited() || message.answer.is_none());
        self.handle(model, n, Input::Answer(no, Answer::Unknown(String::new())));
        Some(())
    }

    fn pass(&mut self, model: &Locks, short: bool, rates: [Rate; 2], nights: [Night; 2]) -> Option<()> {
        spend(&mut self.left.short_ticks, u8::from(short))?;
        self.tick += u8::from(model.bounds.horizon.is_some());
        for (n, (rate, night)) in rates.into_iter().zip(nights).enumerate() {
            let client = Arc::make_mut(&mut self.clients[n]);
            let by = model.bounds.tick(rate, short);
            let [boot_runs, wall_runs] = night.runs();
            let mono_runs = boot_runs && wall_runs;
            client.clocks.boot += if boot_runs { by } else { 0 };
            client.clocks.mono += if mono_runs { by } else { 0 };
            client.clocks.wall += if wall_runs { by } else { 0 };
            client.stopped[0] |= !boot_runs;
            client.stopped[1] |= !wall_runs;
        }
        for (n, night) in nights.into_iter().enumerate() {
            if night != Night::Awake {
                spend(&mut self.left.sleeps, 1)?;
                continue;
            }
            loop {
                let client = &self.clients[n];
                let late = |m: &Message| m.awaited() && m.due <= client.clocks.mono;
                let Some(at) = client.messages.iter().position(late) else { break };
                self.give_up_waiting(model, n, at)?;
            }
            self.handle(model, n, Input::Tick);
        }
        Some(())
    }

    pub(super) fn step(&mut self, model: &Locks, action: Action) -> Option<()> {
        let bounds = &model.bounds;
        match action {
            Action::Tick(rates, nights) => self.pass(model, false, rates, nights)?,
            Action::ShortTick(rates, nights) => self.pass(model, true, rates, nights)?,
            Action::Arrive(n, at) => self.arrive(model, n, at, false)?,
            Action::ArriveTwice(n, at) => {
                spend(&mut self.left.resends, 1)?;
                self.arrive(model, n, at, true)?;
            }
            Action::Reply(n, at) => {
                let message = Arc::make_mut(&mut self.clients[n]).messages.remove(at);
                self.handle(model, n, Input::Answer(message.no, message.answer?));
            }
            Action::Fail(n, at) => {
                spend(&mut self.left.refusals, 1)?;
                self.left.unknown = self.left.unknown.saturating_add(1);
                self.give_up_waiting(model, n, at)?;
            }
            Action::Refuse(n, at) => {
                spend(&mut self.left.refusals, 1)?;
                let message = Arc::make_mut(&mut self.clients[n]).messages.remove(at);
                self.handle(model, n, Input::Answer(message.no, Answer::Throttled(String::new())));
            }
            Action::Ask(n) => {
                self.leases += 1;
                let client = Arc::make_mut(&mut self.clients[n]);
                client.asks -= 1;
                client.guards.push(Guard {
                    lease: self.leases,
                    owner: None,
                    held: false,
                    gone: false,
                    over: false,
                    belief: 0,
                });
                let input = client.ask(bounds, self.leases);
                self.handle(model, n, input);
            }
            Action::Release(n, at) => {
                let input = Arc::make_mut(&mut self.clients[n]).release(at, bounds)?;
                self.handle(model, n, input);
            }
            Action::GiveUp(n, at) => {
                spend(&mut self.left.give_ups, 1)?;
                let input = self.clients[n].give_up(at, bounds.mistake)?;
                self.handle(model, n, input);
            }
            Action::Crash(n) => {
                spend(&mut self.left.crashes, 1)?;
                Arc::make_mut(&mut self.clients[n]).crash(bounds);
            }
            Action::DeleteRow => {
                spend(&mut self.left.deletes, 1)?;
                self.table.row.take()?;
            }
        }
        self.table.prune(&mut self.clients, bounds.mistake);
        Some(())
    }

    /// The state's identity: of the two clients, either may be called the first.
    pub(crate) fn identity(&self, bounds: &Bounds) -> u64 {
        let [one, other] = &self.clients;
        match one.shape().cmp(&other.shape()) {
            std::cmp::Ordering::Less => self.seen_from(bounds, [one, other]),
            std::cmp::Ordering::Greater => self.seen_from(bounds, [other, one]),
            std::cmp::Ordering::Equal => self.seen_from(bounds, [one, other]).min(self.seen_from(bounds, [other, one])),
        }
    }

    /// All that differs in anything, names and times of day included.
    pub(crate) fn raw(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.tick, &self.table, &self.clients, self.left, self.broken).hash(&mut hasher);
        hasher.finish()
    }

    fn seen_from(&self, bounds: &Bounds, clients: [&Client; 2]) -> u64 {
        let mut canon = Canon::new(bounds);
        let Left { unknown, short_ticks, refusals, sleeps, resends, crashes, give_ups, deletes } = self.left;
        canon.token(u64::from(self.tick));
        let counts = [short_ticks, unknown, refusals, sleeps, resends, crashes, give_ups, deletes];
        canon.token(u64::from_le_bytes(counts));
        canon.token(self.broken.map_or(0, |rule| 1 + rule as u64));
        self.table.row.hash(&mut canon);
        for client in clients {
            client.canon(&mut canon, bounds);
        }
        canon.known(self.table.closed.iter().copied());
        canon.known(self.table.committed.iter().copied());
        canon.digest()
    }

    fn believers(&self) -> usize {
        let of = |client: &Arc<Client>| client.guards.iter().filter(|guard| client.believes(guard)).count();
        self.clients.iter().map(of).sum()
    }

    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        match rule {
            Rule::Exclusion => self.believers() < 2,
            rule => self.broken != Some(rule),
        }
    }
}
