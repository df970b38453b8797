// What a TypeScript user writes in CommonJS; compiled, never run.

import leasekeeper = require('leasekeeper');
import testing = require('leasekeeper/testing');

export const handler = leasekeeper.locked({ key: 'nightly' }, async () => leasekeeper.currentLease().owner);
export async function guarded(): Promise<number> {
  const lease = await leasekeeper.tryLock('k', { leaseMs: 9_000 });
  try {
    return lease.remaining();
  } finally {
    await lease.release();
  }
}
export const double: testing.Double = testing.installDouble();
