"""What type checkers must make of the library: checked by mypy and pyright, never run."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Dict, Optional, Union

import leasekeeper
from leasekeeper import AsyncLock, Lock, current_lease, lambda_handler, locked
from leasekeeper.testing import FakeExtension
from typing_extensions import assert_type


@locked("customer:{customer_id}", customer_id=lambda event, context: event["customer_id"], wait=1.5, reserve=2)
def handler(event: Dict[str, str], context: object, *, lease: Optional[Lock] = None) -> int:
    return len(event)


@locked(lambda name: f"a:{name}", on_lost="notify", strict_release=True)
async def asynchronous(name: str) -> bytes:
    async with AsyncLock("b", on_lost="cancel") as inner:
        assert_type(await inner.check(), float)
        assert_type(await inner.lost.wait(), bool)
        assert_type(await inner.metrics(), leasekeeper.Metrics)
    return name.encode()


class Service:
    @locked("c:{name}")
    def method(self, name: str, count: int = 1) -> str:
        return name * count


@lambda_handler
def batch(event: Dict[str, Any], context: object) -> None:
    with leasekeeper.invocation(context), Lock("a") as lock:
        assert_type(lock, Lock)
        assert_type(lock.check(), float)
        assert_type(lock.lost.wait(1), bool)
        assert_type(lock.token, Optional[int])
        assert_type(lock.condition_check(resource=True), Dict[str, Any])


def uses() -> None:
    assert_type(handler({}, None), int)
    assert_type(Service().method("x", count=2), str)
    assert_type(current_lease(), Union[Lock, AsyncLock])
    assert_type(current_lease(AsyncLock), AsyncLock)
    assert_type(current_lease().remaining(), float)
    function: Callable[[str], Awaitable[bytes]] = asynchronous
    batch({}, function)
    try:
        handler({}, None)
    except leasekeeper.Busy as busy:
        assert_type(busy.retry_after, Optional[float])
        assert_type(busy.holder, Optional[leasekeeper.Holder])
    except leasekeeper.Lost as lost:
        assert_type(lost.reason, str)
    except leasekeeper.LockError as error:
        assert_type(error.code, str)
    with FakeExtension(capacity=1) as fake:
        assert_type(fake.lose("a"), bool)


def wrong_uses() -> None:
    handler(5, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Service().method(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    locked("c", wait="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AsyncLock("c", on_lost="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
