"""A small function that does its work under a lock: the customer's, for as long as the handler runs."""

import time
from typing import Any, Dict

from leasekeeper import Lock, current_lease, locked


@locked("customer:{customer_id}", customer_id=lambda event, context: event["customer_id"], wait=2)
def handler(event: Dict[str, Any], context: object) -> Dict[str, Any]:
    """Works for `work_ms`."""
    lease = current_lease(Lock)
    time.sleep(event.get("work_ms", 100) / 1000)
    lease.check()  # Asked of the extension, not guessed.
    return {"customer_id": event["customer_id"], "owner": lease.owner, "waited_ms": round(lease.waited * 1000)}
