//! The state machine's frame: time first, then the input, then whatever has become due.

use crate::deferred::Deferred;
use crate::elapsed::Elapsed;
use crate::lease::{Contest, End, Entry, Kind, Pending, Phase, PutState};
use crate::memory::{Abandoned, Invocations, Observations};
use crate::wrong::{Wrong, WrongRule};
use crate::{
    Answer, Entropy, Input, LeaseId, LostReason, Micros, Now, Op, Output, Refused, RequestNo, Seen, StoreRequest,
    Symbol,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the core has to know of its surroundings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The environment is frozen between invocations, and an invocation's begin ends all others (on-demand functions).
    pub freezes: bool,
    /// How many rows' observations, owners given up and invocations are remembered.
    pub memory: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { freezes: true, memory: 4_096 }
    }
}

/// The lock protocol for one process: its leases, what it has seen of others', and what is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Core<S: Symbol> {
    pub(crate) config: Config,
    pub(crate) clock: Elapsed,
    pub(crate) leases: BTreeMap<LeaseId, Entry<S>>,
    /// The leases of each key: no step looks through all leases for those of one key.
    pub(crate) by_key: BTreeMap<S, BTreeSet<LeaseId>>,
    /// Acquires that wait for an INVOKE of their own.
    pub(crate) deferred: BTreeMap<LeaseId, Deferred<S>>,
    pub(crate) contests: BTreeMap<S, Contest>,
    pub(crate) requests: BTreeMap<RequestNo, Pending<S>>,
    pub(crate) observations: Observations<S>,
    pub(crate) abandoned: Abandoned<S>,
    pub(crate) invocations: Invocations<S>,
    /// Renewals wait until then, on the timer clock: an INVOKE may be about to end their invocation.
    pub(crate) thaw_until: Option<Micros>,
    /// The wait was started anew by a second late reading.
    thaw_extended: bool,
    /// The end has begun: no new locks.
    pub(crate) ending: bool,
    next_request: RequestNo,
    outputs: VecDeque<Output<S>>,
    pub(crate) wrong: Wrong<S>,
}

impl<S: Symbol> Core<S> {
    /// A core that holds nothing.
    pub fn new(config: Config) -> Self {
        let memory = config.memory;
        Self {
            config,
            clock: Elapsed::default(),
            leases: BTreeMap::new(),
            by_key: BTreeMap::new(),
            deferred: BTreeMap::new(),
            contests: BTreeMap::new(),
            requests: BTreeMap::new(),
            observations: Observations::new(memory),
            abandoned: Abandoned::new(memory),
            invocations: Invocations::new(memory),
            thaw_until: None,
            thaw_extended: false,
            ending: false,
            next_request: 0,
            outputs: VecDeque::new(),
            wrong: Wrong::default(),
        }
    }

    /// Takes one input at the time `now`. `entropy` is drawn from for ids and pauses only.
    pub fn handle<E: Entropy<S>>(&mut self, now: Now, input: Input<S>, entropy: &mut E) {
        let step = self.clock.advance(now);
        if self.breaks(WrongRule::ObserveOnWall) {
            self.clock.seen = self.clock.seen.max(now.wall);
        }
        if step.wall_stepped_back {
            self.renew_all_now();
        }
        self.notice_jump(step.passed);
        // Validity is looked at before any answer: one that comes too late revives nothing.
        self.expire(entropy);
        match input {
            Input::Acquire(acquire) => self.acquire(acquire, entropy),
            Input::Release(lease) => {
                if !self.drop_deferred(lease, Refused::TakenBack) {
                    self.release(lease, entropy);
                }
            }
            Input::GiveUp(lease, reason) => {
                if !self.drop_deferred(lease, Refused::GivenUp(reason)) {
                    self.give_up(lease, reason);
                }
            }
            Input::Answer(no, answer) => self.answer(no, answer, entropy),
            Input::Tick => {}
            Input::InvocationBegan { scope, remaining } => self.invocation_began(&scope, remaining, entropy),
            Input::Drain => self.drain(),
            Input::Shutdown => self.shut_down(),
        }
        self.pump(entropy);
    }

    /// The next thing to do or tell; empty it after every [`Core::handle`].
    pub fn poll(&mut self) -> Option<Output<S>> {
        self.outputs.pop_front()
    }

    /// For how long a granted lease is valid from the last `handle` on, without another renewal; `None` if it is not.
    pub fn valid_for(&self, lease: LeaseId) -> Option<Micros> {
        let entry = self.leases.get(&lease)?;
        let holding = entry.holding().filter(|holding| holding.ungranted.is_none())?;
        let left = (holding.start + entry.lease().validity()).saturating_sub(self.clock.held);
        (left > 0).then_some(left)
    }

    /// Nothing is held, waited for or being given back.
    pub fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.deferred.is_empty()
    }

    /// What is held, waited for or given back under `key`.
    pub(crate) fn of_key(&self, key: &S) -> impl Iterator<Item = &Entry<S>> {
        self.by_key.get(key).into_iter().flatten().filter_map(|id| self.leases.get(id))
    }

    pub(crate) fn emit(&mut self, output: Output<S>) {
        self.outputs.push_back(output);
    }

    /// Sends one request for `lease`.
    pub(crate) fn send(&mut self, lease: LeaseId, kind: Kind<S>, op: Op<S>, at_most: Option<Micros>) -> RequestNo {
        let entry = self.leases.get(&lease).expect("requests are sent for leases that exist");
        let (key, times) = (entry.key.clone(), self.timed_by(entry.lease()));
        let clip = |time: Micros| at_most.map_or(time, |most| time.min(most)).max(1);
        self.next_request += 1;
        let no = self.next_request;
        let expires = self.clock.timer + times.answer_within();
        self.requests.insert(no, Pending { lease, key: key.clone(), kind, expires });
        self.emit(Output::Send(StoreRequest {
            no,
            lease,
            key,
            op,
            timeout: clip(times.timeout()),
            connect_timeout: clip(times.connect_timeout()),
        }));
        no
    }

    fn answer<E: Entropy<S>>(&mut self, no: RequestNo, answer: Answer<S>, entropy: &mut E) {
        // Answers to requests that were given up, here or by their lease's end, are ignored.
        let Some(pending) = self.requests.remove(&no) else { return };
        if let Answer::Found(seen) | Answer::Failed(seen) = &answer {
            self.note_seen(&pending.key, seen, no);
        }
        match pending.kind {
            Kind::Put => self.put_answered(pending.lease, no, answer, entropy),
            Kind::Poll => self.poll_answered(&pending.key, no, answer, entropy),
            Kind::Renew { version, sent } => self.renewal_answered(pending.lease, no, &version, sent, answer),
            Kind::Delete { owner } => self.delete_answered(pending.lease, &owner, answer, entropy),
        }
    }

    /// Remembers what stands under `key`, as the answer to request `by` shows.
    fn note_seen(&mut self, key: &S, seen: &Seen<S>, by: RequestNo) {
        match seen {
            Seen::Row(row) => self.observations.note(key, row, self.clock.seen),
            Seen::Nothing | Seen::Foreign(_) => self.observations.forget(key),
        }
        let shown = match seen {
            Seen::Row(row) => Some((&row.owner, &row.version)),
            _ => None,
        };
        for id in self.by_key.get(key).into_iter().flatten() {
            let Some(entry) = self.leases.get_mut(id) else { continue };
            entry.puts.retain_mut(|put| {
                if shown == Some((&put.owner, &put.version)) {
                    put.state = PutState::Landed;
                }
                // Versions are never reused: once the row that it would replace is gone, the Put cannot land any more.
                // Only a request sent after the Put can tell.
                let missed = put.state == PutState::Unknown
                    && put.no < by
                    && put.over.as_ref().is_some_and(|(owner, version)| shown != Some((owner, version)));
                !missed
            });
        }
    }

    /// Ends what time alone has ended.
    fn expire<E: Entropy<S>>(&mut self, entropy: &mut E) {
        self.expire_deferred();
        let late: Vec<_> =
            self.requests.iter().filter(|(_, p)| p.expires <= self.clock.timer).map(|(no, _)| *no).collect();
        let held = self.clock.held;
        let over: Vec<_> = self.leases.iter().filter_map(|(id, entry)| Some((*id, entry.end(held)?))).collect();
        for (id, end) in over {
            match end {
                End::Validity => self.validity_over(id, entropy),
                End::Invocation => self.give_up(id, LostReason::Deadline),
                End::LongestHold => self.give_up(id, LostReason::MaxHold),
            }
        }
        for no in late {
            self.answer(no, Answer::Unknown("no answer in time".into()), entropy);
        }
    }

    /// Does what has become due: holders first, so that their renewals go before waiters' polls.
    fn pump<E: Entropy<S>>(&mut self, entropy: &mut E) {
        self.thaw_until = self.thaw_until.filter(|until| self.clock.timer < *until);
        for id in self.leases_where(|entry| self.hold_is_due(entry)) {
            self.hold_step(id, entropy);
        }
        for id in self.leases_where(|entry| entry.holding().is_none()) {
            match self.leases.get(&id).map(|entry| &entry.phase) {
                Some(Phase::Waiting(_)) => self.wait_step(id, entropy),
                Some(Phase::Lapsing { until }) if self.clock.held >= *until => self.clean(id, None),
                _ => {}
            }
            self.clean_step(id, entropy);
        }
        let keys: Vec<_> = self.contests.keys().cloned().collect();
        for key in keys {
            self.contest_step(&key, entropy);
        }
    }

    /// A reading that comes late while leases are held may follow a freeze.
    fn notice_jump(&mut self, passed: Micros) {
        let before = self.clock.held - passed;
        let late = |entry: &&Entry<S>| passed > entry.lease().cadence() + entry.lease().late();
        let held = self.leases.values().filter(late).filter(|entry| entry.may_be_held(before));
        if let Some(shortest) = held.map(Entry::lease).min_by_key(|lease| lease.full()) {
            self.emit(Output::Thawed);
            if self.config.freezes && !self.breaks(WrongRule::NoThawWait) {
                // A late reading while renewals already wait may be a second freeze; a third one is starvation, and
                // to wait for ever would lose the lease.
                if self.thaw_until.is_none() || !self.thaw_extended {
                    self.thaw_extended = self.thaw_until.is_some();
                    self.thaw_until = Some(self.clock.timer + shortest.thaw_wait());
                }
            }
        }
    }

    fn invocation_began<E: Entropy<S>>(&mut self, scope: &S, remaining: Option<Micros>, entropy: &mut E) {
        if !self.config.freezes {
            return;
        }
        self.thaw_until = None;
        self.invocations.began(scope);
        let deadline = remaining.map(|remaining| self.clock.held.saturating_add(remaining));
        let mut over = Vec::new();
        for (id, entry) in &mut self.leases {
            match &entry.scope {
                Some(own) if own == scope => {
                    entry.deadline = [entry.deadline, deadline].into_iter().flatten().min();
                }
                Some(_) => over.push(*id),
                None => {}
            }
        }
        for id in over {
            self.give_up(id, LostReason::Thaw);
        }
        self.begin_deferred(scope, entropy);
    }

    fn drain(&mut self) {
        self.ending = true;
        let deferred: Vec<_> = self.deferred.keys().copied().collect();
        for id in deferred {
            self.drop_deferred(id, Refused::GivenUp(LostReason::Shutdown));
        }
        self.give_up_where(|entry| !entry.is_granted());
    }

    fn shut_down(&mut self) {
        self.drain();
        self.give_up_where(|_| true);
    }

    fn give_up_where(&mut self, which: impl Fn(&Entry<S>) -> bool) {
        for id in self.leases_where(which) {
            self.give_up(id, LostReason::Shutdown);
        }
    }

    /// Looks at each lease once: with a thousand of them this is what an input costs.
    fn leases_where(&self, which: impl Fn(&Entry<S>) -> bool) -> Vec<LeaseId> {
        self.leases.iter().filter(|(_, entry)| which(entry)).map(|(id, _)| *id).collect()
    }

    /// How long until something becomes due, from the last [`Core::handle`] on; `None` when only an input can bring work.
    pub fn next_wakeup(&self) -> Option<Micros> {
        let requests = self.requests.values().map(|pending| pending.expires.saturating_sub(self.clock.timer));
        let leases = self.leases.values().filter_map(|entry| self.lease_wakeup(entry));
        let contests = self.contests.iter().flat_map(|(key, contest)| self.contest_wakeups(key, contest));
        requests.chain(leases).chain(contests).chain(self.deferred_wakeups()).min().map(|delay| delay.max(1))
    }

    fn lease_wakeup(&self, entry: &Entry<S>) -> Option<Micros> {
        let on_timer = |at: Micros| at.saturating_sub(self.clock.timer);
        let on_held = |at: Micros| at.saturating_sub(self.clock.held);
        let cadence = entry.may_be_held(self.clock.held).then(|| entry.lease().cadence());
        let due = match &entry.phase {
            Phase::Waiting(waiting) => {
                let own = (!entry.flying()).then(|| {
                    let until = on_timer(waiting.until);
                    waiting.retry_at.map_or(until, |at| until.min(on_timer(at)))
                });
                soonest([entry.deadline.map(on_held), own])
            }
            Phase::Holding(holding) => {
                let (lease, start) = (entry.lease(), holding.start);
                let granted = holding.ungranted.is_none();
                let renew = holding.in_flight.is_none().then(|| {
                    let renew = holding.retry_at.map_or_else(|| on_held(start + lease.renew_after()), on_timer);
                    self.thaw_until.map_or(renew, |until| renew.max(on_timer(until)))
                });
                soonest([
                    Some(on_held(start + lease.validity())),
                    entry.deadline.map(on_held),
                    holding.hold_until.map(on_held),
                    holding.ungranted.as_ref().map(|waiting| on_timer(waiting.until)),
                    (granted && !holding.in_danger).then(|| on_held(start + lease.danger_after())),
                    renew,
                ])
            }
            Phase::Lapsing { until } => Some(on_held(*until)),
            Phase::Cleaning(cleaning) => {
                let settled = entry.puts.iter().any(|put| put.state != PutState::Flying);
                // While a request is under way its answer, or the lack of one, brings the next step.
                let idle = cleaning.in_flight.is_none() && cleaning.handed_to.is_none();
                (settled && idle && self.clock.timer < cleaning.until)
                    .then(|| on_timer(cleaning.until.min(cleaning.next)))
            }
        };
        soonest([cadence, due])
    }
}

fn soonest<const N: usize>(delays: [Option<Micros>; N]) -> Option<Micros> {
    delays.into_iter().flatten().min()
}
