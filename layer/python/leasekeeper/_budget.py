"""How long to wait: for the lock, for the extension's answers, for giving the lock back. In milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Optional, Union

from ._errors import BudgetExhausted, Protocol
from ._settings import MAX_LEASE_MS, MAX_WAIT_MS, MIN_LEASE_MS, Settings

#: Seconds, or a timedelta.
Seconds = Union[float, timedelta]

# Kept of every invocation for posting its response.
_KEPT = 200
# The default wait inside an invocation, at most.
_WAIT = 5_000
# The extension's lease unless its settings say otherwise.
_LEASE = 20_000
# The last request of a wait is not clipped by the wait: one attempt's time-out, and some for two processes to take
# turns on a slow CPU.
_LAST_ATTEMPT = 3_500
# Of a wait that the invocation's end cuts short this is left for the answer, or a busy lock would look like an extension
# that does not answer.
_LAST_WORD = 300
# How long an answer that needs no DynamoDB may take; a starved extension on a small function needs some of it.
_ANSWER = 3_000
# What giving back may cost an invocation at most.
_HAND_BACK = 1_000
# Outside an invocation: the extension's own budget for it is 10 s at most.
_HAND_BACK_OUTSIDE = 11_000


@dataclass(frozen=True)
class Wishes:
    """What a user asked for, where something was asked for."""

    wait: Optional[int] = None
    lease: Optional[int] = None
    reserve: Optional[int] = None


def wishes(wait: Optional[Seconds], lease: Optional[Seconds], reserve: Optional[Seconds]) -> Wishes:
    """Raises :class:`Protocol` for a wish out of range, :class:`TypeError` for what is no duration."""
    return Wishes(
        _millis("wait", wait, 0, MAX_WAIT_MS),
        _millis("lease", lease, MIN_LEASE_MS, MAX_LEASE_MS),
        _millis("reserve", reserve, 0, MAX_WAIT_MS),
    )


def _millis(name: str, wish: Optional[Seconds], least: int, most: int) -> Optional[int]:
    if wish is None:
        return None
    if isinstance(wish, timedelta):
        wish = wish.total_seconds()
    if isinstance(wish, bool) or not isinstance(wish, (int, float)):
        raise TypeError(f"`{name}` is seconds or a timedelta, not {type(wish).__name__}")
    ms = wish * 1_000
    if not math.isfinite(ms) or not least <= round(ms) <= most:
        raise Protocol(f"`{name}` must be {least / 1_000:g} s to {most // 1_000} s")
    return round(ms)


@dataclass(frozen=True)
class Plan:
    """What becomes of the wishes."""

    #: What is sent; without it the extension's own setting and rule apply.
    wait: Optional[int]
    lease: Optional[int]
    #: When the client stops waiting for the extension's answer.
    bound: int


def plan(wishes: Wishes, settings: Settings, remaining: Optional[int]) -> Plan:
    """Fits the wishes into what remains of the invocation, if there is one.

    Raises :class:`BudgetExhausted` if nothing remains to wait in.
    """
    if remaining is None:
        lease = wishes.lease or settings.lease_ms or _LEASE
        wait = min(_first(wishes.wait, settings.wait_ms, lease + _WAIT), MAX_WAIT_MS)
        # Sent even when nobody asked for it: this process and the extension can have different environments here.
        return Plan(wait, wishes.lease, wait + _LAST_ATTEMPT)
    left = remaining - max(wishes.reserve or 0, _KEPT)
    if left <= 0:
        raise BudgetExhausted
    usual = _first(settings.wait_ms, _WAIT)
    sent = None
    if wishes.wait is not None or wishes.reserve is not None:
        sent = min(_first(wishes.wait, usual), left, max(0, remaining - _KEPT - _LAST_WORD))
    bound = min(_first(sent, usual) + _LAST_ATTEMPT, remaining - _KEPT)
    return Plan(sent, wishes.lease, bound)


def _first(*values: Optional[int]) -> int:
    return next(value for value in values if value is not None)


def answer(remaining: Optional[int]) -> int:
    """How long to wait for an answer that needs no DynamoDB."""
    return _ANSWER if remaining is None else min(_ANSWER, max(0, remaining - _KEPT))


def hand_back(remaining: Optional[int]) -> int:
    """How long to wait for giving the lock back."""
    return _HAND_BACK_OUTSIDE if remaining is None else min(_HAND_BACK, max(0, remaining - _KEPT))
