"""Which invocation a lock belongs to, and how much of it is left."""

from __future__ import annotations

import functools
import inspect
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable, Iterator, List, Optional, TypeVar, cast

from ._errors import Protocol
from ._wire import MAX_REQUEST_ID

F = TypeVar("F", bound=Callable[..., Any])


class Invocation:
    """One invocation of a Lambda function, from what its context tells."""

    __slots__ = ("_tell", "request_id")

    def __init__(self, request_id: str, remaining_ms: Callable[[], float]) -> None:
        try:
            length = len(request_id.encode())
        except UnicodeEncodeError:
            length = 0
        if not 0 < length <= MAX_REQUEST_ID:
            raise Protocol(f"the invocation's request id must be 1 to {MAX_REQUEST_ID} bytes of UTF-8")
        self.request_id = request_id
        self._tell = remaining_ms

    def remaining(self) -> int:
        """How many milliseconds are left."""
        return max(0, int(self._tell()))


def of_context(context: object) -> Optional[Invocation]:
    """The invocation of something that looks like a Lambda context; None if it does not."""
    request_id = getattr(context, "aws_request_id", None)
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    if not isinstance(request_id, str) or not callable(remaining):
        return None
    return Invocation(request_id, cast(Callable[[], float], remaining))


def of_arguments(arguments: Any) -> Optional[Invocation]:
    """The invocation of the first argument that looks like a Lambda context, if any does."""
    for argument in arguments:
        invocation = of_context(argument)
        if invocation is not None:
            return invocation
    return None


_current: ContextVar[Optional[Invocation]] = ContextVar("leasekeeper_invocation", default=None)

# Every invocation that runs now. Threads of a pool have no context variables of the handler's; where one invocation
# runs in the process, as Lambda has it, it is theirs.
_running: List[Invocation] = []
_changing = threading.Lock()


def current() -> Optional[Invocation]:
    """The invocation that this code runs in."""
    invocation = _current.get()
    if invocation is None:
        running = _running[:]
        invocation = running[0] if len(running) == 1 else None
    return invocation


@contextmanager
def entered(invocation: Optional[Invocation]) -> Iterator[None]:
    """Code in this block runs in that invocation; None changes nothing."""
    if invocation is None:
        yield
        return
    token = _current.set(invocation)
    with _changing:
        # A locked function inside a handler is passed the same context: one invocation all the same.
        outer = any(running.request_id == invocation.request_id for running in _running)
        if not outer:
            _running.append(invocation)
    try:
        yield
    finally:
        if not outer:
            with _changing:
                _running.remove(invocation)
        try:
            _current.reset(token)
        except ValueError:
            pass  # An abandoned coroutine is closed in another context than it ran in.


def invocation(context: object) -> Any:
    """A context manager: locks taken inside it belong to this Lambda invocation.

    For handlers that are not :func:`locked` or :func:`lambda_handler` themselves. `context` is Lambda's.
    """
    found = of_context(context)
    if found is None:
        raise TypeError("`context` has no `aws_request_id` and `get_remaining_time_in_millis`: it is no Lambda context")
    return entered(found)


def lambda_handler(handler: F) -> F:
    """Decorates a handler that takes no lock itself: locks taken by what it calls belong to its invocation.

    A handler under :func:`locked` needs no such thing.
    """
    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            with entered(of_arguments((*args, *kwargs.values()))):
                return await handler(*args, **kwargs)

        return cast(F, asynchronous)

    @functools.wraps(handler)
    def synchronous(*args: Any, **kwargs: Any) -> Any:
        with entered(of_arguments((*args, *kwargs.values()))):
            return handler(*args, **kwargs)

    return cast(F, synchronous)
