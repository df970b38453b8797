// An SQS batch, each message under its customer's lock. A message whose lock is busy goes back to the queue, and it alone.

import { setTimeout as work } from 'node:timers/promises';
import { LockError, locked } from 'leasekeeper';

const processOrder = locked(
  { key: 'customer:{id}', values: { id: (order) => order.customer_id }, waitMs: 0 },
  async (order) => {
    await work(order.work_ms ?? 20);
  },
);

export async function handler({ Records }, context) {
  const batchItemFailures = [];
  for (const { messageId, body } of Records) {
    try {
      // The context as the second argument binds the lock to this invocation.
      await processOrder(JSON.parse(body), context);
    } catch (error) {
      // A lock that is busy is not the message's fault: it comes again when its visibility time-out is over.
      if (!(error instanceof LockError)) console.error(error);
      batchItemFailures.push({ itemIdentifier: messageId });
    }
  }
  return { batchItemFailures };
}
