// The tests' Node function: what its event names happens under the lock `key`, with the package of the layer.

import { setTimeout as sleep } from 'node:timers/promises';
import { currentLease, lock, locked } from 'leasekeeper';

/** What an invocation left behind. */
let leaked;

const deeds = {
  async sleep(ms) {
    await sleep(ms);
  },
  /** Nothing else runs meanwhile. */
  async spin(ms) {
    const end = performance.now() + ms;
    while (performance.now() < end);
  },
  async exit(code) {
    process.exit(code);
  },
  async throw(message) {
    throw new RangeError(message);
  },
  /** Another lock, which nobody gives back. */
  async leak(key) {
    leaked = await lock(key);
  },
};

const work = locked({ key: (event) => event.key }, async (event) => {
  const lease = currentLease();
  console.log('held');
  for (const [deed, argument] of event.deeds ?? []) await deeds[deed](argument);
  const validMs = await lease.check();
  const { renewals } = await lease.metrics();
  return { owner: lease.owner, valid_ms: validMs, remaining_ms: lease.remaining(), renewals };
});

export async function handler(event, context) {
  if (event.key !== undefined) return work(event, context);
  // Asked before anything is awaited: the event loop has not turned since the environment woke.
  const remaining = leaked.remaining();
  const reason = await Promise.race([leaked.lost, sleep(2_000, 'not told')]);
  return { remaining, reason, is_lost: leaked.isLost };
}
