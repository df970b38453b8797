"""The function that `scripts/check-aws` invokes on real Lambda: does what its event names, and tells what it sees.

Standard library and the layer's package only.
"""

import json
import os
import select
import socket
import struct
import time

from leasekeeper import Lock

CLOCKS = {"boot": time.CLOCK_BOOTTIME, "monotonic": time.CLOCK_MONOTONIC, "wall": time.CLOCK_REALTIME}
kept = []


def handler(event, context):
    """`event["do"]` names one of the functions below."""
    began = clocks()
    told = DEEDS[event["do"]](event, context)
    return {"began": began, "ended": clocks(), "told": told, "init": os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE")}


def clocks():
    return {name: time.clock_gettime(clock) for name, clock in CLOCKS.items()}


def nothing(event, context):
    return None


def lock(event, context):
    """Takes the lock and gives it back."""
    began = time.monotonic()
    with Lock(event["key"], context=context) as held:
        took = time.monotonic() - began
        held.check()
        return {"owner": held.owner, "took_ms": took * 1000}


def ids(event, context):
    """Who this process is, who answers on the socket, and what of it can be seen."""
    with connect() as client:
        pid, uid, gid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    processes = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                processes[entry] = file.read().replace(b"\0", b" ").decode(errors="replace").strip()[:80]
        except OSError as error:
            processes[entry] = str(error)
    return {
        "handler": {"pid": os.getpid(), "parent": os.getppid(), "uid": os.getuid(), "gid": os.getgid()},
        "extension": {"pid": pid, "uid": uid, "gid": gid, "pid_namespace": namespace(pid)},
        "pid_namespace": namespace("self"),
        "pidfd": pidfd(pid),
        "kernel": os.uname().release,
        "processes": processes,
    }


def namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError as error:
        return str(error)


def pidfd(pid):
    """Does the kernel give a descriptor for the other process?"""
    try:
        os.close(os.pidfd_open(pid))
    except (AttributeError, OSError) as error:
        return str(error)
    return "yes"


def connect():
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.environ.get("LEASEKEEPER_SOCKET", "/tmp/leasekeeper/lock.sock"))
    return client


def leak(event, context):
    """Takes the lock on a connection that stays open, and leaves it so."""
    client = connect()
    remaining = context.get_remaining_time_in_millis()
    request = {"op": "acquire", "key": event["key"], "request_id": context.aws_request_id, "remaining_ms": remaining}
    client.sendall(json.dumps({"v": 1, "id": 1, "lease_ms": event["lease_ms"], **request}).encode() + b"\n")
    reply = json.loads(client.makefile("r").readline())
    kept.append(client)
    return reply


def leaked(event, context):
    """What has come on the connection that was left open: lines, as they are."""
    client, lines, end = kept.pop(), b"", time.monotonic() + 1
    while select.select([client], [], [], max(0, end - time.monotonic()))[0]:
        part = client.recv(65536)
        if not part:
            break
        lines += part
    client.close()
    return [json.loads(line) for line in lines.splitlines()]


def leave(event, context):
    """Ends the process with the lock in its hands, once it can have been seen there."""
    leak(event, context)
    time.sleep(1)
    os._exit(3)


def hang(event, context):
    """Is still at it, lock in hand, when the function's time is over."""
    leak(event, context)
    time.sleep(600)


DEEDS = {deed.__name__: deed for deed in (nothing, lock, ids, leak, leaked, leave, hang)}
