//! Properties of the messages: what is written is read again, whatever is read never panics, requests are strict and
//! replies lenient.

mod messages;

use leasekeeper_wire::{
    Acquire, Checked, Code, Granted, MAX_KEY, MAX_LEASE_MS, MAX_LINE, MAX_REQUEST_ID, MAX_WAIT_MS, MIN_LEASE_MS, Op,
    Released, Reply, Request, ServerLine,
};
use messages::{acquire, event, failure, granted, hello, metrics, request, unknown_field};
use proptest::option::of;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Debug;
use std::sync::Once;

/// A few cases every day, many for the proof.
fn config() -> ProptestConfig {
    static SAID: Once = Once::new();
    let cases = if std::env::var_os("LEASEKEEPER_PROOF").is_some() { 5_000 } else { 256 };
    SAID.call_once(|| println!("figure: codec | random cases of each property | {cases}"));
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn object(line: &str) -> Map<String, Value> {
    serde_json::from_str(line).expect("a line is one JSON object")
}

/// One line, whatever its texts are.
fn is_one_line(line: &str) -> bool {
    line.ends_with('\n') && line.matches('\n').count() == 1 && !line.contains('\r')
}

/// Sent as a reply, this answer is read as it was.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(id: u64, answer: &T) -> Result<(), TestCaseError> {
    let line = Reply::ok(id, answer).encode();
    prop_assert!(is_one_line(&line));
    match ServerLine::decode(line.as_bytes()) {
        Ok(ServerLine::Reply { id: read, answer: Ok(value) }) => {
            prop_assert_eq!(read, Some(id));
            prop_assert_eq!(&serde_json::from_value::<T>(value).expect("the answer's form"), answer);
        }
        other => prop_assert!(false, "{:?}", other),
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_request_is_read_as_it_was_written(request in request()) {
        let line = request.encode();
        prop_assert!(is_one_line(&line) && line.len() <= MAX_LINE);
        prop_assert_eq!(Request::decode(line.as_bytes()), Ok(request.clone()));
        prop_assert_eq!(Request::decode(line.trim_end().as_bytes()), Ok(request));
    }

    #[test]
    fn an_answer_is_read_as_it_was_written(
        id in any::<u64>(), hello in hello(), granted in granted(), valid_ms in any::<u64>(), metrics in metrics(),
    ) {
        survives(id, &hello)?;
        survives(id, &granted)?;
        survives(id, &Checked { valid_ms })?;
        survives(id, &Released { metrics })?;
        survives(id, &metrics)?;
    }

    #[test]
    fn an_error_is_read_as_it_was_written(id in of(any::<u64>()), failure in failure()) {
        let line = Reply::error(id, failure.clone()).encode();
        prop_assert!(is_one_line(&line));
        let read = ServerLine::decode(line.as_bytes()).expect("a JSON object");
        prop_assert_eq!(read, ServerLine::Reply { id, answer: Err(failure) });
    }

    #[test]
    fn an_event_is_read_as_it_was_written(event in event()) {
        let line = event.encode();
        prop_assert!(is_one_line(&line));
        prop_assert_eq!(ServerLine::decode(line.as_bytes()).expect("a JSON object"), ServerLine::Event(event));
    }

    #[test]
    fn whatever_bytes_come_nothing_panics_and_a_refusal_is_short(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Err(rejected) = Request::decode(&bytes) {
            prop_assert!(rejected.code == Code::Protocol && rejected.message.len() < 512);
        }
        let _ = ServerLine::decode(&bytes);
    }

    #[test]
    fn a_damaged_line_never_panics(
        request in request(), failure in failure(), event in event(), cut in any::<prop::sample::Index>(), byte in any::<u8>(),
        twice in any::<bool>(),
    ) {
        for line in [request.encode(), Reply::error(Some(1), failure).encode(), event.encode()] {
            let mut bytes = line.into_bytes();
            let place = cut.index(bytes.len());
            bytes[place] = byte;
            if twice {
                bytes.extend_from_within(place..);
            } else {
                bytes.truncate(place + 1);
            }
            if let Err(rejected) = Request::decode(&bytes) {
                prop_assert!(rejected.message.len() < 512);
            }
            let _ = ServerLine::decode(&bytes);
        }
    }

    #[test]
    fn a_request_with_a_field_that_nobody_knows_is_refused_by_its_name(request in request(), field in unknown_field()) {
        let mut line = object(&request.encode());
        let (name, value) = field;
        line.insert(name.clone(), value);
        let line = serde_json::to_string(&line).expect("JSON");
        let rejected = Request::decode(line.as_bytes()).expect_err("it is not version 1");
        prop_assert_eq!(rejected.id, Some(request.id));
        let named: String = name.chars().take(64).collect();
        prop_assert!(rejected.message.contains(&format!("{named:?}")), "{}", rejected.message);
    }

    #[test]
    fn a_request_that_lacks_a_field_it_needs_is_refused(request in request()) {
        let needed: &[&str] = match request.op {
            Op::Hello => &["v", "id", "op"],
            Op::Acquire(_) => &["v", "id", "op", "key"],
            Op::Release { .. } | Op::Check { .. } | Op::Metrics { .. } => &["v", "id", "op", "lease"],
        };
        for field in needed {
            let mut line = object(&request.encode());
            line.remove(*field);
            let rejected = Request::decode(json!(line).to_string().as_bytes()).expect_err("it is needed");
            prop_assert!(rejected.message.starts_with(&format!("field {field} is required")), "{}", rejected.message);
            prop_assert_eq!(rejected.id, (*field != "id").then_some(request.id));
        }
    }

    #[test]
    fn an_acquire_out_of_range_is_refused_by_the_fields_name(
        acquire in acquire(), key in prop_oneof![Just(0), MAX_KEY + 1..MAX_KEY + 9],
        request_id in prop_oneof![Just(0), MAX_REQUEST_ID + 1..MAX_REQUEST_ID + 9],
        lease in prop_oneof![0..MIN_LEASE_MS, MAX_LEASE_MS + 1..=u64::MAX], wait in MAX_WAIT_MS + 1..=u64::MAX,
    ) {
        let wrong = [
            ("key", Acquire { key: "k".repeat(key), ..acquire.clone() }),
            ("request_id", Acquire { request_id: Some("r".repeat(request_id)), ..acquire.clone() }),
            ("lease_ms", Acquire { lease_ms: Some(lease), ..acquire.clone() }),
            ("wait_ms", Acquire { wait_ms: Some(wait), ..acquire.clone() }),
        ];
        for (field, acquire) in wrong {
            let line = Request { id: 1, op: Op::Acquire(acquire) }.encode();
            let rejected = Request::decode(line.as_bytes()).expect_err("it is out of range");
            prop_assert!(rejected.message.starts_with(&format!("field {field} must ")), "{}", rejected.message);
        }
    }

    #[test]
    fn fields_that_nobody_knows_change_no_reply_and_no_event(
        id in any::<u64>(), granted in granted(), failure in failure(), event in event(),
        fields in prop::collection::vec(unknown_field(), 1..4),
    ) {
        let with_more = |line: String, inside: Option<&str>| {
            let mut line = object(&line);
            line.extend(fields.iter().cloned());
            if let Some(inner) = inside.and_then(|field| line.get_mut(field)).and_then(Value::as_object_mut) {
                inner.extend(fields.iter().cloned());
            }
            ServerLine::decode(json!(line).to_string().as_bytes()).expect("a JSON object")
        };
        match with_more(Reply::ok(id, &granted).encode(), Some("ok")) {
            ServerLine::Reply { id: Some(read), answer: Ok(value) } => {
                prop_assert_eq!(read, id);
                prop_assert_eq!(serde_json::from_value::<Granted>(value).expect("a grant"), granted);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        let read = with_more(Reply::error(Some(id), failure.clone()).encode(), Some("error"));
        prop_assert_eq!(read, ServerLine::Reply { id: Some(id), answer: Err(failure) });
        prop_assert_eq!(with_more(event.encode(), None), ServerLine::Event(event));
    }
}

#[test]
fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    let line = Request { id: 1, op: Op::Hello }.encode();
    let padded = |length: usize| format!("{}{}", line.trim_end(), " ".repeat(length - line.trim_end().len()));
    assert!(Request::decode(padded(MAX_LINE).as_bytes()).is_ok());
    let rejected = Request::decode(padded(MAX_LINE + 1).as_bytes()).expect_err("one byte too long");
    assert_eq!((rejected.id, rejected.code), (None, Code::Protocol));
    assert!(rejected.message.contains(&MAX_LINE.to_string()), "{}", rejected.message);
}

#[test]
fn a_line_that_is_no_object_is_refused_with_what_was_expected() {
    for line in ["[1]", "\"v\"", "7", "null"] {
        let rejected = Request::decode(line.as_bytes()).expect_err("no object");
        assert!(rejected.message.contains("expected a JSON object"), "{}", rejected.message);
    }
}
