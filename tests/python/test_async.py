"""asyncio locks against a real extension: cancellation, loss, several loops, and a loop that is never blocked."""

import asyncio
import gc
import os
import signal
import threading
import time
import unittest

from leasekeeper import (
    AsyncLock,
    BudgetExhausted,
    Busy,
    Lock,
    Lost,
    Protocol,
    ReleaseUnconfirmed,
    Unavailable,
    current_lease,
    locked,
)
from support import Case, Context, Extension, Real, Scripted, grant, reply


class Guards(Real):
    def test_held_checked_and_given_back(self):
        async def main():
            async with AsyncLock("a", wait=1) as lock:
                self.assertIs(current_lease(AsyncLock), lock)
                self.assertTrue(17 < await lock.check() <= 18)
                self.assertTrue(17 < lock.remaining() <= 18)
                self.assertEqual((await lock.metrics()).write_requests, 1)
                self.assertFalse(lock.lost.is_set())
                self.assertEqual(lock.condition_check()["ConditionCheck"]["Key"], {"key": {"S": "a"}})
                with self.assertRaises(Busy):
                    await AsyncLock("a", wait=0).acquire()
                with self.assertRaises(Protocol):
                    await lock.acquire()
            self.assertEqual(lock.remaining(), 0)
            self.assertEqual((await lock.metrics()).write_requests, 2)
            self.assertFalse(await lock.lost.wait())
            with self.assertRaises(Protocol):
                await lock.check()
            async with AsyncLock("a", wait=0):
                pass

        asyncio.run(main())

    def test_several_event_loops_one_after_another(self):
        @locked("a", wait=0)
        async def enter():
            return await current_lease(AsyncLock).check()

        for _ in range(3):
            self.assertGreater(asyncio.run(enter()), 17)

        lock = AsyncLock("a", wait=0)

        async def hold():
            await lock.acquire()

        async def use():
            with self.assertRaises(Protocol):
                await lock.check()

        loop = asyncio.new_event_loop()
        loop.run_until_complete(hold())
        asyncio.run(use())
        loop.run_until_complete(lock.release())
        loop.close()

    def test_when_its_event_loop_is_closed_a_lock_still_tells_how_it_stands(self):
        extension = Extension()
        self.at(extension)
        loop = asyncio.new_event_loop()
        lock = AsyncLock("a", lease=0.6)
        loop.run_until_complete(lock.acquire())
        loop.close()
        time.sleep(0.5)  # Renewals are told of meanwhile.
        self.assertLessEqual(lock.remaining(), 0.54)
        self.assertFalse(lock.lost.is_set())
        extension.kill()
        self.assertEqual(lock.remaining(), 0)
        self.assertTrue(lock.lost.is_set())

    def test_several_event_loops_at_once(self):
        inside = []

        @locked("a", wait=20)
        async def enter():
            inside.append(1)
            self.assertEqual(len(inside), 1)
            await asyncio.sleep(0.005)
            inside.pop()

        threads = [threading.Thread(target=lambda: asyncio.run(enter())) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(inside, [])
        Lock("a", wait=0).acquire().release()

    def test_many_tasks_and_threads_ask_about_one_lock(self):
        async def main():
            async with AsyncLock("a") as lock:
                waiting = asyncio.ensure_future(lock.lost.wait())
                asked = [lock.check() for _ in range(100)] + [asyncio.to_thread(lock.remaining) for _ in range(50)]
                for answer in await asyncio.gather(*asked):
                    self.assertGreater(answer, 17)
            self.assertFalse(await waiting)

        asyncio.run(main())

    def test_renewals_are_seen_while_the_loop_runs(self):
        async def main():
            async with AsyncLock("a", lease=0.6) as lock:
                await asyncio.sleep(1)
                self.assertGreater(lock.remaining(), 0.2)
                time.sleep(0.7)  # The loop is blocked, and the extension renews all the same.
                self.assertGreater(await lock.check(), 0.2)

        asyncio.run(main())

    def test_a_thousand_cycles_leave_nothing(self):
        async def main():
            async def cycle():
                async with AsyncLock("a", context=Context(), on_lost="cancel"):
                    pass

            await cycle()
            before = threading.active_count(), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
            for _ in range(1_000):
                await cycle()
            after = threading.active_count(), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
            self.assertEqual(after, before)
            loop = asyncio.get_running_loop()
            self.assertEqual([timer for timer in loop._scheduled if not timer.cancelled()], [])

        asyncio.run(main())


class Cancellation(Real):
    def is_free(self, key="a"):
        Lock(key, wait=1).acquire().release()

    def test_of_the_work_gives_the_lock_back(self):
        @locked("a")
        async def work(started):
            started.set()
            await asyncio.sleep(30)

        async def main():
            started = asyncio.Event()
            task = asyncio.ensure_future(work(started))
            await started.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            async with AsyncLock("a", wait=0):
                pass

        asyncio.run(main())
        self.is_free()

    def test_of_the_wait_takes_the_request_back(self):
        async def main():
            held = await AsyncLock("a").acquire()
            task = asyncio.ensure_future(AsyncLock("a", wait=30).acquire())
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await held.release()
            async with AsyncLock("a", wait=0.5):
                pass

        asyncio.run(main())

    def test_of_the_release_closes_the_connection(self):
        async def main():
            lock = await AsyncLock("a").acquire()
            self.extension.signal(signal.SIGSTOP)
            task = asyncio.ensure_future(lock.release())
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.extension.signal(signal.SIGCONT)

        asyncio.run(main())
        self.is_free()

    def test_a_timeout_of_the_application_stays_a_timeout(self):
        @locked("a")
        async def work():
            await asyncio.sleep(30)

        async def main():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(work(), 0.1)

        asyncio.run(main())
        self.is_free()

    def test_a_dropped_lock_is_given_back(self):
        async def main():
            lock = await AsyncLock("a").acquire()
            with self.assertWarnsRegex(ResourceWarning, "not given back"):
                del lock
                gc.collect()
            async with AsyncLock("a", wait=1):
                pass

        asyncio.run(main())

    def test_an_abandoned_coroutine_gives_the_lock_back(self):
        async def work():
            async with AsyncLock("a"):
                await asyncio.sleep(30)

        async def main():
            coroutine = work()
            while True:
                waited_for = coroutine.send(None)
                if waited_for is None or lock_is_held():
                    break
                waited_for._asyncio_future_blocking = False
                while not waited_for.done():
                    await asyncio.sleep(0.001)
            coroutine.close()

        def lock_is_held():
            try:
                Lock("a", wait=0).acquire().release()
            except Busy:
                return True
            return False

        asyncio.run(main())
        self.is_free()


class Faults(Case):
    def took_at_most(self, seconds, main, *error):
        """Runs it beside a task that must not be kept waiting."""
        gaps = [0.0]

        async def beat():
            last = time.monotonic()
            while True:
                await asyncio.sleep(0.005)
                gaps.append(time.monotonic() - last)
                last += gaps[-1]

        async def both():
            beating = asyncio.ensure_future(beat())
            begun = time.monotonic()
            try:
                with self.assertRaises(error):
                    await main()
            finally:
                beating.cancel()
                self.assertLess(time.monotonic() - begun, seconds)

        asyncio.run(both())
        self.assertLess(max(gaps), 0.25, "the loop was blocked")

    def test_a_stopped_extension_costs_no_more_than_the_budget_and_blocks_no_loop(self):
        extension = self.at(Extension())
        soon = Context(remaining_ms=700)

        async def acquire():
            extension.signal(signal.SIGSTOP)
            await AsyncLock("b", context=soon).acquire()

        async def check():
            extension.signal(signal.SIGCONT)
            lock = await AsyncLock("c", context=soon).acquire()
            extension.signal(signal.SIGSTOP)
            try:
                await lock.check()
            finally:
                extension.signal(signal.SIGCONT)
                await lock.release()

        async def release():
            lock = await AsyncLock("d", context=soon).acquire()
            extension.signal(signal.SIGSTOP)
            await lock.release()

        self.took_at_most(0.9, acquire, Unavailable)
        self.took_at_most(0.9, check, Unavailable)
        self.took_at_most(0.9, release, ReleaseUnconfirmed)

    def test_a_killed_extension_cancels_the_work(self):
        extension = self.at(Extension())

        @locked("a")
        async def work():
            asyncio.get_running_loop().call_later(0.05, extension.kill)
            await asyncio.sleep(30)

        async def main():
            with self.assertRaises(Lost) as caught:
                await work()
            self.assertEqual(caught.exception.reason, "extension_failed")

        asyncio.run(main())

    def test_the_time_is_used_up(self):
        asked = self.at(Scripted(lambda *_: None))
        with self.assertRaises(BudgetExhausted):
            asyncio.run(AsyncLock("a", context=Context(remaining_ms=100)).acquire())
        self.assertEqual(asked.requests, [])

    def test_an_unconfirmed_release_is_logged_unless_it_is_strict(self):
        def serve(connection, request):
            if request["op"] == "acquire":
                return grant(connection, request)
            return reply(connection, request, error={"code": "release_unconfirmed", "message": "no answer"})

        self.at(Scripted(serve))

        @locked("a")
        async def work():
            return "done"

        with self.assertLogs("leasekeeper", "WARNING"):
            self.assertEqual(asyncio.run(work()), "done")
        os.environ["LEASEKEEPER_STRICT_RELEASE"] = "true"
        with self.assertRaises(ReleaseUnconfirmed):
            asyncio.run(work())


if __name__ == "__main__":
    unittest.main()
