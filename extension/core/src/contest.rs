//! Those who wait for one key in this environment: their queue, the poller they share, whose turn it is.

use crate::lease::{Contest, Entry, Holding, Kind};
use crate::timing::{Backoff, LONGEST_PAUSE, LONGEST_THROTTLED_PAUSE, Lease};
use crate::wrong::WrongRule;
use crate::{Answer, Core, Entropy, LeaseId, Micros, Op, Refused, RequestNo, Row, Seen, Symbol};

/// Hand-overs inside one environment in a row.
const HAND_OVERS: u32 = 3;

impl<S: Symbol> Core<S> {
    pub(crate) fn queue_up(&mut self, key: &S, lease: LeaseId) {
        let next = self.clock.timer;
        let contest = self.contests.entry(key.clone()).or_insert_with(|| Contest {
            waiters: Vec::new(),
            poll: None,
            next,
            backoff: Backoff::new(),
            handed: 0,
        });
        contest.waiters.push(lease);
    }

    pub(crate) fn leave_queue(&mut self, key: &S, lease: LeaseId) {
        if let Some(contest) = self.contests.get_mut(key) {
            contest.waiters.retain(|waiter| *waiter != lease);
            if contest.waiters.is_empty() {
                self.contests.remove(key);
            }
        }
    }

    /// The row that this environment holds under `key`, or that its waiters are watching or saw last.
    pub(crate) fn blocker(&self, key: &S) -> Option<Row<S>> {
        let held = self.of_key(key).find_map(|entry| {
            let Holding { owner, last, .. } = entry.holding()?;
            Some(Row { owner: owner.clone(), version: last.clone(), lease_ms: entry.lease_ms })
        });
        held.or_else(|| {
            self.head(key)?;
            let seen = self.observations.get(key)?;
            self.replaceable(key).is_none().then(|| seen.row.clone())
        })
        // It may be free by now, for remote contenders or for the first of those who wait here.
        .or_else(|| self.of_key(key).find_map(|entry| entry.waiting()?.saw.clone()))
    }

    /// Is it the first of those who wait for the key here?
    pub(crate) fn leads(&self, key: &S, id: LeaseId) -> bool {
        self.contests.get(key).is_some_and(|contest| contest.waiters.first() == Some(&id))
    }

    /// The key's shared poller: takes over what has ripened, else reads.
    pub(crate) fn contest_step<E: Entropy<S>>(&mut self, key: &S, entropy: &mut E) {
        let Some(head) = self.head(key) else { return };
        if self.replaceable(key).is_some() && self.may_attempt(head) {
            return self.attempt(head, entropy);
        }
        let now = self.clock.timer;
        if self.contests.get(key).is_some_and(|contest| contest.poll.is_none() && now >= contest.next) {
            let no = self.send(head, Kind::Poll, Op::Read, None);
            if let Some(contest) = self.contests.get_mut(key) {
                contest.poll = Some(no);
            }
        }
    }

    /// The first waiter that waits for the poller, unless a holder or a Put of this environment will bring the news.
    pub(crate) fn head(&self, key: &S) -> Option<LeaseId> {
        let contest = self.contests.get(key)?;
        let held_here =
            self.of_key(key).any(|entry| entry.holding().is_some() || (entry.waiting().is_some() && entry.flying()));
        if held_here {
            return None;
        }
        contest.waiters.iter().copied().find(|id| self.leases.get(id).is_some_and(Entry::is_parked))
    }

    pub(crate) fn contest_wakeups(&self, key: &S, contest: &Contest) -> Vec<Micros> {
        if self.head(key).is_none() {
            return Vec::new();
        }
        let poll = contest.poll.is_none().then(|| contest.next.saturating_sub(self.clock.timer));
        let seen = self.observations.get(key).filter(|_| !self.breaks(WrongRule::TakeoverAtNextPoll));
        let ripe = seen.map(|seen| seen.ripe_in(self.clock.seen));
        poll.into_iter().chain(ripe).collect()
    }

    /// Puts the next poll of `key` off by a growing pause.
    pub(crate) fn pace_polls<E: Entropy<S>>(&mut self, key: &S, longest: Micros, entropy: &mut E) {
        let stored = self.observations.get(key).map(|seen| Lease::from_ms(seen.row.lease_ms).longest_poll());
        let jitter = entropy.jitter();
        let now = self.clock.timer;
        let Some(contest) = self.contests.get_mut(key) else { return };
        let pause = contest.backoff.pause(longest, jitter);
        contest.next = now + stored.map_or(pause, |most| pause.min(most));
    }

    pub(crate) fn poll_answered<E: Entropy<S>>(&mut self, key: &S, no: RequestNo, answer: Answer<S>, entropy: &mut E) {
        let Some(contest) = self.contests.get_mut(key).filter(|contest| contest.poll == Some(no)) else { return };
        contest.poll = None;
        let waiters = contest.waiters.clone();
        let throttled = matches!(answer, Answer::Throttled(_));
        self.pace_polls(key, if throttled { LONGEST_THROTTLED_PAUSE } else { LONGEST_PAUSE }, entropy);
        for id in waiters {
            if self.leases.get(&id).is_some_and(Entry::is_parked) {
                self.poll_tells(id, &answer, entropy);
            }
        }
        // What has ripened is taken over by the next step; a free key goes to the first waiter now.
        if matches!(answer, Answer::Found(Seen::Nothing))
            && let Some(head) = self.head(key).filter(|head| self.may_attempt(*head))
        {
            self.attempt(head, entropy);
        }
    }

    fn poll_tells<E: Entropy<S>>(&mut self, id: LeaseId, answer: &Answer<S>, entropy: &mut E) {
        match answer {
            Answer::Found(seen) => {
                self.recognise(id, seen, entropy);
            }
            Answer::Denied(refusal, text) => self.finish_wait(id, Refused::Denied(*refusal, text.clone())),
            Answer::Throttled(text) | Answer::Unavailable(text) | Answer::Unknown(text) => {
                if let Some(waiting) = self.leases.get_mut(&id).and_then(Entry::waiting_mut) {
                    waiting.trouble = Some(text.clone());
                }
            }
            Answer::Done | Answer::Failed(_) => {}
        }
    }

    /// The row that this environment had under `key` is gone: the first waiter tries at once.
    pub(crate) fn key_is_free<E: Entropy<S>>(&mut self, key: &S, entropy: &mut E) {
        let now = self.clock.timer;
        let Some(head) = self.head(key) else { return };
        let Some(contest) = self.contests.get_mut(key) else { return };
        if contest.handed >= HAND_OVERS {
            // Remote contenders get their turn.
            contest.handed = 0;
            contest.next = now + LONGEST_PAUSE;
        } else if self.may_attempt(head) {
            self.attempt(head, entropy);
        }
    }

    /// The waiter that `holder`'s row can be handed to, if remote contenders had their turn.
    pub(crate) fn heir(&mut self, key: &S) -> Option<LeaseId> {
        let head = self.head(key).filter(|id| self.may_attempt(*id))?;
        let contest = self.contests.get_mut(key)?;
        (contest.handed < HAND_OVERS).then(|| {
            contest.handed += 1;
            head
        })
    }
}
