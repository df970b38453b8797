"""One connection to the extension: requests out, replies and events in, read by whoever looks first.

There is no thread and no timer here. While a lock is held, nobody reads until somebody asks; asyncio's loop is told when
something has come.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import weakref
from typing import Any, Callable, Mapping, Optional

from . import _budget
from ._clock import monotonic, pause
from ._errors import Config, ExtensionMissing, ForkedGuard, LockError, Metrics, Unavailable
from ._invocation import Invocation
from ._state import Answer, Phase, State

# How often a connect is tried again, in seconds.
AGAIN = 0.01

# How long a socket that is not there is waited for under Lambda, in seconds: the extension makes it anew when /tmp was
# emptied.
_MADE_ANEW = 0.25

_FLAGS: int = getattr(socket, "MSG_NOSIGNAL", 0)

# How much is read at a time, in bytes.
_MOST = 65_536

# Every open connection of this process, for a forked child to let go of.
_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def _forked() -> None:
    """A child lets go of its copies: the parent's connections end when the parent ends, whoever lives on."""
    for connection in list(_open):
        connection.forked = True
        # Closed without a word and without a lock that a thread of the parent may have had.
        connection._socket.close()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def waited_for(until: float) -> float:
    """Until when a socket that is not there may still come, for who has time until `until`."""
    now = monotonic()
    if "AWS_LAMBDA_RUNTIME_API" not in os.environ:
        return now
    # Half of a short time is left for the error that names the cause.
    return min(now + _MADE_ANEW, (now + until) / 2)


def connect(path: str, waited: float) -> Optional[socket.socket]:
    """A connected socket that never blocks; None to ask again: the extension's queue of connections is full, or there is
    no socket before the moment `waited`.

    Raises :class:`Config` for a path that is none or not for us, :class:`ExtensionMissing` if nobody answers.
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        connected.connect(path)
    except BlockingIOError:
        connected.close()
        return None
    except (OSError, ValueError) as error:
        connected.close()
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)) and monotonic() < waited:
            return None
        raise _cannot_connect(path, error) from None
    except BaseException:
        connected.close()
        raise
    return connected


def _cannot_connect(path: str, error: Exception) -> LockError:
    if isinstance(error, ValueError) or (isinstance(error, OSError) and error.errno is None):
        return Config(f"LEASEKEEPER_SOCKET is not a valid socket path: {path!r} ({error})")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return Unavailable(f"this process has too many files open to connect to the extension: {error}")
    if isinstance(error, PermissionError):
        return Config(
            f"this process's user may not use the socket {path} ({error}): run the extension as the same user, or list "
            "this one's id in its LEASEKEEPER_PEER_UIDS"
        )
    return ExtensionMissing(
        f"no Leasekeeper extension answers on the socket {path} ({error}): add the Leasekeeper layer to the function; "
        "outside Lambda, run the sidecar `leasekeeper` with LEASEKEEPER_TABLE set (LEASEKEEPER_STORE=memory needs no "
        "table), and the same LEASEKEEPER_SOCKET for both; in unit tests, use `leasekeeper.testing`"
    )


def no_answer(bound_ms: int) -> LockError:
    """Something listens, and that is all."""
    return Unavailable(
        f"the extension did not answer within {bound_ms / 1_000:g} s: it is stopped or overloaded; see its log"
    )


class Connection:
    """What the blocking and the asyncio connection have in common. Safe to use from any thread."""

    def __init__(self, connected: socket.socket, invocation: Optional[Invocation]) -> None:
        self._socket = connected
        self.invocation = invocation
        self.state = State()
        self.forked = False
        self._lock = threading.RLock()
        _open.add(self)

    def _owned(self) -> None:
        if self.forked:
            raise ForkedGuard

    @property
    def closed(self) -> bool:
        """Has the socket been let go of?"""
        return self._socket.fileno() < 0

    def remaining_of_invocation(self) -> Optional[int]:
        """How many milliseconds are left of the invocation, if there is one."""
        return None if self.invocation is None else self.invocation.remaining()

    def look(self) -> None:
        """Reads what has arrived and writes what waits."""
        self._owned()
        with self._lock:
            self._turn()

    def phase(self) -> Phase:
        """How the lease stands, as far as the socket has told."""
        self.look()
        return self.state.phase

    def remaining(self) -> int:
        """For how many nanoseconds the lease is valid at least."""
        self._owned()
        with self._lock:
            self._turn()
            return self.state.remaining()

    def ask(self, op: str, arguments: Optional[Mapping[str, object]] = None) -> Answer:
        """Sends a request; without arguments it is one about the lease."""
        self._owned()
        with self._lock:
            self._turn()
            answer = self.state.ask_lease(op) if arguments is None else self.state.ask(op, arguments)
            self._write()
        return answer

    def ask_figures(self) -> Optional[Answer]:
        """Asks for the lease's figures; None when nobody can tell them any more."""
        self._owned()
        with self._lock:
            self._turn()
            answer = self.state.ask_figures()
            self._write()
        return answer

    def send_release(self) -> None:
        """Asks for the release. The lease is invalid from before this is written."""
        self._owned()
        with self._lock:
            self._turn()
            self.state.release()
            self._write()

    def released(self) -> Optional[LockError]:
        """Settles the release, whose time is over or which is answered: what is to be said of it, None if all is well."""
        with self._lock:
            if self.state.phase is Phase.HELD:
                self._turn()
                self.state.give_up_release()
            return self.state.released()

    def _turn(self, to_the_end: bool = True) -> None:
        """Reads, and writes. Only what is read to the end of what has come tells whether the other side is gone."""
        state = self.state
        if state.ended:
            return
        before = state.phase
        self._read(to_the_end)
        self._turned(state.phase is not before)
        self._write()

    def _read(self, to_the_end: bool = True) -> None:
        state = self.state
        while not state.ended:
            try:
                data = self._socket.recv(_MOST)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                state.end()
            else:
                state.arrived(data)
                if not to_the_end and len(data) < _MOST:
                    return

    def _write(self) -> None:
        state = self.state
        if state.ended or not state.unwritten:
            return
        unwritten = state.unwritten
        while unwritten:
            try:
                count = self._socket.send(unwritten, _FLAGS)
            except BlockingIOError:
                break
            except OSError:
                # The other side is gone: its last words say why.
                self._read()
                state.end()
                break
            del unwritten[:count]
        self._turned(state.ended)

    def _turned(self, phase_changed: bool) -> None:
        """Something may have come."""

    def _shut(self) -> None:
        """Invalid strictly before the other side can see the end and give the row away."""
        self.state.close()
        if self.state.phase is Phase.RELEASED:
            return
        try:
            # Not only closed: a copy in a child that was started somehow would keep the connection alive.
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The other side was quicker.


class Blocking(Connection):
    """A connection whose questions block the thread that asks, within a bound."""

    def __init__(self, connected: socket.socket, invocation: Optional[Invocation]) -> None:
        super().__init__(connected, invocation)
        self._news = threading.Condition(self._lock)
        # A thread is waiting for the socket; the others wait for its news.
        self._watched = False
        self._closing = False

    @classmethod
    def open(cls, path: str, invocation: Optional[Invocation], until: float) -> Optional[Blocking]:
        """None if the extension's queue of connections stays full."""
        waited = waited_for(until)
        while True:
            connected = connect(path, waited)
            if connected is not None:
                return cls(connected, invocation)
            if monotonic() >= until:
                return None
            pause(AGAIN)

    def wait(self, done: Callable[[], bool], until: Optional[float]) -> bool:
        """Waits until `done`, the connection's end or this moment; tells if it is done."""
        while True:
            watching = False
            # Before the lock is taken: of a child's copy another thread may have it, for good.
            self._owned()
            try:
                with self._lock:
                    if done() or self.state.ended:
                        return done()
                    left = None if until is None else until - monotonic()
                    if left is not None and left <= 0:
                        self._turn()
                        return done()
                    if self._watched:
                        self._news.wait(left)
                        continue
                    self._watched = watching = True
                    poll = select.poll()
                    poll.register(self._socket, select.POLLIN | (select.POLLOUT if self.state.unwritten else 0))
                poll.poll(None if left is None else max(1, round(left * 1_000)))
            finally:
                if watching:
                    with self._lock:
                        self._watched = False
                        self._turn(to_the_end=False)
                        self._news.notify_all()
                        if self._closing:
                            self._socket.close()

    def _turned(self, phase_changed: bool) -> None:
        self._news.notify_all()

    def answered(self, answer: Answer, bound_ms: int) -> Any:
        """The answer's content. Raises its error, or :class:`Unavailable` when the time is over."""
        if not self.wait(lambda: answer.done, monotonic() + bound_ms / 1_000):
            raise no_answer(bound_ms)
        if answer.error is not None:
            raise answer.error
        return answer.ok

    def ask_lease(self, op: str) -> None:
        """Asks about the lease, within the time that an answer without DynamoDB may take."""
        self.answered(self.ask(op), _budget.answer(self.remaining_of_invocation()))

    def check(self) -> int:
        """For how many nanoseconds from now the lease is valid at least."""
        # An answer can be old by the time this thread gets to run; a second one is not, unless nothing runs in time.
        for _ in range(2):
            self.ask_lease("check")
            remaining = self.remaining()
            if remaining:
                return remaining
        raise self.state.problem() or Unavailable("every answer was over before it could be read")

    def metrics(self) -> Metrics:
        """The lease's figures, asked for while the extension can tell them."""
        answer = self.ask_figures()
        if answer is not None:
            try:
                self.answered(answer, _budget.answer(self.remaining_of_invocation()))
            except LockError:
                if self.state.problem() is None:
                    raise
        return self.state.metrics

    def release(self) -> Optional[LockError]:
        """Gives the lease back within its bound: what is to be said of it, None if all is well."""
        self.send_release()
        bound = _budget.hand_back(self.remaining_of_invocation())
        self.wait(lambda: self.state.phase is not Phase.HELD, monotonic() + bound / 1_000)
        return self.released()

    def close(self) -> None:
        """Ends the connection: the extension gives back whatever it still holds for it."""
        if self.forked:
            return
        with self._lock:
            self._shut()
            self._news.notify_all()
            if self._watched:
                self._closing = True  # By the thread that watches it: a number must not be used anew under a poll.
            else:
                self._socket.close()
