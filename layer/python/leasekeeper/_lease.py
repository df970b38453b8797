"""What the two kinds of locks have in common: how a held lock stands, and what becomes of its release."""

from __future__ import annotations

import logging
import sys
import warnings
from contextvars import ContextVar, Token
from typing import Any, Dict, Generic, NoReturn, Optional, TypeVar

from . import _budget, _invocation
from ._budget import Seconds
from ._connection import Blocking
from ._errors import LockError, Lost, Protocol, ReleaseUnconfirmed
from ._keys import checked_key
from ._loop import Looped
from ._settings import Settings
from ._wire import Granted

C = TypeVar("C", Blocking, Looped)

_LOG = logging.getLogger("leasekeeper")


class Lease(Generic[C]):
    """What :class:`Lock` and :class:`AsyncLock` have in common: it tells how a held lock stands."""

    def __init__(
        self,
        key: str,
        *,
        wait: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
        reserve: Optional[Seconds] = None,
        strict_release: Optional[bool] = None,
        context: Optional[object] = None,
    ) -> None:
        self._key = checked_key(key)
        self._wishes = _budget.wishes(wait, lease, reserve)
        self._strict = checked_strict(strict_release)
        self._invocation: Optional[_invocation.Invocation] = None
        if context is not None:
            self._invocation = _invocation.of_context(context)
            if self._invocation is None:
                raise TypeError(
                    "`context` is no Lambda context: no `aws_request_id` and `get_remaining_time_in_millis`"
                )
        self._used = False
        self._connection: Optional[C] = None
        self._token: Optional[Token[Any]] = None

    def __del__(self) -> None:
        connection: Optional[C] = getattr(self, "_connection", None)
        if connection is None or connection.forked or connection.closed:
            return
        if not connection.state.ended:
            warnings.warn(f"{self!r} was dropped, and not given back", ResourceWarning, stacklevel=2, source=self)
        connection.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        # Whichever of two objects were dropped first would give the lock back.
        raise TypeError("a lock is one object in one process: it is neither copied nor pickled")

    def __repr__(self) -> str:
        # Without the key: keys are often customers' ids.
        connection = self._connection
        state = "not asked for" if connection is None else connection.state.phase.value
        return f"<{type(self).__name__} {state}>"

    # What the row says.

    @property
    def key(self) -> str:
        """The lock's key."""
        return self._key

    @property
    def owner(self) -> str:
        """The row's owner, which a transaction's condition compares."""
        return self._granted().owner

    @property
    def table(self) -> str:
        """The lock table's name or ARN."""
        return self._granted().table

    @property
    def token(self) -> Optional[int]:
        """The fencing token; None without fencing."""
        return self._granted().token

    @property
    def waited(self) -> float:
        """How long the acquire took, in seconds."""
        return self._granted().waited_ms / 1_000

    # How it stands.

    def remaining(self) -> float:
        """For how many seconds the lease is valid without another renewal, at least. Asks nothing, never blocks.

        0 when it was lost or given back, or when the extension is gone. After a long computation it can be 0 though the
        extension has renewed the lease meanwhile: then ask `check()`.
        """
        return self._held().remaining() / 1e9

    def raise_if_lost(self) -> None:
        """Raises :class:`Lost` if the lease is known to be lost: by what the extension has said up to now."""
        connection = self._held()
        connection.look()
        problem = connection.state.problem()
        if isinstance(problem, Lost):
            raise problem

    def condition_check(self, *, resource: bool = False) -> Dict[str, Any]:
        """A part for the `TransactItems` of your own DynamoDB transaction: refused once the lock was given back or taken over.

        In the form of a boto3 client; with `resource=True` in that of a boto3 resource (`table.meta.client`). No clock
        is involved.
        """
        key: Any = self.key if resource else {"S": self.key}
        owner: Any = self.owner if resource else {"S": self.owner}
        return {
            "ConditionCheck": {
                "TableName": self.table,
                "Key": {"key": key},
                "ConditionExpression": "#owner = :mine",
                "ExpressionAttributeNames": {"#owner": "owner"},
                "ExpressionAttributeValues": {":mine": owner},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def _held(self) -> C:
        if self._connection is None:
            raise Protocol("the lock was not acquired")
        return self._connection

    def _granted(self) -> Granted:
        granted = self._held().state.granted
        if granted is None:
            raise Protocol("the lock was not acquired")
        return granted

    # What the two kinds of acquire and release share.

    def _plan(self) -> _budget.Plan:
        """Marks the guard as used and fits its wishes into the invocation."""
        if self._used:
            raise Protocol("a lock object is used once: make another one")
        self._used = True
        settings = Settings.read()
        self._socket = settings.socket
        if self._strict is None:
            self._strict = settings.strict_release
        if self._invocation is None:
            self._invocation = _invocation.current()
        invocation = self._invocation
        return _budget.plan(self._wishes, settings, None if invocation is None else invocation.remaining())

    def _request(self, plan: _budget.Plan) -> Dict[str, object]:
        invocation = self._invocation
        return {
            "key": self._key,
            "request_id": None if invocation is None else invocation.request_id,
            "remaining_ms": None if invocation is None else invocation.remaining(),
            "wait_ms": plan.wait,
            "lease_ms": plan.lease,
        }

    def _refused(self, error: LockError) -> LockError:
        """Where a request without an invocation should have had one, the error says how it gets one."""
        if self._invocation is None and isinstance(error, Protocol) and "request_id" in error.message:
            return Protocol(
                f"{error.message}; take the lock in the handler, under `@locked` or `@lambda_handler`, or with `context=context`"
            )
        return error

    def _settled(self, problem: Optional[LockError], raised: Optional[BaseException]) -> None:
        """What becomes of a problem with the release, when the block has ended."""
        if problem is None or (isinstance(raised, LockError) and raised.code == problem.code):
            return  # Nothing that the block's error does not say already.
        if raised is not None:
            _note(raised, f"leasekeeper: {problem.code}: {problem}")
        elif isinstance(problem, ReleaseUnconfirmed) and not self._strict:
            # The work is done and must not be run again.
            _LOG.warning("%s: %s", problem.code, problem)
        else:
            raise problem

    def _enter(self) -> None:
        self._token = current.set(self)

    def _leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                current.reset(token)
            except ValueError:
                pass  # Left in another context than entered, as some test frameworks do.


def checked_strict(strict_release: object) -> Optional[bool]:
    """True, False, or None for what the environment says."""
    if strict_release is None or isinstance(strict_release, bool):
        return strict_release
    raise TypeError(f"`strict_release` is True or False, not {type(strict_release).__name__}")


#: The innermost lock that the running code is under.
current: ContextVar[Optional[Lease[Any]]] = ContextVar("leasekeeper_lease", default=None)


def _note(error: BaseException, note: str) -> None:
    """Adds what `traceback` shows below an exception, from Python 3.11 on, and others can read everywhere."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        notes = getattr(error, "__notes__", None)
        error.__notes__ = [*notes, note] if isinstance(notes, list) else [note]  # type: ignore[attr-defined]
