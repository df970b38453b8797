//! What each command says of itself.

/// One line for each command: for the program's own help.
pub const SUMMARY: &str = "  run                hold a lock while a command runs
  inspect KEY        who holds this lock, and is the holder alive?
  list               every lock row of the table
  break KEY          delete a lock row, if it is still the one that was inspected
  table create       create a lock table
  table check        is the table what a lock table must be?
";

const PLACE: &str = "
  --table NAME         the lock table's name or ARN; else LEASEKEEPER_TABLE
  --region REGION      else as the AWS SDK finds it: AWS_REGION and so on
  --endpoint-url URL   else AWS_ENDPOINT_URL_DYNAMODB, or the Region's own
";

const JSON: &str = "  --json               one JSON object on standard output
";

const EXIT_CODES: &str = "
Exit codes: 0 done, 2 wrong usage, 65 not the row that was named, 69 DynamoDB or the sidecar cannot be reached, 70 a fault of
the program or the system, 75 the lock is busy, 76 the lock was lost, 77 a permission or credentials are missing,
78 a setting or the table is wrong.
";

const INSPECT: &str = "\
Usage: leasekeeper inspect KEY [--for MS]

Shows the row under KEY and watches it: a lock whose version changes has a living holder. Nothing is written.

  --for MS             how long to watch at most, in milliseconds; 0 reads once. Else for the row's whole lease, as
                       only then an unchanged row is known to be abandoned";

const LIST: &str = "\
Usage: leasekeeper list [--prefix TEXT]

Lists the lock rows of the table, and counts what else is in it. It reads the whole table, so it costs as much as
the table is large. Nothing is written. A row in the list may be abandoned: `inspect` tells.

  --prefix TEXT        only keys that begin with this";

const BREAK: &str = "\
Usage: leasekeeper break KEY --if-version VERSION

Deletes the row under KEY if it still has the owner and the version that `inspect` showed. A living holder
believes in its lock until it is told at its next renewal: what it does until then is not protected any more.
An abandoned lock needs no breaking: whoever waits for it takes it over.

  --if-version VERSION required: the version as `inspect` shows it";

const TABLE: &str = "\
Usage: leasekeeper table create [--deletion-protection] [--no-point-in-time-recovery]
       leasekeeper table check

`create` makes a table as locks need it, on demand, and waits until it is there; where one stands already, it is
checked. `check` changes nothing.

  --deletion-protection        the table cannot be deleted before this is turned off
  --no-point-in-time-recovery  leave it off";

const RUN: &str = "\
Usage: leasekeeper run --key KEY [--wait-ms MS] [--lease-ms MS] [--kill-after-ms MS] [--sidecar] -- COMMAND [ARGUMENT]...

Acquires the lock KEY, runs COMMAND, and gives the lock back when it has ended. Exits with the command's own code
(128 + the signal's number if one killed it). SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on.
If the lock is lost, the command gets SIGTERM, then SIGKILL, and the exit code is 76.
The command sees LEASEKEEPER_KEY, LEASEKEEPER_OWNER and LEASEKEEPER_TABLE.

  --key KEY            required: the lock, 1 to 2,048 bytes
  --wait-ms MS         how long to wait for the lock; 0 tries once. Else LEASEKEEPER_WAIT_MS, or the lease + 5000
  --lease-ms MS        else LEASEKEEPER_LEASE_MS, or 20000
  --kill-after-ms MS   how long the command has between SIGTERM and SIGKILL when the lock is lost; else 5000
  --sidecar            ask the sidecar on LEASEKEEPER_SOCKET for the lock; else this process holds it by itself";

/// Which help is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Inspect,
    List,
    Break,
    Table,
    Run,
}

impl Topic {
    /// The command, as it is typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::List => "list",
            Self::Break => "break",
            Self::Table => "table",
            Self::Run => "run",
        }
    }

    pub(super) fn text(self) -> String {
        let (own, json) = match self {
            Self::Inspect => (INSPECT, JSON),
            Self::List => (LIST, JSON),
            Self::Break => (BREAK, JSON),
            Self::Table => (TABLE, JSON),
            Self::Run => (RUN, ""),
        };
        format!("{own}{PLACE}{json}{EXIT_CODES}")
    }
}
