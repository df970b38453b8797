"""Distributed locks for AWS Lambda functions, kept alive outside the handler.

A handler asks the Leasekeeper extension, which runs beside it in the same environment, for a lock over a Unix socket. The
extension acquires it in DynamoDB, renews it however busy the handler is, tells if it is ever lost, and gives it back
before the response is posted, on a crash and on a time-out::

    from leasekeeper import current_lease, locked

    @locked("customer:{customer_id}", customer_id=lambda event, context: event["customer_id"])
    def handler(event, context):
        ...
        current_lease().condition_check()  # for your own DynamoDB transaction
"""

from ._async_lock import AsyncLock
from ._current import current_lease
from ._errors import (
    BudgetExhausted,
    Busy,
    Config,
    Denied,
    ExtensionMissing,
    ForeignRow,
    ForkedGuard,
    Holder,
    LockError,
    Lost,
    Metrics,
    Protocol,
    ReleaseUnconfirmed,
    Unavailable,
    Unknown,
)
from ._invocation import invocation, lambda_handler
from ._keys import KeyTemplate
from ._lock import Lock
from ._locked import locked

__version__ = "0.1.0"

__all__ = [
    "AsyncLock",
    "BudgetExhausted",
    "Busy",
    "Config",
    "Denied",
    "ExtensionMissing",
    "ForeignRow",
    "ForkedGuard",
    "Holder",
    "KeyTemplate",
    "Lock",
    "LockError",
    "Lost",
    "Metrics",
    "Protocol",
    "ReleaseUnconfirmed",
    "Unavailable",
    "Unknown",
    "current_lease",
    "invocation",
    "lambda_handler",
    "locked",
]


def _belong_here() -> None:
    """Where applications find them is what a traceback names and a pickle looks up."""
    for name in __all__:
        globals()[name].__module__ = __name__


_belong_here()
