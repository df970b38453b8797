"""What the tests share: a real extension with rows in its memory, Lambda contexts, a socket that follows a script."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = Path(os.environ.get("LEASEKEEPER_BINARY", ROOT / "target/debug/leasekeeper"))


class Context:
    """A Lambda context, as far as the library asks it."""

    def __init__(self, request_id="request-1", remaining_ms=30_000):
        self.aws_request_id = request_id
        self.remaining_ms = remaining_ms

    def get_remaining_time_in_millis(self):
        return self.remaining_ms


class Extension:
    """A `leasekeeper` process. Its socket is where this process's LEASEKEEPER_SOCKET says."""

    def __init__(self, **settings):
        self.home = tempfile.mkdtemp(prefix="lk-")
        self.socket = os.path.join(self.home, "leasekeeper", "lock.sock")
        self.settings = {"LEASEKEEPER_STORE": "memory", "LEASEKEEPER_TABLE": "locks", **settings}
        self.start()

    def start(self):
        if not BINARY.is_file():
            raise RuntimeError(f"{BINARY} is not built: run `cargo build -p leasekeeper-extension` first")
        env = {**self.settings, "LEASEKEEPER_SOCKET": self.socket}
        with open(os.path.join(self.home, "log"), "ab") as log:
            self.process = subprocess.Popen([BINARY], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 20
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(self.socket)
                    return
                except OSError:
                    if time.monotonic() > end:
                        raise
            time.sleep(0.005)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.kill()
        shutil.rmtree(self.home)


class Scripted:
    """A socket whose connections are served by a function of the connection and its requests, each in a thread."""

    def __init__(self, serve):
        self.home = tempfile.mkdtemp(prefix="lk-")
        self.socket = os.path.join(self.home, "lock.sock")
        self.serve = serve
        self.requests = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket)
        self.listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection):
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                self.requests.append(request)
                try:
                    if self.serve(connection, request) is False:
                        return
                except OSError:
                    return

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        shutil.rmtree(self.home)


def reply(connection, request, **content):
    connection.sendall(json.dumps({"id": request["id"], **content}).encode() + b"\n")


def grant(connection, request, valid_ms=18_000):
    ok = {"lease": 7, "valid_ms": valid_ms, "lease_ms": 20_000, "owner": "own-1", "table": "locks", "token": 5}
    reply(connection, request, ok={**ok, "waited_ms": 0})


class Case(unittest.TestCase):
    """A test that leaves the environment variables as they were."""

    def setUp(self):
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        for name in [name for name in os.environ if name.startswith("LEASEKEEPER_")]:
            del os.environ[name]

    def at(self, server):
        """Leads the library to an extension or a script, until the test is over."""
        self.addCleanup(server.close)
        os.environ["LEASEKEEPER_SOCKET"] = server.socket
        return server


class Real(Case):
    """Tests against one real extension with rows in its memory."""

    @classmethod
    def setUpClass(cls):
        cls.extension = Extension()
        cls.addClassCleanup(cls.extension.close)

    def setUp(self):
        super().setUp()
        os.environ["LEASEKEEPER_SOCKET"] = self.extension.socket
