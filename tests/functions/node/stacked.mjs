// A handler as users of Middy and Powertools have it: idempotent by a table in DynamoDB, and under a lock.

import { DynamoDBPersistenceLayer } from '@aws-lambda-powertools/idempotency/dynamodb';
import { makeHandlerIdempotent } from '@aws-lambda-powertools/idempotency/middleware';
import { currentLease } from 'leasekeeper';
import { lock } from 'leasekeeper/middy';

const { default: middy } = await import(process.versions.node.startsWith('20.') ? 'middy6-core' : 'middy7-core');

export const handler = middy()
  .use(makeHandlerIdempotent({ persistenceStore: new DynamoDBPersistenceLayer({ tableName: 'idempotency' }) }))
  .use(lock({ key: 'customer:{id}', values: (event) => ({ id: event.customer_id }) }))
  .handler(async () => {
    await currentLease().check();
    return { owner: currentLease().owner };
  });
