"""An SQS batch: messages of customers that are busy are reported, and come again; the others are done."""

import json
from typing import Any, Dict

from customer import synchronize
from leasekeeper import Busy, lambda_handler


@lambda_handler  # The locks belong to this invocation, and wait no longer than it has.
def handler(event: Dict[str, Any], context: object) -> Dict[str, Any]:
    """What SQS expects of a function with `ReportBatchItemFailures`."""
    failures = []
    for record in event["Records"]:
        try:
            synchronize(**json.loads(record["body"]))
        except Exception as error:  # Whatever it is, this message comes again, and it alone.
            if not isinstance(error, Busy):
                print(f"message {record['messageId']} failed: {type(error).__name__}: {error}")
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
