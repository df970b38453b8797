"""The examples, against the test double, and the worker as a process beside a real extension."""

import importlib
import json
import subprocess
import sys

from leasekeeper import Busy, Lock
from leasekeeper.testing import FakeExtension
from support import ROOT, Case, Context, Extension

EXAMPLES = ROOT / "examples/python"


class Examples(Case):
    def setUp(self):
        super().setUp()
        sys.path.insert(0, str(EXAMPLES))
        self.addCleanup(sys.path.remove, str(EXAMPLES))
        self.fake = FakeExtension()
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)

    def test_the_handler_names_its_lock_and_fails_where_the_event_is_wrong(self):
        handler = importlib.import_module("handler").handler
        answer = handler({"customer_id": "123", "work_ms": 1}, Context())
        self.assertEqual({"customer_id", "owner", "waited_ms"}, set(answer))
        self.assertEqual(self.fake.released, ("customer:123",))
        self.fake.hold("customer:123")
        with self.assertRaises(Busy):
            handler({"customer_id": "123"}, Context(remaining_ms=1_050))
        with self.assertRaises(KeyError):
            handler({}, Context())
        with self.assertRaises(TypeError):
            handler({"customer_id": 123}, Context())

    def test_the_lock_around_a_part(self):
        part = importlib.import_module("part")
        answer = part.handler({"customer_id": "123", "read_ms": 1, "write_ms": 1}, Context())
        self.assertEqual(answer["customer_id"], "123")
        self.assertEqual(self.fake.released, ("customer:123",))

    def test_the_batch_reports_the_busy_and_the_failed_and_no_others(self):
        batch = importlib.import_module("batch")
        self.fake.hold("customer:b")
        bodies = [{"customer_id": name, "work_ms": 1} for name in ("a", "b", "c")] + [{"customer_id": 5}]
        records = [{"messageId": f"m{n}", "body": json.dumps(body)} for n, body in enumerate(bodies)]
        failures = batch.handler({"Records": records}, Context())
        self.assertEqual(failures, {"batchItemFailures": [{"itemIdentifier": "m1"}, {"itemIdentifier": "m3"}]})
        self.assertEqual(self.fake.released, ("customer:a", "customer:c"))


class Worker(Case):
    def test_it_shares_the_lock_with_whoever_has_it(self):
        self.at(Extension())
        with Lock("customer:b"):
            done = subprocess.run(
                [sys.executable, EXAMPLES / "worker.py", "a", "b", "c"], text=True, capture_output=True, check=False
            )
        lines = done.stdout.splitlines()
        self.assertEqual([line[:7] for line in lines], ["a: done", "b: busy", "c: done"], done.stderr)
        self.assertEqual(done.returncode, 1)
