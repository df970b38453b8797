//! The table of settings: what the README shows, and what counts as a known name.

/// What every variable of ours begins with.
pub const PREFIX: &str = "LEASEKEEPER_";

/// What `run` gives to the command that it runs: no setting, and no misspelt one either.
pub const GIVEN_TO_COMMANDS: [&str; 2] = ["LEASEKEEPER_KEY", "LEASEKEEPER_OWNER"];

/// One environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its default, as the README shows it.
    pub default: &'static str,
    /// What it sets, as the README shows it.
    pub meaning: &'static str,
}

/// Every variable that the extension or the helpers read, in the README's order.
pub const VARIABLES: &[Variable] = &[
    variable("LEASEKEEPER_TABLE", "required", "The lock table's name or ARN."),
    variable("LEASEKEEPER_LEASE_MS", "20000", "The lease to write: 100 to 86400000. It is renewed every third of it."),
    variable(
        "LEASEKEEPER_WAIT_MS",
        "min(5000, remaining − reserve); outside an invocation lease + 5000",
        "How long an acquire waits for the lock: 0 to 86400000; 0 tries once.",
    ),
    variable(
        "LEASEKEEPER_RESERVE_MS",
        "max(1000, remaining / 4), at most 30000",
        "What a wait leaves of the invocation for the work and for giving the lock back: 0 to 86400000. With no more left than is set here, or than 200, nothing is sent.",
    ),
    variable(
        "LEASEKEEPER_MAX_HOLD_MS",
        "unlimited",
        "How long a lock may be held at most: 100 to 31536000000. Then it is lost.",
    ),
    variable(
        "LEASEKEEPER_HOLD_MS",
        "0 (off)",
        "Above 0, an environment is not frozen before its invocation's locks are given back, if the first is asked for within this time: 0 to 900000. It is billed.",
    ),
    variable(
        "LEASEKEEPER_SOCKET",
        "/tmp/leasekeeper/lock.sock",
        "The lock socket: an absolute path of at most 107 bytes, in a directory of its own.",
    ),
    variable(
        "LEASEKEEPER_PEER_UIDS",
        "none",
        "User ids, separated by commas, that may connect besides the extension's own and root.",
    ),
    variable(
        "LEASEKEEPER_DRAIN_MS",
        "8000",
        "How long a sidecar that was asked to end waits for its clients to give their locks back: 0 to 86400000.",
    ),
    variable("LEASEKEEPER_PLAIN_KEYS", "false", "`true` logs keys as they are instead of a short hash."),
    variable("LEASEKEEPER_STORE", "dynamodb", "`memory` keeps leases in the process: for an application's tests."),
    variable(
        "LEASEKEEPER_STRICT_RELEASE",
        "false",
        "`true` makes an unconfirmed release an error of the function instead of a log line.",
    ),
    variable(
        "LEASEKEEPER_LOG",
        "info",
        "The extension's log filter, such as `debug` or `warn,leasekeeper_extension=debug`.",
    ),
    variable("LEASEKEEPER_LOG_FORMAT", "json under Lambda, else text", "`json` or `text`."),
];

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default, meaning }
}
