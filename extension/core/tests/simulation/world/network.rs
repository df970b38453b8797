//! The way to the store and back: latency, faults, time-outs.

use super::env::Waited;
use super::store::Condition;
use super::{Broken, Event, Mistake, Profile, World};
use crate::common::{MS, SECOND};
use leasekeeper_core::{Answer, Input, Op, Refusal, RequestNo, Seen, StoreRequest};

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

/// One request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) env: usize,
    pub(crate) life: u32,
    pub(crate) no: RequestNo,
    pub(crate) key: u64,
    pub(crate) op: Op<u64>,
    pub(crate) condition: Condition,
    pub(crate) fate: Fate,
}

impl World {
    pub(crate) fn send(&mut self, n: usize, request: StoreRequest<u64>) {
        self.tally.requests += 1;
        let StoreRequest { no, lease, key, op, timeout, connect_timeout } = request;
        let (op, condition) = self.mutate_request(n, op);
        let fate = self.fate(n, &op);
        let within = if self.rng.chance(10) { connect_timeout } else { timeout };
        let t = self.t;
        let env = &mut self.envs[n];
        let life = env.life;
        let gives_up = t + env.clocks.true_delay(within);
        if self.mistake == Mistake::CleanOnce
            && let Op::Delete { owner } = &op
            && !env.notes.deleted.insert(*owner)
        {
            env.waited.push(Waited { no, lease, sent: t, op });
            return self.at(t + 1, Event::Answer { env: n, life, no, answer: Answer::Failed(Seen::Nothing) });
        }
        if fate != Fate::Fine {
            let pause = match (fate, &op) {
                (Fate::Throttled | Fate::Denied, _) => 1_300 * MS,
                (_, Op::Renew { .. }) => 130 * MS + (self.plan.longest_lease() / 11).min(SECOND),
                _ => 130 * MS,
            };
            env.trouble(gives_up + pause);
        }
        env.waited.push(Waited { no, lease, sent: t, op: op.clone() });
        self.at(gives_up, Event::TimedOut { env: n, life, no });
        if fate == Fate::RequestLost {
            return;
        }
        let mut at = t + self.latency();
        if fate == Fate::Late {
            at += self.lateness_on_the_way(&op);
        }
        let parcel = Parcel { env: n, life, no, key, op, condition, fate };
        if fate == Fate::Twice {
            let again = at + self.rng.below(3 * self.plan.longest_lease());
            // The stated exception: what no layer may do can leave a row, and bring a released one back.
            match &parcel.op {
                Op::Create { row } => {
                    self.late.push(row.owner);
                    self.twice.push(row.owner);
                }
                Op::Replace { row, .. } => self.replaced_twice.push(row.owner),
                _ => {}
            }
            self.at(again, Event::Arrive(Parcel { fate: Fate::ReplyLost, ..parcel.clone() }));
        }
        self.at(at, Event::Arrive(parcel));
    }

    pub(crate) fn latency(&mut self) -> u64 {
        let (low, high) = self.plan.latency;
        if self.plan.profile == Profile::Edge { self.rng.pick(&[low, high]) } else { self.rng.between(low, high) }
    }

    fn lateness_on_the_way(&mut self, op: &Op<u64>) -> u64 {
        if self.plan.profile == Profile::Mild {
            // Within the clean-up's budget: it must not leave a row.
            return self.rng.below((self.plan.shortest_lease() * 3 / 10).min(5 * SECOND));
        }
        if let Op::Create { row } | Op::Replace { row, .. } = op {
            self.late.push(row.owner);
        }
        self.rng.below(2 * self.plan.longest_lease())
    }

    fn fate(&mut self, n: usize, op: &Op<u64>) -> Fate {
        if self.calm {
            return Fate::Fine;
        }
        if self.t < self.envs[n].cut_off_until {
            return if self.rng.chance(70) { Fate::RequestLost } else { Fate::ReplyLost };
        }
        if self.plan.broken == Some(Broken::Duplicates) && *op != Op::Read && self.rng.chance(20) {
            return Fate::Twice;
        }
        const FAULTS: [Fate; 9] = [
            Fate::RequestLost,
            Fate::ReplyLost,
            Fate::Throttled,
            Fate::Refused,
            Fate::FaultBefore,
            Fate::FaultAfter,
            Fate::Late,
            Fate::Denied,
            Fate::Twice,
        ];
        if self.plan.profile == Profile::Mild {
            return if self.healthy_fault(n) { self.rng.pick(&FAULTS[..7]) } else { Fate::Fine };
        }
        if !self.rng.chance(self.plan.faults) {
            return Fate::Fine;
        }
        let fate = self.rng.pick(&FAULTS);
        if fate == Fate::Denied && !self.rng.chance(10) { Fate::Throttled } else { fate }
    }

    /// What a healthy holder must survive: one or two faults in a row, then a lease's rest.
    fn healthy_fault(&mut self, n: usize) -> bool {
        let (t, rest) = (self.t, self.plan.longest_lease());
        if self.envs[n].faults_left == 0 {
            if self.envs[n].last_fault.is_some_and(|last| t - last <= rest) || !self.rng.chance(self.plan.faults) {
                return false;
            }
            self.envs[n].faults_left = self.rng.between(1, 2);
        }
        let env = &mut self.envs[n];
        env.faults_left -= 1;
        env.last_fault = Some(t);
        true
    }

    pub(crate) fn arrive(&mut self, parcel: &Parcel) {
        let Parcel { env: n, life, no, key, op, condition, fate } = parcel;
        let answer = match fate {
            Fate::Throttled => Answer::Throttled(String::new()),
            Fate::Refused => Answer::Unavailable(String::new()),
            Fate::FaultBefore => Answer::Unknown(String::new()),
            Fate::Denied => Answer::Denied(Refusal::Denied, String::new()),
            _ => {
                let back = self.comes_back(op);
                let effect = self.store.apply(self.t, *key, op, *condition);
                if self.verbose {
                    eprintln!("{:>12} store: {op:?} of {n}: {:?}", self.t, effect.answer);
                }
                // What a process that is gone had sent is not held against the next one.
                let own = matches!(op, Op::Replace { owner, .. } if self.is_own(*n, *owner));
                self.check_write(op, &effect, own || self.envs[*n].life != *life, back);
                effect.answer
            }
        };
        let answer = match fate {
            Fate::ReplyLost => return,
            Fate::FaultAfter => Answer::Unknown(String::new()),
            _ => answer,
        };
        let back = self.t + self.latency();
        self.at(back, Event::Answer { env: *n, life: *life, no: *no, answer });
    }

    /// An answer, or the lack of one, reaches the driver: the first word on a request counts.
    pub(crate) fn deliver(&mut self, n: usize, life: u32, no: RequestNo, answer: Answer<u64>) {
        let t = self.t;
        let env = &mut self.envs[n];
        if env.life != life || !env.alive {
            return;
        }
        let Some(place) = env.waited.iter().position(|waited| waited.no == no) else { return };
        let waited = env.waited.swap_remove(place);
        env.denied |= matches!(answer, Answer::Denied(..));
        // What comes while it is frozen may be too late to be looked at.
        if let (Answer::Found(seen) | Answer::Failed(seen), Some(record), false) =
            (&answer, env.record(waited.lease), env.frozen)
        {
            let key = record.key as usize;
            let sight = &mut env.sights[key];
            match seen {
                Seen::Row(row) if (row.owner, row.version) == (sight.owner, sight.version) => {}
                Seen::Row(row) => *sight = super::env::Sight { owner: row.owner, version: row.version, since: t },
                Seen::Nothing | Seen::Foreign(_) => *sight = super::env::Sight::default(),
            }
        }
        let answer = if self.mistake == Mistake::None { answer } else { self.mutate_answer(n, &waited, answer) };
        let env = &mut self.envs[n];
        if env.frozen {
            env.inbox.push(Input::Answer(no, answer));
        } else {
            let rtt = t - waited.sent;
            if self.mistake == Mistake::ValidFromReply
                && answer == Answer::Done
                && !matches!(waited.op, Op::Delete { .. })
                && let Some(record) = env.record_mut(waited.lease)
            {
                record.bonus = rtt;
            }
            self.handle(n, Input::Answer(no, answer));
        }
    }
}
