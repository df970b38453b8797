// What a TypeScript user writes, in an ES module; compiled, never run.

import type { TransactWriteItem } from '@aws-sdk/client-dynamodb';
import type { TransactWriteCommandInput } from '@aws-sdk/lib-dynamodb';
import {
  BusyError,
  currentLease,
  key,
  type Lease,
  LockError,
  type LockErrorCode,
  lock,
  locked,
  LostError,
  type LostReason,
  tryLock,
  withLock,
} from 'leasekeeper';
import { installDouble } from 'leasekeeper/testing';

interface Order {
  customer_id: string;
  tenant: string;
}
interface Context {
  awsRequestId: string;
  getRemainingTimeInMillis(): number;
  functionName: string;
}

export const handler = locked(
  { key: (event: Order) => `customer:${event.customer_id}` },
  async (event: Order, context: Context) => {
    const lease: Lease = currentLease();
    const left: number = await lease.check();
    return { left, name: context.functionName, customer: event.customer_id };
  },
);
const called: Promise<{ left: number; name: string; customer: string }> = handler(
  { customer_id: '1', tenant: 't' },
  { awsRequestId: 'r', getRemainingTimeInMillis: () => 1, functionName: 'f' },
);
export const templated = locked(
  {
    key: '{tenant}:{id}',
    values: { tenant: (e: Order) => e.tenant, id: async (e: Order) => e.customer_id },
    waitMs: 0,
    onLost: 'notify',
  },
  async (_event: Order) => 1,
);
export const all = locked({ key: '{id}', values: (id: string) => ({ id }) }, async (id: string) => id.length);

// @ts-expect-error: a misspelt option
locked({ key: 'k', wait: 1 }, async () => {});
// @ts-expect-error: a key that is no string
locked({ key: (_event: Order) => 7 }, async (_event: Order) => {});
// @ts-expect-error: a function that returns no promise
locked({ key: 'k' }, () => 42);
// @ts-expect-error: the wrapped function takes the handler's arguments
handler({ customer_id: '1', tenant: 't' });
// @ts-expect-error: an unknown way
void withLock('k', { onLost: 'cancel' }, async () => {});
// @ts-expect-error: it waits for nothing
void tryLock('k', { waitMs: 1 });
// @ts-expect-error: errors are made by the library
new LockError('busy');

const controller = new AbortController();
const result: string = await withLock('k', { signal: controller.signal, waitMs: 5 }, async (lease) => lease.owner);
const plain: number = await withLock('k', () => 1);
const lease = await lock(key('{a}:{b}', { a: '1', b: '2' }), {
  context: { awsRequestId: 'r', getRemainingTimeInMillis: () => 1 },
});
const reason: LostReason = await lease.lost;
const token: number | null = lease.token;
const item: TransactWriteItem = lease.conditionCheck();
const items: TransactWriteCommandInput['TransactItems'] = [lease.documentConditionCheck()];
const owner: string = lease.conditionCheck().ConditionCheck.ExpressionAttributeValues[':mine']?.S ?? '';
const mine: string | undefined = lease.documentConditionCheck().ConditionCheck.ExpressionAttributeValues[':mine'];
await fetch('http://localhost', { signal: lease.signal });

async function scoped(): Promise<void> {
  await using held = await lock('k');
  held.raiseIfLost();
}

try {
  await scoped();
} catch (error) {
  if (error instanceof BusyError) {
    const after: number | undefined = error.retryAfterMs;
    const code: 'busy' = error.code;
    console.log(after, code, error.holder?.logStream);
  } else if (error instanceof LostError) {
    console.log(error.reason satisfies LostReason);
  } else if (error instanceof LockError) {
    const code: LockErrorCode = error.code;
    console.log(code, error.metrics?.renewals, error.detail);
  }
}

{
  using double = installDouble({ capacity: 1 });
  double.hold('k').release();
  double.lose('k', 'stolen');
}
console.log(called, result, plain, reason, token, owner, mine, item, items);
