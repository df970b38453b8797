"""The tests' Python function: what its event names happens under the lock `key`, with the package of the layer."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
from leasekeeper import AsyncLock, Lock, current_lease, locked

# What an invocation left behind.
kept = []


def spin(ms):
    """Nothing else runs meanwhile, as far as one thread can see to it."""
    end = time.monotonic() + ms / 1_000
    while time.monotonic() < end:
        pass


def fail(message):
    raise ArithmeticError(message)


def leak(key):
    """Another lock, which nobody gives back."""
    kept.append(Lock(key).acquire())


def pool(keys):
    """Locks taken in threads that know nothing of the invocation."""
    with ThreadPoolExecutor(len(keys)) as threads:
        list(threads.map(locked("{key}")(lambda key: time.sleep(0.05)), keys))


def loop(key):
    """A lock taken in an event loop."""

    @locked("{key}")
    async def work(key):
        await current_lease(AsyncLock).check()

    asyncio.run(work(key))


def guarded(form):
    """A transaction with the ownership check, while the lock is held and after it: what boto3 makes of both."""
    resource = boto3.resource("dynamodb", region_name=os.environ["AWS_REGION"])
    client = (
        resource.meta.client if form == "resource" else boto3.client("dynamodb", region_name=os.environ["AWS_REGION"])
    )
    effect = {"key": "effect"} if form == "resource" else {"key": {"S": "effect"}}
    lock = Lock("guarded").acquire()
    items = [lock.condition_check(resource=form == "resource"), {"Put": {"TableName": "orders", "Item": effect}}]
    answers = [transact(client, items)]
    lock.release()
    return [*answers, transact(client, items)]


def transact(client, items):
    try:
        client.transact_write_items(TransactItems=items)
    except client.exceptions.TransactionCanceledException as cancelled:
        return [reason["Code"] for reason in cancelled.response["CancellationReasons"]]
    return "done"


DEEDS = {
    "sleep": lambda ms: time.sleep(ms / 1_000),
    "spin": spin,
    "exit": os._exit,
    "fail": fail,
    "leak": leak,
    "pool": pool,
    "loop": loop,
    "guarded": guarded,
}


@locked(lambda event, context: event["key"])
def work(event, context):
    lease = current_lease(Lock)
    print("held", flush=True)
    did = [DEEDS[deed](argument) for deed, argument in event.get("deeds", [])]
    valid = lease.check()
    return {
        "owner": lease.owner,
        "valid": valid,
        "remaining": lease.remaining(),
        "renewals": lease.metrics().renewals,
        "threads": threading.active_count(),
        "did": did,
    }


def handler(event, context):
    if "key" in event:
        return work(event, context)
    lock = kept.pop()
    remaining = lock.remaining()
    told = lock.lost.wait(2)
    try:
        lock.check()
        reason = None
    except Exception as error:
        reason = error.reason
    lock._connection.close()
    return {"remaining": remaining, "told": told, "reason": reason}
