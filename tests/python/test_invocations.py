"""In whose name a lock is asked for: by a context among the arguments, by the handler around, or by nobody."""

import asyncio
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

from leasekeeper import AsyncLock, Lock, Protocol, invocation, lambda_handler, locked
from support import Case, Context, Scripted, grant, reply


class Invocations(Case):
    """What is asked in whose name."""

    def setUp(self):
        super().setUp()

        def serve(connection, request):
            if request["op"] == "acquire":
                grant(connection, request)
            else:
                reply(connection, request, ok={"metrics": {}})

        self.asked = self.at(Scripted(serve))

    def named(self):
        """Who asked, and with how much time."""
        named = [(r.get("request_id"), r.get("remaining_ms")) for r in self.asked.requests if r["op"] == "acquire"]
        self.asked.requests.clear()
        return named

    def test_a_context_among_the_arguments_binds_the_lock(self):
        @locked("k")
        def handler(event, context):
            return event

        handler({}, Context("r1", 2_800))
        handler({}, context=Context("r2", 2_900))
        self.assertEqual(self.named(), [("r1", 2_800), ("r2", 2_900)])

    def test_a_context_among_arguments_without_names_of_their_own_does_too(self):
        @locked(lambda *args, **more: "k")
        def handler(*args, **more):
            return args

        handler({}, Context("r1", 2_800))
        handler(event={}, context=Context("r2", 2_900))
        self.assertEqual(self.named(), [("r1", 2_800), ("r2", 2_900)])

    def test_what_a_handler_calls_belongs_to_its_invocation(self):
        @locked("inner:{a}")
        def inner(a):
            return a

        @locked("inner:{a}")
        async def asynchronous(a):
            return a

        @locked("outer")
        def handler(event, context):
            inner("1")
            asyncio.run(asynchronous("1"))

        @lambda_handler
        def unlocked(event, context):
            inner("1")

        @lambda_handler
        async def also(event, context):
            await asynchronous("1")

        handler({}, Context("r1", 2_800))
        self.assertEqual(self.named(), [("r1", 2_800)] * 3)
        unlocked({}, Context("r2", 2_700))
        asyncio.run(also({}, Context("r3", 2_600)))
        with invocation(Context("r4", 2_500)):
            inner("1")
        self.assertEqual(self.named(), [("r2", 2_700), ("r3", 2_600), ("r4", 2_500)])
        inner("1")
        self.assertEqual(self.named(), [(None, None)])

    def test_a_pools_threads_belong_to_the_one_invocation(self):
        @locked("inner:{a}")
        def inner(a):
            return a

        with ThreadPoolExecutor(4) as pool:

            @lambda_handler
            def handler(event, context):
                return list(pool.map(inner, "abcdefgh"))

            self.assertEqual(handler({}, Context("r1", 2_800)), list("abcdefgh"))
            self.assertEqual(self.named(), [("r1", 2_800)] * 8)
            list(pool.map(inner, "ab"))
        self.assertEqual(self.named(), [(None, None)] * 2)

    def test_mocks_and_other_things_are_no_contexts(self):
        @locked("k")
        def function(a, b):
            return a

        function(MagicMock(), object())
        self.assertEqual(self.named(), [(None, None)])
        with self.assertRaises(TypeError):
            invocation(object())
        with self.assertRaises(TypeError):
            Lock("k", context=object())

    def test_a_context_can_be_given_to_a_block(self):
        with Lock("k", context=Context("r1", 2_800), wait=1):
            pass
        self.assertEqual(self.named(), [("r1", 2_800)])

    def test_a_lock_outside_any_invocation_is_told_how_to_name_one(self):
        missing = "field request_id is required under Lambda"

        def refuse(connection, request):
            reply(connection, request, error={"code": "protocol", "message": missing})

        self.at(Scripted(refuse))
        for advice in (missing, "@locked", "@lambda_handler", "context=context"):
            with self.assertRaisesRegex(Protocol, advice):
                Lock("k").acquire()
            with self.assertRaisesRegex(Protocol, advice):
                asyncio.run(AsyncLock("k").acquire())
        with self.assertRaises(Protocol) as told:
            Lock("k", context=Context("r1", 2_800)).acquire()
        self.assertEqual(told.exception.message, missing)


if __name__ == "__main__":
    unittest.main()
