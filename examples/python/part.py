"""A function that holds the lock around a part of its work only: others wait for that part, and for no more."""

import time
from typing import Any, Dict

from leasekeeper import Lock


def handler(event: Dict[str, Any], context: object) -> Dict[str, Any]:
    """Reads without the lock, writes under it."""
    time.sleep(event.get("read_ms", 100) / 1000)
    with Lock(f"customer:{event['customer_id']}", context=context) as lock:
        time.sleep(event.get("write_ms", 20) / 1000)
        lock.check()
        owner = lock.owner
    return {"customer_id": event["customer_id"], "owner": owner}
