"""What must never run twice at once for one customer, wherever it runs: imported by `batch.py` and by `worker.py`."""

import time
from typing import Any, Dict

from leasekeeper import Lock, current_lease, locked


@locked("customer:{customer_id}", wait=0)
def synchronize(customer_id: str, work_ms: int = 100) -> Dict[str, Any]:
    """Raises `leasekeeper.Busy` at once if somebody else does it."""
    lease = current_lease(Lock)
    time.sleep(work_ms / 1000)
    lease.check()
    return {"customer_id": customer_id, "owner": lease.owner}
