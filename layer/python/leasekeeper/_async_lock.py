"""The lock for asyncio."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Any, Literal, Optional, Type

from ._budget import Seconds
from ._clock import monotonic
from ._connection import no_answer
from ._errors import ForkedGuard, LockError, Metrics
from ._lease import Lease
from ._loop import Looped
from ._state import Phase


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
                raise self._refused(answer.error)
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
