//! Items between DynamoDB's JSON and the SDK's types.

use aws_sdk_dynamodb::types::AttributeValue;
use leasekeeper_extension::store::Item;
use serde_json::{Map, Value, json};

/// The item that DynamoDB's JSON describes.
///
/// # Panics
/// If it is none, or has an attribute of a type that no test uses.
pub fn of_json(item: &Value) -> Item {
    let attributes = item.as_object().expect("an item is an object");
    attributes.iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

/// An item in DynamoDB's JSON.
///
/// # Panics
/// If it has an attribute of a type that no test uses.
pub fn to_json(item: &Item) -> Value {
    Value::Object(item.iter().map(|(name, value)| (name.clone(), json_of(value))).collect::<Map<_, _>>())
}

fn attribute(value: &Value) -> AttributeValue {
    let Some((kind, value)) = value.as_object().and_then(|typed| typed.iter().next()) else {
        panic!("{value} is no attribute");
    };
    let text = || value.as_str().expect("texts and numbers are strings").to_owned();
    match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        "BOOL" => AttributeValue::Bool(value == true),
        "NULL" => AttributeValue::Null(value == true),
        "L" => AttributeValue::L(value.as_array().expect("a list").iter().map(attribute).collect()),
        _ => panic!("no test uses attributes of type {kind}"),
    }
}

fn json_of(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(digits) => json!({"N": digits}),
        AttributeValue::Bool(bool) => json!({"BOOL": bool}),
        AttributeValue::Null(is_null) => json!({"NULL": is_null}),
        AttributeValue::L(list) => json!({"L": list.iter().map(json_of).collect::<Vec<_>>()}),
        _ => panic!("no test uses {value:?}"),
    }
}
