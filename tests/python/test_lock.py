"""Blocking locks against a real extension: guards, threads, forks, an extension that stops or goes away."""

import copy
import gc
import os
import pickle
import signal
import socket
import threading
import time
import unittest
import unittest.mock
import warnings
from concurrent.futures import ThreadPoolExecutor

from leasekeeper import (
    BudgetExhausted,
    Busy,
    Config,
    ExtensionMissing,
    ForkedGuard,
    Lock,
    LockError,
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
        with Lock("a", wait=1) as lock:
            self.assertIs(current_lease(), lock)
            self.assertEqual((lock.key, lock.table, lock.token), ("a", "locks", None))
            self.assertTrue(17 < lock.check() <= 18)
            self.assertTrue(17 < lock.remaining() <= 18)
            self.assertFalse(lock.lost.is_set())
            lock.raise_if_lost()
            self.assertEqual(lock.metrics().write_requests, 1)
            with self.assertRaises(Busy) as caught:
                Lock("a", wait=0).acquire()
            self.assertEqual(caught.exception.holder.owner, lock.owner)
            self.assertTrue(0 < caught.exception.retry_after <= 20)
        self.assertEqual(lock.remaining(), 0)
        self.assertEqual(lock.metrics().write_requests, 2)
        with self.assertRaises(Protocol):
            lock.check()
        lock.raise_if_lost()
        self.assertFalse(lock.lost.wait())
        with Lock("a", wait=0):
            pass

    def test_an_object_is_used_once(self):
        lock = Lock("a")
        for use in (lock.check, lock.remaining, lock.release, lambda: lock.owner, lambda: lock.lost.is_set()):
            with self.assertRaises(Protocol):
                use()
        with lock:
            with self.assertRaises(Protocol):
                lock.acquire()
        with self.assertRaises(Protocol):
            lock.__enter__()

    def test_an_object_is_neither_copied_nor_pickled(self):
        with Lock("a") as lock:
            for use in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "one object in one process"):
                    use(lock)
            gc.collect()
            self.assertGreater(lock.check(), 17)

    def test_given_back_before_the_blocks_end_and_only_once(self):
        with Lock("a") as lock:
            lock.release()
            with Lock("a", wait=0):
                self.assertEqual(lock.remaining(), 0)
            lock.release()

    def test_a_condition_check_in_both_forms(self):
        with Lock("a") as lock:
            parts = {
                "TableName": "locks",
                "ConditionExpression": "#owner = :mine",
                "ExpressionAttributeNames": {"#owner": "owner"},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
            client = {**parts, "Key": {"key": {"S": "a"}}, "ExpressionAttributeValues": {":mine": {"S": lock.owner}}}
            self.assertEqual(lock.condition_check(), {"ConditionCheck": client})
            resource = {**parts, "Key": {"key": "a"}, "ExpressionAttributeValues": {":mine": lock.owner}}
            self.assertEqual(lock.condition_check(resource=True), {"ConditionCheck": resource})

    def test_renewals_are_seen_by_whoever_asks(self):
        with Lock("a", lease=0.6) as lock:
            time.sleep(1.3)
            self.assertGreater(lock.check(), 0)
            self.assertGreaterEqual(lock.metrics().renewals, 4)
            lock.remaining()  # Asks by itself if a renewal was told of meanwhile.
            time.sleep(0.02)
            self.assertGreater(lock.remaining(), 0)

    def test_a_dropped_lock_is_given_back(self):
        lock = Lock("a").acquire()
        with self.assertWarnsRegex(ResourceWarning, "not given back"):
            del lock
            gc.collect()
        Lock("a", wait=1).acquire().release()

    def test_a_lost_lock_that_is_dropped_leaves_no_socket_open(self):
        extension = Extension()
        with unittest.mock.patch.dict(os.environ, LEASEKEEPER_SOCKET=extension.socket):
            lock = Lock("a").acquire()
        extension.close()
        self.assertTrue(lock.lost.is_set())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            del lock
            gc.collect()
        self.assertEqual([str(warning.message) for warning in told], [])

    def test_a_waiter_gets_it_when_it_is_given_back(self):
        first = Lock("a").acquire()
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(Lock("a", wait=5).acquire)
            time.sleep(0.1)
            self.assertFalse(second.done())
            first.release()
            self.assertGreaterEqual(second.result().waited, 0.05)
            second.result().release()

    def test_threads_exclude_each_other(self):
        inside = []

        @locked("count", wait=20)
        def enter(number):
            inside.append(number)
            self.assertEqual(len(inside), 1)
            time.sleep(0.002)
            inside.remove(number)
            return current_lease().owner

        with ThreadPoolExecutor(8) as pool:
            owners = list(pool.map(enter, range(24)))
        self.assertEqual(len(set(owners)), 24)

    def test_many_threads_may_ask_about_one_lock(self):
        with Lock("a") as lock, ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(lock.check) for _ in range(200)] + [pool.submit(lock.metrics) for _ in range(50)]
            waiting = pool.submit(lock.lost.wait, 30)
            for answer in answers:
                answer.result(timeout=10)
            lock.release()
            self.assertFalse(waiting.result(timeout=10))

    def test_errors_are_pickled_whole(self):
        with Lock("a"):
            with self.assertRaises(Busy) as caught:
                Lock("a", wait=0).acquire()
        error = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((error.holder, error.retry_after), (caught.exception.holder, caught.exception.retry_after))
        self.assertEqual((str(error), error.code), (str(caught.exception), "busy"))
        self.assertNotIn(error.holder.owner, f"{error} {error!r} {error.args}")

    def test_a_thousand_cycles_leave_nothing(self):
        def cycle():
            with Lock("a", context=Context()):
                pass

        cycle()
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(1_000):
            cycle()
        self.assertEqual((threading.active_count(), len(os.listdir("/proc/self/fd"))), before)


class Forks(Real):
    def in_child(self, work):
        """What a forked child's work returns, as text."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                answer = repr(work())
            except BaseException as error:  # A child tells whatever it was.
                answer = type(error).__name__
            os.write(write, answer.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answers:
            answer = answers.read()
        os.waitpid(child, 0)
        return answer

    def test_a_child_is_refused_and_the_parents_lease_goes_on(self):
        with Lock("a") as lock:
            uses = (
                lock.check,
                lock.remaining,
                lock.metrics,
                lock.raise_if_lost,
                lock.release,
                lock.lost.is_set,
                lambda: lock.lost.wait(5),
                lambda: lock.__exit__(None, None, None),
            )
            for use in uses:
                self.assertEqual(self.in_child(use), "ForkedGuard")
            self.assertGreater(lock.check(), 17)
            self.assertEqual(self.in_child(lambda: Lock("a", wait=0).acquire()), "Busy")
            self.assertEqual(self.in_child(lambda: Lock("b").acquire().release()), "None")
            self.assertGreater(lock.check(), 17)
        Lock("a", wait=0).acquire().release()

    def test_an_error_in_a_childs_block_stays_and_has_a_note(self):
        def work():
            error = ValueError("mine")
            lock.__exit__(ValueError, error, None)
            return "parent process" in error.__notes__[0]

        with Lock("a") as lock:
            self.assertEqual(self.in_child(work), "True")

    def test_a_child_that_lives_on_keeps_no_lock(self):
        lock = Lock("a").acquire()
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        try:
            lock.release()
            Lock("a", wait=0).acquire().release()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_a_child_is_refused_whatever_another_thread_did_when_it_was_forked(self):
        def work():
            signal.alarm(10)  # It ends by that rather than never.
            lock.lost.wait(5)

        with Lock("a") as lock:
            begun, end = threading.Event(), threading.Event()

            def look():
                with lock._connection._lock:
                    begun.set()
                    end.wait()

            thread = threading.Thread(target=look)
            thread.start()
            begun.wait()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # That there are threads.
                    self.assertEqual(self.in_child(work), "ForkedGuard")
            finally:
                end.set()
                thread.join()

    def test_the_guard_is_a_lock_error(self):
        self.assertTrue(issubclass(ForkedGuard, LockError))
        self.assertEqual(pickle.loads(pickle.dumps(ForkedGuard())).code, "protocol")


class Missing(Case):
    def test_nothing_answers(self):
        os.environ["LEASEKEEPER_SOCKET"] = "/nonexistent/lock.sock"
        with self.assertRaisesRegex(ExtensionMissing, "add the Leasekeeper layer"):
            Lock("a").acquire()

    def test_a_wrong_setting_is_named_and_nothing_is_sent(self):
        for name, value in (
            ("LEASEKEEPER_SOCKET", ""),
            ("LEASEKEEPER_SOCKET", "lock.sock"),
            ("LEASEKEEPER_SOCKET", "/" + "x" * 200),
            ("LEASEKEEPER_STRICT_RELEASE", "maybe"),
            ("LEASEKEEPER_WAIT_MS", "-1"),
            ("LEASEKEEPER_WAIT_MS", "+1"),
            ("LEASEKEEPER_WAIT_MS", "1.5"),
            ("LEASEKEEPER_WAIT_MS", "1_0"),
            ("LEASEKEEPER_WAIT_MS", "86400001"),
            ("LEASEKEEPER_LEASE_MS", "99"),
            ("LEASEKEEPER_LEASE_MS", "ten"),
        ):
            os.environ[name] = value
            with self.assertRaisesRegex(Config, name):
                Lock("a").acquire()
            del os.environ[name]

    def test_the_invocations_time_is_used_up(self):
        asked = self.at(Scripted(lambda *_: None))
        for remaining, options in ((200, {}), (0, {"wait": 0}), (3_000, {"reserve": 3})):
            with self.assertRaises(BudgetExhausted):
                Lock("a", context=Context(remaining_ms=remaining), **options).acquire()
        self.assertEqual(asked.requests, [])


class Faults(Case):
    def took_at_most(self, seconds, call, *error):
        begun = time.monotonic()
        try:
            with self.assertRaises(error):
                call()
        finally:
            self.assertLess(time.monotonic() - begun, seconds)

    def test_a_stopped_extension_costs_no_more_than_the_budget(self):
        extension = self.at(Extension())
        lock = Lock("a", context=Context(remaining_ms=700)).acquire()
        extension.signal(signal.SIGSTOP)
        self.took_at_most(0.8, lambda: Lock("b", context=Context(remaining_ms=700)).acquire(), Unavailable)
        self.took_at_most(0.8, lock.check, Unavailable)
        self.took_at_most(0.8, lock.release, ReleaseUnconfirmed)
        self.took_at_most(0.1, lock.check, Protocol)

    def test_a_full_queue_of_connections_costs_no_more_than_the_budget(self):
        extension = self.at(Extension())
        extension.signal(signal.SIGSTOP)
        queued = []
        try:
            while True:
                waiting = socket.socket(socket.AF_UNIX)
                queued.append(waiting)
                waiting.setblocking(False)
                waiting.connect(extension.socket)
        except BlockingIOError:
            self.took_at_most(0.6, lambda: Lock("a", context=Context(remaining_ms=500)).acquire(), Unavailable)
        finally:
            for waiting in queued:
                waiting.close()

    def test_a_killed_extension_is_a_loss_at_once(self):
        extension = self.at(Extension())
        waited = []
        with self.assertRaises(Lost) as caught:
            with Lock("a") as lock:
                watcher = threading.Thread(target=lambda: waited.append(lock.lost.wait()))
                watcher.start()
                self.assertFalse(lock.lost.wait(0.05))
                extension.kill()
                watcher.join(5)
                self.assertEqual(waited, [True])
                self.assertEqual(lock.remaining(), 0)
                self.assertTrue(lock.lost.is_set())
                self.took_at_most(0.1, lock.check, Lost)
                self.took_at_most(0.1, lock.raise_if_lost, Lost)
        self.assertEqual(caught.exception.reason, "extension_failed")

    def test_a_restarted_extension_serves_the_next_lock_and_not_the_last(self):
        extension = self.at(Extension())
        lock = Lock("a").acquire()
        extension.kill()
        extension.start()
        self.assertEqual(lock.remaining(), 0)
        self.took_at_most(1, lock.release, Lost)
        Lock("a", wait=5).acquire().release()

    def test_a_slow_extension_is_waited_for(self):
        extension = self.at(Extension())
        lock = Lock("a").acquire()
        extension.signal(signal.SIGSTOP)
        threading.Timer(0.3, extension.signal, (signal.SIGCONT,)).start()
        self.assertGreater(lock.check(), 0)
        lock.release()


class Releases(Case):
    def serve(self, connection, request):
        if request["op"] == "acquire":
            return grant(connection, request)
        if request["op"] == "release":
            return reply(connection, request, error={"code": "release_unconfirmed", "message": "no answer"})
        return reply(connection, request, ok={"valid_ms": 15_000})

    def test_an_unconfirmed_release_is_logged_and_the_work_is_done(self):
        self.at(Scripted(self.serve))

        @locked("a")
        def work():
            return "done"

        with self.assertLogs("leasekeeper", "WARNING") as logs:
            self.assertEqual(work(), "done")
        self.assertIn("release_unconfirmed", logs.output[0])
        self.assertIn("no answer", logs.output[0])

    def test_unless_it_is_strict(self):
        self.at(Scripted(self.serve))
        with self.assertRaises(ReleaseUnconfirmed):
            with Lock("a", strict_release=True):
                pass
        os.environ["LEASEKEEPER_STRICT_RELEASE"] = "1"
        with self.assertRaises(ReleaseUnconfirmed):
            locked("a")(lambda: None)()
        with self.assertLogs("leasekeeper", "WARNING"), Lock("a", strict_release=False):
            pass
        with self.assertRaises(ReleaseUnconfirmed):
            Lock("a", strict_release=False).acquire().release()

    def test_a_note_tells_of_it_where_the_work_failed(self):
        self.at(Scripted(self.serve))
        with self.assertRaises(KeyError) as caught:
            with Lock("a", strict_release=True):
                raise KeyError("mine")
        self.assertIn("release_unconfirmed", caught.exception.__notes__[0])
        self.assertIn("this is not confirmed", caught.exception.__notes__[0])

    def test_a_release_costs_an_invocation_little(self):
        def silent(connection, request):
            if request["op"] == "acquire":
                grant(connection, request)

        self.at(Scripted(silent))
        for remaining, most in ((30_000, 1.15), (500, 0.45), (150, 0.15)):
            context = Context(remaining_ms=5_000)
            lock = Lock("a", context=context).acquire()
            context.remaining_ms = remaining
            begun = time.monotonic()
            with self.assertRaises(ReleaseUnconfirmed):
                lock.release()
            self.assertLess(time.monotonic() - begun, most)
            self.assertEqual(lock.metrics().cleanup_failures, 1)

    def test_a_fencing_token_is_told(self):
        self.at(Scripted(self.serve))
        with self.assertLogs("leasekeeper"), Lock("a") as lock:
            self.assertEqual(lock.token, 5)

    def test_the_key_is_no_part_of_what_is_shown(self):
        self.at(Scripted(self.serve))
        lock = Lock("secret")
        self.assertNotIn("secret", repr(lock))
        with self.assertLogs("leasekeeper") as logs, lock:
            self.assertNotIn("secret", repr(lock))
        self.assertNotIn("secret", str(logs.output))


if __name__ == "__main__":
    unittest.main()
