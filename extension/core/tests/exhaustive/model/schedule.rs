//! Schedules as text: what a search found can be run again, step by step.

use super::bounds::Rate;
use std::fmt;
use std::str::FromStr;

/// How a client spends a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Night {
    /// Its driver wakes at the tick's end.
    Awake,
    /// It misses the wake-up.
    Asleep,
    /// It is frozen, and only the boot clock goes on.
    OnlyBoot,
    /// It is frozen, and only the wall clock goes on.
    OnlyWall,
    /// It is frozen, and no clock goes on.
    NoClock,
}

impl Night {
    /// Does the boot clock go on, does the wall clock?
    pub(crate) fn runs(self) -> [bool; 2] {
        match self {
            Self::Awake | Self::Asleep => [true, true],
            Self::OnlyBoot => [true, false],
            Self::OnlyWall => [false, true],
            Self::NoClock => [false, false],
        }
    }
}

/// One step; the first number names the client, the second its message or guard by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Time passes.
    Tick([Rate; 2], [Night; 2]),
    /// A little less of it passes.
    ShortTick([Rate; 2], [Night; 2]),
    /// A request reaches the store.
    Arrive(usize, usize),
    /// It does, and a copy of it stays under way.
    ArriveTwice(usize, usize),
    /// An answer reaches its sender.
    Reply(usize, usize),
    /// The sender learns that it will learn nothing, while the request is still under way.
    Fail(usize, usize),
    /// A request is throttled.
    Refuse(usize, usize),
    /// The client wants the lock.
    Ask(usize),
    /// It gives a guard back, or closes its side.
    Release(usize, usize),
    /// The extension gives a lease up.
    GiveUp(usize, usize),
    /// The client's process dies and is started anew.
    Crash(usize),
    /// Somebody deletes the row.
    DeleteRow,
}

const RATES: [(Rate, char); 3] = [(Rate::Slow, 's'), (Rate::True, 't'), (Rate::Fast, 'f')];
const NIGHTS: [(Night, &str); 5] = [
    (Night::Awake, ""),
    (Night::Asleep, "-asleep"),
    (Night::OnlyBoot, "-boot"),
    (Night::OnlyWall, "-wall"),
    (Night::NoClock, "-none"),
];
/// Steps that name a client and a place.
type About = fn(usize, usize) -> Action;

const ABOUT: [(About, &str); 7] = [
    (Action::Arrive, "arrive"),
    (Action::ArriveTwice, "twice"),
    (Action::Reply, "reply"),
    (Action::Fail, "fail"),
    (Action::Refuse, "refuse"),
    (Action::Release, "release"),
    (Action::GiveUp, "give-up"),
];

/// As in `tick:s,f-asleep arrive:0.1 ask:1`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick(rates, nights) | Self::ShortTick(rates, nights) => {
                let name = if matches!(self, Self::Tick(..)) { "tick" } else { "short" };
                let rate = |n: usize| RATES.iter().find(|(rate, _)| *rate == rates[n]).map_or('?', |(_, text)| *text);
                let night =
                    |n: usize| NIGHTS.iter().find(|(night, _)| *night == nights[n]).map_or("?", |(_, text)| text);
                write!(f, "{name}:{}{},{}{}", rate(0), night(0), rate(1), night(1))
            }
            Self::Ask(n) => write!(f, "ask:{n}"),
            Self::Crash(n) => write!(f, "crash:{n}"),
            Self::DeleteRow => write!(f, "delete-row"),
            Self::Arrive(n, at)
            | Self::ArriveTwice(n, at)
            | Self::Reply(n, at)
            | Self::Fail(n, at)
            | Self::Refuse(n, at)
            | Self::Release(n, at)
            | Self::GiveUp(n, at) => {
                let name = ABOUT.iter().find(|(make, _)| make(n, at) == *self).map_or("?", |(_, name)| name);
                write!(f, "{name}:{n}.{at}")
            }
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no step");
        if text == "delete-row" {
            return Ok(Self::DeleteRow);
        }
        let (name, rest) = text.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        match name {
            "ask" => return Ok(Self::Ask(number(rest)?)),
            "crash" => return Ok(Self::Crash(number(rest)?)),
            "tick" | "short" => {
                let (one, other) = rest.split_once(',').ok_or_else(wrong)?;
                let part = |text: &str| {
                    let (rate, _) = RATES.iter().find(|(_, letter)| text.starts_with(*letter))?;
                    let (night, _) = NIGHTS.iter().find(|(_, name)| *name == &text[1..])?;
                    Some((*rate, *night))
                };
                let ((rate, night), (rate2, night2)) = part(one).zip(part(other)).ok_or_else(wrong)?;
                let make = if name == "tick" { Self::Tick } else { Self::ShortTick };
                return Ok(make([rate, rate2], [night, night2]));
            }
            _ => {}
        }
        let (make, _) = ABOUT.iter().find(|(_, known)| *known == name).ok_or_else(wrong)?;
        let (n, at) = rest.split_once('.').ok_or_else(wrong)?;
        Ok(make(number(n)?, number(at)?))
    }
}
