//! The template's metric filters against lines that the extension really writes.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::Duration;
use testkit::dynamo::Dynamo;
use testkit::programs::repository;
use testkit::sidecar::Sidecar;

/// One comparison of a filter pattern: `$.field operator value`.
#[derive(Debug)]
struct Comparison {
    field: String,
    operator: String,
    value: String,
}

/// A pattern of the form `{ (comparison) && (comparison) }`: all that the template uses of CloudWatch's language.
fn pattern(text: &str) -> Vec<Comparison> {
    let inner = text.strip_prefix("{ ").and_then(|text| text.strip_suffix(" }")).expect("braces around a pattern");
    let comparison = |part: &str| {
        let part =
            part.strip_prefix("($.").and_then(|part| part.strip_suffix(')')).expect("parentheses and a selector");
        let [field, operator, value] = part.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("three words: {part}")
        };
        Comparison { field: field.to_owned(), operator: operator.to_owned(), value: value.to_owned() }
    };
    inner.split(" && ").map(comparison).collect()
}

impl Comparison {
    fn holds(&self, line: &Line) -> bool {
        let Some(found) = line.0.get(&self.field) else { return false };
        match (self.operator.as_str(), self.value.strip_prefix('"').and_then(|value| value.strip_suffix('"'))) {
            ("=", Some(text)) => found.as_str().is_some_and(|found| match text.strip_suffix('*') {
                Some(begin) => found.starts_with(begin),
                None => found == text,
            }),
            (">=", None) => found.as_f64().is_some_and(|found| found >= self.value.parse().expect("a number")),
            _ => panic!("not known here: {self:?}"),
        }
    }
}

/// A JSON object in which no name stands twice: readers disagree about which of the two counts.
#[derive(Debug)]
struct Line(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
                let mut line = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    assert!(!line.contains_key(&name), "`{name}` stands twice in a line: {line:?}, {value}");
                    line.insert(name, value);
                }
                Ok(Line(line))
            }
        }
        deserializer.deserialize_map(Once)
    }
}

/// The filters of the template by their names: pattern, and the metric's value.
fn filters() -> BTreeMap<String, (Vec<Comparison>, String)> {
    let template = fs::read_to_string(repository("template.yaml")).expect("template.yaml is there");
    let mut filters = BTreeMap::new();
    for part in template.split("Type: AWS::Logs::MetricFilter").skip(1) {
        let after = |name: &str| {
            let rest = part.split_once(name).expect("a filter has it").1;
            rest.lines().next().expect("a line").trim().trim_matches('\'').to_owned()
        };
        filters.insert(after("MetricName:"), (pattern(&after("FilterPattern:")), after("MetricValue:")));
    }
    filters
}

/// What a filter counts in these lines.
fn counted(filter: &(Vec<Comparison>, String), lines: &[Line]) -> Vec<f64> {
    let (pattern, value) = filter;
    let matching = lines.iter().filter(|line| pattern.iter().all(|comparison| comparison.holds(line)));
    let value = |line: &Line| match value.strip_prefix("$.") {
        Some(field) => line.0[field].as_f64().expect("a number"),
        None => value.parse().expect("a number"),
    };
    matching.map(value).collect()
}

#[tokio::test]
async fn the_templates_filters_count_lost_leases_and_waits_in_real_lines() {
    let dynamo = Dynamo::start().await;
    let settings = [("LEASEKEEPER_LOG_FORMAT", "json"), ("LEASEKEEPER_LOG", "info,leasekeeper_extension=debug")];
    let sidecar = Sidecar::start(&dynamo, "keeper", &settings).await;
    let mut client = sidecar.connect().await;

    let held = client.acquire("k", 3_000, 0).await.expect("free");
    // In vain, for 250 ms.
    let mut other = sidecar.connect().await;
    other.acquire("k", 3_000, 250).await.expect_err("it is held");
    // Refused before anybody waits.
    other.ask(json!({"op": "acquire", "key": ""})).await.expect_err("an empty key");
    other.write(b"no request\n").await.expect("it listens");
    other.reply().await.expect("an answer");
    // Taken away: the renewal finds out within a third of the lease.
    dynamo.delete_raw("k");
    assert_eq!(client.event().await["event"], "lost");
    client.release(held.lease).await.expect_err("it is lost");
    let second = client.acquire("k", 3_000, 1_000).await.expect("free");
    client.release(second.lease).await.expect("it is held");

    let log = wait_for(&sidecar, "released").await;
    let lines: Vec<Line> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let filters = filters();
    assert_eq!(filters.keys().collect::<Vec<_>>(), ["LostLeases", "WaitMilliseconds"]);
    assert_eq!(counted(&filters["LostLeases"], &lines), [1.0], "{log}");
    let waits = counted(&filters["WaitMilliseconds"], &lines);
    assert_eq!(waits.len(), 3, "two grants, and one wait in vain: {log}");
    assert!(waits.iter().filter(|wait| **wait >= 250.0).count() == 1, "{waits:?}");
}

/// The log once a line says `message`.
async fn wait_for(sidecar: &Sidecar, message: &str) -> String {
    let wanted = format!("\"message\":\"{message}\"");
    for _ in 0..400 {
        // The last line may be half written.
        let mut log = sidecar.log();
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        if log.contains(&wanted) {
            return log;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no line says {message:?}: {}", sidecar.log());
}

#[test]
fn each_filter_has_an_alarm_on_its_metric() {
    let template = fs::read_to_string(repository("template.yaml")).expect("template.yaml is there");
    for name in filters().keys() {
        let alarms = template.split("Type: AWS::CloudWatch::Alarm").skip(1);
        let watching = alarms.filter(|alarm| alarm.lines().any(|line| line.trim() == format!("MetricName: {name}")));
        assert_eq!(watching.count(), 1, "{name}");
    }
}
