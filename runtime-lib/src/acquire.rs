//! Asking for a lock outside a wrapped handler.

use crate::budget::{self, Wishes};
use crate::clock;
use crate::connection::Owned;
use crate::key::{IntoKey, Key};
use crate::section::{Section, hand_back, verdict};
use crate::settings::Settings;
use crate::{Guard, Lease, LockError, OnLost};
use leasekeeper_wire as wire;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A request for one lock: set what matters, then `.await` it for a [`Guard`], or [`Acquire::run`] work under it.
///
/// Dropping the awaited future takes the request back.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until this is awaited"]
pub struct Acquire {
    settings: Arc<Settings>,
    key: Result<Key, LockError>,
    wishes: Wishes,
    on_lost: OnLost,
    strict: bool,
    invocation: Option<Invocation>,
}

/// What a lease belongs to.
#[derive(Clone, Debug)]
struct Invocation {
    request_id: String,
    deadline: SystemTime,
}

impl Acquire {
    pub(crate) fn new(settings: &Arc<Settings>, key: impl IntoKey) -> Self {
        Self {
            settings: settings.clone(),
            key: key.into_key(),
            wishes: Wishes::default(),
            on_lost: OnLost::default(),
            strict: settings.strict_release,
            invocation: None,
        }
    }

    #[cfg(feature = "lambda")]
    pub(crate) fn wishes(mut self, wishes: Wishes) -> Self {
        self.wishes = wishes;
        self
    }

    /// Waits for the lock at most this long, 0 to 86,400 s. Without it the extension's setting applies, by default
    /// min(5 s, what remains of the invocation less the reserve). Outside an invocation it is `LEASEKEEPER_WAIT_MS` of
    /// this process, by default the lease (as asked for here, else `LEASEKEEPER_LEASE_MS` or 20 s) and 5 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wishes.wait = Some(wait);
        self
    }

    /// Tries once and does not wait.
    pub fn try_once(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// The lease to write, 0.1 to 86,400 s: after a crash others wait this long. Without it the extension's setting applies.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.wishes.lease = Some(lease);
        self
    }

    /// What to keep of the invocation for the work and the hand-back.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.wishes.reserve = Some(reserve);
        self
    }

    /// What happens to [`Acquire::run`]'s work when the lock is lost.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Is an unconfirmed hand-back after [`Acquire::run`]'s work an error?
    pub fn strict_release(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Binds the lease to the invocation. Under Lambda every lock needs this.
    #[cfg(feature = "lambda")]
    pub fn context(self, context: &lambda_runtime::Context) -> Self {
        self.invocation(&context.request_id, context.deadline())
    }

    /// Binds the lease to the invocation with this request id, which ends at `deadline`.
    pub fn invocation(mut self, request_id: impl Into<String>, deadline: SystemTime) -> Self {
        self.invocation = Some(Invocation { request_id: request_id.into(), deadline });
        self
    }

    /// Runs `work` under the lock and gives the lock back before this resolves. The work is never run twice.
    ///
    /// # Errors
    /// The work's own error. Else why there was no lock, [`LockError::Lost`] if it was lost meanwhile (even if the work
    /// succeeded), or with [`Acquire::strict_release`] [`LockError::ReleaseUnconfirmed`].
    ///
    /// # Panics
    /// If the work does, after the lock was given back.
    pub async fn run<F, Fut, T, E>(self, work: F) -> Result<T, E>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<LockError>,
    {
        let (on_lost, strict) = (self.on_lost, self.strict);
        let guard = self.await?;
        let lease = guard.lease();
        let ended = Section::new(async move { work(lease).await }, &guard, on_lost).await;
        let handed_back = hand_back(guard, &ended).await;
        verdict(ended, handed_back, strict, E::from)
    }

    pub(crate) async fn guard(self) -> Result<Guard, LockError> {
        self.settings.check()?;
        let key = self.key?;
        let deadline = self.invocation.as_ref().map(|invocation| invocation.deadline);
        let plan = budget::plan(self.wishes, &self.settings, deadline.map(clock::until))?;
        let request = wire::Acquire {
            key: key.as_str().to_owned(),
            request_id: self.invocation.map(|invocation| invocation.request_id),
            // Filled in at the moment of sending.
            remaining_ms: None,
            wait_ms: plan.wait_ms,
            lease_ms: plan.lease_ms,
        };
        request.validate().map_err(LockError::protocol)?;
        let asked = Owned::acquire(&self.settings, request, deadline, plan.bound).await;
        let (owned, granted) = asked.map_err(|error| if deadline.is_none() { forgotten(error) } else { error })?;
        Ok(Guard::new(owned, key, granted))
    }
}

/// A request without an invocation was refused: where it should have had one, the error says how it gets one.
fn forgotten(error: LockError) -> LockError {
    match error {
        LockError::Protocol { message } if message.contains("request_id") => LockError::Protocol {
            message: format!(
                "{message}; call `.context(&event.context)` on the request, or `.invocation(request_id, deadline)` where \
                 there is no such context"
            ),
        },
        other => other,
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.guard())
    }
}
