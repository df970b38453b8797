"""A worker outside Lambda, beside the sidecar `leasekeeper`, that shares a function and its lock with `batch.py`.

python3 worker.py CUSTOMER_ID...
"""

import sys

from customer import synchronize
from leasekeeper import Busy


def main() -> int:
    """Synchronizes each customer that nobody else is at."""
    skipped = 0
    for customer_id in sys.argv[1:]:
        try:
            print(f"{customer_id}: done by {synchronize(customer_id)['owner']}")
        except Busy as busy:
            skipped += 1
            print(f"{customer_id}: busy, free or taken over in at most {busy.retry_after} s unless it is renewed")
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
