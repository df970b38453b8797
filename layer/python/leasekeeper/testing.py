"""A stand-in for the extension in an application's own unit tests: no extension, no DynamoDB, any test framework.

::

    from leasekeeper.testing import FakeExtension

    def test_a_busy_customer_is_put_off():
        with FakeExtension() as fake:
            fake.hold("customer:123")
            with pytest.raises(leasekeeper.Busy):
                synchronize_customer("123")

It serves the lock protocol in this process, on a socket of its own, and sets LEASEKEEPER_SOCKET to it meanwhile.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
import uuid
from typing import Any, Dict, List, Optional, Tuple

from ._errors import REASONS
from ._wire import Json

__all__ = ["FakeExtension"]

_LEASE_MS = 20_000
_WAIT_MS = 5_000


class _Client:
    """One connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.unread = b""


class _Lease:
    """One lock that the code under test holds."""

    def __init__(self, client: _Client, number: int, key: str, lease_ms: int) -> None:
        self.client = client
        self.number = number
        self.key = key
        self.lease_ms = lease_ms
        self.owner = str(uuid.uuid4())
        self.renew_at = time.monotonic() + lease_ms / 3_000


class _Waiter:
    """One acquire without its answer."""

    def __init__(self, client: _Client, request: Json, wait_ms: int) -> None:
        self.client = client
        self.request = request
        self.asked = time.monotonic()
        self.until = self.asked + wait_ms / 1_000


class FakeExtension:
    """Locks in this process's memory, as a context manager. Every method may be called from any thread.

    `capacity` is how many locks can be held at once, in all. An acquire beyond it waits, and fails with `unavailable`; one for
    a lock that is held fails with `busy`. With 0 there is nothing to wait for: each is `unavailable` at once.
    """

    def __init__(self, *, capacity: Optional[int] = None) -> None:
        self._capacity = capacity
        self._changing = threading.Condition()
        self._foreign: Dict[str, Optional[float]] = {}
        self._leases: Dict[int, _Lease] = {}
        self._lost: Dict[int, str] = {}
        self._waiters: List[_Waiter] = []
        self._acquired: List[str] = []
        self._released: List[str] = []
        self._last = 0
        self._running = False

    # What a test does.

    def hold(self, key: str, seconds: Optional[float] = None) -> None:
        """Somebody else holds this lock, for so many seconds or until :meth:`free`. Whoever held it loses it: stolen."""
        self.lose(key, "stolen")
        with self._changing:
            self._foreign[key] = None if seconds is None else time.monotonic() + seconds
        self._wake()

    def free(self, key: str) -> None:
        """Ends :meth:`hold`."""
        with self._changing:
            self._foreign.pop(key, None)
        self._wake()

    def lose(self, key: str, reason: str = "stolen") -> bool:
        """The code under test loses this lock, for this reason; tells if it held it."""
        if reason not in REASONS:
            raise ValueError(f"{reason!r} is no reason of a loss: {', '.join(sorted(REASONS))}")
        with self._changing:
            lost = [lease for lease in self._leases.values() if lease.key == key]
            for lease in lost:
                del self._leases[lease.number]
                self._lost[lease.number] = reason
                self._send(lease.client, {"event": "lost", "lease": lease.number, "reason": reason})
        self._wake()
        return bool(lost)

    def set_capacity(self, capacity: Optional[int]) -> None:
        """How many locks can be held at once from now on; None for no limit."""
        with self._changing:
            self._capacity = capacity
        self._wake()

    @property
    def held(self) -> Tuple[str, ...]:
        """The keys that the code under test holds now."""
        with self._changing:
            return tuple(lease.key for lease in self._leases.values())

    @property
    def acquired(self) -> Tuple[str, ...]:
        """Every key that it got, in order."""
        with self._changing:
            return tuple(self._acquired)

    @property
    def released(self) -> Tuple[str, ...]:
        """Every key that it gave back, in order."""
        with self._changing:
            return tuple(self._released)

    def wait_for_waiting(self, count: int = 1, timeout: float = 5.0) -> bool:
        """Waits until so many acquires wait for a lock; tells if they do."""
        with self._changing:
            return self._changing.wait_for(lambda: len(self._waiters) >= count, timeout)

    # How it runs.

    def __enter__(self) -> FakeExtension:
        if self._running:
            raise RuntimeError("this FakeExtension runs already")
        self._directory = tempfile.mkdtemp(prefix="leasekeeper-")
        path = os.path.join(self._directory, "lock.sock")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._running = True
        self._thread = threading.Thread(target=self._serve, name="leasekeeper-fake", daemon=True)
        self._thread.start()
        self._before = os.environ.get("LEASEKEEPER_SOCKET")
        os.environ["LEASEKEEPER_SOCKET"] = path
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            os.environ.pop("LEASEKEEPER_SOCKET", None)
        else:
            os.environ["LEASEKEEPER_SOCKET"] = self._before
        self._running = False
        self._wake()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        self._ringer.close()
        self._leases.clear()
        self._waiters.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wake(self) -> None:
        if self._running or self._thread_lives():
            self._ringer.send(b"!")

    def _thread_lives(self) -> bool:
        thread = getattr(self, "_thread", None)
        return thread is not None and thread.is_alive()

    def _serve(self) -> None:
        while self._running:
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj is self._listener:
                    connected, _address = self._listener.accept()
                    connected.settimeout(5)
                    self._selector.register(connected, selectors.EVENT_READ, _Client(connected))
                elif key.fileobj is self._bell:
                    self._bell.recv(4_096)
                else:
                    self._read(key.data)
            with self._changing:
                self._move()
                self._changing.notify_all()

    def _pause(self) -> Optional[float]:
        """Until something happens by itself, in seconds."""
        with self._changing:
            moments = [waiter.until for waiter in self._waiters]
            moments += [lease.renew_at for lease in self._leases.values()]
            moments += [until for until in self._foreign.values() if until is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _read(self, client: _Client) -> None:
        try:
            data = client.socket.recv(65_536)
        except OSError:
            data = b""
        if not data:
            self._gone(client)
            return
        *lines, client.unread = (client.unread + data).split(b"\n")
        with self._changing:
            for line in lines:
                self._request(client, json.loads(line))

    def _gone(self, client: _Client) -> None:
        self._selector.unregister(client.socket)
        client.socket.close()
        with self._changing:
            self._waiters = [waiter for waiter in self._waiters if waiter.client is not client]
            for lease in [lease for lease in self._leases.values() if lease.client is client]:
                self._give_back(lease)

    def _give_back(self, lease: _Lease) -> None:
        del self._leases[lease.number]
        self._released.append(lease.key)

    def _send(self, client: _Client, message: Json) -> None:
        try:
            client.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # It has gone, which reading tells.

    def _request(self, client: _Client, request: Json) -> None:
        number, op = request["id"], request["op"]
        if op == "hello":
            self._send(client, {"id": number, "ok": {"version": 1, "features": [], "server": "fake"}})
        elif op == "acquire":
            self._waiters.append(_Waiter(client, request, request.get("wait_ms", self._wait(request))))
        else:
            self._send(client, {"id": number, **self._about(op, request["lease"])})

    def _wait(self, request: Json) -> int:
        """The extension's own rule for an acquire that names no wait."""
        if "remaining_ms" not in request:
            return int(request.get("lease_ms", _LEASE_MS)) + _WAIT_MS
        remaining = int(request["remaining_ms"])
        return min(_WAIT_MS, max(0, remaining - min(30_000, max(1_000, remaining // 4))))

    def _about(self, op: str, number: int) -> Json:
        lease = self._leases.get(number)
        if lease is None:
            reason = self._lost.get(number)
            code = "protocol" if reason is None else "lost"
            return {"error": {"code": code, "message": "the lease is over", "reason": reason}}
        if op == "check":
            return {"ok": {"valid_ms": lease.lease_ms * 9 // 10}}
        figures: Dict[str, Any] = {"write_requests": 1, "consumed_write_units": 1.0}
        if op == "metrics":
            return {"ok": figures}
        self._give_back(lease)
        return {"ok": {"metrics": {**figures, "write_requests": 2}}}

    def _move(self) -> None:
        """Grants, refuses and renews whatever is due."""
        now = time.monotonic()
        for key, until in list(self._foreign.items()):
            if until is not None and until <= now:
                del self._foreign[key]
        waiting = []
        for waiter in self._waiters:
            busy = waiter.request["key"] in self._foreign or any(
                lease.key == waiter.request["key"] for lease in self._leases.values()
            )
            full = self._capacity is not None and len(self._leases) >= self._capacity
            if not busy and not full:
                self._grant(waiter, now)
            elif now < waiter.until and self._capacity != 0:
                waiting.append(waiter)
            else:
                self._refuse(waiter, busy and self._capacity != 0, now)
        self._waiters = waiting
        for lease in self._leases.values():
            if lease.renew_at <= now:
                lease.renew_at = now + lease.lease_ms / 3_000
                self._send(lease.client, {"event": "renewed", "lease": lease.number})

    def _grant(self, waiter: _Waiter, now: float) -> None:
        self._last += 1
        lease = _Lease(waiter.client, self._last, waiter.request["key"], waiter.request.get("lease_ms", _LEASE_MS))
        self._leases[lease.number] = lease
        self._acquired.append(lease.key)
        ok = {
            "lease": lease.number,
            "valid_ms": lease.lease_ms * 9 // 10,
            "lease_ms": lease.lease_ms,
            "owner": lease.owner,
            "table": "fake",
            "token": None,
            "waited_ms": int((now - waiter.asked) * 1_000),
        }
        self._send(waiter.client, {"id": waiter.request["id"], "ok": ok})

    def _refuse(self, waiter: _Waiter, busy: bool, now: float) -> None:
        error: Json = {"code": "unavailable", "message": "no capacity is left for another lock"}
        if busy:
            until = self._foreign.get(waiter.request["key"])
            retry_after = _LEASE_MS if until is None else int((until - now) * 1_000)
            holder = {"owner": "another", "lease_ms": _LEASE_MS, "unchanged_ms": 0}
            error = {"code": "busy", "message": "held", "retry_after_ms": retry_after, "holder": holder}
        self._send(waiter.client, {"id": waiter.request["id"], "error": error})
