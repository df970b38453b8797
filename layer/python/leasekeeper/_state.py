"""What one connection knows, without any I/O: what waits to be written or answered, and how the lease stands."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any, Dict, Mapping, Optional

from . import _wire
from ._clock import Elapsed
from ._errors import ExtensionMissing, LockError, Metrics, Protocol, ReleaseUnconfirmed, Unavailable, lost

# In nanoseconds.
_MS = 1_000_000


class Phase(Enum):
    """How a lease stands. All but the first are final."""

    #: Asked for, held, or on its way back.
    HELD = "held"
    #: The extension said so, or is gone.
    LOST = "lost"
    #: Given back, confirmed.
    RELEASED = "released"
    #: Given back as far as this side can: the extension goes on trying.
    UNCONFIRMED = "unconfirmed"
    #: This side closed the connection.
    CLOSED = "closed"


class Answer:
    """A request, and what came of it."""

    __slots__ = ("done", "error", "kind", "ok", "sent")

    def __init__(self, kind: str, sent: int) -> None:
        self.kind = kind
        #: In elapsed time: validity counts from before.
        self.sent = sent
        self.done = False
        self.ok: Any = None
        self.error: Optional[LockError] = None


class State:
    """One connection, at most one lease."""

    def __init__(self) -> None:
        self._elapsed = Elapsed()
        self._partial = bytearray()
        self.unwritten = bytearray()
        self._last_id = 0
        self._waiting: Dict[int, Answer] = {}
        self.granted: Optional[_wire.Granted] = None
        # Until when, in elapsed time, the last answer said that the lease is valid.
        self._valid_until = 0
        self.phase = Phase.HELD
        self._reason = "unknown"
        # From before the release is written, the lease is not valid any more.
        self._releasing = False
        # A check of our own is on its way.
        self._refreshing = False
        self.ended = False
        # What the extension said before it closed.
        self._parting: Optional[LockError] = None
        # What it said of the lease's loss or of a release without a confirmation.
        self._words = ""
        self.metrics = Metrics()

    def problem(self) -> Optional[LockError]:
        """Why the lease cannot be used; None if it can."""
        if self.phase is Phase.LOST:
            return self._lost()
        if self.phase is Phase.HELD and self.granted and not self._releasing:
            return None
        return Protocol("the lock is not held, or was already given back")

    def _lost(self) -> LockError:
        return lost(self._reason, self._words, None if self.metrics == Metrics() else self.metrics)

    def remaining(self) -> int:
        """For how many nanoseconds the lease is valid at least."""
        now = self._elapsed.now()
        return max(0, self._valid_until - now) if self.problem() is None else 0

    def released(self) -> Optional[LockError]:
        """What is to be said of the release; None if all is well."""
        if self.phase is Phase.LOST:
            return self._lost()
        return None if self.phase is Phase.RELEASED else ReleaseUnconfirmed(self._words)

    def why_ended(self) -> LockError:
        """Why a request gets no answer any more."""
        if self._parting is not None:
            return self._parting
        if self.phase is Phase.LOST and self.granted:
            return self._lost()
        if self.phase in (Phase.HELD, Phase.LOST):
            return ExtensionMissing(
                "the Leasekeeper extension closed the connection without an answer: see its log lines"
            )
        return Protocol("the lock was already given back")

    def ask(self, op: str, arguments: Mapping[str, object]) -> Answer:
        """Raises what stands in the way."""
        if self.ended:
            raise self.why_ended()
        if len(self.unwritten) > _wire.MAX_LINE:
            raise Unavailable("the extension does not read its requests")
        return self._send(op, op, arguments)

    def ask_lease(self, op: str) -> Answer:
        """As :meth:`ask`, about the lease."""
        problem = self.problem()
        if problem is not None or self.granted is None:
            raise problem or Protocol("the lock is not held")
        return self.ask(op, {"lease": self.granted.lease})

    def ask_figures(self) -> Optional[Answer]:
        """Asks for the lease's figures; None when nobody can tell them any more."""
        # The extension keeps those of a lost lease.
        told = self.problem() is None or self.phase is Phase.LOST
        if not told or self.ended or self.granted is None:
            return None
        return self.ask("metrics", {"lease": self.granted.lease})

    def release(self) -> None:
        """Asks for the release, unless the lease is over or on its way back."""
        if self.problem() is None and self.granted:
            self._releasing = True
            self._send("release", "release", {"lease": self.granted.lease})

    def give_up_release(self) -> None:
        """The release's time is over."""
        self._settle(Phase.UNCONFIRMED)

    def close(self) -> None:
        """This side ends the connection."""
        self._settle(Phase.CLOSED)
        self._stop()

    def end(self) -> None:
        """Nothing comes or goes any more."""
        # A release that was written whole was asked for: its outcome is open, and not its holder's loss.
        if self._releasing and not self.unwritten:
            self._settle(Phase.UNCONFIRMED)
        elif self.phase is Phase.HELD:
            self._lose("extension_failed")
        self._stop()

    def _stop(self) -> None:
        self.ended = True
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.error = self.why_ended()
            answer.done = True
        self.unwritten.clear()

    def _send(self, kind: str, op: str, arguments: Mapping[str, object]) -> Answer:
        self._last_id += 1
        line = _wire.encode(self._last_id, op, arguments)
        answer = self._waiting[self._last_id] = Answer(kind, self._elapsed.now())
        self.unwritten += line
        return answer

    def _settle(self, phase: Phase) -> None:
        if self.phase is Phase.HELD:
            self.phase = phase
            if phase is Phase.UNCONFIRMED:
                # Also where the extension goes on trying: whoever asked has no confirmation.
                self.metrics = replace(self.metrics, cleanup_failures=1)

    def _lose(self, reason: str) -> None:
        if self.phase is Phase.HELD:
            self.phase = Phase.LOST
            self._reason = reason

    def arrived(self, data: bytes) -> None:
        """Takes in what was read."""
        # Another reading of the clocks, so that two that stop by turns are both caught.
        self._elapsed.now()
        self._partial += data
        *lines, rest = self._partial.split(b"\n")
        self._partial = rest
        for line in lines:
            try:
                read = _wire.decode(bytes(line))
            except ValueError:
                self.end()
                return
            if isinstance(read, _wire.Event):
                self._happened(read)
            elif read is not None and read.id is not None:
                self._answered(read.id, read)
            elif read is not None and read.failure:
                self._parting = read.failure.error()
        if len(self._partial) > _wire.MAX_LINE:
            self.end()

    def _answered(self, number: int, reply: _wire.Reply) -> None:
        answer = self._waiting.pop(number, None)
        if answer is None:
            return
        if answer.kind == "refresh":
            self._refreshing = False
        if reply.failure:
            answer.error = reply.failure.error()
            self._failed(answer.kind, reply.failure)
        else:
            answer.ok = reply.ok
            try:
                self._succeeded(answer, reply.ok)
            except ValueError as error:
                answer.error = _wire.Failure("unknown", f"its answer cannot be read: {error}").error()
        answer.done = True

    def _succeeded(self, answer: Answer, ok: Any) -> None:
        if answer.kind == "acquire":
            granted = _wire.granted(ok)
            self.granted = granted
            # The extension granted no earlier than its own wait after it was asked.
            self._valid(min(answer.sent + granted.waited_ms * _MS, self._elapsed.now()), granted.valid_ms)
        elif answer.kind in ("check", "refresh"):
            self._valid(answer.sent, _wire.valid_ms(ok))
        elif answer.kind == "metrics":
            self.metrics = _wire.metrics(ok)
        elif answer.kind == "release":
            self._settle(Phase.RELEASED)
            self.metrics = _wire.metrics(ok.get("metrics", {}) if isinstance(ok, dict) else {})

    def _failed(self, kind: str, failure: _wire.Failure) -> None:
        if failure.metrics:
            self.metrics = failure.metrics
        if kind == "acquire":
            return
        if failure.code == "lost":
            self._words = failure.message
            self._lose(failure.reason or "unknown")
        elif kind == "release":
            self._words = failure.message
            self._settle(Phase.UNCONFIRMED)

    def _valid(self, since: int, valid_ms: int) -> None:
        # Validity never moves back: what an earlier answer promised still holds.
        self._valid_until = max(self._valid_until, since + valid_ms * _MS)

    def _happened(self, event: _wire.Event) -> None:
        if self.granted is None or event.lease != self.granted.lease:
            return
        if event.name == "lost":
            self._lose(event.reason or "unknown")
        elif event.name in ("renewed", "recovered") and not self._refreshing and self.problem() is None:
            self._refreshing = True
            self._send("refresh", "check", {"lease": event.lease})
