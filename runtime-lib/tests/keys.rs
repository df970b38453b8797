//! Keys and key templates: the table of lock protocol version 1 and every error.

use leasekeeper::{Code, IntoKey, Key, KeyTemplate, LockError, Locks, key};
use std::fmt::Display;

/// A template, its values, and the key or the words of the error.
type Row<'a> = (&'a str, Values<'a>, &'a str);

type Values<'a> = &'a [(&'a str, &'a dyn Display)];

fn render(template: &str, values: Values<'_>) -> Result<String, LockError> {
    KeyTemplate::parse(template)?.render(values).map(|key| key.as_str().to_owned())
}

#[test]
fn templates_give_the_same_keys_as_in_every_other_language() {
    let table: &[Row<'_>] = &[
        ("c:{x}", &[("x", &123)], "c:123"),
        ("{x}:{y}", &[("x", &"acme"), ("y", &"123")], "4:acme:3:123"),
        ("{x}:{x}", &[("x", &"ab")], "2:ab:2:ab"),
        ("{x}{y}", &[("x", &"é"), ("y", &"日本")], "2:é6:日本"),
        ("{x}:{y}", &[("x", &""), ("y", &"")], "0::0:"),
        ("p:{x}", &[("x", &"")], "p:"),
        ("{{{x}}}", &[("x", &"q")], "{q}"),
        ("{x}}}", &[("x", &"q")], "q}"),
        ("{{x}}", &[], "{x}"),
        ("}}", &[], "}"),
        ("plain", &[], "plain"),
        ("{x}", &[("x", &"{y}")], "{y}"),
        ("{_a1}", &[("_a1", &true)], "true"),
    ];
    for (template, values, key) in table {
        assert_eq!(render(template, values).as_deref(), Ok(*key), "{template}");
    }
}

#[test]
fn what_is_no_template_or_does_not_fit_it_is_an_error() {
    let long = "k".repeat(2_049);
    let table: &[Row<'_>] = &[
        ("", &[], "empty"),
        ("{x}", &[("x", &"")], "empty"),
        ("{x}", &[("x", &long)], "2049 bytes"),
        ("{x", &[("x", &"q")], "without its `}`"),
        ("x}", &[("x", &"q")], "lone `}`"),
        ("{{{x}}", &[("x", &"q")], "lone `}`"),
        ("{}", &[], "is not a valid name"),
        ("{ x }", &[("x", &"q")], "is not a valid name"),
        ("{1x}", &[("1x", &"q")], "is not a valid name"),
        ("{x.y}", &[("x", &"q")], "is not a valid name"),
        ("{a{b}}", &[("a", &"q")], "is not a valid name"),
        ("{x}", &[], "has no value"),
        ("{x}", &[("y", &"q")], "no placeholder \"y\""),
        ("{x}", &[("x", &"q"), ("y", &"q")], "no placeholder \"y\""),
        ("{x}", &[("x", &"q"), ("x", &"r")], "given twice"),
        ("plain", &[("x", &"q")], "no placeholder \"x\""),
    ];
    for (template, values, words) in table {
        let error = render(template, values).expect_err(template);
        assert_eq!(error.code(), Code::Protocol, "{template}");
        assert!(error.to_string().contains(words), "{template}: {error}");
    }
}

#[test]
fn a_key_has_1_to_2048_bytes_of_utf_8() {
    assert_eq!(Key::new("").expect_err("empty").code(), Code::Protocol);
    assert!(Key::new("é".repeat(1_024)).is_ok());
    assert_eq!(Key::new("é".repeat(1_024) + "x").expect_err("too long").code(), Code::Protocol);
}

#[test]
fn a_keys_debug_form_does_not_show_it() {
    let key = Key::new("customer:secret").expect("a key");
    assert!(!format!("{key:?}").contains("secret"));
}

#[test]
fn the_macro_takes_expressions_and_names() {
    const TEMPLATE: &str = "{tenant}/{id}";
    let order = (String::from("acme"), 5);
    let text = |key: Result<Key, LockError>| key.map(|key| key.as_str().to_owned());
    assert_eq!(text(key!("{tenant}/{id}", tenant = &order.0, id = order.1)), Ok("4:acme/1:5".into()));
    assert_eq!(text(key!("plain")), Ok("plain".into()));
    let (tenant, r#type) = (&order.0, "t");
    assert_eq!(text(key!(TEMPLATE, id = 5, tenant,)), Ok("4:acme/1:5".into()));
    assert_eq!(text(key!("{{{type}}}", r#type)), Ok("{t}".into()));
    assert_eq!(text(key!("{{{type}}}", r#type = order.1)), Ok("{5}".into()));
    assert_eq!(text(key!("{größe}", größe = 1)), Ok("1".into()));
    assert_eq!(key!("{tenant}", tenant = "").expect_err("an empty key").code(), Code::Protocol);
}

#[test]
fn a_value_of_the_macro_may_end_the_function() {
    fn of(id: &str) -> Result<Key, Box<dyn std::error::Error>> {
        Ok(key!("{id}", id = id.parse::<u64>()?)?)
    }
    assert_eq!(of("007").expect("a number").as_str(), "7");
    assert!(of("x").is_err());
}

#[test]
fn any_error_of_a_key_function_is_told() {
    let parsed: Result<Key, std::num::ParseIntError> = "x".parse::<u8>().map(|_| Key::new("k").expect("a key"));
    let error = parsed.into_key().expect_err("no number");
    assert_eq!(error.code(), Code::Protocol);
    assert!(error.to_string().contains("invalid digit"), "{error}");
}

#[test]
fn a_key_can_be_borrowed() {
    let (text, key) = (String::from("k"), Key::new("k").expect("a key"));
    assert_eq!((&text).into_key().as_ref(), Ok(&key));
    assert_eq!((&key).into_key().as_ref(), Ok(&key));
}

#[tokio::test]
async fn a_bad_key_is_reported_before_anything_is_sent() {
    let nowhere = Locks::at("/nonexistent/lock.sock");
    assert_eq!(nowhere.acquire("").await.expect_err("empty").code(), Code::Protocol);
    assert_eq!(nowhere.acquire(key!("{x}", x = "")).await.expect_err("empty").code(), Code::Protocol);
    assert_eq!(nowhere.acquire("k".repeat(2_049)).await.expect_err("too long").code(), Code::Protocol);
    assert_eq!(nowhere.acquire("k").await.expect_err("no socket").code(), Code::ExtensionMissing);
}
