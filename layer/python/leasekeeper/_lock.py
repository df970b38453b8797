"""The lock for code that blocks."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from ._clock import monotonic
from ._connection import Blocking, no_answer
from ._errors import ForkedGuard, LockError, Metrics
from ._lease import Lease
from ._state import Phase


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
                raise self._refused(answer.error)
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
