//! Messages of every form, with values from everywhere within their bounds.

use leasekeeper_wire::{
    Acquire, Code, Event, EventKind, Failure, Granted, Hello, Holder, LostReason, MAX_KEY, MAX_LEASE_MS,
    MAX_REQUEST_ID, MAX_WAIT_MS, MIN_LEASE_MS, Metrics, Op, Request,
};
use proptest::option::of;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Any text, mostly short, with every kind of character.
pub(crate) fn words() -> impl Strategy<Value = String> {
    prop_oneof![4 => any::<String>(), 1 => "[a-z0-9:{}-]{0,40}", 1 => "[\u{0}-\u{1f}\u{7f}-\u{9f}\u{2028}\u{2029}\"\\\\]{0,20}"]
}

/// Text of 1 to `most` bytes.
pub(crate) fn bounded(most: usize) -> impl Strategy<Value = String> {
    let long = (1..=most, proptest::char::any()).prop_map(|(bytes, unit)| {
        let times = (bytes / unit.len_utf8()).max(1);
        unit.to_string().repeat(times)
    });
    prop_oneof![8 => words(), 1 => long]
        .prop_filter("its length is within bounds", move |text| (1..=most).contains(&text.len()))
}

pub(crate) fn acquire() -> impl Strategy<Value = Acquire> {
    let parts = (
        bounded(MAX_KEY),
        of(bounded(MAX_REQUEST_ID)),
        of(any::<u64>()),
        of(0..=MAX_WAIT_MS),
        of(MIN_LEASE_MS..=MAX_LEASE_MS),
    );
    parts.prop_map(|(key, request_id, remaining_ms, wait_ms, lease_ms)| Acquire {
        key,
        request_id,
        remaining_ms,
        wait_ms,
        lease_ms,
    })
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![
        1 => Just(Op::Hello),
        4 => acquire().prop_map(Op::Acquire),
        1 => any::<u64>().prop_map(|lease| Op::Release { lease }),
        1 => any::<u64>().prop_map(|lease| Op::Check { lease }),
        1 => any::<u64>().prop_map(|lease| Op::Metrics { lease }),
    ];
    (any::<u64>(), op).prop_map(|(id, op)| Request { id, op })
}

pub(crate) fn code() -> impl Strategy<Value = Code> {
    prop::sample::select(vec![
        Code::Busy,
        Code::BudgetExhausted,
        Code::Lost,
        Code::Unavailable,
        Code::Denied,
        Code::Config,
        Code::ForeignRow,
        Code::Protocol,
        Code::ReleaseUnconfirmed,
        Code::ExtensionMissing,
        Code::Unknown,
    ])
}

pub(crate) fn reason() -> impl Strategy<Value = LostReason> {
    prop::sample::select(vec![
        LostReason::Stolen,
        LostReason::Expired,
        LostReason::Deleted,
        LostReason::Denied,
        LostReason::Throttled,
        LostReason::Deadline,
        LostReason::Thaw,
        LostReason::Shutdown,
        LostReason::ExtensionFailed,
        LostReason::MaxHold,
        LostReason::Unknown,
    ])
}

/// Units as DynamoDB reports them: sums of halves.
pub(crate) fn units() -> impl Strategy<Value = f64> {
    (0_u32..2_000_000).prop_map(|halves| f64::from(halves) / 2.0)
}

pub(crate) fn metrics() -> impl Strategy<Value = Metrics> {
    (any::<[u64; 9]>(), units(), units()).prop_map(|(counts, consumed_read_units, consumed_write_units)| Metrics {
        write_requests: counts[0],
        read_requests: counts[1],
        renewals: counts[2],
        conditional_failures: counts[3],
        request_failures: counts[4],
        wait_ms: counts[5],
        wait_timeouts: counts[6],
        cleanup_failures: counts[7],
        lost: counts[8],
        consumed_read_units,
        consumed_write_units,
    })
}

pub(crate) fn holder() -> impl Strategy<Value = Holder> {
    (words(), any::<u64>(), any::<u64>(), of(words()), of(words()), of(words()), of(words())).prop_map(
        |(owner, lease_ms, unchanged_ms, function, request_id, log_stream, host)| Holder {
            owner,
            lease_ms,
            unchanged_ms,
            function,
            request_id,
            log_stream,
            host,
        },
    )
}

pub(crate) fn failure() -> impl Strategy<Value = Failure> {
    (code(), words(), of(any::<u64>()), of(holder()), of(reason()), of(metrics())).prop_map(
        |(code, message, retry_after_ms, holder, reason, metrics)| Failure {
            code,
            message,
            retry_after_ms,
            holder,
            reason,
            metrics,
        },
    )
}

pub(crate) fn granted() -> impl Strategy<Value = Granted> {
    (any::<[u64; 4]>(), words(), words(), of(any::<u64>())).prop_map(|(numbers, owner, table, token)| Granted {
        lease: numbers[0],
        valid_ms: numbers[1],
        lease_ms: numbers[2],
        owner,
        table,
        token,
        waited_ms: numbers[3],
    })
}

pub(crate) fn hello() -> impl Strategy<Value = Hello> {
    (any::<u64>(), prop::collection::vec(words(), 0..4), words()).prop_map(|(version, features, server)| Hello {
        version,
        features,
        server,
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        Just(EventKind::Renewed),
        Just(EventKind::Danger),
        Just(EventKind::Recovered),
        reason().prop_map(|reason| EventKind::Lost { reason }),
    ];
    (any::<u64>(), kind).prop_map(|(lease, kind)| Event { lease, kind })
}

/// A field that no message of version 1 has, with whatever stands in it.
pub(crate) fn unknown_field() -> impl Strategy<Value = (String, Value)> {
    let name = prop_oneof![1 => Just(String::new()), 9 => words().prop_map(|word| format!("x{word}"))];
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words().prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::from),
        Just(json!({"ok": {"lease": 1}})),
    ];
    (name, value)
}
