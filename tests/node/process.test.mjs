// What the client leaves of a process: timers, handles, descriptors, rejections, and when it may end.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { lock, tryLock } from 'leasekeeper';
import { run, sleep, startExtension, startScript, until } from './helpers.mjs';

const descriptors = () => readdirSync('/proc/self/fd').length;
const threads = () => readdirSync('/proc/self/task').length;
const resources = () => process.getActiveResourcesInfo().sort();

test('1,000 cycles leave descriptors, threads and handles as they were', async () => {
  await startExtension();
  for (let round = 0; round < 20; round += 1) await (await lock('k')).release();
  await sleep(100);
  const before = [descriptors(), threads(), resources()];
  for (let round = 0; round < 1_000; round += 1) {
    const lease = await lock(`k${round % 3}`);
    if (round % 5 === 0) await lease.check();
    if (round % 7 === 0) await tryLock(lease.key).catch(() => {});
    await lease.release();
  }
  await until('all is as it was', () => isDeepStrictEqual([descriptors(), threads(), resources()], before));
});

test('no timer runs while a lock is held, and nothing is left 50 ms after its release', async () => {
  await startExtension();
  await sleep(100);
  const before = resources();
  const lease = await lock('k');
  const added = resources();
  for (const resource of before) added.splice(added.indexOf(resource), 1);
  // Only what keeps a process alive is listed here: the held lock's socket does not.
  assert.deepEqual(added, []);
  const checking = lease.check();
  assert.ok(resources().includes('Timeout'), 'a question has a time-out');
  await checking;
  await lease.release();
  await sleep(50);
  assert.deepEqual(resources(), before);
});

const PROGRAM = `import { lock, tryLock, withLock } from 'leasekeeper';`;

test('a process ends within 50 ms of its last release', async () => {
  const { socket } = await startExtension();
  const { code, out } = await run(
    `${PROGRAM}
     const lease = await lock('k');
     await lease.check();
     await lease.release();
     const released = performance.now();
     process.on('exit', () => console.log(performance.now() - released));`,
    { LEASEKEEPER_SOCKET: socket },
  );
  assert.equal(code, 0, out);
  assert.ok(Number(out) < 50, out);
});

test('a lock that is only held keeps no process alive; its end gives it back', async () => {
  const { socket } = await startExtension();
  const { code, out, ms } = await run(`${PROGRAM} const lease = await lock('k'); lease.lost.then(console.log); lease.signal;`, {
    LEASEKEEPER_SOCKET: socket,
  });
  assert.equal(code, 0, out);
  assert.ok(ms < 5_000, String(ms));
  await (await lock('k', { waitMs: 2_000 })).release();
});

test('a request keeps the process alive until it is answered', async () => {
  const { socket } = await startExtension();
  const held = await lock('k');
  const running = run(`${PROGRAM} console.log((await lock('k', { waitMs: 20000 })).waitedMs > 0);`, {
    LEASEKEEPER_SOCKET: socket,
  });
  await sleep(600);
  await held.release();
  const { code, out } = await running;
  assert.deepEqual([code, out], [0, 'true\n']);
});

test('whatever fails, no rejection is unhandled', async () => {
  const { path } = await startScript(({ id, op }, connection) => {
    if (op === 'acquire') return [{ id, ok: { lease: 7, valid_ms: 90, lease_ms: 100, owner: 'o', table: 't', token: null } }];
    if (op === 'check') return [{ event: 'lost', lease: 7, reason: 'stolen' }];
    connection.destroy();
    return [];
  });
  const { code, out } = await run(
    `import { installDouble } from 'leasekeeper/testing';
     ${PROGRAM}
     const lease = await lock('a');
     lease.check();
     lease.metrics();
     lease.release();                                  // nobody waits for it, and the connection is cut
     const lost = await lock('b');
     lost.lost; lost.signal;
     await lost.check().catch(() => {});
     lost.release();
     await withLock('c', async ({ check }) => { setTimeout(() => {}, 50); throw new Error('x'); }).catch(() => {});
     const controller = new AbortController();
     const waiting = lock('d', { signal: controller.signal });
     controller.abort();
     await waiting.catch(() => {});
     const double = installDouble();
     const work = withLock('e', async (lease) => {
       double.lose('e');
       await new Promise((resolve) => setTimeout(resolve, 20));
       throw new Error('after the loss');
     });
     await work.catch(() => {});
     await new Promise((resolve) => setTimeout(resolve, 100));
     console.log('quiet');`,
    { LEASEKEEPER_SOCKET: path },
  );
  assert.equal(code, 0, out);
  assert.match(out, /quiet\n$/);
  assert.ok(!out.includes('Unhandled'), out);
});
