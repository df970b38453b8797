"""What can go wrong: one base class, one subclass for each code that the extension and every language know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Dict, Optional, Type


@dataclass(frozen=True)
class Holder:
    """What a row says of its holder. It is another tenant's data: keep it out of what your callers see."""

    owner: str
    lease_ms: int = 0
    #: For how long this environment has seen the row unchanged.
    unchanged_ms: int = 0
    function: Optional[str] = None
    request_id: Optional[str] = None
    log_stream: Optional[str] = None
    #: Outside Lambda: the host and the process.
    host: Optional[str] = None


@dataclass(frozen=True)
class Metrics:
    """A lease's figures, from its acquire on."""

    #: Requests that could write: put, update, delete.
    write_requests: int = 0
    #: Consistent reads.
    read_requests: int = 0
    #: Renewals known to be committed.
    renewals: int = 0
    #: Writes whose condition did not hold.
    conditional_failures: int = 0
    #: Requests without a useful answer: throttled, unavailable, denied, outcome unknown.
    request_failures: int = 0
    #: How long the acquire took, in milliseconds.
    wait_ms: int = 0
    #: 1 if the wait ended without the lock.
    wait_timeouts: int = 0
    #: 1 if giving the row back was not confirmed in time.
    cleanup_failures: int = 0
    #: 1 if the lease was lost.
    lost: int = 0
    consumed_read_units: float = 0.0
    consumed_write_units: float = 0.0


class LockError(Exception):
    """Why there is no lock, or why it is not held any more. Branch on the class, or on :attr:`code`."""

    #: The one word that is the same in every language.
    code: ClassVar[str] = "unknown"

    #: The figures of the acquire that failed or of the lease that was lost, where the extension gave them.
    metrics: Optional[Metrics] = None

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        """What was seen, without advice."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return (
            f"this version of the client does not understand the extension's answer; update the client: {self.message}"
        )


class Busy(LockError):
    """Someone else holds the lock, and the wait for it is over."""

    code = "busy"

    #: In seconds: no later than this the lock can be free or taken over, unless its holder renews it.
    retry_after: Optional[float] = None
    #: What the row says of its holder. Never part of the error's text.
    holder: Optional[Holder] = None

    def __init__(self, message: str = "") -> None:
        # What the extension says may name the holder, and Lambda shows an error's text to whoever invoked the function.
        super().__init__()

    def __str__(self) -> str:
        return (
            "the lock is held by someone else and the wait for it is over: try again later, or allow a longer wait "
            "(`wait` or LEASEKEEPER_WAIT_MS)"
        )


class BudgetExhausted(LockError):
    """The invocation has no time left to wait in. Nothing was sent to DynamoDB."""

    code = "budget_exhausted"

    def __str__(self) -> str:
        return (
            "the invocation has no time left to wait for the lock: raise the function's timeout, or reserve less of it "
            "for the work (`reserve` or LEASEKEEPER_RESERVE_MS)"
        )


_LOST = "the lock was lost: "

_ADVICE = {
    "stolen": "another owner has taken it over",
    "expired": "no renewal was confirmed: DynamoDB or the extension could not be reached in time",
    "deleted": "its row was removed by someone else",
    "denied": "a renewal was refused; check the role's permissions on the lock table",
    "throttled": "its renewals were throttled for too long; check the lock table's capacity",
    "deadline": "the invocation's deadline has passed",
    "thaw": "the environment was frozen and resumed for another invocation",
    "shutdown": "the environment or the sidecar is shutting down",
    "extension_failed": "the extension failed or went away; see its log",
    "max_hold": "it was held for the longest time that LEASEKEEPER_MAX_HOLD_MS allows",
}

#: Every reason of a loss.
REASONS = frozenset(_ADVICE)


class Lost(LockError):
    """The lease is over, for good. What was done may have been done beside another holder from now on."""

    code = "lost"

    #: Why: `stolen`, `expired`, `deleted`, `denied`, `throttled`, `deadline`, `thaw`, `shutdown`, `extension_failed`,
    #: `max_hold`, or `unknown`.
    reason: str = "unknown"

    def __str__(self) -> str:
        advice = _ADVICE.get(self.reason, "see the extension's log")
        message = self.message
        if message.startswith(_LOST):  # The extension's words begin as this client's do.
            message = message[len(_LOST) :]
        return f"the lock was lost ({self.reason}): {advice}{_words(message)}"


class Unavailable(LockError):
    """DynamoDB or the extension did not answer in time, or the extension takes no more requests."""

    code = "unavailable"

    def __str__(self) -> str:
        return f"Leasekeeper is unavailable at the moment; try again: {self.message}"


class Denied(LockError):
    """A permission or the credentials are missing."""

    code = "denied"

    def __str__(self) -> str:
        return f"access to the lock table was refused; check the function's role and credentials: {self.message}"


class Config(LockError):
    """A setting is missing or wrong, or the table is not what it must be."""

    code = "config"

    def __str__(self) -> str:
        return f"Leasekeeper is misconfigured: {self.message}"


class ForeignRow(LockError):
    """The row under this key was not written by lock protocol version 1. It is left alone."""

    code = "foreign_row"

    def __str__(self) -> str:
        return f"the key is used for something other than a lock; use another key or another table: {self.message}"


class Protocol(LockError):
    """The request itself is wrong: a key, a template, a range, or a lease that was already given back."""

    code = "protocol"

    def __str__(self) -> str:
        return f"the lock request is invalid: {self.message}"


class ForkedGuard(Protocol):
    """A lock was used in a forked child. It stays the parent's, which goes on holding it; take one of your own."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the lock was taken by the parent process, and a forked child cannot use it")


class ReleaseUnconfirmed(LockError):
    """The lock was given back, but DynamoDB has not confirmed that the row is gone. The extension goes on trying."""

    code = "release_unconfirmed"

    def __str__(self) -> str:
        return (
            "the lock was given back, but this is not confirmed: others may find it held until the extension succeeds "
            f"or the lease ends{_words(self.message)}"
        )


class ExtensionMissing(LockError):
    """Nothing listens on the socket, or the connection was closed without an answer."""

    code = "extension_missing"

    def __str__(self) -> str:
        return self.message


class Unknown(LockError):
    """An answer that this client does not understand, as of an extension that is newer."""


#: The class of each code.
BY_CODE: Dict[str, Type[LockError]] = {
    error.code: error
    for error in (
        Busy,
        BudgetExhausted,
        Lost,
        Unavailable,
        Denied,
        Config,
        ForeignRow,
        Protocol,
        ReleaseUnconfirmed,
        ExtensionMissing,
    )
}


def lost(reason: str, message: str = "", metrics: Optional[Metrics] = None) -> Lost:
    """A loss with what is known of it."""
    error = Lost(message)
    error.reason = reason
    error.metrics = metrics
    return error


def _words(message: str) -> str:
    return f" ({message})" if message else ""
