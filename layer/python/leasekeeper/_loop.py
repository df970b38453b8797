"""The connection of an asyncio lock: the event loop tells when something has come, and nothing ever blocks it."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Callable, Dict, Optional

from . import _budget
from ._clock import monotonic
from ._connection import AGAIN, Connection, connect, no_answer, waited_for
from ._errors import LockError, Metrics, Protocol, Unavailable
from ._invocation import Invocation
from ._state import Answer, Phase


class Looped(Connection):
    """A connection that belongs to the event loop it was opened in. What asks the extension is awaited there."""

    def __init__(self, connected: socket.socket, invocation: Optional[Invocation]) -> None:
        super().__init__(connected, invocation)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: Dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._writing = False
        self._watching = True
        #: Called in the loop, and not inside any task, once the lease is known to be lost.
        self.on_lost: Optional[Callable[[], None]] = None
        self._loop.add_reader(self._socket, self._ready)

    @classmethod
    async def open(cls, path: str, invocation: Optional[Invocation], until: float) -> Optional[Looped]:
        """None if the extension's queue of connections stays full."""
        waited = waited_for(until)
        while True:
            connected = connect(path, waited)
            if connected is not None:
                return cls(connected, invocation)
            if monotonic() >= until:
                return None
            await asyncio.sleep(AGAIN)

    def _ready(self) -> None:
        if not self.forked:
            with self._lock:
                self._turn(to_the_end=False)

    def _turned(self, phase_changed: bool) -> None:
        """Told in the thread that has looked; what follows from it is the loop's affair."""
        unwritten = bool(self.state.unwritten)
        if not (self._waiting or phase_changed or self.state.ended or unwritten is not self._writing):
            return
        if self._loop.is_closed():
            return
        if threading.get_ident() == self._thread:
            self._settle()
        else:
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """In the loop's thread: wakes who waits, and watches for what is to come."""
        if self.forked:
            return
        with self._lock:
            for future, done in list(self._waiting.items()):
                if (self.state.ended or done()) and not future.done():
                    future.set_result(None)
            if not self._watching:
                return
            unwritten = bool(self.state.unwritten)
            if unwritten and not self._writing:
                self._loop.add_writer(self._socket, self._ready)
            elif self._writing and not unwritten:
                self._loop.remove_writer(self._socket)
            self._writing = unwritten
            if self.state.phase is Phase.LOST and self.on_lost is not None:
                # From the loop, so that no task is told in the middle of its own step.
                self._loop.call_soon(self.on_lost)
                self.on_lost = None
            if self.state.ended:
                self._unwatch()

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)

    async def wait(self, done: Callable[[], bool], bound_ms: Optional[int]) -> bool:
        """Waits until `done`, the connection's end or so many milliseconds; tells if it is done."""
        self._owned()
        if asyncio.get_running_loop() is not self._loop:
            raise Protocol("the lock belongs to another event loop")
        future: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            if done() or self.state.ended:
                return done()
            self._waiting[future] = done
        timer = None
        if bound_ms is not None:
            timer = self._loop.call_later(bound_ms / 1_000, _over, future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(future, None)
        if not done():
            self.look()
        return done()

    async def answered(self, answer: Answer, bound_ms: int) -> Any:
        """The answer's content. Raises its error, or :class:`Unavailable` when the time is over."""
        if not await self.wait(lambda: answer.done, bound_ms):
            raise no_answer(bound_ms)
        if answer.error is not None:
            raise answer.error
        return answer.ok

    async def ask_lease(self, op: str) -> None:
        """Asks about the lease, within the time that an answer without DynamoDB may take."""
        await self.answered(self.ask(op), _budget.answer(self.remaining_of_invocation()))

    async def check(self) -> int:
        """For how many nanoseconds from now the lease is valid at least."""
        # An answer can be old by the time this task gets to run; a second one is not, unless nothing runs in time.
        for _ in range(2):
            await self.ask_lease("check")
            remaining = self.remaining()
            if remaining:
                return remaining
        raise self.state.problem() or Unavailable("every answer was over before it could be read")

    async def metrics(self) -> Metrics:
        """The lease's figures, asked for while the extension can tell them."""
        answer = self.ask_figures()
        if answer is not None:
            try:
                await self.answered(answer, _budget.answer(self.remaining_of_invocation()))
            except LockError:
                if self.state.problem() is None:
                    raise
        return self.state.metrics

    async def release(self) -> Optional[LockError]:
        """Gives the lease back within its bound: what is to be said of it, None if all is well."""
        self.send_release()
        bound = _budget.hand_back(self.remaining_of_invocation())
        await self.wait(lambda: self.state.phase is not Phase.HELD, bound)
        return self.released()

    def close(self) -> None:
        """Ends the connection: the extension gives back whatever it still holds for it.

        Awaits nothing, so that an abandoned coroutine can be closed too, even when its loop is gone.
        """
        if self.forked:
            return
        with self._lock:
            self._shut()
            if self._loop.is_closed() or threading.get_ident() == self._thread:
                self._finish()
            else:
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        with self._lock:
            self.on_lost = None
            if not self._loop.is_closed():
                self._settle()
                self._unwatch()
            self._socket.close()


def _over(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
