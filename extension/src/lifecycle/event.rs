//! What the Extensions API announces.

use lambda_extension::NextEvent;
use serde_json::Value;
use std::time::Duration;

/// Kept of a SHUTDOWN's time (two seconds) to end the process well before it is killed: what has not succeeded by then hardly
/// will, and the next invocation may be waiting.
const MARGIN: Duration = Duration::from_millis(700);

/// What a SHUTDOWN without a deadline, or with one that our wall clock takes for past, is taken to leave: trying costs nothing, the
/// kill comes when it comes.
const LEAST: Duration = Duration::from_millis(500);

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An invocation begins.
    Invoke {
        /// Its request id.
        request_id: String,
        /// When it is over, in milliseconds of the epoch.
        deadline_ms: u64,
    },
    /// The environment ends.
    Shutdown {
        /// Why, in lower case: documented as spindown, timeout and failure; others are kept.
        reason: String,
        /// When it is killed, in milliseconds of the epoch, if that is said.
        deadline_ms: Option<u64>,
    },
}

impl Event {
    /// Reads an answer's body.
    ///
    /// # Errors
    /// The text says what is wrong with it and how it begins.
    pub(super) fn decode(body: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(body) {
            Ok(NextEvent::Invoke(event)) => {
                Ok(Self::Invoke { request_id: event.request_id, deadline_ms: event.deadline_ms })
            }
            Ok(NextEvent::Shutdown(event)) => Ok(Self::Shutdown {
                reason: event.shutdown_reason.to_lowercase(),
                deadline_ms: Some(event.deadline_ms),
            }),
            Err(error) => Self::of_another_form(body).ok_or_else(|| {
                let begins: String = String::from_utf8_lossy(body).chars().take(200).collect();
                format!("{error}: {begins:?}")
            }),
        }
    }

    /// The crate's events ask for more than is needed: of an invocation its id and its end, of a SHUTDOWN nothing but its kind. To
    /// miss either for another field's sake would leave locks to expire.
    fn of_another_form(body: &[u8]) -> Option<Self> {
        let event: Value = serde_json::from_slice(body).ok()?;
        let deadline_ms = event["deadlineMs"].as_u64();
        match event["eventType"].as_str()? {
            "INVOKE" => {
                Some(Self::Invoke { request_id: event["requestId"].as_str()?.into(), deadline_ms: deadline_ms? })
            }
            kind if kind.eq_ignore_ascii_case("SHUTDOWN") => {
                let reason = event["shutdownReason"].as_str().unwrap_or("unknown").to_lowercase();
                Some(Self::Shutdown { reason, deadline_ms })
            }
            _ => None,
        }
    }
}

/// What is left until `deadline_ms` when the wall clock says `now_us`.
pub(super) fn remaining(deadline_ms: u64, now_us: u64) -> Duration {
    Duration::from_micros(deadline_ms.saturating_mul(1_000).saturating_sub(now_us))
}

/// How long to give back for.
pub(super) fn shutdown_budget(deadline_ms: Option<u64>, now_us: u64) -> Duration {
    deadline_ms.map_or(Duration::ZERO, |deadline| remaining(deadline, now_us)).saturating_sub(MARGIN).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shutdown(reason: &str, deadline_ms: Option<u64>) -> Result<Event, String> {
        Ok(Event::Shutdown { reason: reason.into(), deadline_ms })
    }

    #[test]
    fn documented_events_are_read() {
        let invoke =
            br#"{"eventType":"INVOKE","deadlineMs":1676051031000,"requestId":"3da1f2dc","invokedFunctionArn":"arn",
            "tracing":{"type":"X-Amzn-Trace-Id","value":"Root=1"},"future":[1]}"#;
        let expected = Event::Invoke { request_id: "3da1f2dc".into(), deadline_ms: 1_676_051_031_000 };
        assert_eq!(Event::decode(invoke), Ok(expected));
        for reason in ["SPINDOWN", "Timeout", "FAILURE", "ReleaseFail", "SandboxTerminated"] {
            let body = format!(r#"{{"eventType":"SHUTDOWN","shutdownReason":"{reason}","deadlineMs":7}}"#);
            assert_eq!(Event::decode(body.as_bytes()), shutdown(&reason.to_lowercase(), Some(7)));
        }
    }

    #[test]
    fn a_shutdown_of_another_form_still_is_one() {
        assert_eq!(Event::decode(br#"{"eventType":"SHUTDOWN"}"#), shutdown("unknown", None));
        let odd = br#"{"eventType":"Shutdown","shutdownReason":null,"deadlineMs":"soon"}"#;
        assert_eq!(Event::decode(odd), shutdown("unknown", None));
        assert_eq!(Event::decode(br#"{"eventType":"SHUTDOWN","deadlineMs":9}"#), shutdown("unknown", Some(9)));
    }

    #[test]
    fn of_an_invocation_its_id_and_its_end_are_enough() {
        let expected = Event::Invoke { request_id: "3da1f2dc".into(), deadline_ms: 7 };
        assert_eq!(Event::decode(br#"{"eventType":"INVOKE","deadlineMs":7,"requestId":"3da1f2dc"}"#), Ok(expected));
    }

    #[test]
    fn anything_else_is_an_error_that_shows_how_it_begins() {
        let long = "x".repeat(100_000);
        for body in ["", "{", "null", "[]", "<html>", r#"{"eventType":"RESTORE"}"#, r#"{"eventType":"INVOKE"}"#, &long]
        {
            let error = Event::decode(body.as_bytes()).unwrap_err();
            assert!(error.len() < 500, "{error}");
            let begins: String = body.chars().take(20).collect();
            assert!(error.contains(format!("{begins:?}").trim_matches('"')), "{error}");
        }
        assert!(Event::decode(b"\xff\xfe").is_err());
    }

    #[test]
    fn time_left_is_never_negative() {
        assert_eq!(remaining(3_000, 1_000_500), Duration::from_micros(1_999_500));
        assert_eq!(remaining(3_000, 3_000_001), Duration::ZERO);
        assert_eq!(remaining(u64::MAX, 0), Duration::from_micros(u64::MAX));
    }

    #[test]
    fn giving_back_ends_before_the_deadline_and_is_always_tried() {
        assert_eq!(shutdown_budget(Some(3_000), 1_000_000), Duration::from_millis(1_300));
        for hopeless in [None, Some(0), Some(1_000), Some(1_100)] {
            assert_eq!(shutdown_budget(hopeless, 1_000_000), Duration::from_millis(500), "{hopeless:?}");
        }
    }
}
