//! Reads the shared vectors for Rust's tests, which include this file by its path.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// A file's cases, with every `<<TEXT*N>>` written out.
pub(crate) fn cases(directory: &Path, file: &str) -> Vec<Value> {
    let path = directory.join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut file: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    write_out(&mut file);
    let Value::Array(cases) = file["cases"].take() else { panic!("{} has no cases", path.display()) };
    cases
}

fn write_out(value: &mut Value) {
    match value {
        Value::String(text) => {
            while let Some((before, rest)) = text.split_once("<<") {
                let (repeat, after) = rest.split_once(">>").expect("<< has its >>");
                let (unit, times) = repeat.rsplit_once('*').expect("<<TEXT*N>> has a star");
                *text = format!("{before}{}{after}", unit.repeat(times.parse().expect("N is a number")));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(write_out),
        Value::Object(values) => values.values_mut().for_each(write_out),
        _ => {}
    }
}

pub(crate) fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("{}: {field} is a string", case["name"]))
}
