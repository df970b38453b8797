//! What the emulator lets pass and the front does not: requests that a lock client must never send.

use super::fault::Operation;
use serde_json::Value;

/// The key of the item that a request is for.
pub(super) fn key(operation: Operation, body: &Value) -> Option<String> {
    let holder = if operation == Operation::PutItem { "Item" } else { "Key" };
    body[holder]["key"]["S"].as_str().map(str::to_owned)
}

/// Names what is wrong with a request on the lock table. Other tables are other people's, and what is only our own rule
/// is asked of our own clients only.
pub(super) fn check(operation: Operation, body: &Value, table: &str, own: bool) -> Result<(), String> {
    if operation == Operation::TransactWriteItems {
        let writes = body["TransactItems"].as_array().into_iter().flatten().filter_map(Value::as_object);
        return writes
            .flat_map(|write| write.values())
            .filter(|write| write["TableName"] == table)
            .try_for_each(conditional);
    }
    let of_the_table_itself = operation.is_for_people() && operation != Operation::Scan;
    if body["TableName"] != table || of_the_table_itself {
        return Ok(());
    }
    if own && body["ReturnConsumedCapacity"] != "TOTAL" {
        return Err("without ReturnConsumedCapacity=TOTAL".to_owned());
    }
    if operation == Operation::Scan {
        return Ok(());
    }
    if operation == Operation::GetItem {
        return if body["ConsistentRead"] == true { Ok(()) } else { Err("without ConsistentRead".to_owned()) };
    }
    conditional(body)?;
    if own && body["ReturnValuesOnConditionCheckFailure"] != "ALL_OLD" {
        return Err("without ReturnValuesOnConditionCheckFailure=ALL_OLD".to_owned());
    }
    Ok(())
}

fn conditional(write: &Value) -> Result<(), String> {
    match write["ConditionExpression"].as_str() {
        Some(_) => Ok(()),
        None => Err("a write without a condition".to_owned()),
    }
}
