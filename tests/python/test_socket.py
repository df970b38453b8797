"""A socket that is not there: under Lambda it may be on its way back."""

import asyncio
import os
import threading
import time
import unittest

from leasekeeper import AsyncLock, ExtensionMissing, Lock
from support import Case, Context, Extension


def blocking(context):
    with Lock("a", context=context):
        pass


def looped(context):
    async def work():
        async with AsyncLock("a", context=context):
            pass

    asyncio.run(work())


class NotThere(Case):
    def missing(self, acquire, context):
        """How long it took to find out, in seconds."""
        began = time.monotonic()
        with self.assertRaises(ExtensionMissing):
            acquire(context)
        return time.monotonic() - began

    def test_it_is_waited_for_under_lambda_within_the_budget_and_nowhere_else(self):
        os.environ["LEASEKEEPER_SOCKET"] = "/nonexistent/lock.sock"
        for acquire in (blocking, looped):
            with self.subTest(acquire.__name__):
                os.environ.pop("AWS_LAMBDA_RUNTIME_API", None)
                self.assertLess(self.missing(acquire, None), 0.2)
                os.environ["AWS_LAMBDA_RUNTIME_API"] = "127.0.0.1:9001"
                self.assertGreaterEqual(self.missing(acquire, Context()), 0.25)
                # Of these 100 ms half are left to tell the cause.
                self.assertLess(self.missing(acquire, Context(remaining_ms=300)), 0.1)

    def test_one_that_comes_back_in_time_is_used(self):
        extension = self.at(Extension())
        os.environ["AWS_LAMBDA_RUNTIME_API"] = "127.0.0.1:9001"
        for acquire in (blocking, looped):
            with self.subTest(acquire.__name__):
                extension.kill()  # Its socket stays, and nobody listens on it.
                again = threading.Timer(0.02, extension.start)
                again.start()
                acquire(Context())
                again.join()


if __name__ == "__main__":
    unittest.main()
