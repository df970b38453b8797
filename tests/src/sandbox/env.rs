//! The environment variables that the platform sets, and which of them extensions do not see.

use std::path::{Path, PathBuf};

use super::Role;

pub(super) const FUNCTION: &str = "sandboxed";
pub(super) const HANDLER: &str = "app.handler";
pub(super) const ACCOUNT: &str = "123456789012";
pub(super) const FUNCTION_ARN: &str = "arn:aws:lambda:eu-central-1:123456789012:function:sandboxed";

/// Where the lock socket is.
pub(super) fn socket(tmp: &Path) -> PathBuf {
    tmp.join("leasekeeper/lock.sock")
}

/// What a process of this role finds in its environment, before the test's own variables.
pub(super) fn platform(role: Role, api: &str, tmp: &Path, concurrency: Option<usize>) -> Vec<(String, String)> {
    let init = if concurrency.is_some() { "lambda-managed-instances" } else { "on-demand" };
    let mut all = vec![
        ("AWS_LAMBDA_RUNTIME_API", api.to_owned()),
        ("AWS_LAMBDA_FUNCTION_NAME", FUNCTION.into()),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".into()),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128".into()),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", init.into()),
        ("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{FUNCTION}")),
        ("AWS_LAMBDA_LOG_STREAM_NAME", "2026/01/01/[$LATEST]sandbox".into()),
        ("AWS_EXECUTION_ENV", "AWS_Lambda_sandbox".into()),
        ("AWS_XRAY_CONTEXT_MISSING", "LOG_ERROR".into()),
        ("_HANDLER", HANDLER.into()),
        ("LAMBDA_TASK_ROOT", "/var/task".into()),
        ("LAMBDA_RUNTIME_DIR", "/var/runtime".into()),
        ("AWS_REGION", "eu-central-1".into()),
        ("AWS_DEFAULT_REGION", "eu-central-1".into()),
        ("AWS_ACCESS_KEY_ID", "sandbox".into()),
        ("AWS_SECRET_ACCESS_KEY", "sandbox".into()),
        ("LANG", "en_US.UTF-8".into()),
        ("TZ", ":UTC".into()),
        ("PATH", std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into())),
        ("TMPDIR", tmp.display().to_string()),
        ("LEASEKEEPER_SOCKET", socket(tmp).display().to_string()),
    ];
    if let Some(concurrency) = concurrency {
        all.push(("AWS_LAMBDA_MAX_CONCURRENCY", concurrency.to_string()));
    }
    all.retain(|(name, _)| visible(role, name));
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Extensions see the function's variables except those that concern its code, its log group and its trace.
pub(super) fn visible(role: Role, name: &str) -> bool {
    let hidden = ["AWS_LAMBDA_LOG_", "AWS_XRAY_"].iter().any(|prefix| name.starts_with(prefix))
        || ["_HANDLER", "LAMBDA_TASK_ROOT", "AWS_EXECUTION_ENV"].contains(&name);
    role == Role::Runtime || !hidden
}
