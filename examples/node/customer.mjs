// A function that Lambda and a worker outside of it share: whoever calls it, one customer is synchronised by one caller at a time.

import { setTimeout as work } from 'node:timers/promises';
import { currentLease, locked } from 'leasekeeper';

export const synchronizeCustomer = locked({ key: 'customer:{id}', values: { id: (id) => id } }, async (id, context) => {
  await work(20);
  await currentLease().check();
  return { id, by: context ? 'function' : 'worker', owner: currentLease().owner };
});

export const handler = (event, context) => synchronizeCustomer(event.customer_id, context);
