"""What the client costs beyond the bare exchange on the socket: printed, and bounded loosely against a sudden fault."""

import asyncio
import json
import os
import socket
import statistics
import time
import unittest

from leasekeeper import AsyncLock, Lock
from support import Context, Real

ROUNDS = 400


def bare(path):
    """Connects, acquires, releases, with the least that a client can do."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        ask = {"v": 1, "id": 1, "op": "acquire", "key": "a", "request_id": "request-1", "remaining_ms": 30_000}
        connection.sendall(json.dumps(ask).encode() + b"\n")
        lease = json.loads(connection.recv(65_536))["ok"]["lease"]
        connection.sendall(b'{"v":1,"id":2,"op":"release","lease":%d}\n' % lease)
        json.loads(connection.recv(65_536))


class Overhead(Real):
    def test_the_median_cycle(self):
        context = Context()

        def locked():
            with Lock("a", context=context):
                pass

        async def asynchronous():
            took = []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                async with AsyncLock("a", context=context):
                    pass
                took.append(time.perf_counter() - begun)
            return took

        took = {"bare": [], "lock": []}
        for _ in range(ROUNDS):  # By turns, so that a busy moment is everybody's.
            for name, cycle in (("bare", lambda: bare(os.environ["LEASEKEEPER_SOCKET"])), ("lock", locked)):
                begun = time.perf_counter()
                cycle()
                took[name].append(time.perf_counter() - begun)
        took["async"] = asyncio.run(asynchronous())
        ms = {name: statistics.median(times) * 1_000 for name, times in took.items()}
        beyond = {name: ms[name] - ms["bare"] for name in ("lock", "async")}
        print(
            f"bare exchange {ms['bare']:.3f} ms; beyond it Lock {beyond['lock']:.3f} ms, AsyncLock {beyond['async']:.3f} ms"
        )
        self.assertLess(beyond["lock"], 2)
        self.assertLess(beyond["async"], 2)


if __name__ == "__main__":
    unittest.main()
