//! How long an acquire may wait, and whether its lease can work at all.

use crate::settings::Settings;
use leasekeeper_core::{Micros, Now};
use std::collections::VecDeque;
use std::time::Duration;

/// The longest wait unless the request or the settings say otherwise.
const WAIT: Duration = Duration::from_secs(5);
/// The least and the most that is kept of an invocation unless the settings say otherwise.
const LEAST_RESERVE: Duration = Duration::from_secs(1);
const MOST_RESERVE: Duration = Duration::from_secs(30);

/// Kept of every invocation whatever the settings say: with less left, a lock could not be given back before the response.
const KEPT: Duration = Duration::from_millis(200);

/// The wait budget of an acquire with `remaining` left of its invocation, if it belongs to one.
///
/// What is kept for the work comes off first. Where the settings do not say how much that is, an invocation that has less than
/// the rule would keep still gets one attempt: a function with a time-out of 1 s could not lock anything otherwise.
///
/// # Errors
/// No more is left than is kept in any case: how much that is.
pub(super) fn wait(
    settings: &Settings,
    asked: Option<Duration>,
    lease: Duration,
    remaining: Option<Duration>,
) -> Result<Duration, Duration> {
    let wanted = asked.or(settings.wait);
    let Some(remaining) = remaining else {
        return Ok(wanted.unwrap_or(lease + WAIT));
    };
    let kept = settings.reserve.unwrap_or_default().max(KEPT);
    if remaining <= kept {
        return Err(kept);
    }
    let reserve = settings.reserve.unwrap_or_else(|| (remaining / 4).clamp(LEAST_RESERVE, MOST_RESERVE)).max(KEPT);
    Ok(wanted.unwrap_or(WAIT).min(remaining.saturating_sub(reserve)))
}

/// Round trips that were seen to end in an answer: a lease that leaves less for one cannot be held.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    seen: VecDeque<(Micros, Micros)>,
}

impl RoundTrips {
    const KEPT: usize = 16;
    const FOR: Micros = 60_000_000;
    /// Fewer say nothing: the first ones pay for connections.
    const ENOUGH: usize = 3;

    pub(super) fn note(&mut self, now: Now, took: Micros) {
        self.seen.push_back((now.mono, took));
        if self.seen.len() > Self::KEPT {
            self.seen.pop_front();
        }
    }

    /// The quickest of late, if enough were seen.
    pub(super) fn quickest(&mut self, now: Now) -> Option<Duration> {
        while self.seen.front().is_some_and(|(at, _)| now.mono.saturating_sub(*at) > Self::FOR) {
            self.seen.pop_front();
        }
        let enough = self.seen.len() >= Self::ENOUGH;
        let quickest = self.seen.iter().map(|(_, took)| *took).min()?;
        enough.then(|| Duration::from_micros(quickest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let find = |name: &str| {
            let known = [&("LEASEKEEPER_TABLE", "locks")];
            known.into_iter().chain(variables).find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        };
        Settings::from_lookup(find).unwrap()
    }

    const LEASE: Duration = Duration::from_secs(20);

    fn seconds(value: f64) -> Duration {
        Duration::from_secs_f64(value)
    }

    #[test]
    fn outside_an_invocation_a_wait_outlasts_one_dead_holder() {
        assert_eq!(wait(&settings(&[]), None, LEASE, None), Ok(seconds(25.0)));
        assert_eq!(wait(&settings(&[]), Some(seconds(1.0)), LEASE, None), Ok(seconds(1.0)));
    }

    #[test]
    fn inside_an_invocation_the_reserve_comes_off_first() {
        let settings = settings(&[]);
        for (remaining, expected) in [(60.0, 5.0), (6.0, 4.5), (3.0, 2.0), (1.5, 0.5), (1.0, 0.0), (0.201, 0.0)] {
            let wait = wait(&settings, None, LEASE, Some(seconds(remaining)));
            assert_eq!(wait, Ok(seconds(expected)), "{remaining} s left");
        }
        assert_eq!(
            wait(&settings, Some(seconds(600.0)), LEASE, Some(seconds(300.0))),
            Ok(seconds(270.0)),
            "a quarter, at most 30 s"
        );
    }

    #[test]
    fn no_time_is_left_once_only_the_reserve_is() {
        let cases = [
            (None, 0.2, 0.2),
            (None, 0.001, 0.2),
            (Some("2500"), 2.5, 2.5),
            (Some("2500"), 0.001, 2.5),
            (Some("0"), 0.2, 0.2),
            (Some("0"), 0.0, 0.2),
        ];
        for (reserve, remaining, kept) in cases {
            let reserve: Vec<_> = reserve.into_iter().map(|ms| ("LEASEKEEPER_RESERVE_MS", ms)).collect();
            for asked in [None, Some(seconds(0.0)), Some(seconds(60.0))] {
                let wait = wait(&settings(&reserve), asked, LEASE, Some(seconds(remaining)));
                assert_eq!(wait, Err(seconds(kept)), "{remaining} s left");
            }
        }
    }

    #[test]
    fn settings_change_the_wait_and_the_reserve() {
        let settings = settings(&[("LEASEKEEPER_WAIT_MS", "800"), ("LEASEKEEPER_RESERVE_MS", "300")]);
        assert_eq!(wait(&settings, None, LEASE, Some(seconds(60.0))), Ok(seconds(0.8)));
        assert_eq!(wait(&settings, None, LEASE, Some(seconds(0.75))), Ok(seconds(0.45)));
        assert_eq!(wait(&settings, Some(seconds(2.0)), LEASE, None), Ok(seconds(2.0)));
    }

    #[test]
    fn the_quickest_round_trip_counts_once_enough_were_seen_and_only_for_a_minute() {
        let at = |mono| Now { boot: mono, mono, wall: mono };
        let mut trips = RoundTrips::default();
        trips.note(at(0), 90_000);
        trips.note(at(1), 30_000);
        assert_eq!(trips.quickest(at(2)), None);
        trips.note(at(2), 40_000);
        assert_eq!(trips.quickest(at(3)), Some(Duration::from_millis(30)));
        assert_eq!(trips.quickest(at(61_000_000)), None);
    }
}
