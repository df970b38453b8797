//! What the linter does not see in `template.yaml`: a misspelt permission, a permission too many, a table that loses locks.

use std::fs;
use std::path::Path;

/// The template's lines without comments, white space at either end, or emptiness.
fn lines() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../template.yaml");
    let text = fs::read_to_string(path).expect("template.yaml is there");
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

fn after<'a>(lines: &'a [String], prefix: &str) -> Vec<&'a str> {
    lines.iter().filter_map(|line| line.strip_prefix(prefix)).collect()
}

#[test]
fn functions_may_do_to_the_lock_table_what_locking_needs_and_nothing_else() {
    let lines = lines();
    let actions =
        ["ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "UpdateItem"].map(|verb| format!("dynamodb:{verb}"));
    assert_eq!(after(&lines, "- dynamodb:").len(), actions.len());
    assert_eq!(
        after(&lines, "- ").into_iter().filter(|item| item.contains(':') && !item.contains(": ")).collect::<Vec<_>>(),
        actions
    );
    assert_eq!(after(&lines, "- Effect:"), [" Allow"]);
    assert_eq!(after(&lines, "Resource:"), [" !GetAtt LockTable.Arn"]);
    let functions = lines.iter().filter(|line| *line == "Type: AWS::Serverless::Function").count();
    assert!(functions >= 3, "one in each language");
    let policies = vec![" [!Ref LockPolicy]"; functions];
    assert_eq!(after(&lines, "Policies:"), policies, "every function has this policy and no other");
    assert!(!lines.iter().any(|line| line.contains('*') && !line.starts_with("AllowedPattern:")), "no wildcards");
}

#[test]
fn the_lock_table_has_the_key_alone_no_sort_key_and_no_ttl() {
    let lines = lines();
    assert_eq!(after(&lines, "- AttributeName:"), [" key"; 2], "once as an attribute, once in the schema");
    assert_eq!(after(&lines, "AttributeType:"), [" S"]);
    assert_eq!(after(&lines, "KeyType:"), [" HASH"]);
    assert_eq!(after(&lines, "BillingMode:"), [" PAY_PER_REQUEST"]);
    assert_eq!(after(&lines, "PointInTimeRecoveryEnabled:"), [" false"]);
    assert_eq!(after(&lines, "DeletionPolicy:"), [" Retain"]);
    assert_eq!(after(&lines, "UpdateReplacePolicy:"), [" Retain"]);
    let table = after(&lines, "Type: AWS::DynamoDB::");
    assert_eq!(table, ["Table"], "one table, and not a global one");
    assert!(!lines.iter().any(|line| line.contains("TimeToLive") || line.contains("Index")), "no TTL and no indexes");
}
