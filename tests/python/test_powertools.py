"""Powertools for AWS Lambda beside a lock: its decorators in either order, and idempotency."""

import asyncio
import inspect
import io
import json
import os
import sys
import unittest
import warnings

from leasekeeper import AsyncLock, Busy, Lock, Lost, current_lease, locked
from leasekeeper.testing import FakeExtension
from support import Context, Real

if sys.version_info < (3, 10):
    raise unittest.SkipTest("Powertools 3 needs Python 3.10")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # What its dependencies import is their own.
    from aws_lambda_powertools import Logger, Tracer
    from aws_lambda_powertools.middleware_factory import lambda_handler_decorator
    from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
    from aws_lambda_powertools.utilities.idempotency import (
        BasePersistenceLayer,
        IdempotencyConfig,
        idempotent,
        idempotent_function,
    )
    from aws_lambda_powertools.utilities.idempotency.exceptions import (
        IdempotencyItemAlreadyExistsError,
        IdempotencyItemNotFoundError,
    )
    from aws_xray_sdk.core import xray_recorder

KEY = "customer:7"
EVENT = {"customer_id": "7", "trace": "c-1"}
customer = locked("customer:{customer_id}", customer_id=lambda event, context: event["customer_id"], wait=0)


class LambdaContext(Context):
    """With what Powertools reads."""

    function_name = "orders"
    memory_limit_in_mb = 128
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders"


class Memory(BasePersistenceLayer):
    """Records of the test's own memory."""

    def __init__(self):
        super().__init__()
        self.records = {}

    def statuses(self):
        return [record.status for record in self.records.values()]

    def _get_record(self, idempotency_key):
        if idempotency_key not in self.records:
            raise IdempotencyItemNotFoundError
        return self.records[idempotency_key]

    def _put_record(self, data_record):
        if data_record.idempotency_key in self.records:
            raise IdempotencyItemAlreadyExistsError(old_data_record=self.records[data_record.idempotency_key])
        self.records[data_record.idempotency_key] = data_record

    def _update_record(self, data_record):
        self.records[data_record.idempotency_key] = data_record

    def _delete_record(self, data_record):
        self.records.pop(data_record.idempotency_key, None)


@lambda_handler_decorator
def marked(handler, event, context, **more):
    """A middleware made by Powertools' factory."""
    return {**handler(event, context, **more), "marked": True}


def both_orders(decorator, locking=customer):
    """The handler's makers: `decorator` outside of the lock, and inside of it."""
    yield "outside", lambda handler: decorator(locking(handler))
    yield "inside", lambda handler: locking(decorator(handler))


class Stack(Real):
    """What the handlers of these tests see."""

    def held(self, key=KEY):
        with self.assertRaises(Busy):
            Lock(key, wait=0).__enter__()

    def free(self, key=KEY):
        with Lock(key, wait=0):
            pass

    def stacked(self, decorator, **want):
        """Both orders hold the lock inside, give it back, pass the result, the errors and the lease."""

        def handler(event, context, *, lease=None):
            """What it is for."""
            self.assertIs(lease, current_lease())
            self.assertEqual(lease.key, KEY)
            self.held()
            if "error" in event:
                raise event["error"]
            return {"of": event["customer_id"], "request": context.aws_request_id}

        for order, make in both_orders(decorator):
            with self.subTest(order):
                whole = make(handler)
                self.assertEqual((whole.__name__, whole.__doc__), ("handler", "What it is for."))
                self.assertEqual(list(inspect.signature(whole).parameters), ["event", "context"])
                self.assertIs(inspect.unwrap(whole), handler)
                self.assertEqual(whole(EVENT, LambdaContext()), {"of": "7", "request": "request-1", **want})
                self.free()
                mine = RuntimeError("mine")
                with self.assertRaises(RuntimeError) as raised, self.quiet():
                    whole({**EVENT, "error": mine}, LambdaContext())
                self.assertIs(raised.exception, mine)
                self.free()
                with Lock(KEY), self.assertRaises(Busy), self.quiet():
                    whole(EVENT, LambdaContext())

    def quiet(self):
        """Powertools logs an exception that passes."""
        return self.assertLogs(level="ERROR") if self.logs_errors else warnings.catch_warnings()

    logs_errors = False


class Decorators(Stack):
    def test_the_loggers_context(self):
        self.stacked(Logger(service="orders", stream=io.StringIO()).inject_lambda_context)

    def test_every_line_has_the_requests_id_and_the_correlation_id(self):
        for order in ("outside", "inside"):
            with self.subTest(order):
                lines = io.StringIO()
                logger = Logger(service=f"orders-{order}", stream=lines)
                inject = logger.inject_lambda_context(correlation_id_path="trace", clear_state=True)

                whole = self.logging(logger, dict(both_orders(inject))[order])
                whole({**EVENT}, LambdaContext("r1"))
                whole({**EVENT, "trace": "c-2"}, LambdaContext("r2"))
                told = [json.loads(line) for line in lines.getvalue().splitlines()]
                self.assertEqual(
                    [(line["message"], line["function_request_id"], line["correlation_id"]) for line in told],
                    [(text, *ids) for ids in (("r1", "c-1"), ("r2", "c-2")) for text in ("working", "inner")],
                )

    def logging(self, logger, make):
        @locked("inner:{a}")
        def inner(a):
            logger.info("inner")

        @make
        def handler(event, context):
            self.held()
            logger.info("working")
            inner("1")

        return handler

    def test_a_middleware_of_the_factory(self):
        self.logs_errors = True
        self.stacked(marked, marked=True)

    def test_the_key_is_of_the_event_as_the_decorators_outside_pass_it(self):
        @event_source(data_class=SQSEvent)
        @locked("customer:{id}", id=lambda event, context: next(event.records).json_body["customer_id"], wait=0)
        def handler(event, context):
            self.held()
            return [record.message_id for record in event.records]

        event = {"Records": [{"messageId": "m7", "body": json.dumps({"customer_id": "7"})}]}
        self.assertEqual(handler(event, LambdaContext()), ["m7"])
        self.free()

    def test_the_tracer(self):
        os.environ["LAMBDA_TASK_ROOT"] = "/var/task"  # Elsewhere it traces nothing.
        sent = []
        xray_recorder.emitter._socket.close()
        emitter = type("Emitter", (), {"send_entity": lambda self, entity: sent.append(entity)})()
        xray_recorder.configure(emitter=emitter, sampling=False, context_missing="RUNTIME_ERROR")
        tracer = Tracer(service="orders", auto_patch=False)
        self.addCleanup(Tracer._reset_config)
        self.logs_errors = True
        xray_recorder.begin_segment("orders")
        self.addCleanup(xray_recorder.clear_trace_entities)
        self.stacked(tracer.capture_lambda_handler)

        @locked("{a}")
        @tracer.capture_method
        async def inside(a):
            return current_lease(AsyncLock).key

        @tracer.capture_method
        @locked("{a}")
        async def outside(a):
            return current_lease(AsyncLock).key

        self.assertEqual([asyncio.run(inside("i")), asyncio.run(outside("o"))], ["i", "o"])
        names = [entity.name for entity in sent]
        # Done and failed in both orders, and busy where the tracer is outside.
        self.assertEqual([name for name in names if name == "## handler"], ["## handler"] * 5)
        self.assertEqual([name.rsplit(".", 1)[-1] for name in names[-2:]], ["inside", "outside"])

    def test_a_handler_that_is_async_needs_the_lock_next_to_it(self):
        async def handler(event, context):
            return None

        whole = customer(Logger(service="orders", stream=io.StringIO()).inject_lambda_context(handler))
        with self.assertRaisesRegex(TypeError, "directly above an `async def`"):
            whole(EVENT, LambdaContext())
        self.free()


class Idempotency(Stack):
    def in_both_orders(self, check):
        for order in ("outside", "inside"):
            with self.subTest(order):
                store, runs = Memory(), []
                check(
                    order,
                    store,
                    runs,
                    self.counting(runs, dict(both_orders(idempotent(persistence_store=store)))[order]),
                )

    def counting(self, runs, make):
        @make
        def handler(event, context):
            self.held()
            runs.append(event)
            if "fail" in event:
                raise RuntimeError("mine")
            return {"run": len(runs)}

        return handler

    def test_a_repeated_event_gets_the_first_result_and_no_lock_stays(self):
        def check(order, store, runs, whole):
            for request in ("r1", "r2"):
                self.assertEqual(whole(EVENT, LambdaContext(request)), {"run": 1})
                self.free()
            self.assertEqual((len(runs), store.statuses()), (1, ["COMPLETED"]))
            # While another works on the customer, the repeated event is answered at once, or is busy.
            with Lock(KEY):
                if order == "outside":
                    self.assertEqual(whole(EVENT, LambdaContext("r3")), {"run": 1})
                else:
                    self.assertRaises(Busy, whole, EVENT, LambdaContext("r3"))

        self.in_both_orders(check)

    def test_busy_passes_and_leaves_no_record_so_that_the_retry_runs(self):
        def check(order, store, runs, whole):
            with Lock(KEY), self.assertRaises(Busy), self.told(order):
                whole(EVENT, LambdaContext())
            self.assertEqual((runs, store.statuses()), ([], []))
            self.assertEqual(whole(EVENT, LambdaContext()), {"run": 1})

        self.in_both_orders(check)

    def test_an_error_passes_and_leaves_no_record_and_no_lock(self):
        def check(order, store, runs, whole):
            with self.assertRaisesRegex(RuntimeError, "mine"), self.told():
                whole({**EVENT, "fail": True}, LambdaContext())
            self.assertEqual(store.statuses(), [])
            self.free()

        self.in_both_orders(check)

    def test_work_whose_lock_was_lost_is_recorded_as_done_only_where_idempotency_is_inside(self):
        for order, status in (("outside", []), ("inside", ["COMPLETED"])):
            with self.subTest(order), FakeExtension() as fake:
                store = Memory()
                whole = self.losing(fake, dict(both_orders(idempotent(persistence_store=store)))[order])
                with self.assertRaises(Lost) as raised, self.told(order):
                    whole(EVENT, LambdaContext())
                self.assertEqual((raised.exception.reason, store.statuses()), ("stolen", status))

    def losing(self, fake, make):
        @make
        def handler(event, context):
            fake.lose(KEY, "stolen")
            current_lease(Lock).lost.wait(5)
            return {}

        return handler

    def test_a_function_of_its_own(self):
        by_customer = locked("customer:{customer_id}", wait=0)
        for order in ("outside", "inside"):
            with self.subTest(order):
                store, runs = Memory(), []
                config = IdempotencyConfig()
                config.register_lambda_context(LambdaContext())
                by_order = idempotent_function(data_keyword_argument="order", persistence_store=store, config=config)
                first, second = (by_customer, by_order) if order == "outside" else (by_order, by_customer)
                whole = second(first(self.shipping(runs)))
                with Lock(KEY), self.assertRaises(Busy):
                    whole(order={"id": "1"}, customer_id="7")
                self.assertEqual(store.statuses(), [])
                for number, run in (("1", 1), ("1", 1), ("2", 2)):
                    self.assertEqual(whole(order={"id": number}, customer_id="7"), {"run": run})
                self.free()

    def shipping(self, runs):
        def ship(order, customer_id):
            self.held()
            runs.append(order)
            return {"run": len(runs)}

        return ship

    def told(self, order="outside"):
        """Powertools logs the exceptions that pass its own decorator."""
        return self.assertLogs(level="ERROR") if order == "outside" else warnings.catch_warnings()


if __name__ == "__main__":
    unittest.main()
