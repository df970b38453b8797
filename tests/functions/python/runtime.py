"""A Runtime API loop whose handler does the steps that its event lists: the tests' hands inside a function.

The event is {"steps": [...]}; each step is an object with one of these under "do":
  send      a request line on the lock socket: {"do": "send", "line": {"op": "acquire", "key": "a"}}; "v", "id", an
            acquire's "request_id" and "remaining_ms" and the others' "lease" (the last granted) are added unless they are
            there; its reply goes into the answer
  text      a raw line as it is: {"do": "text", "text": "nonsense"}; its reply goes into the answer
  events    waits up to "ms" for an event other than the hint "renewed"; it, or null, goes into the answer
  say       prints "text", so that the test knows how far the handler is
  word      prints "label" with the moment, on the clock that all processes share
  tell      prints the last part of the answer, for a handler that will not get to give it
  sleep     for "ms"
  spin      "threads" processes keep the CPU busy for "ms"
  close     closes the connection
  keep      keeps the connection open after the invocation: a leak
  later     gives the lease back "ms" from now, in a thread that outlives the invocation
  await     waits until there is a file "name" in the temporary directory
  empty     removes everything in the temporary directory
  lend      a child gets the connection, by "fork" or by "spawn", and uses it when this process is dead: see heir.py
  crowd     so many connections more, each with a lock of its own for ever: {"do": "crowd", "count": 50, "prefix": "k"}
  allocate  takes memory for as long as the connection lives
  tmp       what is below the temporary directory goes into the answer
  fail      raises an error
  exit      ends the process with "code"
The connection is made at the first need and closed at the end. With AWS_LAMBDA_MAX_CONCURRENCY so many invocations run at
once, each with a connection of its own. Standard library only.
"""

import http.client
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time

import heir

API = os.environ["AWS_LAMBDA_RUNTIME_API"]
kept = threading.local()
crowd = []


def ask(connection, method, path, body=None):
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.headers, response.read().decode()


class Client:
    """One connection to the lock socket."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(os.environ["LEASEKEEPER_SOCKET"])
        self.unread = b""
        self.events = []
        self.next_id = 1
        self.lease = None

    def line(self, seconds=None):
        """The next line; None if it does not come in time or the connection ends."""
        self.socket.settimeout(seconds)
        while b"\n" not in self.unread:
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                return None
            if not more:
                return None
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    def reply(self):
        """The next line that is no event."""
        while (line := self.line()) is not None:
            if "event" not in line:
                return line
            self.events.append(line)
        return {"closed": True}

    def ended(self):
        """Has the other side closed the connection by now?"""
        if select.select([self.socket], [], [], 0)[0]:
            more = self.socket.recv(65536)
            self.unread += more
            return not more
        return False

    def event(self, seconds):
        end = time.monotonic() + seconds
        while True:
            line = self.events.pop(0) if self.events else self.line(max(0.001, end - time.monotonic()))
            if line is None or line["event"] != "renewed":
                return line

    def send(self, line, request_id, remaining_ms):
        line = {"v": 1, "id": self.next_id, **line}
        self.next_id += 1
        if line["op"] == "acquire":
            line = {"request_id": request_id, "remaining_ms": remaining_ms(), **line}
        elif line["op"] != "hello":
            line = {"lease": self.lease, **line}
        self.socket.sendall(json.dumps(line).encode() + b"\n")
        reply = self.reply()
        self.lease = reply.get("ok", {}).get("lease", self.lease)
        return reply

    def text(self, text):
        self.socket.sendall(text.encode() + b"\n")
        return self.reply()


def spin(threads, ms):
    """Busy processes, which no interpreter lock keeps from all of the CPU."""
    code = f"import time\nend = time.monotonic() + {ms / 1000}\nwhile time.monotonic() < end: pass"
    for busy in [subprocess.Popen([sys.executable, "-c", code]) for _ in range(threads)]:
        busy.wait()


def give_back_later(client, ms):
    def work():
        time.sleep(ms / 1000)
        print("gives back later", flush=True)
        print("later", json.dumps(client.send({"op": "release"}, None, None)), flush=True)
        client.socket.close()

    threading.Thread(target=work, daemon=True).start()


def lend(client, how):
    """Who inherits the connection is no part of this process's group, and lives on."""
    parent, descriptor = os.getpid(), client.socket.fileno()
    if how == "fork":
        if os.fork() == 0:
            os.setsid()
            print("child", os.getpid(), flush=True)
            heir.use(client.socket, client.lease, parent)
            os._exit(0)
    else:
        arguments = [sys.executable, heir.__file__, str(descriptor), str(client.lease), str(parent)]
        print("child", subprocess.Popen(arguments, pass_fds=[descriptor], start_new_session=True).pid, flush=True)


def run(steps, request_id, deadline_ms):
    client = getattr(kept, "client", None)
    kept.client = None
    keep = False
    answer = []
    try:
        for step in steps:
            do = step["do"]
            if do in ("send", "text", "events") and client is None:
                client = Client()
            if do == "send":
                remaining = lambda: max(0, deadline_ms - time.time_ns() // 1_000_000)
                answer.append(client.send(step["line"], request_id, remaining))
            elif do == "text":
                answer.append(client.text(step["text"]))
            elif do == "events":
                answer.append(client.event(step["ms"] / 1000))
            elif do == "say":
                print(step["text"], flush=True)
            elif do == "word":
                print("word", step["label"], time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
            elif do == "tell":
                # One write: other invocations' threads may tell at the same moment.
                sys.stdout.write(f"tells {json.dumps(answer[-1])}\n")
            elif do == "sleep":
                time.sleep(step["ms"] / 1000)
            elif do == "spin":
                spin(step["threads"], step["ms"])
            elif do == "close":
                client.socket.close()
                client = None
            elif do == "keep":
                keep = True
            elif do == "await":
                while not os.path.exists(os.path.join(os.environ["TMPDIR"], step["name"])):
                    time.sleep(0.002)
            elif do == "empty":
                for name in os.listdir(os.environ["TMPDIR"]):
                    shutil.rmtree(os.path.join(os.environ["TMPDIR"], name))
            elif do == "later":
                give_back_later(client, step["ms"])
                client = None
            elif do == "lend":
                lend(client, step["how"])
            elif do == "crowd":
                remaining = lambda: max(0, deadline_ms - time.time_ns() // 1_000_000)
                for number in range(step["count"]):
                    crowd.append(Client())
                    asked = {"op": "acquire", "key": f"{step['prefix']}{number}"}
                    answer.append(crowd[-1].send(asked, request_id, remaining))
            elif do == "allocate":
                taken = []
                while not client.ended():
                    # Whoever is killed leaves a megabyte or two: its end must be heard of before they are taken, too.
                    near = len(taken) >= 80
                    taken.append(b"x" * (50_000 if near else 1_000_000))
                    time.sleep(0.002 if near else 0)
            elif do == "tmp":
                root = os.environ["TMPDIR"]
                answer.append(sorted(os.path.join(at, f) for at, _, files in os.walk(root) for f in files))
            elif do == "fail":
                raise RuntimeError("as asked")
            elif do == "exit":
                os._exit(step["code"])
            else:
                raise ValueError(f"unknown step {do}")
    finally:
        if client is not None and not keep:
            client.socket.close()
        elif keep:
            kept.client = client
    return answer


def loop():
    # Without a time limit: the next event may be hours away.
    connection = http.client.HTTPConnection(API)
    while True:
        headers, body = ask(connection, "GET", "/2018-06-01/runtime/invocation/next")
        request_id = headers["Lambda-Runtime-Aws-Request-Id"]
        base = f"/2018-06-01/runtime/invocation/{request_id}"
        try:
            answer = run(json.loads(body)["steps"], request_id, int(headers["Lambda-Runtime-Deadline-Ms"]))
        except Exception as error:
            failure = {"errorType": type(error).__name__, "errorMessage": str(error)}
            ask(connection, "POST", f"{base}/error", json.dumps(failure))
        else:
            ask(connection, "POST", f"{base}/response", json.dumps(answer))


for _ in range(int(os.environ.get("AWS_LAMBDA_MAX_CONCURRENCY", "1")) - 1):
    threading.Thread(target=loop, daemon=True).start()
print("runtime sees", sorted(os.environ), flush=True)
print("runtime cpus", sorted(os.sched_getaffinity(0)), flush=True)
loop()
