//! The shared test vectors of the socket's messages; `tests/vectors/README.md` has the format.

#[path = "../../../tests/vectors/cases.rs"]
mod cases;

use cases::text;
use leasekeeper_wire::{Event, EventKind, Failure, Op, Rejected, Request, ServerLine};
use serde_json::{Value, json};
use std::path::Path;

fn cases(file: &str) -> Vec<Value> {
    cases::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors"), file)
}

fn bytes(case: &Value) -> Vec<u8> {
    let Some(hex) = case["line_hex"].as_str() else { return text(case, "line").as_bytes().to_vec() };
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two hex digits")).collect()
}

/// A request in the vectors' form.
fn form(request: &Request) -> Value {
    let id = request.id;
    match &request.op {
        Op::Hello => json!({"id": id, "op": "hello"}),
        Op::Acquire(acquire) => json!({
            "id": id, "op": "acquire", "key": acquire.key, "request_id": acquire.request_id,
            "remaining_ms": acquire.remaining_ms, "wait_ms": acquire.wait_ms, "lease_ms": acquire.lease_ms,
        }),
        Op::Release { lease } => json!({"id": id, "op": "release", "lease": lease}),
        Op::Check { lease } => json!({"id": id, "op": "check", "lease": lease}),
        Op::Metrics { lease } => json!({"id": id, "op": "metrics", "lease": lease}),
    }
}

#[test]
fn valid_requests_are_read_as_they_say_and_survive_a_round_trip() {
    for case in cases("requests_valid.json") {
        let name = &case["name"];
        let request = Request::decode(&bytes(&case)).unwrap_or_else(|e| panic!("{name}: {}", e.message));
        assert_eq!(form(&request), case["decoded"], "{name}");
        assert_eq!(Request::decode(request.encode().as_bytes()), Ok(request), "{name}: encoded and read again");
    }
}

#[test]
fn invalid_requests_are_refused_with_the_id_that_can_be_known_and_the_field_that_is_wrong() {
    for case in cases("requests_invalid.json") {
        let name = &case["name"];
        let Rejected { id, code, message } =
            Request::decode(&bytes(&case)).expect_err(&format!("{name} must be refused"));
        assert_eq!(json!({"id": id, "code": code}), json!({"id": case["id"], "code": case["code"]}), "{name}");
        let named = match case["field"].as_str() {
            None => message.starts_with("the line "),
            // A field of the protocol is named as it is, an unknown one in quotes.
            Some(field) => {
                message.starts_with(&format!("field {field} ")) || message.starts_with(&format!("field {field:?} "))
            }
        };
        assert!(named, "{name}: {message}");
        assert!(message.len() < 512, "{name}: a message is bounded whatever the line");
    }
}

#[test]
fn lines_from_the_extension_are_read_leniently() {
    for case in cases("server_lines.json") {
        let name = &case["name"];
        let read = ServerLine::decode(text(&case, "line").as_bytes());
        if case["broken"] == true {
            assert!(read.is_err(), "{name}: {read:?}");
            continue;
        }
        match read.unwrap_or_else(|e| panic!("{name}: {e}")) {
            ServerLine::Reply { id, answer: Ok(ok) } => {
                assert_eq!(json!({"id": id, "ok": ok}), case["reply"], "{name}")
            }
            ServerLine::Reply { id, answer: Err(error) } => {
                assert_eq!(json!({"id": id, "error": error}), case["reply"], "{name}");
            }
            ServerLine::Event(event) => {
                assert_eq!(serde_json::to_value(event).expect("plain JSON"), case["event"], "{name}")
            }
            ServerLine::Unknown => assert_eq!(case["ignored"], true, "{name}"),
        }
    }
}

#[test]
fn every_word_is_read_and_written_the_same() {
    let mut known = Vec::new();
    for case in cases("words.json") {
        let (name, word, expected) = (&case["name"], text(&case, "word"), text(&case, "read_as"));
        let (read_as, written) = if case["kind"] == "code" {
            let line = json!({"error": {"code": word}}).to_string();
            let Ok(ServerLine::Reply { answer: Err(Failure { code, .. }), .. }) = ServerLine::decode(line.as_bytes())
            else {
                panic!("{name}: no error was read");
            };
            (code.to_string(), json!(code))
        } else {
            let line = json!({"event": "lost", "lease": 1, "reason": word}).to_string();
            let Ok(ServerLine::Event(Event { kind: EventKind::Lost { reason }, .. })) =
                ServerLine::decode(line.as_bytes())
            else {
                panic!("{name}: no loss was read");
            };
            (reason.to_string(), json!(reason))
        };
        assert_eq!(read_as, expected, "{name}");
        assert_eq!(written, read_as, "{name}: its Display form and its JSON form are one");
        if word == expected {
            known.push((case["kind"] == "code", word.to_owned()));
        }
    }
    assert_eq!(known.iter().filter(|(code, _)| *code).count(), 10, "every code stands in the vectors");
    assert_eq!(known.iter().filter(|(code, _)| !*code).count(), 10, "every reason stands in the vectors");
}
