"""A small function that does its work under a lock, with nothing but the standard library."""

import json
import os
import socket
import time


class LockError(Exception):
    """What the extension answered: `code` to branch on, `details` with reason, holder or retry_after_ms where known."""

    def __init__(self, code="unknown", message="", **details):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.details = details


class Lock:
    """One lease on a connection of its own, for one thread at a time. Its process's death gives it back."""

    def __init__(self, key, context=None, wait_ms=2000):
        self._granted = None
        self._number = 0
        self._socket = socket.socket(socket.AF_UNIX)
        fields = {"key": key, "wait_ms": wait_ms}
        if context is not None:  # Under Lambda both are required: they bind the lease to the invocation.
            fields["request_id"] = context.aws_request_id
            fields["remaining_ms"] = max(0, int(context.get_remaining_time_in_millis()))
        try:
            self._socket.settimeout(wait_ms / 1000 + 4)
            path = os.environ.get("LEASEKEEPER_SOCKET", "/tmp/leasekeeper/lock.sock")
            try:
                self._socket.connect(path)
            except OSError as error:
                raise LockError("extension_missing", f"nothing answers on {path}: {error}") from error
            self._lines = self._socket.makefile("rb")
            self._granted = self._ask("acquire", wait_ms / 1000 + 4, **fields)
        except BaseException:
            self._socket.close()
            raise
        self.owner = self._granted["owner"]
        self.waited_ms = self._granted["waited_ms"]

    def check(self):
        """Asks whether the lock is still held, and returns for how many more seconds it is at least."""
        asked = time.monotonic()  # Before the request is sent: what the answer spends on its way is not ours to use.
        valid_ms = self._ask("check", 5, lease=self._granted["lease"])["valid_ms"]
        return valid_ms / 1000 - (time.monotonic() - asked)

    def release(self):
        """Gives the lock back. Fails with `lost` if it was lost before: then the work was not protected to its end."""
        try:
            self._ask("release", 1, lease=self._granted["lease"])
        except LockError as error:
            if error.code != "release_unconfirmed":
                raise
            print(f"the work is done; {error}")  # The extension goes on trying, and the lease's end frees the lock.
        finally:
            self._lines.close()
            self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            self.release()
        except LockError:
            if kind is None:  # The body's own error is never replaced.
                raise

    def _ask(self, op, timeout_s, **fields):
        self._number += 1
        request = {"v": 1, "id": self._number, "op": op, **fields}
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while (line := self._lines.readline()).endswith(b"\n"):
                reply = json.loads(line)
                if not isinstance(reply, dict):
                    raise ValueError("a line that is no JSON object")
                if "event" in reply:  # Comes unasked; `check` tells what matters.
                    continue
                if "ok" in reply and reply.get("id") == self._number:
                    return reply["ok"]
                # An error without an id is about a line that could not be read: this one.
                if "error" in reply and reply.get("id") in (self._number, None):
                    raise LockError(**reply["error"])
            problem = "the extension closed the connection"
        except TimeoutError:
            problem = f"no answer to {op} within {timeout_s} s"
            if op == "release":
                raise LockError("release_unconfirmed", problem) from None
        except (OSError, ValueError) as error:  # Gone, or out of step: either way it cannot be talked to.
            problem = f"the extension is gone: {error}"
        if self._granted:
            raise LockError("lost", problem, reason="extension_failed")
        raise LockError("extension_missing", problem)


def handler(event, context):
    """Locks the customer, works for `work_ms`, and gives the lock back before it answers."""
    customer_id = event["customer_id"]
    with Lock(f"customer:{customer_id}", context) as lock:
        time.sleep(event.get("work_ms", 100) / 1000)
        lock.check()
    return {"customer_id": customer_id, "owner": lock.owner, "waited_ms": lock.waited_ms}
