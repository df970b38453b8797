//! Every setting's right and wrong values.

use super::*;

fn lookup<'a>(values: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
}

fn settings(values: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_lookup(lookup(values))
}

/// The settings with a table and one more variable.
fn with(name: &str, value: &str) -> Result<Settings, SettingsError> {
    settings(&[("LEASEKEEPER_TABLE", "locks"), (name, value)])
}

#[test]
fn the_table_alone_is_enough_and_the_rest_has_its_default() {
    let expected = Settings {
        table: "locks".into(),
        lease: Duration::from_secs(20),
        wait: None,
        reserve: None,
        max_hold: None,
        hold: Duration::ZERO,
        socket: "/tmp/leasekeeper/lock.sock".into(),
        peer_uids: vec![],
        plain_keys: false,
        store: StoreKind::DynamoDb,
    };
    assert_eq!(settings(&[("LEASEKEEPER_TABLE", "locks")]), Ok(expected));
}

#[test]
fn every_variable_is_read() {
    let long = format!("/{}", "s".repeat(50)).repeat(2) + "/abcd";
    let read = settings(&[
        ("LEASEKEEPER_TABLE", "arn:aws-cn:dynamodb:cn-north-1:123456789012:table/my.locks_1-a"),
        ("LEASEKEEPER_LEASE_MS", "100"),
        ("LEASEKEEPER_WAIT_MS", "0"),
        ("LEASEKEEPER_RESERVE_MS", "86400000"),
        ("LEASEKEEPER_MAX_HOLD_MS", "31536000000"),
        ("LEASEKEEPER_HOLD_MS", "900000"),
        ("LEASEKEEPER_SOCKET", &long),
        ("LEASEKEEPER_PEER_UIDS", "993, 0,4294967294"),
        ("LEASEKEEPER_PLAIN_KEYS", "1"),
        ("LEASEKEEPER_STORE", "memory"),
        ("LEASEKEEPER_LOG", "warn,leasekeeper_extension=trace"),
        ("LEASEKEEPER_LOG_FORMAT", "text"),
    ])
    .unwrap();
    assert_eq!(long.len(), 107, "the longest path is right");
    let expected = Settings {
        table: "arn:aws-cn:dynamodb:cn-north-1:123456789012:table/my.locks_1-a".into(),
        lease: Duration::from_millis(100),
        wait: Some(Duration::ZERO),
        reserve: Some(Duration::from_secs(86_400)),
        max_hold: Some(Duration::from_secs(365 * 86_400)),
        hold: Duration::from_secs(900),
        socket: long.into(),
        peer_uids: vec![993, 0, 4_294_967_294],
        plain_keys: true,
        store: StoreKind::Memory,
    };
    assert_eq!(read, expected);
}

#[test]
fn a_wrong_value_is_named_with_what_it_must_be() {
    let milliseconds =
        ["", " ", "abc", "1.5", "-1", "+200", "1e3", "20s", "99999999999999999999", "0x10", " 200", "NaN"];
    let too_long = format!("/tmp/{}", "s".repeat(103));
    let cases: &[(&str, &[&str], &str)] = &[
        (
            "LEASEKEEPER_TABLE",
            &[
                "",
                "ab",
                "my table",
                "locks/1",
                "törn",
                "arn:aws:dynamodb:eu-west-1:123456789012:locks",
                "arn:aws:sns:eu-west-1:123456789012:table/locks",
                "arn:aws:dynamodb:eu-west-1:1234:table/locks",
                "arn:aws:dynamodb::123456789012:table/locks",
                "arn:aws:dynamodb:eu-west-1:123456789012:table/a",
                "arn:x:dynamodb:eu-west-1:123456789012:table/locks",
                "locks:x",
            ],
            "the name (3 to 255 of a-z A-Z 0-9 _ - .) or the ARN of the lock table",
        ),
        ("LEASEKEEPER_LEASE_MS", &milliseconds, "a whole number of milliseconds from 100 to 86400000"),
        ("LEASEKEEPER_LEASE_MS", &["0", "99", "86400001"], "a whole number of milliseconds from 100 to 86400000"),
        ("LEASEKEEPER_WAIT_MS", &milliseconds, "a whole number of milliseconds from 0 to 86400000"),
        ("LEASEKEEPER_WAIT_MS", &["86400001"], "a whole number of milliseconds from 0 to 86400000"),
        ("LEASEKEEPER_RESERVE_MS", &milliseconds, "a whole number of milliseconds from 0 to 86400000"),
        ("LEASEKEEPER_RESERVE_MS", &["86400001"], "a whole number of milliseconds from 0 to 86400000"),
        ("LEASEKEEPER_MAX_HOLD_MS", &milliseconds, "a whole number of milliseconds from 100 to 31536000000"),
        ("LEASEKEEPER_MAX_HOLD_MS", &["99", "31536000001"], "a whole number of milliseconds from 100 to 31536000000"),
        (
            "LEASEKEEPER_SOCKET",
            &[
                "",
                "lock.sock",
                "./lock.sock",
                "/lock.sock",
                "/tmp/",
                "/tmp/x/",
                "/tmp/x/../lock.sock",
                "/tmp/x/\0lock",
                &too_long,
            ],
            "an absolute path of at most 107 bytes, without \"..\", in a directory of its own",
        ),
        (
            "LEASEKEEPER_PEER_UIDS",
            &["root", "1,,2", "1;2", "-1", "+1", "4294967295", "4294967296", "1,"],
            "numeric user ids separated by commas",
        ),
        ("LEASEKEEPER_PLAIN_KEYS", &["", "yes", "TRUE", "on", "2"], "true, false, 1 or 0"),
        ("LEASEKEEPER_STORE", &["", "DynamoDB", "redis"], "dynamodb or memory"),
        (
            "LEASEKEEPER_LOG",
            &["", " ", "inof", "leasekeeper=loud", "=,", "=info", "info,"],
            "levels, such as info or warn,leasekeeper_extension=debug",
        ),
        ("LEASEKEEPER_LOG_FORMAT", &["", "JSON", "xml"], "json or text"),
    ];
    for (name, values, expected) in cases {
        for value in *values {
            let wrong = with_only_wrong(name, value);
            assert_eq!(wrong, Wrong { name, value: Some((*value).into()), expected: (*expected).into() });
            assert_eq!(wrong.to_string(), format!("{name} is {}: it must be {expected}", shown(value)));
        }
        let not_utf8 = with_only_wrong(name, "1\u{FFFD}");
        assert_eq!(not_utf8.expected, "valid UTF-8", "{name}");
    }
}

fn with_only_wrong(name: &str, value: &str) -> Wrong {
    let values = [(name, value), ("LEASEKEEPER_TABLE", "locks")];
    let error = settings(&values).expect_err(&format!("{name}={value:?} was taken"));
    assert_eq!(error.wrong.len(), 1, "{name}={value:?}: {error}");
    error.wrong.into_iter().next().unwrap()
}

fn shown(value: &str) -> String {
    format!("{value:?}")
}

#[test]
fn every_wrong_variable_is_named_at_once() {
    let error = settings(&[("LEASEKEEPER_LEASE_MS", "5"), ("LEASEKEEPER_STORE", "redis")]).unwrap_err();
    let names: Vec<_> = error.wrong.iter().map(|wrong| wrong.name).collect();
    assert_eq!(names, ["LEASEKEEPER_STORE", "LEASEKEEPER_TABLE", "LEASEKEEPER_LEASE_MS"]);
    assert_eq!(
        error.to_string(),
        "LEASEKEEPER_STORE is \"redis\": it must be dynamodb or memory; \
         LEASEKEEPER_TABLE is not set: it must be the name (3 to 255 of a-z A-Z 0-9 _ - .) or the ARN of the lock table; \
         LEASEKEEPER_LEASE_MS is \"5\": it must be a whole number of milliseconds from 100 to 86400000"
    );
}

#[test]
fn a_very_long_wrong_value_is_shown_shortened() {
    let error = with("LEASEKEEPER_STORE", &"é".repeat(100_000)).unwrap_err().to_string();
    assert!(error.len() < 1_000, "{} bytes", error.len());
    assert!(error.contains("é…\": it must be dynamodb or memory"), "{error}");
}

#[test]
fn the_memory_store_needs_no_table_but_a_wrong_one_is_still_named() {
    assert_eq!(settings(&[("LEASEKEEPER_STORE", "memory")]).unwrap().table, "");
    let error = settings(&[("LEASEKEEPER_STORE", "memory"), ("LEASEKEEPER_TABLE", "x")]).unwrap_err();
    assert_eq!(error.wrong[0].name, "LEASEKEEPER_TABLE");
}

#[test]
fn the_socket_is_known_whatever_else_is_wrong() {
    let wrong = [
        ("LEASEKEEPER_LEASE_MS", "soon"),
        ("LEASEKEEPER_LOG", "=,"),
        ("LEASEKEEPER_SOCKET", "/run/locks/a.sock"),
        ("LEASEKEEPER_PEER_UIDS", "12"),
        ("LEASEKEEPER_DRAIN_MS", "-1"),
    ];
    let (bootstrap, settings) = read(lookup(&wrong));
    assert!(settings.is_err());
    let expected = Bootstrap {
        socket: "/run/locks/a.sock".into(),
        peer_uids: vec![12],
        drain: DEFAULT_DRAIN,
        log_filter: "info".into(),
        log_format: LogFormat::Text,
    };
    assert_eq!(bootstrap, expected);
    let (bootstrap, settings) = read(lookup(&[("LEASEKEEPER_TABLE", "locks"), ("LEASEKEEPER_SOCKET", "relative")]));
    assert_eq!(bootstrap.socket, PathBuf::from(leasekeeper_wire::DEFAULT_SOCKET));
    assert_eq!(settings.unwrap_err().wrong[0].name, "LEASEKEEPER_SOCKET");
}

#[test]
fn a_sidecars_end_waits_less_than_docker_does_unless_set() {
    let drain = |values: &[(&str, &str)]| read(lookup(values)).0.drain;
    assert!(drain(&[]) < Duration::from_millis(9_000), "a second is left for what follows");
    for (value, expected) in [("0", Duration::ZERO), ("86400000", Duration::from_secs(86_400))] {
        assert_eq!(drain(&[("LEASEKEEPER_DRAIN_MS", value)]), expected);
    }
}

#[test]
fn logs_are_json_under_lambda_unless_set() {
    let format = |values: &[(&str, &str)]| read(lookup(values)).0.log_format;
    assert_eq!(format(&[]), LogFormat::Text);
    assert_eq!(format(&[("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")]), LogFormat::Json);
    let set = [("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001"), ("LEASEKEEPER_LOG_FORMAT", "text")];
    assert_eq!(format(&set), LogFormat::Text);
}

#[test]
fn only_misspelt_names_of_ours_are_unknown() {
    let names = ["LEASEKEEPER_TABEL", "LEASEKEEPER_", "LEASEKEEPER_STRICT_RELEASE", "PATH", "XLEASEKEEPER_A"];
    let mine = VARIABLES.iter().map(|variable| variable.name).chain(GIVEN_TO_COMMANDS);
    let unknown = unknown(names.into_iter().chain(mine).map(String::from));
    assert_eq!(unknown, ["LEASEKEEPER_", "LEASEKEEPER_TABEL"]);
}

#[test]
fn the_table_of_variables_names_each_once() {
    for (n, variable) in VARIABLES.iter().enumerate() {
        assert!(variable.name.starts_with(PREFIX), "{}", variable.name);
        assert!(VARIABLES[n + 1..].iter().all(|other| other.name != variable.name), "{} twice", variable.name);
    }
}
