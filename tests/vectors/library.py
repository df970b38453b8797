"""The vectors against the Python library; part of run.py."""

import dataclasses
import inspect
import json

import leasekeeper
from leasekeeper import KeyTemplate, LockError, _budget, _clock, _errors, _wire
from leasekeeper._settings import Settings
from leasekeeper._state import Phase, State

REQUEST_FIELDS = ("key", "request_id", "remaining_ms", "wait_ms", "lease_ms")


def results(cases):
    """(name, got, wanted) of every case."""
    for case in cases("requests_valid.json"):
        yield case["name"], encoded(case["decoded"]), {"v": 1, **case["decoded"]}
    for case in cases("server_lines.json"):
        yield case["name"], decoded(case["line"]), {k: v for k, v in case.items() if k not in ("name", "line")}
    for case in cases("words.json"):
        known = _wire.known_code if case["kind"] == "code" else _wire.known_reason
        yield case["name"], known(case["word"]), case["read_as"]
        if case["kind"] == "code":
            yield f"the error of {case['name']}", _wire.Failure(known(case["word"])).error().code, case["read_as"]
    classes = [c for _, c in inspect.getmembers(leasekeeper, inspect.isclass) if issubclass(c, LockError)]
    yield "the codes that have a class", {c.code for c in classes}, {*_errors.BY_CODE, "unknown"}
    for case in cases("keys.json"):
        yield case["name"], rendered(case["template"], case["values"]), case.get("key") or {"error": case["error"]}
    for case in cases("budgets.json"):
        yield case["name"], *planned(case)
    for case in cases("guard.json"):
        yield from Guard().run(case)


def planned(case):
    """What the library makes of a wish for time, and what it must."""
    wishes = _budget.Wishes(case.get("wait_ms"), case.get("lease_ms"), case.get("reserve_ms"))
    settings = Settings("", False, case.get("setting_wait_ms"), case.get("setting_lease_ms"))
    expected = {name: case[name] for name in ("sent_ms", "bound_ms", "error") if name in case}
    try:
        plan = _budget.plan(wishes, settings, case["remaining_ms"])
    except LockError as error:
        return {"error": error.code}, expected
    return {"sent_ms": plan.wait, "bound_ms": plan.bound}, expected


def encoded(request):
    """What the library writes for a request, absent fields null."""
    request = dict(request)
    line = _wire.encode(request.pop("id"), request.pop("op"), request)
    absent = dict.fromkeys(name for name in REQUEST_FIELDS if name in request)
    return {**absent, **json.loads(line)}


def decoded(line):
    """A line from the extension in the vectors' form."""
    try:
        read = _wire.decode(line.encode())
    except ValueError:
        return {"broken": True}
    if read is None:
        return {"ignored": True}
    if isinstance(read, _wire.Event):
        event = {"event": read.name, "lease": read.lease}
        if read.within_ms is not None:
            event["within_ms"] = read.within_ms
        return {"event": event if read.reason is None else {**event, "reason": read.reason}}
    if read.failure is None:
        return {"reply": {"id": read.id, "ok": read.ok}}
    error = {name: value for name, value in dataclasses.asdict(read.failure).items() if value is not None}
    if "holder" in error:
        error["holder"] = {name: value for name, value in error["holder"].items() if value is not None}
    return {"reply": {"id": read.id, "error": error}}


def rendered(template, values):
    try:
        return KeyTemplate(template).render(values)
    except LockError as error:
        return {"error": error.code}


def code(error):
    return None if error is None else error.code


class Guard:
    """One case of guard.json."""

    def __init__(self):
        self.clocks = {"boot": 1_000_000, "mono": 2_000_000, "wall": 3_000_000}
        self.read, _clock.read = _clock.read, lambda: tuple(ms * 1_000_000 for ms in self.clocks.values())
        self.state = State()
        self.stuck = False
        self.answers = {}
        self.sent = []

    def run(self, case):
        try:
            for number, step in enumerate(case["steps"], 1):
                if "expect" in step:
                    expect = step["expect"]
                    got = {what: self.tell(what, value) for what, value in expect.items()}
                    yield f"{case['name']} (step {number})", got, expect
                else:
                    self.step(step)
        finally:
            _clock.read = self.read

    def step(self, step):
        self.stuck = self.stuck or step.get("stuck", False)
        state = self.state
        for clock, ms in step.get("pass", {}).items():
            self.clocks[clock] += ms
        if step.get("send") == "release":
            state.release()
        elif "send" in step:
            arguments = {"key": "k"} if step["send"] == "acquire" else {"lease": 7}
            answer = state.ask(step["send"], arguments)
            self.answers[str(state._last_id)] = answer
        elif "receive" in step:
            state.arrived(step["receive"].encode())
        elif "look" in step:
            state.remaining()
        elif "end" in step:
            state.end()
        elif "close" in step:
            state.close()
        elif "give_up" in step:
            state.give_up_release()
        if not self.stuck:
            self.sent += [json.loads(line)["op"] for line in state.unwritten.splitlines()]
            state.unwritten.clear()

    def tell(self, what, expected):
        state = self.state
        if what == "phase":
            return state.phase.value
        if what == "remaining_ms":
            return state.remaining() / 1_000_000
        if what == "reason":
            return state.problem().reason if state.phase is Phase.LOST else None
        if what == "use":
            return code(state.problem())
        if what == "release":
            return code(state.released())
        if what == "sent":
            sent, self.sent = self.sent, []
            return sent
        answers = {number: self.answers[number] for number in expected}
        return {n: code(a.error) or "ok" if a.done else None for n, a in answers.items()}
