"""The test double: what an application's own tests can do with it, and that it is what the extension is."""

import asyncio
import os
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from leasekeeper import AsyncLock, Busy, Lock, Lost, Protocol, Unavailable, locked
from leasekeeper.testing import FakeExtension
from support import Case, Context, Extension


class Double(Case):
    def test_it_is_there_while_its_block_runs(self):
        os.environ["LEASEKEEPER_SOCKET"] = "/somewhere/else"
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with FakeExtension() as fake:
                directory = os.path.dirname(os.environ["LEASEKEEPER_SOCKET"])
                with Lock("a"):
                    self.assertEqual(fake.held, ("a",))
                self.assertEqual((fake.acquired, fake.released, fake.held), (("a",), ("a",), ()))
            self.assertEqual(os.environ["LEASEKEEPER_SOCKET"], "/somewhere/else")
            self.assertFalse(os.path.exists(directory))
        self.assertEqual((threading.active_count(), len(os.listdir("/proc/self/fd"))), before)

    def test_contention(self):
        with FakeExtension() as fake:
            fake.hold("a")
            with self.assertRaises(Busy) as caught:
                Lock("a", wait=0).acquire()
            self.assertEqual(caught.exception.holder.owner, "another")
            begun = time.monotonic()
            fake.hold("a", seconds=0.1)
            with Lock("a") as lock:
                self.assertTrue(0.09 < time.monotonic() - begun < 2)
                self.assertGreater(lock.waited, 0.08)
            with Lock("b"), self.assertRaises(Busy):
                Lock("b", wait=0).acquire()

    def test_waiting(self):
        with FakeExtension() as fake, ThreadPoolExecutor(1) as pool:
            fake.hold("a")
            waiting = pool.submit(Lock("a", wait=10).acquire)
            self.assertTrue(fake.wait_for_waiting())
            self.assertEqual(fake.acquired, ())
            fake.free("a")
            waiting.result(timeout=5).release()
            self.assertFalse(fake.wait_for_waiting(timeout=0))

    def test_a_forced_loss(self):
        with FakeExtension() as fake:
            self.assertFalse(fake.lose("a"))
            with self.assertRaises(ValueError):
                fake.lose("a", "nonsense")
            for reason in ("stolen", "deadline"):
                with self.assertRaises(Lost) as caught, Lock("a") as lock:
                    self.assertTrue(fake.lose("a", reason))
                    self.assertTrue(lock.lost.wait(5))
                    self.assertEqual(lock.remaining(), 0)
                self.assertEqual(caught.exception.reason, reason)
            with self.assertRaises(Lost), Lock("b"):
                fake.hold("b")

    def test_zero_capacity(self):
        with FakeExtension(capacity=0) as fake:
            begun = time.monotonic()
            for _ in range(2):
                with self.assertRaises(Unavailable):
                    Lock("a", wait=10).acquire()
                fake.hold("a")
            self.assertLess(time.monotonic() - begun, 5, "there is nothing to wait for")
            fake.free("a")
            fake.set_capacity(1)
            with Lock("a"), self.assertRaises(Unavailable):
                Lock("b", wait=0).acquire()

    def test_renewals_keep_a_lock(self):
        async def main():
            async with AsyncLock("a", lease=0.3) as lock:
                await asyncio.sleep(0.5)
                self.assertGreater(lock.remaining(), 0)

        with FakeExtension():
            asyncio.run(main())

    def test_without_a_wait_of_its_own_an_acquire_follows_the_extensions_rule(self):
        @locked("a")
        def handler(event, context):
            return event

        with FakeExtension() as fake:
            fake.hold("a")
            begun = time.monotonic()
            with self.assertRaises(Busy):
                handler({}, Context(remaining_ms=1_100))
            self.assertTrue(0.09 < time.monotonic() - begun < 1)

    def test_a_lock_that_nobody_gives_back_ends_with_its_connection(self):
        with FakeExtension() as fake:
            lock = Lock("a").acquire()
            lock._connection.close()
            Lock("a", wait=5).acquire().release()
            self.assertEqual(fake.released, ("a", "a"))


class Likeness(Case):
    """The same course of events, by the double and by the extension."""

    def course(self):
        seen = []
        with Lock("a", wait=0) as lock:
            seen.append(round(lock.check()))
            seen.append(lock.metrics().write_requests)
            try:
                Lock("a", wait=0).acquire()
            except Busy as error:
                seen.append((error.code, error.retry_after > 19, error.holder.lease_ms))
        seen.append(lock.metrics().write_requests)
        try:
            lock.check()
        except Protocol as error:
            seen.append(error.code)
        with Lock("é" * 1_024, lease=0.1) as lock:
            seen.append(round(lock.check(), 1))
        return seen

    def test_both_give_the_same(self):
        self.at(Extension())
        real = self.course()
        with FakeExtension():
            self.assertEqual(self.course(), real)


if __name__ == "__main__":
    unittest.main()
