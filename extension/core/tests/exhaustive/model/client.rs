//! One client of the model: a core with its clocks, its guards, and what it has under way.

use super::bounds::{Bounds, Mistake};
use super::canon::Canon;
use super::ids::{Clocks, Draws, Id, KEY, before, reading};
use super::{Moments, Rule};
use leasekeeper_core::{
    Acquire, Answer, Config, Core, Input, LeaseId, LostReason, Micros, Op, Output, RequestNo, StoreRequest,
};
use std::hash::Hash;

/// A wait that no search outlasts.
const FOR_EVER: Micros = 1 << 40;

/// A lease as its client and an outside observer see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guard {
    pub(crate) lease: LeaseId,
    /// Set by the grant.
    pub(crate) owner: Option<Id>,
    /// Granted, and neither lost nor given back.
    pub(crate) held: bool,
    /// Its client has asked for its end: it believes in nothing.
    pub(crate) gone: bool,
    /// It was invalid at some instant after its grant.
    pub(crate) over: bool,
    /// For how long from the last reading on its client may believe, whatever it has been told since.
    pub(crate) belief: Micros,
}

/// A request on its way to the store, or its answer on the way back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    /// 0 when nobody waits for the answer.
    pub(crate) no: RequestNo,
    pub(crate) op: Op<Id>,
    pub(crate) answer: Option<Answer<Id>>,
    /// When its sender stops waiting, on the monotonic clock.
    pub(crate) due: Micros,
}

impl Message {
    pub(crate) fn awaited(&self) -> bool {
        self.no != 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) core: Core<Id>,
    pub(crate) clocks: Clocks,
    /// The clocks as they were last read.
    pub(crate) read: Clocks,
    /// Since the last reading a sleep has stopped the boot clock, or the wall clock.
    pub(crate) stopped: [bool; 2],
    pub(crate) guards: Vec<Guard>,
    pub(crate) messages: Vec<Message>,
    pub(crate) asks: u8,
}

impl Client {
    pub(crate) fn new(bounds: &Bounds, asks: u8) -> Self {
        let clocks = Clocks::default();
        let core = Self::start(bounds, clocks);
        Self { core, clocks, read: clocks, stopped: [false; 2], guards: Vec::new(), messages: Vec::new(), asks }
    }

    /// A core that has read its clocks twice, so that its sums stand where they can be told apart.
    fn start(bounds: &Bounds, clocks: Clocks) -> Core<Id> {
        let mut core = Core::new(Config { freezes: false, memory: 64 });
        if let Some(Mistake::Core(rule)) = bounds.mistake {
            core.get_wrong(rule);
        }
        let mut none = 0;
        core.handle(before(clocks), Input::Tick, &mut Draws(&mut none));
        core.handle(reading(clocks), Input::Tick, &mut Draws(&mut none));
        core
    }

    /// The process dies and another one starts: nobody believes and nobody waits any more; what was sent is under way.
    pub(crate) fn crash(&mut self, bounds: &Bounds) {
        self.core = Self::start(bounds, self.clocks);
        self.read = self.clocks;
        self.stopped = [false; 2];
        self.guards.clear();
        self.messages.retain(|message| message.answer.is_none());
        for message in &mut self.messages {
            message.no = 0;
        }
    }

    /// What has passed since the last reading, by the clock that says most.
    pub(crate) fn unread(&self) -> Micros {
        let boot = self.clocks.boot - self.read.boot;
        let mono = self.clocks.mono - self.read.mono;
        boot.max(mono).max(self.clocks.wall - self.read.wall)
    }

    /// Does this guard's client believe now, or would the extension still call it valid?
    pub(crate) fn believes(&self, guard: &Guard) -> bool {
        guard.belief > self.unread()
    }

    /// Nothing is held, waited for or given back, and nobody believes.
    pub(crate) fn at_rest(&self) -> bool {
        self.core.is_idle() && self.guards.is_empty()
    }

    pub(crate) fn may_ask(&self, at_once: usize) -> bool {
        let open = self.guards.iter().filter(|guard| !guard.gone && !guard.over).count();
        self.asks > 0 && open < at_once
    }

    pub(crate) fn ask(&self, bounds: &Bounds, lease: LeaseId) -> Input<Id> {
        let wait = bounds.wait.map_or(FOR_EVER, |ticks| ticks * 19 * bounds.unit);
        let lease_ms = bounds.lease() / 1_000;
        Input::Acquire(Acquire { lease, key: KEY, lease_ms, wait, scope: None, remaining: None, max_hold: None })
    }

    /// One input, with everything that must hold around it; returns what is broken.
    pub(crate) fn handle(
        &mut self,
        bounds: &Bounds,
        input: Input<Id>,
        ids: &mut u32,
        moments: &Moments,
    ) -> (Option<Rule>, Vec<Id>) {
        let step = self.unread();
        let stale = bounds.mistake == Some(Mistake::AnswerBeforeTime) && matches!(input, Input::Answer(..));
        let given = if stale { self.read } else { self.clocks };
        self.read = self.clocks;
        self.stopped = [false; 2];
        for guard in &mut self.guards {
            guard.over |= guard.held && step >= guard.belief;
            guard.belief = guard.belief.saturating_sub(step);
        }
        let mut confirmed = Vec::new();
        let mut sent = Vec::new();
        self.core.handle(reading(given), input, &mut Draws(ids));
        while let Some(output) = self.core.poll() {
            self.output(output, &mut sent, &mut confirmed, moments);
        }
        let revived = self.read_guards();
        let early = sent.iter().any(|request| self.ends_a_belief(&request.op));
        let now = self.clocks.mono;
        self.messages.extend(sent.into_iter().map(|StoreRequest { no, op, timeout, .. }| Message {
            no,
            op,
            answer: None,
            due: now + timeout,
        }));
        let idle = self.core.is_idle();
        self.guards.retain(|guard| !idle || guard.belief > 0 || guard.held);
        (if revived { Some(Rule::Revival) } else { early.then_some(Rule::EarlyEnd) }, confirmed)
    }

    fn output(
        &mut self,
        output: Output<Id>,
        sent: &mut Vec<StoreRequest<Id>>,
        confirmed: &mut Vec<Id>,
        moments: &Moments,
    ) {
        let of = |lease: LeaseId| move |guard: &&mut Guard| guard.lease == lease;
        match output {
            Output::Send(request) => sent.push(request),
            Output::Granted { lease, owner, .. } => {
                moments.granted.count();
                if let Some(guard) = self.guards.iter_mut().find(of(lease)) {
                    guard.held = !guard.gone;
                    guard.owner = Some(owner);
                }
            }
            Output::Lost(lease, _) => {
                moments.lost.count();
                if let Some(guard) = self.guards.iter_mut().find(of(lease)) {
                    guard.held = false;
                    guard.over = true;
                }
            }
            Output::Refused(lease, _) => {
                moments.refused.count();
                self.guards.retain(|guard| guard.lease != lease);
            }
            Output::Released { lease, confirmed: true } => {
                moments.released.count();
                let guard = self.guards.iter().find(|guard| guard.lease == lease);
                confirmed.extend(guard.and_then(|guard| guard.owner));
            }
            Output::Released { confirmed: false, .. } => moments.unconfirmed.count(),
            Output::Renewed(_) | Output::Danger(_) | Output::Recovered(_) | Output::Thawed => {}
        }
    }

    /// Takes over what the core says of its guards; true if one that was over is valid again.
    fn read_guards(&mut self) -> bool {
        let mut revived = false;
        for guard in self.guards.iter_mut().filter(|guard| !guard.gone) {
            let valid = self.core.valid_for(guard.lease).unwrap_or(0);
            revived |= valid > 0 && guard.over;
            guard.belief = guard.belief.max(valid);
        }
        revived
    }

    /// Would this request end the row of a guard whose client may still believe?
    fn ends_a_belief(&self, op: &Op<Id>) -> bool {
        let (Op::Delete { owner } | Op::Replace { owner, .. }) = op else { return false };
        self.guards.iter().any(|guard| guard.owner == Some(*owner) && guard.belief > 0)
    }

    /// The client gives a guard back, or closes its side.
    pub(crate) fn release(&mut self, at: usize, bounds: &Bounds) -> Option<Input<Id>> {
        let guard = self.guards.get_mut(at)?;
        guard.gone = true;
        guard.held = false;
        if bounds.mistake != Some(Mistake::ValidUntilReleased) {
            guard.belief = 0;
        }
        Some(Input::Release(guard.lease))
    }

    pub(crate) fn give_up(&self, at: usize, mistake: Option<Mistake>) -> Option<Input<Id>> {
        let lease = self.guards.get(at)?.lease;
        Some(match mistake {
            Some(Mistake::EarlyDelete) => Input::Release(lease),
            _ => Input::GiveUp(lease, LostReason::ExtensionFailed),
        })
    }

    /// What tells this client from another, without names: decides which of two clients is looked at first.
    pub(crate) fn shape(&self) -> impl Ord {
        let flags = |guard: &Guard| (guard.held, guard.gone, guard.over, guard.belief);
        let first = self.guards.first().map(flags);
        (self.asks, self.core.is_idle(), first, self.messages.len(), self.messages.first().map(Message::awaited))
    }

    pub(crate) fn canon(&self, canon: &mut Canon, bounds: &Bounds) {
        canon.core(&self.core);
        for (clock, read) in
            [(self.clocks.boot, self.read.boot), (self.clocks.mono, self.read.mono), (self.clocks.wall, self.read.wall)]
        {
            canon.token((clock - read).min(bounds.lease()));
        }
        canon.token(u64::from(self.stopped[0]) + 2 * u64::from(self.stopped[1]));
        canon.token(u64::from(self.asks));
        canon.token(self.guards.len() as u64);
        for Guard { lease, owner, held, gone, over, belief } in &self.guards {
            (lease, owner, held, gone, over).hash(canon);
            canon.token(*belief);
        }
        canon.token(self.messages.len() as u64);
        for message in &self.messages {
            canon.token(u64::from(message.awaited()));
            if message.awaited() {
                message.no.hash(canon);
                canon.ahead(message.due.saturating_sub(self.clocks.mono));
            }
            (&message.op, &message.answer).hash(canon);
        }
        canon.end_client();
    }
}
