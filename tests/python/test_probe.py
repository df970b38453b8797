"""The function that is invoked on real Lambda does what it says, as far as that can be tried here."""

import os
import sys
import unittest
from unittest import mock

from support import ROOT, Context, Extension

sys.path.insert(0, str(ROOT / "tests/aws"))
import probe


class Probe(unittest.TestCase):
    def setUp(self):
        self.extension = Extension()
        self.addCleanup(self.extension.close)
        patched = mock.patch.dict(os.environ, LEASEKEEPER_SOCKET=self.extension.socket)
        patched.start()
        self.addCleanup(patched.stop)

    def ask(self, do, **event):
        return probe.handler({"do": do, **event}, Context())["told"]

    def test_it_tells_of_locks_and_of_both_processes(self):
        self.assertIsNone(self.ask("nothing"))
        self.assertEqual(len(self.ask("lock", key="k")["owner"]), 36)
        told = self.ask("ids")
        self.assertEqual(told["handler"]["pid"], os.getpid())
        self.assertEqual(told["extension"]["pid"], self.extension.process.pid)
        self.assertEqual(told["handler"]["uid"], told["extension"]["uid"])
        self.assertEqual(told["pid_namespace"], told["extension"]["pid_namespace"])
        self.assertIn(str(os.getpid()), told["processes"])

    def test_it_leaves_a_lock_behind_and_tells_what_became_of_it(self):
        granted = self.ask("leak", key="k", lease_ms=900)
        self.assertIn("lease", granted["ok"])
        told = self.ask("leaked")
        self.assertEqual([line["event"] for line in told if line["event"] == "lost"], [])
        # It was told while it was held, and closed: the next one gets the lock.
        self.assertEqual(len(self.ask("lock", key="k")["owner"]), 36)

    def test_clocks_go_on(self):
        told = probe.handler({"do": "nothing"}, Context())
        for name, began in told["began"].items():
            self.assertGreaterEqual(told["ended"][name], began)


if __name__ == "__main__":
    unittest.main()
