"""The tests' Python function that asks for a lock where there is no invocation: as a module, and in the hooks of SnapStart."""

from leasekeeper import Lock, LockError, current_lease, locked

told = []


def ask(when):
    try:
        Lock("init").acquire().release()
        told.append({"when": when})
    except LockError as refused:
        told.append({"when": when, "code": refused.code, "message": str(refused)})


try:
    from snapshot_restore_py import register_after_restore, register_before_snapshot
except ImportError:
    pass  # Only AWS's own runtime client brings it.
else:
    register_before_snapshot(ask, "before the snapshot")
    register_after_restore(ask, "after the restore")

ask("init")


@locked(lambda event, context: event["key"])
def handler(event, context):
    return {"owner": current_lease(Lock).owner, "told": told}
