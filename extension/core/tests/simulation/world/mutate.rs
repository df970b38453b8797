//! What mistakes on purpose change of a request on its way to the store, and of the answer on its way back.

use super::env::Waited;
use super::store::Condition;
use super::{Mistake, World};
use leasekeeper_core::{Answer, Op, Refusal, Row, Seen};

impl World {
    pub(crate) fn mutate_request(&mut self, n: usize, mut op: Op<u64>) -> (Op<u64>, Condition) {
        let env = &mut self.envs[n];
        let condition = match (self.mistake, &op) {
            (Mistake::RenewUnconditional, Op::Renew { .. })
            | (Mistake::DeleteUnconditional, Op::Delete { .. })
            | (Mistake::TakeoverUnconditional, Op::Replace { .. }) => Condition::None,
            (Mistake::TakeoverOnOwner, Op::Replace { .. }) | (Mistake::RenewOnOwner, Op::Renew { .. }) => {
                Condition::OwnerOnly
            }
            _ => Condition::Whole,
        };
        match (self.mistake, &mut op) {
            (Mistake::NoMargin, Op::Create { row } | Op::Replace { row, .. }) => {
                row.lease_ms = (row.lease_ms * 9).div_ceil(10);
            }
            (Mistake::TimerKeyedByOwner, Op::Replace { owner, version, .. }) => {
                if let Some((_, latest)) = env.notes.versions.get(owner) {
                    *version = *latest;
                }
            }
            (Mistake::SameVersionOnRetry, Op::Renew { owner, last, new }) => {
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

    pub(crate) fn mutate_answer(&mut self, n: usize, waited: &Waited, answer: Answer<u64>) -> Answer<u64> {
        let passed_ms = (self.t - waited.sent).div_ceil(1_000);
        let (mistake, fresh) = (self.mistake, self.t | 1 << 60);
        let env = &mut self.envs[n];
        let own_lease = env.record(waited.lease).map(|record| record.lease_ms);
        let (of, notes) = (self.everyone, &mut env.notes);
        let mut change = |mut row: Row<u64>| {
            let own = row.owner % of == (super::env::FIRST_ID + n as u64) % of;
            match mistake {
                Mistake::OwnLease => row.lease_ms = own_lease.unwrap_or(row.lease_ms),
                Mistake::ObserveFromSend if !own => {
                    let told = notes.told.entry((row.owner, row.version));
                    row.lease_ms = *told.or_insert(row.lease_ms.saturating_sub(passed_ms));
                }
                Mistake::ObserveAnew if !own => row.version = fresh,
                Mistake::TimerKeyedByOwner if !own => {
                    let known = notes.versions.entry(row.owner).or_insert((row.version, row.version));
                    known.1 = row.version;
                    row.version = known.0;
                }
                Mistake::SameVersionOnRetry => {
                    if let Some((wire, core)) = notes.open.get(&row.owner)
                        && *wire == row.version
                    {
                        row.version = *core;
                    }
                }
                Mistake::NoAdoption if own && matches!(waited.op, Op::Renew { .. }) => row.owner = 1,
                _ => {}
            }
            row
        };
        let answer = match answer {
            Answer::Found(Seen::Row(row)) => Answer::Found(Seen::Row(change(row))),
            Answer::Failed(Seen::Row(row)) => Answer::Failed(Seen::Row(change(row))),
            Answer::Throttled(text)
                if mistake == Mistake::ThrottleIsFinal
                    && matches!(waited.op, Op::Create { .. } | Op::Replace { .. }) =>
            {
                Answer::Denied(Refusal::Denied, text)
            }
            Answer::Throttled(_) | Answer::Unavailable(_) | Answer::Unknown(_)
                if mistake == Mistake::NoRenewalRetry && matches!(waited.op, Op::Renew { .. }) =>
            {
                Answer::Failed(Seen::Nothing)
            }
            other => other,
        };
        if let Op::Renew { owner, .. } = &waited.op
            && matches!(answer, Answer::Done | Answer::Failed(_))
        {
            notes.open.remove(owner);
        }
        answer
    }
}
