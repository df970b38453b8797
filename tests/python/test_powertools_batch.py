"""Powertools' batches of records, each handled under a lock; and what the guide shows of Powertools."""

import asyncio
import json
import os
import re
import unittest
import warnings

from leasekeeper import Busy, Lock, current_lease, lambda_handler, locked
from support import ROOT, Scripted, grant, reply
from test_powertools import KEY, LambdaContext, Memory, Stack

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # What its dependencies import is their own.
    from aws_lambda_powertools.utilities import batch
    from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError


def records(*customers):
    """An SQS event."""
    return {
        "Records": [
            {"messageId": f"m{n}", "body": json.dumps({"customer_id": n}), "eventSource": "aws:sqs"} for n in customers
        ]
    }


of_record = {"customer_id": lambda record, *context: record.json_body["customer_id"]}


class Batches(Stack):
    def failed(self, *customers):
        return {"batchItemFailures": [{"itemIdentifier": f"m{n}"} for n in customers]}

    def setUp(self):
        super().setUp()
        self.done = []

        @locked("customer:{customer_id}", **of_record, wait=0)
        def record_handler(record):
            self.held(current_lease().key)
            self.done.append(record.message_id)

        @locked("customer:{customer_id}", **of_record, wait=0)
        async def asynchronous(record):
            self.held(current_lease().key)
            self.done.append(record.message_id)

        self.record_handler, self.asynchronous = record_handler, asynchronous

    def test_the_record_whose_lock_is_busy_is_the_one_that_failed(self):
        processor = batch.BatchProcessor(event_type=batch.EventType.SQS)

        @lambda_handler
        def handler(event, context):
            return batch.process_partial_response(event, self.record_handler, processor, context)

        with Lock(KEY):
            self.assertEqual(handler(records("6", "7", "8"), LambdaContext()), self.failed("7"))
        self.assertEqual(self.done, ["m6", "m8"])
        self.assertEqual([kind for kind, *_ in processor.exceptions], [Busy])
        self.assertEqual(handler(records("6", "7", "8"), LambdaContext()), self.failed())
        self.free()

    def test_a_batch_of_which_every_record_is_busy_is_powertools_own_error(self):
        processor = batch.BatchProcessor(event_type=batch.EventType.SQS)
        with Lock(KEY), self.assertRaises(BatchProcessingError) as raised:
            batch.process_partial_response(records("7", "7"), self.record_handler, processor)
        self.assertEqual([kind for kind, *_ in raised.exception.child_exceptions], [Busy, Busy])

    def test_an_async_batch(self):
        processor = batch.AsyncBatchProcessor(event_type=batch.EventType.SQS)

        @lambda_handler
        def handler(event, context):
            return batch.async_process_partial_response(event, self.asynchronous, processor, context)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Under Lambda it takes an event loop that it keeps.
            for root in (None, "/var/task"):
                os.environ.update({"LAMBDA_TASK_ROOT": root} if root else {})
                with self.subTest(root), Lock(KEY):
                    self.assertEqual(handler(records("6", "7", "8"), LambdaContext()), self.failed("7"))
                self.assertEqual(handler(records("6", "7", "8"), LambdaContext()), self.failed())
            asyncio.get_event_loop().close()
        self.assertEqual(sorted(self.done), sorted(["m6", "m8", "m6", "m7", "m8"] * 2))

    def test_two_records_of_one_customer_wait_for_each_other_in_an_async_batch(self):
        inside = []

        @locked("customer:{customer_id}", **of_record, wait=5)
        async def record_handler(record):
            inside.append("in")
            await asyncio.sleep(0.01)
            inside.append("out")

        processor = batch.AsyncBatchProcessor(event_type=batch.EventType.SQS)
        handled = batch.async_process_partial_response(records("7", "7"), record_handler, processor)
        self.assertEqual((handled, inside), (self.failed(), ["in", "out"] * 2))

    def test_a_fifo_batch_stops_at_the_busy_record(self):
        processor = batch.SqsFifoPartialProcessor()
        with Lock(KEY):
            handled = batch.process_partial_response(records("6", "7", "8"), self.record_handler, processor)
        self.assertEqual((handled, self.done), (self.failed("7", "8"), ["m6"]))

    def test_the_decorator_around_a_lock_and_inside_of_one(self):
        processor = batch.BatchProcessor(event_type=batch.EventType.SQS)
        nightly = locked("nightly", wait=0)
        batched = batch.batch_processor(record_handler=self.record_handler, processor=processor)

        def handler(event, context):
            return processor.response()

        for whole in (batched(nightly(handler)), nightly(batched(handler))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                with Lock(KEY):
                    self.assertEqual(whole(records("6", "7"), LambdaContext()), self.failed("7"))
            self.free("nightly")

    def test_the_locks_belong_to_the_invocation(self):
        def serve(connection, request):
            if request["op"] == "acquire":
                grant(connection, request)
            else:
                reply(connection, request, ok={"metrics": {}})

        asked = self.at(Scripted(serve))

        @locked("customer:{customer_id}", **of_record)
        def told(record, lambda_context):
            return None

        @locked("customer:{customer_id}", **of_record)
        def untold(record):
            return None

        def handler(event, context):
            processor = batch.BatchProcessor(event_type=batch.EventType.SQS)
            batch.process_partial_response(event, told, processor, context)
            # A record handler that is not passed the context needs the handler's word.
            whole = lambda_handler(lambda event, context: batch.process_partial_response(event, untold, processor))
            whole(event, context)

        handler(records("7"), LambdaContext("r1"))
        acquires = [(r["key"], r.get("request_id")) for r in asked.requests if r["op"] == "acquire"]
        self.assertEqual(acquires, [(KEY, "r1")] * 2)


class Guide(Stack):
    def test_its_examples_hold(self):
        page = (ROOT / "docs/PYTHON.md").read_text(encoding="utf-8")
        blocks = [
            text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "aws_lambda_powertools" in text
        ]
        self.assertEqual(len(blocks), 2)
        names = {"store": Memory()}
        for block in blocks:
            exec(block, names)
        for _ in range(2):
            self.assertEqual(names["handler"]({"customer_id": "7"}, LambdaContext()), {"done": "7"})
        self.assertEqual(names["store"].statuses(), ["COMPLETED"])
        with Lock(KEY):
            self.assertEqual(names["batch_handler"](records("6", "7"), LambdaContext()), self.failed_of("7"))
        self.free()

    def failed_of(self, number):
        return {"batchItemFailures": [{"itemIdentifier": f"m{number}"}]}


if __name__ == "__main__":
    unittest.main()
