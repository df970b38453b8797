"""Runs the vectors in Python: the library of layer/python, the client of docs/SOCKET.md, and pydynox's key templates."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GRANT = {"lease": 7, "valid_ms": 1, "lease_ms": 100, "owner": "o", "table": "t", "token": None, "waited_ms": 0}

# Runs under the interpreter that has pydynox: cases in, keys (or null for an error) out.
PYDYNOX = """
import json, sys
from pydynox.pydynox_core import LockKeyTemplate
def key(case):
    parameters = [(name, 1, False, None) for name in case["values"]]
    try:
        return LockKeyTemplate(case["template"], parameters, 20.0, 1.0).resolve((), case["values"])
    except ValueError:
        return None
json.dump([key(case) for case in json.load(sys.stdin)], sys.stdout)
"""


def written_out(value):
    """The value with every <<TEXT*N>> in it written out."""
    if isinstance(value, str):
        return re.sub(r"<<(.+?)\*(\d+)>>", lambda match: match[1] * int(match[2]), value)
    if isinstance(value, list):
        return [written_out(item) for item in value]
    if isinstance(value, dict):
        return {name: written_out(item) for name, item in value.items()}
    return value


def cases(file):
    return written_out(json.loads((HERE / file).read_text(encoding="utf-8"))["cases"])


def page_client():
    """The client as docs/SOCKET.md shows it."""
    page = (ROOT / "docs/SOCKET.md").read_text(encoding="utf-8")
    module = types.ModuleType("page_client")
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], module.__dict__)
    return module


def serve_once(listener, line):
    """Answers one request with a line, and with a grant and an ending after it."""
    connection, _ = listener.accept()
    with connection:
        connection.makefile("rb").readline()
        grant = json.dumps({"id": 1, "ok": GRANT})
        connection.sendall(line.rstrip("\n").encode() + b"\n" + grant.encode() + b"\n")


def meets(client, line):
    """What the client's first request makes of a line that comes before its grant."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        os.environ["LEASEKEEPER_SOCKET"] = f"{directory}/lock.sock"
        listener.bind(os.environ["LEASEKEEPER_SOCKET"])
        listener.listen()
        server = threading.Thread(target=serve_once, args=(listener, line))
        server.start()
        try:
            lock = client.Lock("k", wait_ms=0)
            lock._socket.close()
            return lock._granted
        except client.LockError as error:
            return {"code": error.code, **error.details}
        finally:
            server.join()


def expected(case):
    """What the client's first request must make of a case's line."""
    if "broken" in case:
        return {"code": "extension_missing"}
    reply = case.get("reply", {})
    if reply.get("id", 1) not in (1, None) or not reply:
        return GRANT  # About another request, or none: passed over.
    if "ok" in reply:
        return reply["ok"]
    # A raw client hands the line's own words through; the message is in the error's text.
    return {name: value for name, value in json.loads(case["line"])["error"].items() if name != "message"}


def library():
    """Every file's cases against the library: name, what it makes of the case, and what it must."""
    sys.path.insert(0, str(ROOT / "layer/python"))
    import library

    return library.results(cases)


def main():
    failures = []
    count = 0

    def check(name, got, wanted):
        nonlocal count
        count += 1
        if got != wanted:
            failures.append(f"{name}: {got!r}, not {wanted!r}")

    for case in cases("requests_valid.json"):
        said = {"request_id": None, "remaining_ms": None, "wait_ms": None, "lease_ms": None}
        said = {**said, **json.loads(case["line"])} if case["decoded"]["op"] == "acquire" else json.loads(case["line"])
        check(case["name"], said, {"v": 1, **case["decoded"]})
    client = page_client()
    for case in cases("server_lines.json"):
        check(case["name"], meets(client, case["line"]), expected(case))
    keys = cases("keys.json")
    pydynox = ROOT / ".tools/pydynox/bin/python"
    if not pydynox.exists():
        sys.exit("pydynox is needed for the keys: run `make tools` first")
    run = [pydynox, "-c", PYDYNOX]
    given = json.loads(
        subprocess.run(run, input=json.dumps(keys), text=True, check=True, stdout=subprocess.PIPE).stdout
    )
    for case, key in zip(keys, given, strict=True):
        check(case["name"], key, case.get("key"))

    for name, got, wanted in library():
        check(f"library: {name}", got, wanted)

    for failure in failures:
        print(f"failed: {failure}")
    print(f"{count - len(failures)} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
