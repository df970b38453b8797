//! Registers with the Extensions API, however often it takes.

use super::Mode;
use super::api::Api;
use super::backoff::Backoff;
use std::path::Path;

const ALL: &[&str] = &["INVOKE", "SHUTDOWN"];
const SHUTDOWN_ONLY: &[&str] = &["SHUTDOWN"];

/// Returns the extension's identifier. While registering fails the environment cannot start, so it is tried for as long as Lambda lets
/// it; leaving would fail the function for certain.
pub(super) async fn register(api: &Api, mode: Mode) -> String {
    let name = name(std::env::args_os().next().as_deref().map(Path::new));
    // Managed Instances refuse extensions that want to hear of invocations.
    let mut events = if mode == Mode::ManagedInstances { SHUTDOWN_ONLY } else { ALL };
    let mut backoff = Backoff::default();
    loop {
        match api.register(&name, events).await {
            Ok(registered) => {
                tracing::info!(
                    name,
                    ?events,
                    ?mode,
                    function = registered.function,
                    version = env!("CARGO_PKG_VERSION"),
                    "registered"
                );
                return registered.id;
            }
            Err(error) => {
                tracing::error!(%error, name, ?events, "the extension is not registered yet: trying again");
                if error.is_refusal() {
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
