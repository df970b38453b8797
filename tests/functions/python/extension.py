"""A stand-in extension for the sandbox's own tests: registers, logs every event, misbehaves as STANDIN asks.

STANDIN is a comma-separated list of:
  invoke           subscribe to INVOKE (always to SHUTDOWN)
  register-late    wait 300 ms before registering
  linger=MS        work for so long before asking for the next event after an INVOKE
  exit-on-invoke   exit 0 at an INVOKE
  ignore-shutdown  stay after SHUTDOWN
Standard library only.
"""

import http.client
import json
import os
import signal
import sys
import time

wishes = dict(part.partition("=")[::2] for part in os.environ.get("STANDIN", "").split(",") if part)


def ask(method, path, body=None, **headers):
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def log(*words):
    print("extension", *words, flush=True)


if "ignore-shutdown" in wishes:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
log("sees", sorted(os.environ))
log("cpus", sorted(os.sched_getaffinity(0)))
if "register-late" in wishes:
    time.sleep(0.3)
log("registering")
events = ["SHUTDOWN", "INVOKE"] if "invoke" in wishes else ["SHUTDOWN"]
name = os.path.basename(__file__)
status, headers, text = ask(
    "POST", "/2020-01-01/extension/register", json.dumps({"events": events}), **{"Lambda-Extension-Name": name}
)
if status != 200:
    log("refused", status, text)
    sys.exit(1)
log("registered", text)
identifier = headers["Lambda-Extension-Identifier"]

while True:
    try:
        status, headers, text = ask(
            "GET", "/2020-01-01/extension/event/next", **{"Lambda-Extension-Identifier": identifier}
        )
    except (OSError, http.client.HTTPException) as error:
        log("torn", type(error).__name__)
        continue
    log("got", status, text)
    try:
        event = json.loads(text)
    except ValueError:
        continue
    if event.get("eventType") == "INVOKE":
        log("invoke", event["requestId"])
        if "exit-on-invoke" in wishes:
            sys.exit(0)
        time.sleep(int(wishes.get("linger", 0)) / 1000)
    elif event.get("eventType") == "SHUTDOWN":
        log("shutdown", event["shutdownReason"], event["deadlineMs"] - time.time_ns() // 1_000_000)
        if "ignore-shutdown" not in wishes:
            sys.exit(0)
