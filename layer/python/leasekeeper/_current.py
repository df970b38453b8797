"""Which lock the running code is under."""

from __future__ import annotations

from typing import Any, Type, TypeVar, Union, overload

from ._async_lock import AsyncLock
from ._lease import Lease, current
from ._lock import Lock

L = TypeVar("L", Lock, AsyncLock)


@overload
def current_lease() -> Union[Lock, AsyncLock]: ...
@overload
def current_lease(kind: Type[L]) -> L: ...
def current_lease(kind: Any = Lease) -> Any:
    """The innermost lock that this code runs under: of a :func:`locked` function or of a block.

    `current_lease(Lock)` and `current_lease(AsyncLock)` say which kind is expected, to type checkers too.

    Raises LookupError if there is none, TypeError if it is of the other kind.
    """
    lease = current.get()
    if lease is None:
        raise LookupError("this code does not run under a lock")
    if not isinstance(lease, kind):
        raise TypeError(
            f"the lock that this code runs under is of the kind {type(lease).__name__}, not {kind.__name__}"
        )
    return lease
