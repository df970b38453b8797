//! Workers that speak lock protocol version 1 as pydynox 1.8.0 does: they compete for the same rows, with its faults.

use super::clock::Clock;
use super::store::Condition;
use super::{Event, Rule, World};
use crate::common::MS;
use crate::common::rng::Draws;
use leasekeeper_core::{Answer, Entropy, Micros, Op, Row, Seen};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// It polls, or tries to take the row over.
    Waiting {
        until: Micros,
        seen: Option<(u64, u64, Micros)>,
    },
    /// `last` is the version that its last *confirmed* write left: a renewal that commits after its time-out is not known.
    Holding {
        owner: u64,
        last: u64,
        start: Micros,
        end: Micros,
    },
    Releasing,
}

/// One worker with its clock; it has one request under way at most.
pub(crate) struct Peer {
    clock: Clock,
    draws: Draws,
    key: u64,
    lease_ms: u64,
    /// The lease that the row it saw last carries.
    seen_lease_ms: u64,
    state: State,
    /// The request under way, when it was sent; answers to others are ignored.
    under_way: Option<(Op<u64>, Micros)>,
    no: u64,
    stopped_until: u64,
}

/// What happens to a peer.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// Time for its next step.
    Wake,
    /// Its request reaches the table; whether the answer comes back.
    Arrive(Op<u64>, bool),
    Answer(Answer<u64>),
}

impl Peer {
    pub(crate) fn new(rate: u64, draws: Draws) -> Self {
        let clock = Clock::new(1_000_000, rate);
        let state = State::Idle;
        Self { clock, draws, key: 0, lease_ms: 0, seen_lease_ms: 0, state, under_way: None, no: 0, stopped_until: 0 }
    }

    fn validity(&self) -> Micros {
        self.lease_ms * 900
    }

    /// Does it hold this key, and believe so at `t`?
    pub(crate) fn guards(&self, key: u64, t: u64) -> bool {
        self.key == key
            && matches!(self.state, State::Holding { start, .. } if self.clock.read(t) - start < self.validity())
    }

    pub(crate) fn guards_as(&self, as_owner: u64, t: u64) -> bool {
        matches!(self.state, State::Holding { owner, .. } if owner == as_owner) && self.guards(self.key, t)
    }
}

impl World {
    pub(crate) fn wake_peer(&mut self, p: usize, at: u64) {
        self.peers[p].no += 1;
        let no = self.peers[p].no;
        self.at(at, Event::Peer { peer: p, no, news: News::Wake });
    }

    pub(crate) fn peer(&mut self, p: usize, no: u64, news: News) {
        if let News::Arrive(op, answered) = news {
            return self.peer_writes(p, no, &op, answered);
        }
        let peer = &mut self.peers[p];
        if no != peer.no || self.calm {
            return;
        }
        if self.t < peer.stopped_until {
            let (at, t) = (peer.stopped_until, self.t);
            debug_assert!(at > t);
            return self.at(at, Event::Peer { peer: p, no, news });
        }
        if self.rng.chance(2) {
            peer.stopped_until = self.t + self.rng.below(2 * self.plan.longest_lease());
        }
        match news {
            News::Answer(answer) => self.peer_answered(p, answer),
            _ => self.peer_wakes(p),
        }
    }

    fn peer_writes(&mut self, p: usize, no: u64, op: &Op<u64>, answered: bool) {
        let back = self.comes_back(op);
        let effect = self.store.apply(self.t, self.peers[p].key, op, Condition::Whole);
        if self.verbose {
            eprintln!("{:>12} store: {op:?} of peer {p}: {:?}", self.t, effect.answer);
        }
        self.check_write(op, &effect, false, back);
        if answered {
            let at = self.t + self.latency();
            self.at(at, Event::Peer { peer: p, no, news: News::Answer(effect.answer) });
        }
    }

    fn peer_sends(&mut self, p: usize, op: Op<u64>) {
        let t = self.t;
        let (lost, unanswered) = match self.rng.chance(self.plan.faults / 2) {
            true => (self.rng.chance(30), self.rng.chance(50)),
            false => (false, false),
        };
        let arrives = t + self.latency() + if unanswered { self.rng.below(self.plan.longest_lease() / 2) } else { 0 };
        let peer = &mut self.peers[p];
        peer.no += 1;
        let (no, sent) = (peer.no, peer.clock.read(t));
        peer.under_way = Some((op.clone(), sent));
        let gives_up = t + peer.lease_ms * 1_000 / 3;
        if !lost {
            self.at(arrives, Event::Peer { peer: p, no, news: News::Arrive(op, !unanswered) });
        }
        self.at(gives_up, Event::Peer { peer: p, no, news: News::Answer(Answer::Unknown(String::new())) });
    }

    fn put(&mut self, p: usize, over: Option<(u64, u64)>) {
        let peer = &mut self.peers[p];
        let row = Row { owner: peer.draws.id(), version: peer.draws.id(), lease_ms: peer.lease_ms };
        let op = match over {
            Some((owner, version)) => Op::Replace { row, owner, version },
            None => Op::Create { row },
        };
        self.peer_sends(p, op);
    }

    /// Its next wish, after a while.
    fn peer_rests(&mut self, p: usize) {
        self.peers[p].state = State::Idle;
        let at = self.t + 1 + self.rng.below(self.plan.shortest_lease());
        self.wake_peer(p, at);
    }

    fn peer_wakes(&mut self, p: usize) {
        let t = self.t;
        let now = self.peers[p].clock.read(t);
        match self.peers[p].state {
            State::Idle => {
                let wait = self.rng.pick(&[0, 2, 20]) * self.plan.longest_lease();
                let (key, lease_ms) = (self.rng.below(self.plan.keys), self.rng.pick(&self.plan.leases));
                let peer = &mut self.peers[p];
                (peer.key, peer.lease_ms) = (key, lease_ms);
                peer.state = State::Waiting { until: now + wait, seen: None };
                self.put(p, None);
            }
            State::Waiting { until, .. } if now >= until => self.peer_rests(p),
            State::Waiting { seen: Some((owner, version, since)), .. } if self.peer_may_take(p, since, now) => {
                self.put(p, Some((owner, version)));
            }
            State::Waiting { .. } => self.peer_sends(p, Op::Read),
            State::Holding { owner, last, start, end } => {
                if now >= end {
                    if self.rng.chance(30) {
                        // It crashes: its row stands until somebody takes it over.
                        return self.peer_rests(p);
                    }
                    self.peers[p].state = State::Releasing;
                    return self.peer_sends(p, Op::Delete { owner });
                }
                if now - start >= self.peers[p].validity() {
                    return self.peer_rests(p);
                }
                let new = self.peers[p].draws.id();
                self.peer_sends(p, Op::Renew { owner, last, new });
            }
            State::Releasing => self.peer_rests(p),
        }
    }

    fn peer_may_take(&self, p: usize, since: Micros, now: Micros) -> bool {
        let stored = self.peers[p].seen_lease_ms;
        now - since >= stored * 1_000
    }

    fn peer_answered(&mut self, p: usize, answer: Answer<u64>) {
        let t = self.t;
        let Some((op, sent)) = self.peers[p].under_way.take() else { return };
        let now = self.peers[p].clock.read(t);
        let peer = &mut self.peers[p];
        match (peer.state, op, answer) {
            (State::Waiting { .. }, Op::Create { row } | Op::Replace { row, .. }, Answer::Done) => {
                let most = self.plan.longest_lease() * 3;
                let end = now + self.rng.below(most);
                peer.state = State::Holding { owner: row.owner, last: row.version, start: sent, end };
                self.tally.peers_held += 1;
                self.peer_believes(p, now);
            }
            (State::Waiting { until, seen }, _, Answer::Failed(Seen::Row(row)) | Answer::Found(Seen::Row(row))) => {
                let same = seen.filter(|(owner, version, _)| (*owner, *version) == (row.owner, row.version));
                let since = same.map_or(now, |(.., since)| since);
                peer.state = State::Waiting { until, seen: Some((row.owner, row.version, since)) };
                peer.seen_lease_ms = row.lease_ms;
                let pause = (row.lease_ms * 1_000 / 6).min(100 * MS);
                let pause = self.rng.between(pause / 2, pause);
                self.wake_peer(p, t + pause);
            }
            (State::Waiting { .. }, _, Answer::Failed(Seen::Nothing) | Answer::Found(Seen::Nothing)) => {
                self.put(p, None);
            }
            (State::Holding { owner, start, end, .. }, Op::Renew { new, .. }, Answer::Done) => {
                peer.state = State::Holding { owner, last: new, start: start.max(sent), end };
                self.peer_believes(p, now);
            }
            // Its own renewal that committed after its time-out looks like a theft to it.
            (State::Holding { .. }, Op::Renew { .. }, Answer::Failed(_)) => self.peer_rests(p),
            (State::Holding { .. }, ..) => {
                let at = t + peer.lease_ms * 1_000 / 12;
                self.wake_peer(p, at);
            }
            // One fault ends its acquisition; a release that failed is not tried again.
            _ => self.peer_rests(p),
        }
    }

    /// P1 from the peer's side; then its next renewal, or its end.
    fn peer_believes(&mut self, p: usize, now: Micros) {
        let (t, peer) = (self.t, &self.peers[p]);
        if peer.guards(peer.key, t) {
            let other =
                self.envs.iter().filter(|env| env.alive).find_map(|env| {
                    env.records.iter().find(|record| record.key == peer.key && env.valid_at(record, t))
                });
            let other = other.map(|record| format!("lease {} and the one of peer {p} are valid at once", record.lease));
            let twin = self.peers.iter().enumerate().any(|(q, other)| q != p && other.guards(peer.key, t));
            let other = other.or(twin.then(|| "two peers hold one key".to_owned()));
            if let Some(text) = other {
                self.fail(Rule::Exclusion, text);
            }
        }
        let State::Holding { start, end, .. } = self.peers[p].state else { return };
        let next = (start + self.peers[p].lease_ms * 1_000 / 3).min(end).max(now + 1);
        self.wake_peer(p, t + next - now);
    }
}
