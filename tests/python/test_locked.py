"""The decorator, against the test double: what is locked, what it is called with, what stays as it was."""

import asyncio
import functools
import gc
import inspect
import unittest
import warnings
from datetime import timedelta

from leasekeeper import (
    AsyncLock,
    Busy,
    Lock,
    Lost,
    Protocol,
    Unavailable,
    current_lease,
    locked,
)
from leasekeeper.testing import FakeExtension
from support import Case, Scripted


class Doubled(Case):
    def setUp(self):
        super().setUp()
        self.fake = FakeExtension()
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)


class Keys(Doubled):
    def keys(self, call):
        """The keys that one call locks."""
        before = len(self.fake.acquired)
        result = call()
        if inspect.iscoroutine(result):
            asyncio.run(result)
        return list(self.fake.acquired[before:])

    def test_names_of_arguments_however_they_are_passed(self):
        @locked("{a}:{b}")
        def function(a, b="2"):
            return a + b

        for call in (lambda: function("1", "2"), lambda: function("1"), lambda: function(b="2", a="1")):
            self.assertEqual(self.keys(call), ["1:1:1:2"])

    def test_positional_only_and_keyword_only(self):
        @locked("{a}:{b}")
        def function(a, /, *, b):
            return None

        self.assertEqual(self.keys(lambda: function("x", b="y")), ["1:x:1:y"])

        @locked("c:{a}")
        def shadowed(a, /, **rest):
            return rest

        self.assertEqual(self.keys(lambda: shadowed("x", a="other")), ["c:x"])

    def test_methods(self):
        class Service:
            tenant = "acme"

            @locked("{tenant}:{name}", tenant=lambda self, name: self.tenant)
            def bound(self, name):
                return self, name

            @classmethod
            @locked("c:{name}")
            def of_class(cls, name):
                return cls, name

            @staticmethod
            @locked("s:{name}")
            async def static(name):
                return name

        service = Service()
        self.assertEqual(self.keys(lambda: self.assertEqual(service.bound("n"), (service, "n"))), ["4:acme:1:n"])
        self.assertEqual(self.keys(lambda: self.assertEqual(Service.of_class("n"), (Service, "n"))), ["c:n"])
        self.assertEqual(self.keys(lambda: service.static("n")), ["s:n"])

    def test_values_computed_from_the_arguments(self):
        @locked("customer:{customer_id}", customer_id=lambda event, context: event["customer_id"])
        def handler(event, context=None):
            return event

        self.assertEqual(self.keys(lambda: handler({"customer_id": "é"})), ["customer:é"])
        self.assertEqual(self.keys(lambda: handler(context=None, event={"customer_id": "1"})), ["customer:1"])

    def test_a_key_computed_as_a_whole(self):
        @locked(lambda event, context: f"customer:{event}")
        def handler(event, context):
            return event

        self.assertEqual(self.keys(lambda: handler("7", None)), ["customer:7"])

    def test_placeholders_named_as_options(self):
        @locked("{wait}:{lease}:{template}")
        def function(wait, lease, template):
            return lease

        self.assertEqual(self.keys(lambda: self.assertEqual(function("w", "l", "t"), "l")), ["1:w:1:l:1:t"])

    def test_any_unicode(self):
        @locked("{key}")
        def function(key):
            return None

        for key in (
            "日本",
            "👩‍👩‍👧",
            "a\0b",
            "line\nbreak",
            "\u2028",
            "e\u0301",
            '"\\',
            "{x}",
            "x" * 2_048,
            "é" * 1_024,
        ):
            self.assertEqual(self.keys(lambda key=key: function(key)), [key])
        for key in ("", "é" * 1_025, "\ud800"):
            with self.assertRaises(Protocol):
                function(key)

    def test_values_are_strings(self):
        @locked("c:{x}")
        def function(x):
            raise AssertionError("never called")

        @locked("c:{x}", x=lambda y: y)
        async def asynchronous(y):
            raise AssertionError("never called")

        @locked(lambda x: x)
        def whole(x):
            raise AssertionError("never called")

        for wrong in (1, None, b"x", 1.5, ["x"]):
            for call in (function, whole):
                with self.assertRaises(TypeError):
                    call(wrong)
            with self.assertRaises(TypeError):
                asyncio.run(asynchronous(wrong))
        self.assertEqual(self.fake.acquired, ())

    def test_wrong_arguments_are_a_type_error_before_anything_is_sent(self):
        @locked("c:{x}")
        def function(x):
            raise AssertionError("never called")

        for call in (lambda: function(), lambda: function("1", "2"), lambda: function("1", lease=None)):
            with self.assertRaises(TypeError):
                call()
        self.assertEqual(self.fake.acquired, ())


class Decoration(Case):
    """Nothing answers here: whatever is refused, and whatever is not, is so before anything is sent."""

    def test_wrong_templates(self):
        for template in ("", "{", "}", "{x", "{}", "{0}", "{x.y}", "{x!r}", "{x:>4}", "{ x }"):
            with self.assertRaises(Protocol, msg=template):
                locked(template)

    def test_placeholders_that_are_no_parameters(self):
        for function in (lambda y: y, lambda *x: x, lambda **x: x):
            with self.assertRaisesRegex(TypeError, "'x'"):
                locked("c:{x}")(function)

        def hidden(*, lease):
            return lease

        with self.assertRaisesRegex(TypeError, "'lease'"):
            locked("c:{lease}")(hidden)

    def test_values_that_are_no_functions_or_have_no_placeholder(self):
        with self.assertRaisesRegex(TypeError, "'x'"):
            locked("c:{x}", x="1")
        with self.assertRaisesRegex(TypeError, "'waits'"):
            locked("c", waits=5)
        with self.assertRaises(TypeError):
            locked(5)

    def test_options_out_of_range(self):
        for option in ({"wait": -1}, {"wait": 86_401}, {"lease": 0.05}, {"reserve": float("nan")}, {"lease": 1e300}):
            with self.assertRaises(Protocol, msg=option):
                locked("c", **option)
        for option in ({"wait": "5"}, {"wait": True}):
            with self.assertRaises(TypeError, msg=option):
                locked("c", **option)
        with self.assertRaises(ValueError):
            locked("c", on_lost="ignore")
        locked("c", wait=timedelta(days=1), lease=0.1, reserve=0)

    def test_generators_classes_and_wrapped_descriptors(self):
        def generator():
            yield 1

        async def asynchronous():
            yield 1

        class Called:
            def __call__(self):
                yield 1

        for function in (generator, asynchronous, Called(), functools.partial(generator)):
            with self.assertRaisesRegex(TypeError, "generators"):
                locked("c")(function)
        for function in (classmethod(generator), staticmethod(generator), Called, 5):
            with self.assertRaises(TypeError):
                locked("c")(function)

    def test_key_functions_that_are_asynchronous(self):
        async def key(x):
            return x

        with self.assertRaisesRegex(TypeError, "async"):
            locked(key)
        with self.assertRaisesRegex(TypeError, "'x'"):
            locked("c:{x}", x=key)

    def test_a_strict_release_that_is_neither_true_nor_false(self):
        for use in (lambda: locked("c", strict_release="false"), lambda: Lock("c", strict_release=0)):
            with self.assertRaisesRegex(TypeError, "strict_release"):
                use()

    def test_cancelling_what_blocks(self):
        with self.assertRaisesRegex(TypeError, "async def"):
            locked("c", on_lost="cancel")(lambda: None)

    def test_a_coroutine_that_is_not_awaited_asks_for_nothing(self):
        asked = self.at(Scripted(lambda *_: None))

        @locked("c")
        async def function():
            raise AssertionError("never called")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            coroutine = function()
            del coroutine
            gc.collect()
        self.assertEqual(asked.requests, [])

    def test_what_inspect_says_stays(self):
        def plain(a: int, /, b: str = "x", *rest, c, **more) -> bool:
            """Says something."""
            return True

        async def asynchronous(a):
            return a

        decorated = locked("k:{b}")(plain)
        self.assertEqual(inspect.signature(decorated), inspect.signature(plain))
        self.assertEqual((decorated.__name__, decorated.__doc__), ("plain", "Says something."))
        self.assertEqual(decorated.__annotations__, plain.__annotations__)
        self.assertIs(decorated.__wrapped__, plain)
        self.assertFalse(inspect.iscoroutinefunction(decorated))
        self.assertTrue(inspect.iscoroutinefunction(locked("k")(asynchronous)))

    def test_the_lease_is_hidden(self):
        def function(a, *, lease, b=1):
            return lease

        self.assertEqual(str(inspect.signature(locked("k:{a}")(function))), "(a, *, b=1)")

        def positional(a, lease):
            return lease

        self.assertEqual(str(inspect.signature(locked("k:{a}")(positional))), "(a, lease)")


class Calls(Doubled):
    def test_the_lease_is_given_and_current(self):
        @locked("outer:{a}")
        def outer(a, *, lease):
            self.assertIsInstance(lease, Lock)
            self.assertIs(current_lease(), lease)
            self.assertEqual(lease.key, "outer:1")
            inner("2")
            self.assertIs(current_lease(Lock), lease)
            with self.assertRaises(TypeError):
                current_lease(AsyncLock)
            return "done"

        @locked("inner:{a}")
        def inner(a):
            self.assertEqual(current_lease().key, "inner:2")

        self.assertEqual(outer("1"), "done")
        self.assertEqual(self.fake.released, ("inner:2", "outer:1"))
        with self.assertRaises(LookupError):
            current_lease()

    def test_a_lease_with_a_default_is_given_too(self):
        @locked("k")
        async def function(*, lease=None):
            self.assertIs(current_lease(AsyncLock), lease)
            self.assertGreater(await lease.check(), 17)

        asyncio.run(function())

    def test_tasks_have_leases_of_their_own(self):
        @locked("k:{a}")
        async def function(a):
            await asyncio.sleep(0.01)
            return current_lease().key

        async def both():
            return await asyncio.gather(function("1"), function("2"))

        self.assertEqual(asyncio.run(both()), ["k:1", "k:2"])

    def test_an_object_with_an_asynchronous_call(self):
        class Called:
            async def __call__(self, a):
                return a

        self.assertEqual(asyncio.run(locked("k:{a}")(Called())("1")), "1")
        self.assertEqual(self.fake.released, ("k:1",))

    def test_work_that_has_only_been_promised_when_the_function_returns_is_refused(self):
        async def asynchronous():
            raise AssertionError("never run: it would run without the lock")

        def generator():
            yield asynchronous

        async def both():
            yield asynchronous

        for work in (asynchronous, generator, both):
            # As a decorator between does, which does not know of `async def`.
            @locked("k")
            @functools.wraps(work)
            def function(work=work):
                return work()

            with warnings.catch_warnings(), self.assertRaisesRegex(TypeError, "run after the lock is given back"):
                warnings.simplefilter("error")
                function()
                gc.collect()

        @locked("k")
        async def returns_one():
            return generator()

        with self.assertRaisesRegex(TypeError, "run after the lock is given back"):
            asyncio.run(returns_one())
        self.assertEqual(self.fake.released, ("k",) * 4)

    def test_the_applications_errors_stay_and_the_lock_is_given_back(self):
        class Mine(Exception):
            pass

        raised = Mine("words")

        @locked("k")
        def function():
            raise raised

        @locked("k")
        async def asynchronous():
            raise raised

        for call in (function, lambda: asyncio.run(asynchronous())):
            with self.assertRaises(Mine) as caught:
                call()
            self.assertIs(caught.exception, raised)
            self.assertIsNone(caught.exception.__cause__)
            self.assertEqual(getattr(raised, "__notes__", []), [])
        self.assertEqual(self.fake.released, ("k", "k"))

    def test_busy_and_no_capacity(self):
        @locked("k", wait=0.05)
        def function():
            raise AssertionError("never called")

        self.fake.hold("k")
        with self.assertRaises(Busy):
            function()
        self.fake.free("k")
        self.fake.set_capacity(0)
        with self.assertRaises(Unavailable):
            function()

    def test_a_loss_is_an_error_though_the_work_is_done(self):
        @locked("k")
        def function():
            self.fake.lose("k", "expired")
            return "done"

        with self.assertRaises(Lost) as caught:
            function()
        self.assertEqual(caught.exception.reason, "expired")

    def test_a_loss_that_the_work_itself_raises_is_told_once(self):
        @locked("k")
        def function():
            self.fake.lose("k")
            current_lease(Lock).check()

        with self.assertRaises(Lost) as caught:
            function()
        self.assertEqual(getattr(caught.exception, "__notes__", []), [])

    def test_a_loss_is_a_note_on_the_applications_own_error(self):
        @locked("k")
        def function():
            self.fake.lose("k")
            raise ValueError("mine")

        @locked("k", on_lost="notify")
        async def asynchronous():
            self.fake.lose("k")
            raise ValueError("mine")

        for call in (function, lambda: asyncio.run(asynchronous())):
            with self.assertRaises(ValueError) as caught:
                call()
            [note] = caught.exception.__notes__
            self.assertIn("the lock was lost (stolen)", note)


if __name__ == "__main__":
    unittest.main()
