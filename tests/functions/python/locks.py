"""The tests' Python function: what its event names happens under the lock `key`, with the package of the layer."""

import asyncio
import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from leasekeeper import AsyncLock, Lock, LockError, Lost, current_lease, locked

# What an invocation left behind.
kept = []


def spin(ms):
    """Nothing else runs meanwhile, as far as one thread can see to it."""
    end = time.monotonic() + ms / 1_000
    while time.monotonic() < end:
        pass


def fail(message):
    raise ArithmeticError(message)


def word(label):
    """Tells the moment, on the clock that all processes share."""
    print("word", label, time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)


def checks(ms):
    """Asks again and again for so long whether the lock is held; tells when it was not."""
    end = time.monotonic() + ms / 1_000
    while time.monotonic() < end:
        try:
            current_lease(Lock).check()
        except LockError as error:
            print("refused", error.code, getattr(error, "reason", "none"), flush=True)
            word("refused")
            raise
        time.sleep(0.02)


def stay(ms):
    """Does not let itself be asked to end, gives a sign of life all the time, and tells when it hears that the lock is lost."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end, lease = time.monotonic() + ms / 1_000, current_lease(Lock)
    while time.monotonic() < end:
        try:
            if lease:
                lease.raise_if_lost()
        except Lost as lost:
            print("lost", lost.reason, flush=True)
            word("lost")
            lease = None
        word("alive")
        time.sleep(0.01)


def child(command):
    """A process that outlives this one, in a group of its own."""
    print("child", subprocess.Popen(["sh", "-c", command], start_new_session=True).pid, flush=True)


def fork(ms):
    """A forked child that uses its parent's lock while the parent lives, and when it has been dead for so long."""
    lease, parent = current_lease(Lock), os.getpid()
    if os.fork():
        return
    os.setsid()
    print("child", os.getpid(), flush=True)
    use_of_another(lease, "living")
    while os.getppid() == parent:
        time.sleep(0.001)
    time.sleep(ms / 1_000)
    use_of_another(lease, "dead")
    os._exit(0)


def use_of_another(lease, parent):
    for use in (lease.check, lease.remaining, lease.raise_if_lost, lease.lost.is_set, lease.release):
        try:
            told = f"said {use()}"
        except LockError as error:
            told = f"refused {type(error).__name__} {error.code}"
        print(f"child of a {parent} parent: {use.__name__} {told}", flush=True)


def leak(key):
    """Another lock, which nobody gives back."""
    kept.append(Lock(key).acquire())


def also(key):
    """Another lock, which is given back."""
    with Lock(key):
        pass


def empty(_):
    """Removes everything in the temporary directory."""
    for name in os.listdir(os.environ["TMPDIR"]):
        shutil.rmtree(os.path.join(os.environ["TMPDIR"], name))


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
    import boto3  # Takes longer to import than everything else here.

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
    "block": lambda ms: time.sleep(ms / 1_000),
    "spin": spin,
    "exit": os._exit,
    "abort": lambda _: os.abort(),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "word": word,
    "checks": checks,
    "stay": stay,
    "child": child,
    "fork": fork,
    "fail": fail,
    "leak": leak,
    "also": also,
    "empty": empty,
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


async def deeds(event):
    for deed, argument in event["deeds"]:
        await asyncio.sleep(argument / 1_000) if deed == "sleep" else DEEDS[deed](argument)


@locked(lambda event, context: event["key"])
async def work_in_loop(event, context):
    print("held", flush=True)
    await deeds(event)


def in_loop(event, context):
    """The same in an event loop, where it is given up after a time: cancelled, by someone around the lock."""
    call = work_in_loop(event, context) if "key" in event else deeds(event)
    return asyncio.run(asyncio.wait_for(call, event["give_up_ms"] / 1_000))


def handler(event, context):
    if "give_up_ms" in event:
        return in_loop(event, context)
    if "key" in event:
        return work(event, context)
    if "deeds" in event:
        return [DEEDS[deed](argument) for deed, argument in event["deeds"]]
    lock = kept[-1]
    remaining = lock.remaining()
    told = lock.lost.wait(2)
    try:
        lock.check()
        reason = None
    except Exception as error:
        reason = error.reason
    return {"remaining": remaining, "told": told, "reason": reason}
