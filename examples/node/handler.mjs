// A small function that does its work under a lock: the customer's, for as long as the handler runs.

import { setTimeout as work } from 'node:timers/promises';
import { currentLease, locked } from 'leasekeeper';

/** The lock's key; an event without a customer must not lock the customer "undefined". */
function key({ customer_id }) {
  if (typeof customer_id !== 'string') throw new TypeError('the event has no customer_id');
  return `customer:${customer_id}`;
}

export const handler = locked({ key, waitMs: 2_000 }, async ({ customer_id, work_ms = 100 }) => {
  const lease = currentLease();
  await work(work_ms);
  await lease.check(); // Asked of the extension, not guessed.
  return { customer_id, owner: lease.owner, waited_ms: lease.waitedMs };
});
