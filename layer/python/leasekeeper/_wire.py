"""The socket's messages: requests as they are sent, lines from the extension as a lenient reader takes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, NoReturn, Optional, Union

from ._errors import BY_CODE, REASONS, Busy, Holder, LockError, Lost, Metrics, Unknown

#: The longest line in either direction, its newline included.
MAX_LINE = 65_536

#: The longest request id, in bytes.
MAX_REQUEST_ID = 256

Json = Dict[str, Any]


def encode(number: int, op: str, arguments: Mapping[str, object]) -> bytes:
    """One request line. What is None is left out."""
    request = {"v": 1, "id": number, "op": op}
    request.update((name, value) for name, value in arguments.items() if value is not None)
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True)
class Failure:
    """An error reply's content."""

    code: str
    message: str = ""
    retry_after_ms: Optional[int] = None
    holder: Optional[Holder] = None
    reason: Optional[str] = None
    metrics: Optional[Metrics] = None

    def error(self) -> LockError:
        """The exception to raise for it."""
        error = BY_CODE.get(self.code, Unknown)(self.message)
        error.metrics = self.metrics
        if isinstance(error, Busy):
            error.retry_after = None if self.retry_after_ms is None else self.retry_after_ms / 1_000
            error.holder = self.holder
        elif isinstance(error, Lost):
            error.reason = self.reason or "unknown"
        return error


@dataclass(frozen=True)
class Reply:
    """An answer: either `ok` or `failure`. Without an id it is about a line that the extension could not read."""

    id: Optional[int]
    ok: Any = None
    failure: Optional[Failure] = None


@dataclass(frozen=True)
class Event:
    """Something that happened to a lease."""

    name: str
    lease: int
    reason: Optional[str] = None
    #: With `ending`: for how long the lease is renewed at most.
    within_ms: Optional[int] = None


@dataclass(frozen=True)
class Granted:
    """The answer to `acquire`."""

    lease: int
    valid_ms: int
    lease_ms: int
    owner: str
    table: str
    token: Optional[int]
    waited_ms: int


def decode(line: bytes) -> Union[Reply, Event, None]:
    """One line, with or without its newline; None for a line of a newer extension.

    Raises ValueError if it is no JSON object: the connection is out of step and must be closed.
    """
    try:
        # As text: from bytes the parser would also take UTF-16 and the like.
        read = json.loads(line.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("a line nested too deeply") from None
    if not isinstance(read, dict):
        raise ValueError("a line that is no JSON object")
    if "event" in read:
        return _event(read)
    number = _whole(read.get("id"))
    if "error" in read:
        return Reply(number, failure=_failure(read["error"]))
    return Reply(number, ok=read["ok"]) if "ok" in read else None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _event(read: Json) -> Optional[Event]:
    name, lease = read["event"], _whole(read.get("lease"))
    if lease is None or name not in ("renewed", "danger", "recovered", "ending", "lost"):
        return None
    if name == "ending":
        within_ms = _whole(read.get("within_ms"))
        return None if within_ms is None else Event(name, lease, within_ms=within_ms)
    if name != "lost":
        return Event(name, lease)
    reason = read.get("reason")
    return Event(name, lease, known_reason(reason)) if isinstance(reason, str) else None


def known_reason(word: str) -> str:
    """The reason of a loss, `unknown` for one of a newer extension."""
    return word if word in REASONS else "unknown"


def known_code(word: str) -> str:
    """The code of an error, `unknown` for one of a newer extension."""
    return word if word in BY_CODE else "unknown"


def _failure(read: Any) -> Failure:
    try:
        reason = _field(read, "reason", str)
        holder = _field(read, "holder", dict)
        figures = _field(read, "metrics", dict)
        return Failure(
            code=known_code(_required(read, "code", str)),
            message=_field(read, "message", str) or "",
            retry_after_ms=_field(read, "retry_after_ms", int),
            holder=None if holder is None else _holder(holder),
            reason=None if reason is None else known_reason(reason),
            metrics=None if figures is None else metrics(figures),
        )
    except (TypeError, ValueError):
        return Failure("unknown", json.dumps(read, ensure_ascii=False))


def _holder(read: Json) -> Holder:
    return Holder(
        owner=_required(read, "owner", str),
        lease_ms=_field(read, "lease_ms", int) or 0,
        unchanged_ms=_field(read, "unchanged_ms", int) or 0,
        function=_field(read, "function", str),
        request_id=_field(read, "request_id", str),
        log_stream=_field(read, "log_stream", str),
        host=_field(read, "host", str),
    )


def granted(read: Any) -> Granted:
    """The answer to `acquire`. Raises ValueError if it cannot be read."""
    return Granted(
        lease=_required(read, "lease", int),
        valid_ms=_required(read, "valid_ms", int),
        lease_ms=_required(read, "lease_ms", int),
        owner=_required(read, "owner", str),
        table=_required(read, "table", str),
        token=_field(read, "token", int),
        waited_ms=_field(read, "waited_ms", int) or 0,
    )


def valid_ms(read: Any) -> int:
    """The answer to `check`. Raises ValueError if it cannot be read."""
    return int(_required(read, "valid_ms", int))


def metrics(read: Any) -> Metrics:
    """A lease's figures; what is absent is zero. Raises ValueError if they cannot be read."""
    figures: Dict[str, Any] = {}
    for field in fields(Metrics):
        units = field.name.startswith("consumed_")
        value = read.get(field.name) if isinstance(read, dict) else _wrong("metrics")
        if value is None and (not isinstance(read, dict) or field.name not in read):
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float) if units else int) or value < 0:
            _wrong(field.name)
        figures[field.name] = value
    return Metrics(**figures)


def _whole(value: Any) -> Optional[int]:
    """A number as the wire has them: whole, not negative, at most 64 bits."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64
    return value if good else None


def _field(read: Any, name: str, kind: type) -> Any:
    """A field that may be absent or null, else of this kind."""
    if not isinstance(read, dict):
        _wrong(name)
    value = read.get(name)
    if value is None:
        return None
    if kind is int:
        return _wrong(name) if _whole(value) is None else value
    return value if isinstance(value, kind) else _wrong(name)


def _required(read: Any, name: str, kind: type) -> Any:
    value = _field(read, name, kind)
    return _wrong(name) if value is None else value


def _wrong(name: str) -> NoReturn:
    raise ValueError(f"field {name} is missing or wrong")
