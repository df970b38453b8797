"""What an asyncio lock that is lost does to the work under it."""

import asyncio
import time
import unittest

from leasekeeper import AsyncLock, Lost, current_lease, locked
from leasekeeper.testing import FakeExtension
from support import Case


class Loss(Case):
    def setUp(self):
        super().setUp()
        self.fake = FakeExtension()
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)

    def test_the_work_is_cancelled_and_the_cancellation_becomes_the_loss(self):
        seen = []

        @locked("a")
        async def work():
            asyncio.get_running_loop().call_later(0.05, self.fake.lose, "a", "expired")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                seen.append(current_lease().remaining())
                raise

        async def main():
            with self.assertRaises(Lost) as caught:
                await work()
            self.assertEqual(caught.exception.reason, "expired")
            task = asyncio.current_task()
            self.assertEqual(task.cancelling() if hasattr(task, "cancelling") else 0, 0)
            await asyncio.sleep(0.01)  # Nothing of it is left for the caller.

        asyncio.run(main())
        self.assertEqual(seen, [0])

    def test_in_a_block_it_is_cancelled_on_request(self):
        async def main(on_lost):
            async with AsyncLock("a", on_lost=on_lost) as lock:
                self.fake.lose("a")
                self.assertTrue(await lock.lost.wait())
                await asyncio.sleep(0.05)
                return "went on"

        for on_lost in ("cancel", "notify"):
            with self.assertRaises(Lost):
                asyncio.run(main(on_lost))

    def test_told_instead_the_work_goes_on(self):
        @locked("a", on_lost="notify")
        async def work():
            lost = current_lease(AsyncLock).lost
            self.fake.lose("a")
            self.assertTrue(await lost.wait())
            self.assertTrue(lost.is_set())
            await asyncio.sleep(0.02)
            reached.append(True)

        reached = []
        with self.assertRaises(Lost):
            asyncio.run(work())
        self.assertEqual(reached, [True])

    def test_work_that_ends_in_spite_of_the_cancellation_is_a_loss_all_the_same(self):
        @locked("a")
        async def work():
            self.fake.lose("a")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return "done"

        async def main():
            with self.assertRaises(Lost):
                await work()
            await asyncio.sleep(0.01)

        asyncio.run(main())

    def test_a_loss_seen_by_the_work_itself_cancels_it_at_its_next_await(self):
        @locked("a")
        async def work():
            self.fake.lose("a")
            lease = current_lease(AsyncLock)
            while not lease.lost.is_set():
                time.sleep(0.001)
            return "done"

        async def main():
            with self.assertRaises(Lost):
                await work()
            await asyncio.sleep(0.01)  # No late cancellation.

        asyncio.run(main())

    @unittest.skipUnless(hasattr(asyncio.Task, "uncancel"), "cancellations are counted from Python 3.11 on")
    def test_somebody_elses_cancellation_stays_one(self):
        @locked("a")
        async def work():
            self.fake.lose("a")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                asyncio.current_task().cancel()
                raise

        async def main():
            task = asyncio.ensure_future(work())
            with self.assertRaises(asyncio.CancelledError) as caught:
                await task
            return caught.exception

        error = asyncio.run(main())
        self.assertIn("the lock was lost", error.__notes__[0])

    def test_inner_and_outer_lock(self):
        @locked("outer")
        async def outer():
            with self.assertRaises(Lost):
                await inner()
            return await current_lease(AsyncLock).check()

        @locked("inner")
        async def inner():
            self.fake.lose("inner")
            await asyncio.sleep(30)

        self.assertGreater(asyncio.run(outer()), 17)


if __name__ == "__main__":
    unittest.main()
