"""Where the extension is and what the function's environment says, read when a lock is asked for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Mapping, Optional

from ._errors import Config

DEFAULT_SOCKET = "/tmp/leasekeeper/lock.sock"

MIN_LEASE_MS = 100
MAX_LEASE_MS = 86_400_000
MAX_WAIT_MS = 86_400_000


@dataclass(frozen=True)
class Settings:
    """What this client reads of the environment. The extension reads the same variables and more."""

    socket: str
    #: `LEASEKEEPER_STRICT_RELEASE`: an unconfirmed release is an error.
    strict_release: bool
    #: `LEASEKEEPER_WAIT_MS`: the wait that is asked for outside an invocation. Inside one the extension has the same
    #: environment, so it is not sent; it says how long an answer may take.
    wait_ms: Optional[int]
    #: `LEASEKEEPER_LEASE_MS`: outside an invocation, what a wait without a setting of its own goes by.
    lease_ms: Optional[int]

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Settings:
        """Raises :class:`Config` that names a variable which cannot be right."""
        socket = variables.get("LEASEKEEPER_SOCKET", DEFAULT_SOCKET)
        if not os.path.isabs(socket):
            raise Config(f"LEASEKEEPER_SOCKET is {socket!r}: an absolute path is expected")
        strict = variables.get("LEASEKEEPER_STRICT_RELEASE", "false")
        if strict not in ("true", "1", "false", "0"):
            raise Config(f"LEASEKEEPER_STRICT_RELEASE is {strict!r}: true or false is expected")
        return cls(
            socket=socket,
            strict_release=strict in ("true", "1"),
            wait_ms=_whole(variables, "LEASEKEEPER_WAIT_MS", 0, MAX_WAIT_MS),
            lease_ms=_whole(variables, "LEASEKEEPER_LEASE_MS", MIN_LEASE_MS, MAX_LEASE_MS),
        )


def _whole(variables: Mapping[str, str], name: str, least: int, most: int) -> Optional[int]:
    text = variables.get(name)
    if text is None:
        return None
    # Twenty digits are more than any value here, and `int` would take signs, underscores and white space too.
    if re.fullmatch(r"[0-9]{1,20}", text, re.ASCII) and least <= int(text) <= most:
        return int(text)
    raise Config(f"{name} is {text!r}: whole milliseconds from {least} to {most} are expected")
