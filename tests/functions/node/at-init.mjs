// The tests' Node function that asks for a lock where there is no invocation: as a module.

import { currentLease, lock, locked } from 'leasekeeper';

const told = [];
try {
  await (await lock('init')).release();
  told.push({ when: 'init' });
} catch ({ code, message }) {
  told.push({ when: 'init', code, message });
}

export const handler = locked({ key: ({ key }) => key }, async () => ({ owner: currentLease().owner, told }));
