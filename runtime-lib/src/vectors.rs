//! The shared vectors of a guard's validity and of waits' budgets, `guard.json` and `budgets.json` of `tests/vectors`.

use crate::budget::{self, Wishes};
use crate::settings::Settings;
use crate::state::{Answered, Phase, State};
use leasekeeper_wire::{Acquire, Op, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut file: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    serde_json::from_value(file["cases"].take()).expect("a list of cases")
}

fn written_out(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some((before, rest)) = text.split_once("<<") {
        let (repeat, after) = rest.split_once(">>").expect("<< has its >>");
        let (unit, times) = repeat.rsplit_once('*').expect("<<TEXT*N>> has a star");
        text = format!("{before}{}{after}", unit.repeat(times.parse().expect("N is a number")));
    }
    text
}

struct Client {
    state: State,
    answers: BTreeMap<String, Receiver<Answered>>,
    /// What was sent since somebody looked.
    sent: Vec<&'static str>,
    next_id: u64,
    lease: u64,
    /// Nothing is written any more.
    stuck: bool,
}

impl Client {
    fn new() -> Self {
        let mut state = State::new();
        state.clocks().pass(0, 0, 0);
        Self { state, answers: BTreeMap::new(), sent: Vec::new(), next_id: 1, lease: 7, stuck: false }
    }

    fn step(&mut self, step: &Value) {
        if step["pass"].is_object() {
            let ms = |clock: &str| step["pass"][clock].as_i64().expect("whole milliseconds");
            return self.state.clocks().pass(ms("boot"), ms("mono"), ms("wall"));
        }
        self.stuck |= step["stuck"] == true;
        match step["send"].as_str() {
            Some("release") => self.state.release(),
            Some(op) => self.ask(op),
            None => {}
        }
        self.write();
        if let Some(text) = step["receive"].as_str() {
            self.state.arrived(written_out(text).as_bytes());
        }
        match step {
            step if step["look"] == true => _ = self.state.remaining(),
            step if step["end"] == true => self.state.end(),
            step if step["close"] == true => self.state.close(),
            step if step["give_up"] == true => self.state.give_up_release(),
            _ => {}
        }
        self.write();
    }

    fn ask(&mut self, op: &str) {
        let lease = self.lease;
        let op = match op {
            "acquire" => Op::Acquire(Acquire { key: "k".into(), ..Acquire::default() }),
            "check" => Op::Check { lease },
            "metrics" => Op::Metrics { lease },
            other => panic!("unknown: {other}"),
        };
        let answer = self.state.ask(op).expect("a connection that lives");
        self.answers.insert(self.next_id.to_string(), answer);
    }

    /// What is unwritten goes out, unless it is stuck.
    fn write(&mut self) {
        if self.stuck || !self.state.has_unwritten() {
            return;
        }
        for line in self.state.unwritten().split_inclusive(|byte| *byte == b'\n') {
            let request = Request::decode(line).expect("a valid request");
            self.next_id = request.id + 1;
            self.sent.push(match request.op {
                Op::Acquire(_) => "acquire",
                Op::Check { .. } => "check",
                Op::Metrics { .. } => "metrics",
                Op::Release { .. } => "release",
                Op::Hello => "hello",
            });
        }
        self.state.wrote(self.state.unwritten().len());
    }

    fn answer(&mut self, id: &str) -> Value {
        match self.answers.get_mut(id).expect("a request with an answer to come").try_recv() {
            Ok(Ok(_)) => json!("ok"),
            Ok(Err(error)) => json!(error.code()),
            Err(TryRecvError::Empty) => Value::Null,
            Err(TryRecvError::Closed) => json!(self.state.why_ended().code()),
        }
    }

    fn expect(&mut self, expected: &Value, name: &Value) {
        let remaining = self.state.remaining();
        let (phase, reason) = match self.state.phase() {
            Phase::Held => ("held", None),
            Phase::Lost(reason) => ("lost", Some(reason)),
            Phase::Released => ("released", None),
            Phase::Unconfirmed => ("unconfirmed", None),
            Phase::Closed => ("closed", None),
        };
        for (what, value) in expected.as_object().expect("what is expected has names") {
            let got = match what.as_str() {
                "phase" => json!(phase),
                "remaining_ms" => json!(remaining.as_secs_f64() * 1_000.0),
                "reason" => json!(reason),
                "use" => json!(self.state.held().err().map(|error| error.code())),
                "release" => json!(self.state.released().err().map(|error| error.code())),
                "sent" => json!(std::mem::take(&mut self.sent)),
                "answers" => {
                    let ids = value.as_object().expect("answers by id").keys();
                    ids.map(|id| (id.clone(), self.answer(id))).collect()
                }
                other => panic!("{name}: unknown: {other}"),
            };
            let same = got == *value || (got.is_number() && got.as_f64() == value.as_f64());
            assert!(same, "{name}: {what} is {got}, not {value}");
        }
    }
}

#[test]
fn a_guards_validity_is_what_every_language_takes_it_for() {
    let cases = cases("guard.json");
    assert!(cases.len() >= 60, "{}", cases.len());
    let mut names: Vec<_> = cases.iter().map(|case| case["name"].to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "a name is used twice");
    for case in cases {
        let mut client = Client::new();
        let mut expectations = 0;
        for step in case["steps"].as_array().expect("steps are a list") {
            if step["expect"].is_object() {
                client.expect(&step["expect"], &case["name"]);
                expectations += 1;
            } else {
                client.step(step);
            }
        }
        assert!(expectations > 0, "{} expects nothing", case["name"]);
    }
}

#[test]
fn a_wait_is_what_every_language_asks_for() {
    for case in cases("budgets.json") {
        let ms = |field: &str| case[field].as_u64().map(Duration::from_millis);
        let wishes = Wishes { wait: ms("wait_ms"), lease: ms("lease_ms"), reserve: ms("reserve_ms") };
        let settings = Settings { wait: ms("setting_wait_ms"), lease: ms("setting_lease_ms"), ..Settings::default() };
        // A deadline that has passed leaves nothing.
        let remaining = case["remaining_ms"].as_i64().map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()));
        match budget::plan(wishes, &settings, remaining) {
            Ok(plan) => {
                let bound = u64::try_from(plan.bound.as_millis()).expect("a few days");
                assert_eq!(
                    json!([plan.wait_ms, bound]),
                    json!([case["sent_ms"], case["bound_ms"]]),
                    "{}",
                    case["name"]
                );
            }
            Err(error) => assert_eq!(json!(error.code()), case["error"], "{}: {error}", case["name"]),
        }
    }
}
