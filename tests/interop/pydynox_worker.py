"""Drives pydynox's distributed lock by one JSON line a command, so that a test can let it compete with others.

Commands on standard input, one answer each on standard output (`{"ok": ...}` or `{"error": CLASS, "message": TEXT}`):

  {"op": "acquire", "guard": NAME, "key": KEY, "lease": SECONDS, "wait": SECONDS}
  {"op": "check", "guard": NAME}             is the guard still valid, by its own clock?
  {"op": "transact", "guard": NAME, "table": TABLE, "item": {...}}   a Put that commits only under the guard
  {"op": "release", "guard": NAME}
  {"op": "metrics", "guard": NAME}
  {"op": "crash"}                            ends at once without giving anything back; no answer

Region, credentials and endpoint come from the environment. The end of standard input ends it like a crash.
"""

import json
import os
import sys

from pydynox import DynamoDBClient
from pydynox.lock import SyncDistributedLock
from pydynox.transaction import SyncTransaction

COUNTS = (
    "read_requests",
    "write_requests",
    "conditional_failures",
    "request_failures",
    "renewals",
    "consumed_rcu",
    "consumed_wcu",
    "lost",
)


class Worker:
    def __init__(self):
        self.client = DynamoDBClient(
            region=os.environ["AWS_REGION"],
            access_key=os.environ["AWS_ACCESS_KEY_ID"],
            secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=os.environ["AWS_ENDPOINT_URL_DYNAMODB"],
        )
        self.table = os.environ["LEASEKEEPER_TABLE"]
        self.guards = {}

    def acquire(self, guard, key, lease, wait):
        lock = SyncDistributedLock(self.client, table=self.table, key=key, lease_duration=lease, wait_timeout=wait)
        lock.__enter__()
        self.guards[guard] = lock
        # The condition that the guard would add to a transaction names its owner.
        return lock._native.condition_check()

    def check(self, guard):
        self.guards[guard].raise_if_lost()

    def transact(self, guard, table, item):
        with SyncTransaction(self.client) as transaction:
            self.guards[guard].check_in(transaction)
            transaction.put(table, item)

    def release(self, guard):
        self.guards.pop(guard).__exit__(None, None, None)

    def metrics(self, guard):
        metrics = self.guards[guard].metrics
        return {name: getattr(metrics, name) for name in COUNTS}

    def crash(self):
        os._exit(9)


def main():
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        operation = getattr(worker, command.pop("op"))
        try:
            answer = {"ok": operation(**command)}
        except Exception as error:  # every failure is the test's to judge
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)
    os._exit(9)


main()
