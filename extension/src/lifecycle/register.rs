//! Registers with the Extensions API, however often it takes.

use super::Mode;
use super::backoff::Backoff;
use lambda_extension::Extension;
use std::path::Path;

const ALL: &[&str] = &["INVOKE", "SHUTDOWN"];
const SHUTDOWN_ONLY: &[&str] = &["SHUTDOWN"];

/// Returns the extension's identifier. While registering fails the environment cannot start, so it is tried for as long as Lambda lets
/// it; leaving would fail the function for certain.
pub(super) async fn register(mode: Mode) -> String {
    let name = name(std::env::args_os().next().as_deref().map(Path::new));
    // Managed Instances refuse extensions that want to hear of invocations.
    let mut events = if mode == Mode::ManagedInstances { SHUTDOWN_ONLY } else { ALL };
    let mut backoff = Backoff::default();
    loop {
        match Extension::new().with_extension_name(&name).with_events(events).register().await {
            Ok(registered) => {
                tracing::info!(
                    name,
                    ?events,
                    ?mode,
                    function = registered.function_name,
                    version = env!("CARGO_PKG_VERSION"),
                    "registered"
                );
                return registered.extension_id;
            }
            Err(error) => {
                tracing::error!(%error, name, ?events, "the extension is not registered yet: trying again");
                if is_refusal(&error) {
                    events = if events == ALL { SHUTDOWN_ONLY } else { ALL };
                    tracing::warn!(?events, "asking for these events instead");
                }
            }
        }
        backoff.wait().await;
    }
}

/// Lambda knows an extension by the name of its file.
fn name(program: Option<&Path>) -> String {
    let name = program.and_then(Path::file_name).and_then(|name| name.to_str());
    name.unwrap_or("leasekeeper").into()
}

/// 403 is how a subscription is refused; the crate keeps the status in its text alone.
fn is_refusal(error: &lambda_extension::Error) -> bool {
    error.to_string().ends_with("403 Forbidden")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_files() {
        assert_eq!(name(Some(Path::new("/opt/extensions/leasekeeper"))), "leasekeeper");
        assert_eq!(name(Some(Path::new("/opt/extensions/locks"))), "locks");
        assert_eq!(name(Some(Path::new("/"))), "leasekeeper");
        assert_eq!(name(None), "leasekeeper");
    }
}
