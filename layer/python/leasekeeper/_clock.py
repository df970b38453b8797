"""The one file that reads clocks: how much time has passed at most."""

from __future__ import annotations

import time
from typing import Tuple

#: One reading of every clock there is, in nanoseconds: boot, monotonic, wall. Each may stop over a freeze or step.
Reading = Tuple[int, int, int]

if hasattr(time, "CLOCK_BOOTTIME"):

    def read() -> Reading:
        """The clocks now."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic_ns(), time.time_ns()

else:  # Elsewhere nothing freezes: the monotonic and the wall clock are enough.

    def read() -> Reading:
        """The clocks now."""
        return 0, time.monotonic_ns(), time.time_ns()


def monotonic() -> float:
    """In seconds, for how long to wait for an answer; never for a lease's validity."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Waits without looking at anything."""
    time.sleep(seconds)


class Elapsed:
    """Elapsed time, added up at every reading from whichever clock moved most: never less than what really passed."""

    __slots__ = ("_last", "_total")

    def __init__(self) -> None:
        self._last = read()
        self._total = 0

    def now(self) -> int:
        """What has passed since the start, at most, in nanoseconds."""
        reading = read()
        # A clock that stepped back says nothing.
        self._total += max(0, *(now - before for now, before in zip(reading, self._last)))
        self._last = reading
        return self._total
