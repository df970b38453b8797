"""The locks: guards that are used once, and what a held one tells."""

from __future__ import annotations

import asyncio
import logging
import sys
import warnings
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Dict, Generic, Literal, Optional, Type, TypeVar, Union, overload

from . import _budget, _invocation
from ._budget import Seconds
from ._clock import monotonic
from ._connection import Blocking, no_answer
from ._errors import ForkedGuard, LockError, Lost, Metrics, Protocol, ReleaseUnconfirmed
from ._keys import checked_key
from ._loop import Looped
from ._settings import Settings
from ._state import Phase
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
        self._strict = strict_release
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
        if connection is not None and not connection.forked and not connection.state.ended:
            warnings.warn(f"{self!r} was dropped, and not given back", ResourceWarning, stacklevel=2, source=self)
            connection.close()

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

    def _settled(self, problem: Optional[LockError], raised: Optional[BaseException]) -> None:
        """What becomes of a problem with the release, when the block has ended."""
        if problem is None:
            return
        if raised is not None:
            _note(raised, f"leasekeeper: {problem}")
        elif isinstance(problem, ReleaseUnconfirmed) and not self._strict:
            # The work is done and must not be run again.
            _LOG.warning("%s", problem)
        else:
            raise problem

    def _enter(self) -> None:
        self._token = _current.set(self)

    def _leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                _current.reset(token)
            except ValueError:
                pass  # Left in another context than entered, as some test frameworks do.


_current: ContextVar[Optional[Lease[Any]]] = ContextVar("leasekeeper_lease", default=None)


def _note(error: BaseException, note: str) -> None:
    """Adds what `traceback` shows below an exception, from Python 3.11 on, and others can read everywhere."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        notes = getattr(error, "__notes__", None)
        error.__notes__ = [*notes, note] if isinstance(notes, list) else [note]  # type: ignore[attr-defined]


class LostEvent:
    """Tells whether the lease is lost. It is learned from the socket, by whoever asks."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def is_set(self) -> bool:
        """Is the lease known to be lost?"""
        return self._lock._held().phase() is Phase.LOST

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits for so many seconds until the lease is lost, or is given back; tells if it is lost."""
        connection = self._lock._held()
        until = None if timeout is None else monotonic() + timeout
        connection.wait(lambda: connection.state.phase is not Phase.HELD, until)
        return connection.state.phase is Phase.LOST


class Lock(Lease[Blocking]):
    """A lock for code that blocks: ``with Lock("customer:123") as lock: ...``. An object is used once.

    `wait` is how long to wait for the lock (0 tries once), `lease` how long it outlives a holder that vanished, `reserve`
    what to keep of the invocation for the work; each in seconds or a timedelta, and the extension's setting where it is
    not given. `strict_release` makes an unconfirmed release an error. `context` is Lambda's, and is not needed inside a
    handler under `locked` or `lambda_handler`. May be used from several threads.
    """

    def acquire(self) -> Lock:
        """Waits for the lock. Raises a :class:`LockError` if there is none."""
        plan = self._plan()
        until = monotonic() + plan.bound / 1_000
        connection = Blocking.open(self._socket, self._invocation, until)
        if connection is None:
            raise no_answer(plan.bound)
        try:
            answer = connection.ask("acquire", self._request(plan))
            if not connection.wait(lambda: answer.done, until):
                raise no_answer(plan.bound)
            if answer.error is not None:
                raise answer.error
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return self

    def release(self) -> None:
        """Gives the lock back: at most min(1 s, what remains of the invocation - 200 ms), outside an invocation 11 s.

        Raises :class:`ReleaseUnconfirmed` if DynamoDB has not confirmed it by then (the extension goes on trying), and
        :class:`Lost` if the lease was over before.
        """
        problem = self._release()
        if problem is not None:
            raise problem

    def _release(self) -> Optional[LockError]:
        connection = self._held()
        try:
            return connection.release()
        except ForkedGuard as error:
            return error
        finally:
            connection.close()

    def __enter__(self) -> Lock:
        self.acquire()
        self._enter()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        raised: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._leave()
        self._settled(self._release(), raised)

    def check(self) -> float:
        """Asks the extension whether the lease is valid: for how many seconds from now at least. Nothing goes to DynamoDB.

        The question to ask before an effect. Between the answer and the effect a process can still be paused: an effect
        that must not happen after a takeover needs `condition_check()` in the same transaction.

        Raises :class:`Lost` if it is over, :class:`Protocol` if it was given back, :class:`Unavailable` if the extension
        does not answer within 3 s or what remains of the invocation.
        """
        return self._held().check() / 1e9

    def metrics(self) -> Metrics:
        """The lease's figures up to now; once they cannot be asked for any more, the last that the extension told."""
        return self._held().metrics()

    @property
    def lost(self) -> LostEvent:
        """Like a `threading.Event` that is set when the lease is lost."""
        return LostEvent(self)


class AsyncLostEvent:
    """Tells whether the lease is lost. It is learned from the socket, by whoever asks and by the event loop."""

    def __init__(self, lock: AsyncLock) -> None:
        self._lock = lock

    def is_set(self) -> bool:
        """Is the lease known to be lost?"""
        return self._lock._held().phase() is Phase.LOST

    async def wait(self) -> bool:
        """Waits until the lease is lost, or is given back; tells if it is lost."""
        connection = self._lock._held()
        await connection.wait(lambda: connection.state.phase is not Phase.HELD, None)
        return connection.state.phase is Phase.LOST


#: What happens to an asyncio block whose lock is lost.
OnLost = Literal["cancel", "notify"]


class AsyncLock(Lease[Looped]):
    """A lock for asyncio: ``async with AsyncLock("customer:123") as lock: ...``. An object is used once, in one event loop.

    As :class:`Lock`. With `on_lost="cancel"` the block is cancelled when the lock is lost, and raises :class:`Lost`; by
    default it is only told, by `lost`, and :class:`Lost` is raised at its end.
    """

    def __init__(
        self,
        key: str,
        *,
        wait: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
        reserve: Optional[Seconds] = None,
        strict_release: Optional[bool] = None,
        context: Optional[object] = None,
        on_lost: OnLost = "notify",
    ) -> None:
        super().__init__(key, wait=wait, lease=lease, reserve=reserve, strict_release=strict_release, context=context)
        self._cancel = checked_on_lost(on_lost) == "cancel"
        self._task: Optional[asyncio.Task[Any]] = None
        # How many cancellations the task had been asked for when the block began.
        self._cancelling = 0
        self._cancelled = False

    async def acquire(self) -> AsyncLock:
        """Waits for the lock. Raises a :class:`LockError` if there is none. If it is cancelled, the request is taken back."""
        plan = self._plan()
        until = monotonic() + plan.bound / 1_000
        connection = await Looped.open(self._socket, self._invocation, until)
        if connection is None:
            raise no_answer(plan.bound)
        try:
            answer = connection.ask("acquire", self._request(plan))
            left = max(0, round((until - monotonic()) * 1_000))
            if not await connection.wait(lambda: answer.done, left):
                raise no_answer(plan.bound)
            if answer.error is not None:
                raise answer.error
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return self

    async def release(self) -> None:
        """Gives the lock back, as :meth:`Lock.release` does."""
        problem = await self._release()
        if problem is not None:
            raise problem

    async def _release(self) -> Optional[LockError]:
        connection = self._held()
        try:
            return await connection.release()
        except ForkedGuard as error:
            return error
        finally:
            # A cancelled release too: the extension gives the row back when the connection ends.
            connection.close()

    async def __aenter__(self) -> AsyncLock:
        await self.acquire()
        self._enter()
        if self._cancel:
            self._task = asyncio.current_task()
            if self._task is not None and sys.version_info >= (3, 11):
                self._cancelling = self._task.cancelling()
            connection = self._held()
            with connection._lock:
                connection.on_lost = self._cancel_block
                connection._settle()
        return self

    def _cancel_block(self) -> None:
        task = self._task
        if task is not None:
            self._cancelled = True
            task.cancel()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        raised: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._leave()
        task, self._task = self._task, None
        connection = self._held()
        if isinstance(raised, GeneratorExit):
            # An abandoned coroutine may await nothing. The connection's end gives the lock back.
            connection.close()
            return
        ours = self._cancelled and isinstance(raised, asyncio.CancelledError)
        if self._cancelled and task is not None and sys.version_info >= (3, 11):
            # Somebody else's cancellation that came as well stays one.
            ours = task.uncancel() <= self._cancelling and ours
        problem = await self._release()
        if ours and problem is not None:
            raise problem from None
        self._settled(problem, raised)

    async def check(self) -> float:
        """Asks the extension whether the lease is valid, as :meth:`Lock.check` does."""
        return await self._held().check() / 1e9

    async def metrics(self) -> Metrics:
        """The lease's figures up to now, as :meth:`Lock.metrics` tells them."""
        return await self._held().metrics()

    @property
    def lost(self) -> AsyncLostEvent:
        """Like an `asyncio.Event` that is set when the lease is lost."""
        return AsyncLostEvent(self)


def checked_on_lost(on_lost: object) -> OnLost:
    """One of the two words."""
    if on_lost == "cancel":
        return "cancel"
    if on_lost == "notify":
        return "notify"
    raise ValueError(f"`on_lost` is 'cancel' or 'notify', not {on_lost!r}")


L = TypeVar("L", Lock, AsyncLock)


@overload
def current_lease() -> Union[Lock, AsyncLock]: ...
@overload
def current_lease(kind: Type[L]) -> L: ...
def current_lease(kind: Any = Lease) -> Any:
    """The innermost lock that this code runs under: of a :func:`locked` function or of a block.

    `current_lease(Lock)` and `current_lease(AsyncLock)` say which kind is expected, to type checkers too.

    Raises LookupError if there is none, TypeError if it is of the other kind.
    """
    lease = _current.get()
    if lease is None:
        raise LookupError("this code does not run under a lock")
    if not isinstance(lease, kind):
        raise TypeError(f"this code runs under an {type(lease).__name__}, not under a {kind.__name__}")
    return lease
