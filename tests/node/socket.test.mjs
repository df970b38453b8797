// A socket that is not there: under Lambda it may be on its way back.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { lock } from 'leasekeeper';
import { context, scratch, sleep, startExtension, timed } from './helpers.mjs';

afterEach(() => {
  delete process.env.AWS_LAMBDA_RUNTIME_API;
});

test('a socket that is not there is waited for under Lambda, within the budget, and nowhere else', async () => {
  process.env.LEASEKEEPER_SOCKET = join(scratch(), 'leasekeeper/lock.sock');
  const elsewhere = await timed(() => lock('k'));
  assert.ok(elsewhere.reason?.code === 'extension_missing' && elsewhere.ms < 200, `${elsewhere.reason} ${elsewhere.ms}`);
  process.env.AWS_LAMBDA_RUNTIME_API = '127.0.0.1:9001';
  const missing = await timed(() => lock('k', { context: context() }));
  assert.ok(missing.reason?.code === 'extension_missing' && missing.ms >= 250, `${missing.reason} ${missing.ms}`);
  // Of these 100 ms half are left to tell the cause.
  const short = await timed(() => lock('k', { context: context(300) }));
  assert.ok(short.reason?.code === 'extension_missing' && short.ms < 100, `${short.reason} ${short.ms}`);
});

test('a socket that comes back in time is used', async () => {
  const socket = join(scratch(), 'leasekeeper/lock.sock');
  const before = await startExtension({}, socket);
  await before.kill();
  process.env.AWS_LAMBDA_RUNTIME_API = '127.0.0.1:9001';
  // What a killed process leaves behind: nobody listens on it.
  const asked = lock('k', { context: context() });
  await sleep(20);
  await startExtension({}, socket);
  await (await asked).release();
});
