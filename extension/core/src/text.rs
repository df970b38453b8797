//! The core over shared text, as production has it.
//!
//! It is compiled here and not where it is used, so that a build that optimises this crate alone has it optimised: an input looks
//! at every lease, and tests hold a thousand.

use crate::{Config, Core, Entropy, Input, LeaseId, Micros, Now, Output, Standing};
use std::sync::Arc;

/// Keys, owners, versions and invocation ids.
type Text = Arc<str>;

/// A [`Core`] over shared text.
#[derive(Clone, Debug)]
pub struct TextCore(Core<Text>);

/// Whatever draws, as a type of its own.
struct Drawn<'d>(&'d mut dyn Entropy<Text>);

impl Entropy<Text> for Drawn<'_> {
    fn id(&mut self) -> Text {
        self.0.id()
    }

    fn jitter(&mut self) -> u64 {
        self.0.jitter()
    }
}

impl TextCore {
    /// As [`Core::new`].
    pub fn new(config: Config) -> Self {
        Self(Core::new(config))
    }

    /// As [`Core::handle`].
    pub fn handle(&mut self, now: Now, input: Input<Text>, entropy: &mut dyn Entropy<Text>) {
        self.0.handle(now, input, &mut Drawn(entropy));
    }

    /// As [`Core::poll`].
    pub fn poll(&mut self) -> Option<Output<Text>> {
        self.0.poll()
    }

    /// As [`Core::next_wakeup`].
    pub fn next_wakeup(&self) -> Option<Micros> {
        self.0.next_wakeup()
    }

    /// As [`Core::valid_for`].
    pub fn valid_for(&self, lease: LeaseId) -> Option<Micros> {
        self.0.valid_for(lease)
    }

    /// As [`Core::standing`].
    pub fn standing(&self, scope: &Text) -> Standing {
        self.0.standing(scope)
    }

    /// As [`Core::is_idle`].
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}
