"""The guide's examples, run in order as they stand there."""

import asyncio
import json
import re
import unittest

from leasekeeper.testing import FakeExtension
from support import ROOT, Case, Context


class Guide(Case):
    def test_it_holds(self):
        page = (ROOT / "docs/PYTHON.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        # Those are run with Powertools' own tests.
        blocks = [block for block in blocks if "aws_lambda_powertools" not in block]
        self.assertGreaterEqual(len(blocks), 5)
        names = {}
        with FakeExtension() as fake:
            for block in blocks:
                exec(block, names)
            self.assertEqual(fake.released, ("nightly-report",))
            self.assertEqual(names["handler"]({"customer_id": "1"}, Context()), {"done": "1"})
            self.assertEqual(names["synchronize"]("2"), "2")
            self.assertGreater(asyncio.run(names["ship"]("acme", "3")), 17)
            asyncio.run(names["report"]())
            fake.hold("customer:5")
            records = [{"messageId": n, "body": json.dumps({"customer_id": n})} for n in ("4", "5")]
            failures = names["batch_handler"]({"Records": records}, Context())
            self.assertEqual(failures, {"batchItemFailures": [{"itemIdentifier": "5"}]})
            names["test_a_busy_customer_is_put_off"]()
            self.assertEqual(fake.released[1:4], ("customer:1", "customer:2", "4:acme:1:3"))


if __name__ == "__main__":
    unittest.main()
