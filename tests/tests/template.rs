//! What the linter does not see in `template.yaml`: a misspelt permission, a permission too many, a table that loses locks.

use std::collections::BTreeMap;
use std::fs;
use testkit::programs::repository;

/// All that taking, renewing and giving back a lock needs.
const LOCKING: [&str; 4] = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"];

/// The template's lines without comments, white space at the end, or emptiness.
fn lines() -> Vec<String> {
    let text = fs::read_to_string(repository("template.yaml")).expect("template.yaml is there");
    let lines = text.lines().map(str::trim_end).filter(|line| !line.trim_start().starts_with('#'));
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The resources by name, each with its lines without their indentation.
fn resources() -> BTreeMap<String, Vec<String>> {
    let mut resources = BTreeMap::<String, Vec<String>>::new();
    let mut name = String::new();
    let lines = lines();
    let all = lines.iter().skip_while(|line| *line != "Resources:").skip(1).take_while(|line| line.starts_with(' '));
    for line in all {
        match line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) {
            Some(begins) => name = begins.trim_end_matches(':').to_owned(),
            None => resources.entry(name.clone()).or_default().push(line.trim_start().to_owned()),
        }
    }
    resources
}

fn of_type(kind: &str) -> BTreeMap<String, Vec<String>> {
    let kind = format!("Type: {kind}");
    resources().into_iter().filter(|(_, lines)| lines[0] == kind).collect()
}

/// What follows `prefix` in the lines that begin with it.
fn after<'a>(lines: &'a [String], prefix: &str) -> Vec<&'a str> {
    lines.iter().filter_map(|line| line.strip_prefix(prefix)).map(str::trim).collect()
}

/// Every action that is named anywhere in these lines.
fn actions(lines: &[String]) -> Vec<String> {
    let words = lines.iter().flat_map(|line| line.split(['[', ']', ',', ' ']));
    words.filter(|word| word.contains(':') && !word.ends_with(':') && !word.contains("::")).map(str::to_owned).collect()
}

#[test]
fn each_function_may_do_to_the_lock_table_what_locking_needs_and_nothing_else() {
    let functions = of_type("AWS::Serverless::Function");
    for language in ["Rust", "Python", "Node"] {
        assert!(functions.contains_key(&format!("{language}Function")), "one in {language}");
    }
    for (name, lines) in &functions {
        assert_eq!(actions(lines), LOCKING, "{name}");
        assert_eq!(after(lines, "- Effect:"), ["Allow"], "{name}");
        assert_eq!(after(lines, "Resource:"), ["!GetAtt LockTable.Arn"], "{name}: the one table");
        assert_eq!(after(lines, "Policies:").len(), 1, "{name}: one policy");
        assert!(after(lines, "Role:").is_empty(), "{name}: no role that somebody else fills");
    }
}

#[test]
fn the_policy_for_functions_of_other_stacks_adds_the_ownership_check_in_transactions() {
    let policies = of_type("AWS::IAM::ManagedPolicy");
    assert_eq!(policies.keys().collect::<Vec<_>>(), ["LockPolicy"]);
    let lines = &policies["LockPolicy"];
    let mut expected = vec!["dynamodb:ConditionCheckItem"];
    expected.extend(LOCKING);
    assert_eq!(actions(lines), expected);
    assert_eq!(after(lines, "Resource:"), ["!GetAtt LockTable.Arn"]);
    // The README shows the same list.
    let readme = fs::read_to_string(repository("README.md")).expect("README.md is there");
    let listed = format!("\"Action\": {expected:?}");
    assert!(readme.contains(&listed), "{listed}");
}

#[test]
fn nothing_is_allowed_but_by_those_policies() {
    let lines = lines();
    let wild = |line: &&String| line.contains('*') && !line.contains("Pattern:");
    assert_eq!(lines.iter().filter(wild).collect::<Vec<_>>(), [""; 0], "no wildcards");
    let effects = lines.iter().filter(|line| line.contains("Effect:")).count();
    let functions = of_type("AWS::Serverless::Function").len();
    assert_eq!(effects, functions + 1, "one statement each, and that of the managed policy");
}

#[test]
fn it_deploys_in_every_partition() {
    for line in lines() {
        assert!(!line.contains("arn:aws"), "an ARN that names a partition: {line}");
        assert!(!line.contains("amazonaws.com"), "a host name of one partition: {line}");
        assert!(!line.contains("us-east-1"), "a Region: {line}");
    }
}

#[test]
fn the_lock_table_has_the_key_alone_no_sort_key_and_no_ttl() {
    let tables: Vec<_> = resources().into_iter().filter(|(_, lines)| lines[0].contains("AWS::DynamoDB::")).collect();
    assert_eq!(tables.len(), 1, "one table, and not a global one");
    let (name, lines) = &tables[0];
    assert_eq!((name.as_str(), lines[0].as_str()), ("LockTable", "Type: AWS::DynamoDB::Table"));
    assert_eq!(after(lines, "- AttributeName:"), ["key"; 2], "once as an attribute, once in the schema");
    assert_eq!(after(lines, "AttributeType:"), ["S"]);
    assert_eq!(after(lines, "KeyType:"), ["HASH"]);
    assert_eq!(after(lines, "BillingMode:"), ["PAY_PER_REQUEST"]);
    assert_eq!(after(lines, "PointInTimeRecoveryEnabled:"), ["true"]);
    assert_eq!(after(lines, "DeletionProtectionEnabled:"), ["!Ref DeletionProtection"]);
    assert_eq!(after(lines, "DeletionPolicy:"), ["Retain"]);
    assert_eq!(after(lines, "UpdateReplacePolicy:"), ["Retain"]);
    assert!(!lines.iter().any(|line| line.contains("TimeToLive") || line.contains("Index")), "no TTL and no indexes");
}
