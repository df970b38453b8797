//! The way to the store and back: latency, faults, time-outs; and what mistakes on purpose change on it.

use super::env::Waited;
use super::store::Condition;
use super::{Broken, Event, Mutation, Profile, World};
use leasekeeper_core::{Answer, Input, Op, Refusal, RequestNo, Row, Seen, StoreRequest};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Fine,
    /// It never arrives.
    RequestLost,
    /// It is carried out, and its reply is lost.
    ReplyLost,
    /// It arrives long after its time-out.
    Late,
    Throttled,
    /// The connection is refused.
    Refused,
    /// The store answers 500, and has done nothing.
    FaultBefore,
    /// The store answers 500 after it committed.
    FaultAfter,
    Denied,
    /// It arrives twice.
    Twice,
}

impl World {
    pub(crate) fn send(&mut self, n: usize, request: StoreRequest<u64>) {
        self.tally.requests += 1;
        let StoreRequest { no, lease, key, op, timeout, connect_timeout } = request;
        let (op, condition) = self.mutate_request(n, op);
        let fate = self.fate(n, &op);
        let within = if self.rng.chance(10) { connect_timeout } else { timeout };
        let env = &mut self.envs[n];
        let life = env.life;
        let gives_up = self.t + env.clocks.true_delay(within);
        if self.mutation == Mutation::CleanOnce
            && let Op::Delete { owner } = &op
            && !env.notes.deleted.insert(*owner)
        {
            env.waited.insert(no, Waited { lease, sent: self.t, op });
            return self.at(self.t + 1, Event::Answer { env: n, life, no, answer: Answer::Failed(Seen::Nothing) });
        }
        env.waited.insert(no, Waited { lease, sent: self.t, op: op.clone() });
        let unknown = Answer::Unknown("time-out".into());
        self.at(gives_up, Event::Answer { env: n, life, no, answer: unknown });
        if fate == Fate::RequestLost {
            return;
        }
        let mut at = self.t + self.latency();
        if fate == Fate::Late {
            at += self.rng.below(2 * self.plan.longest_lease());
            if let Op::Create { row } | Op::Replace { row, .. } = &op {
                self.late.insert(row.owner);
            }
        }
        if fate == Fate::Twice {
            let again = at + self.rng.below(3 * self.plan.longest_lease());
            let (op, fate) = (op.clone(), Fate::ReplyLost);
            self.at(again, Event::Arrive { env: n, life, no, key, op, condition, fate });
        }
        self.at(at, Event::Arrive { env: n, life, no, key, op, condition, fate });
    }

    fn latency(&mut self) -> u64 {
        let (low, high) = self.plan.latency;
        if self.plan.profile == Profile::Edge { self.rng.pick(&[low, high]) } else { self.rng.between(low, high) }
    }

    fn fate(&mut self, n: usize, op: &Op<u64>) -> Fate {
        if self.calm {
            return Fate::Fine;
        }
        let env = &self.envs[n];
        if self.t < env.cut_off_until {
            return if self.rng.chance(70) { Fate::RequestLost } else { Fate::ReplyLost };
        }
        let mild = self.plan.profile == Profile::Mild;
        let rested = env.last_fault.is_none_or(|last| self.t - last > self.plan.longest_lease());
        if !self.rng.chance(self.plan.faults) || (mild && !rested) {
            let twice = self.plan.broken == Some(Broken::Duplicates) && *op != Op::Read && self.rng.chance(20);
            return if twice { Fate::Twice } else { Fate::Fine };
        }
        self.envs[n].last_fault = Some(self.t);
        let faults = [
            Fate::RequestLost,
            Fate::ReplyLost,
            Fate::Throttled,
            Fate::Refused,
            Fate::FaultBefore,
            Fate::FaultAfter,
            Fate::Late,
            Fate::Denied,
        ];
        let fate = if mild { self.rng.pick(&faults[..6]) } else { self.rng.pick(&faults) };
        if fate == Fate::Denied && !self.rng.chance(10) { Fate::Throttled } else { fate }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one event")]
    pub(crate) fn arrive(
        &mut self,
        n: usize,
        life: u32,
        no: RequestNo,
        key: u64,
        op: &Op<u64>,
        condition: Condition,
        fate: Fate,
    ) {
        let answer = match fate {
            Fate::Throttled => Answer::Throttled("slow down".into()),
            Fate::Refused => Answer::Unavailable("connection refused".into()),
            Fate::FaultBefore => Answer::Unknown("internal error".into()),
            Fate::Denied => Answer::Denied(Refusal::Denied, "no permission".into()),
            _ => {
                let effect = self.store.apply(self.t, key, op, condition);
                if self.verbose {
                    eprintln!("{:>12} store: {op:?} of {n}: {:?}", self.t, effect.answer);
                }
                self.check_write(n, key, op, &effect);
                effect.answer
            }
        };
        let answer = match fate {
            Fate::ReplyLost => return,
            Fate::FaultAfter => Answer::Unknown("internal error".into()),
            _ => answer,
        };
        let back = self.t + self.latency();
        self.at(back, Event::Answer { env: n, life, no, answer });
    }

    /// An answer, or the lack of one, reaches the driver: the first word on a request counts.
    pub(crate) fn deliver(&mut self, n: usize, life: u32, no: RequestNo, answer: Answer<u64>) {
        let env = &mut self.envs[n];
        if env.life != life || !env.alive {
            return;
        }
        let Some(waited) = env.waited.remove(&no) else { return };
        env.denied |= matches!(answer, Answer::Denied(..));
        let answer = self.mutate_answer(n, &waited, answer);
        let env = &mut self.envs[n];
        if env.frozen {
            env.inbox.push(Input::Answer(no, answer));
        } else {
            let rtt = self.t - waited.sent;
            if self.mutation == Mutation::ValidFromReply
                && answer == Answer::Done
                && !matches!(waited.op, Op::Delete { .. })
                && let Some(record) = env.records.get_mut(&waited.lease)
            {
                record.bonus = rtt;
            }
            self.handle(n, Input::Answer(no, answer));
        }
    }

    fn mutate_request(&mut self, n: usize, mut op: Op<u64>) -> (Op<u64>, Condition) {
        let env = &mut self.envs[n];
        let condition = match (self.mutation, &op) {
            (Mutation::RenewUnconditional, Op::Renew { .. })
            | (Mutation::DeleteUnconditional, Op::Delete { .. })
            | (Mutation::TakeoverUnconditional, Op::Replace { .. }) => Condition::None,
            (Mutation::TakeoverOnOwner, Op::Replace { .. }) => Condition::OwnerOnly,
            _ => Condition::Whole,
        };
        match (self.mutation, &mut op) {
            (Mutation::NoMargin, Op::Create { row } | Op::Replace { row, .. }) => {
                row.lease_ms = (row.lease_ms * 9).div_ceil(10);
            }
            (Mutation::TimerKeyedByOwner, Op::Replace { owner, version, .. }) => {
                if let Some((_, latest)) = env.notes.versions.get(owner) {
                    *version = *latest;
                }
            }
            (Mutation::SameVersionOnRetry, Op::Renew { owner, last, new }) => {
                *last = env.notes.wire.get(last).copied().unwrap_or(*last);
                let core = *new;
                if let Some((wire, _)) = env.notes.open.get(owner) {
                    *new = *wire;
                }
                env.notes.wire.insert(core, *new);
                env.notes.open.insert(*owner, (*new, core));
            }
            _ => {}
        }
        (op, condition)
    }

    fn mutate_answer(&mut self, n: usize, waited: &Waited, answer: Answer<u64>) -> Answer<u64> {
        let sent = waited.sent;
        let passed_ms = (self.t - sent).div_ceil(1_000);
        let env = &mut self.envs[n];
        let own_lease = env.records.get(&waited.lease).map(|record| record.lease_ms);
        let mut change = |mut row: Row<u64>| {
            let own = env.owners.contains(&row.owner);
            match self.mutation {
                Mutation::OwnLease => row.lease_ms = own_lease.unwrap_or(row.lease_ms),
                Mutation::ObserveFromSend if !own => {
                    let told = env.notes.told.entry((row.owner, row.version));
                    row.lease_ms = *told.or_insert(row.lease_ms.saturating_sub(passed_ms));
                }
                Mutation::TimerKeyedByOwner if !own => {
                    let known = env.notes.versions.entry(row.owner).or_insert((row.version, row.version));
                    known.1 = row.version;
                    row.version = known.0;
                }
                Mutation::SameVersionOnRetry => {
                    if let Some((wire, core)) = env.notes.open.get(&row.owner)
                        && *wire == row.version
                    {
                        row.version = *core;
                    }
                }
                Mutation::NoAdoption if own && matches!(waited.op, Op::Renew { .. }) => row.owner = 1,
                _ => {}
            }
            row
        };
        let answer = match answer {
            Answer::Found(Seen::Row(row)) => Answer::Found(Seen::Row(change(row))),
            Answer::Failed(Seen::Row(row)) => Answer::Failed(Seen::Row(change(row))),
            Answer::Throttled(text)
                if self.mutation == Mutation::ThrottleIsFinal
                    && matches!(waited.op, Op::Create { .. } | Op::Replace { .. }) =>
            {
                Answer::Denied(Refusal::Denied, text)
            }
            other => other,
        };
        if let Op::Renew { owner, .. } = &waited.op
            && matches!(answer, Answer::Done | Answer::Failed(_))
        {
            self.envs[n].notes.open.remove(owner);
        }
        answer
    }
}
