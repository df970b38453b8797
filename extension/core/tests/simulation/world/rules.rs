//! What can be broken, and of which promise it is a part.

use std::fmt;

/// Which promise a violation broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Two guards of one key were valid at once.
    Exclusion,
    /// A row went while the guard that it stands for was valid.
    RowUnderGuard,
    /// A row was deleted early though its client might still believe.
    EarlyDelete,
    /// A write was committed without its condition.
    Unconditional,
    /// An owner came back after its release was confirmed or another owner's write had committed.
    Effect,
    /// Taken over before the stored lease was over.
    TooEarly,
    /// An abandoned row or a free key was left although somebody waited for it.
    Recovery,
    /// A lease outlived its invocation.
    Invocation,
    /// A healthy holder lost, or a contender gave up with budget left.
    FalseLoss,
    /// A waiter did not know its own row.
    SelfWait,
    /// A guard that was over became valid again.
    Revival,
    /// An acquire went on after its budget.
    Budget,
    /// A row was left that the protocol must clean up.
    Orphan,
    /// An end was not final, or came twice.
    Finality,
    /// An owner or a version was used twice.
    Reuse,
    /// A waiter was forgotten.
    Forgotten,
    /// Work without an end, or wake-ups without work.
    Restless,
}

impl Rule {
    /// Those that are a part of a promise.
    pub(crate) const OF_PROMISES: [Self; 13] = [
        Self::Exclusion,
        Self::RowUnderGuard,
        Self::EarlyDelete,
        Self::Unconditional,
        Self::Effect,
        Self::TooEarly,
        Self::Recovery,
        Self::Invocation,
        Self::Orphan,
        Self::FalseLoss,
        Self::SelfWait,
        Self::Revival,
        Self::Budget,
    ];

    /// The promise that it is a part of.
    pub(crate) fn promise(self) -> &'static str {
        match self {
            Self::Exclusion | Self::RowUnderGuard | Self::EarlyDelete | Self::Unconditional => "P1",
            Self::Effect => "P3",
            Self::TooEarly | Self::Recovery => "P4",
            Self::Invocation | Self::Orphan => "P5",
            Self::FalseLoss | Self::SelfWait | Self::Revival => "P6",
            Self::Budget => "P7",
            Self::Finality | Self::Reuse | Self::Forgotten | Self::Restless => "the state machine's own order",
        }
    }
}

/// Some of the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched(u32);

impl Watched {
    pub(crate) const ALL: Self = Self(u32::MAX);

    pub(crate) fn only(rules: &[Rule]) -> Self {
        Self(rules.iter().map(|rule| 1 << *rule as u32).sum())
    }

    pub(crate) fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {}", self.rule, self.rule.promise(), self.text)
    }
}
