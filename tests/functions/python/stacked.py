"""A handler as users of Powertools have it: idempotent by a table in DynamoDB, and under a lock."""

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, idempotent
from leasekeeper import current_lease, locked


@idempotent(persistence_store=DynamoDBPersistenceLayer(table_name="idempotency"))
@locked("customer:{customer_id}", customer_id=lambda event, context: event["customer_id"])
def handler(event, context):
    current_lease().check()
    return {"owner": current_lease().owner}
