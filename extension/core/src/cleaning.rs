//! Giving back: release, hand-over inside the environment, and the clean-up of whatever an acquire may have left.

use crate::lease::{Kind, Phase, Put, PutState};
use crate::timing::LONGEST_PAUSE;
use crate::wrong::WrongRule;
use crate::{Answer, Core, Entropy, LeaseId, Op, Output, Refused, RequestNo, Seen, Symbol};

impl<S: Symbol> Core<S> {
    /// The client gave the lease back, closed its side or is proven dead: nobody believes in it from here on.
    pub(crate) fn release<E: Entropy<S>>(&mut self, id: LeaseId, entropy: &mut E) {
        let Some(entry) = self.leases.get(&id) else { return };
        match &entry.phase {
            Phase::Waiting(_) => self.finish_wait(id, Refused::TakenBack),
            Phase::Holding(holding) if holding.ungranted.is_some() => {
                self.wait_again(id);
                self.finish_wait(id, Refused::TakenBack);
            }
            Phase::Holding(holding) => {
                let (key, owner, last) = (entry.key.clone(), holding.owner.clone(), holding.last.clone());
                self.clean(id, Some(owner.clone()));
                self.observations.forget(&key);
                // Nothing of the guard is left: its row can go to a waiter of this environment in one request.
                if let Some(heir) = self.heir(&key) {
                    let no = self.send_put(heir, Some((owner, last)), entropy);
                    if let Some(Phase::Cleaning(cleaning)) = self.leases.get_mut(&id).map(|entry| &mut entry.phase) {
                        cleaning.handed_to = Some(no);
                    }
                } else if let Some(contest) = self.contests.get_mut(&key) {
                    // The delete brings the news.
                    contest.next = self.clock.timer + LONGEST_PAUSE;
                }
            }
            Phase::Lapsing { .. } => self.clean(id, None),
            Phase::Cleaning(_) => {}
        }
    }

    /// The Put that was to stand in for a delete was answered.
    pub(crate) fn hand_over_answered(&mut self, no: RequestNo, answer: &Answer<S>) {
        let given = self.leases.iter_mut().find_map(|(id, entry)| match &mut entry.phase {
            Phase::Cleaning(cleaning) if cleaning.handed_to == Some(no) => {
                cleaning.handed_to = None;
                cleaning.report.clone().map(|owner| (*id, owner))
            }
            _ => None,
        });
        let Some((id, owner)) = given else { return };
        let gone = match answer {
            Answer::Done | Answer::Failed(Seen::Nothing | Seen::Foreign(_)) => true,
            Answer::Failed(Seen::Row(row)) => row.owner != owner,
            _ => false,
        };
        if gone {
            self.row_is_gone(id, &owner);
        } else {
            // The hand-over must not eat the time for deletes.
            self.restart_clean_up(id);
        }
    }

    /// Something to delete has turned up while cleaning: its budget starts now.
    pub(crate) fn restart_clean_up(&mut self, id: LeaseId) {
        let now = self.clock.timer;
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let until = now + entry.lease().cleanup_budget();
        if let Phase::Cleaning(cleaning) = &mut entry.phase {
            cleaning.until = until;
            cleaning.next = now;
        }
    }

    /// The clean-up's own timers: the next delete and the end of its budget.
    pub(crate) fn clean_step<E: Entropy<S>>(&mut self, id: LeaseId, entropy: &mut E) {
        let now = self.clock.timer;
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let longest = entry.lease().longest_clean_up_pause();
        let Phase::Cleaning(cleaning) = &mut entry.phase else { return };
        if entry.puts.is_empty() {
            return self.finish_cleaning(id);
        }
        if cleaning.in_flight.is_some() || cleaning.handed_to.is_some() {
            return;
        }
        if now >= cleaning.until {
            // A Put that is still under way may land: its answer is waited for, and the budget starts again with it.
            if !entry.flying() {
                self.finish_cleaning(id);
            }
            return;
        }
        if now < cleaning.next {
            return;
        }
        let ready = |put: &Put<S>| put.state != PutState::Flying;
        let known = |put: &Put<S>| put.state == PutState::Landed;
        let reported = |put: &Put<S>| cleaning.report.as_ref() == Some(&put.owner);
        // First what the client waits for, then what is known to stand, then what may yet appear, in turn.
        let puts = &entry.puts;
        let pick = puts.iter().position(reported).or_else(|| puts.iter().position(known));
        let Some(pick) = pick.or_else(|| puts.iter().position(ready)) else { return };
        if cleaning.round == 0 {
            cleaning.round = puts.iter().filter(|put| ready(put)).count();
        }
        let put = entry.puts.remove(pick);
        let owner = put.owner.clone();
        cleaning.round -= 1;
        // A round through all owners goes without a pause; then they are asked again, more and more slowly.
        if cleaning.round == 0 || known(&put) {
            cleaning.round = 0;
            let next = now + cleaning.backoff.pause(longest, entropy.jitter());
            // The last look comes at the budget's end: what landed before it does not stay.
            let last = cleaning.until - 1;
            cleaning.next = if now < last { next.min(last) } else { next };
        }
        entry.puts.push(put);
        let no = self.send(id, Kind::Delete { owner: owner.clone() }, Op::Delete { owner }, None);
        if let Some(Phase::Cleaning(cleaning)) = self.leases.get_mut(&id).map(|entry| &mut entry.phase) {
            cleaning.in_flight = Some(no);
        }
    }

    pub(crate) fn delete_answered<E: Entropy<S>>(
        &mut self,
        id: LeaseId,
        owner: &S,
        answer: Answer<S>,
        entropy: &mut E,
    ) {
        let settles = self.breaks(WrongRule::NothingSettles);
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let (key, longest) = (entry.key.clone(), entry.lease().longest_clean_up_pause());
        let Phase::Cleaning(cleaning) = &mut entry.phase else { return };
        cleaning.in_flight = None;
        // A Put whose outcome is unknown may land after a look that found nothing; one that is known to have landed cannot.
        let certain = settles || entry.puts.iter().any(|put| put.owner == *owner && put.state == PutState::Landed);
        match answer {
            Answer::Done => {
                self.row_is_gone(id, owner);
                self.observations.forget(&key);
                self.key_is_free(&key, entropy);
            }
            Answer::Failed(_) if certain => {
                self.row_is_gone(id, owner);
                self.wake(&key, entropy);
            }
            Answer::Denied(..) => cleaning.until = self.clock.timer,
            Answer::Throttled(_) => {
                cleaning.next = self.clock.timer + cleaning.backoff.pause(longest, entropy.jitter());
            }
            // The pause that began with the send is enough: a time-out has used it up.
            Answer::Failed(_) | Answer::Unavailable(_) | Answer::Unknown(_) | Answer::Found(_) => {}
        }
    }

    /// No row of `owner` stands, and none can appear.
    fn row_is_gone(&mut self, id: LeaseId, owner: &S) {
        self.abandoned.forget(owner);
        let Some(entry) = self.leases.get_mut(&id) else { return };
        entry.puts.retain(|put| put.owner != *owner);
        let Phase::Cleaning(cleaning) = &mut entry.phase else { return };
        if cleaning.report.as_ref() == Some(owner) {
            cleaning.report = None;
            self.emit(Output::Released { lease: id, confirmed: true });
        }
    }

    /// All is given back, or the budget is over: then the owners stay remembered.
    fn finish_cleaning(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.remove(&id) else { return };
        if let Some(of_key) = self.by_key.get_mut(&entry.key) {
            of_key.remove(&id);
            if of_key.is_empty() {
                self.by_key.remove(&entry.key);
            }
        }
        if let Phase::Cleaning(cleaning) = entry.phase
            && cleaning.report.is_some()
        {
            self.emit(Output::Released { lease: id, confirmed: false });
        }
    }

    /// Lets the key's poller look at once: what this environment knew of the row has changed.
    pub(crate) fn wake<E: Entropy<S>>(&mut self, key: &S, entropy: &mut E) {
        if let Some(contest) = self.contests.get_mut(key) {
            contest.next = self.clock.timer;
        }
        self.contest_step(key, entropy);
    }
}
