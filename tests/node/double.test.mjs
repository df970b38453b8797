// The test double: contention, waiting, a forced loss, zero capacity, without any extension.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { currentLease, lock, locked, tryLock, withLock } from 'leasekeeper';
import { installDouble } from 'leasekeeper/testing';
import { context, sleep, soon, timed } from './helpers.mjs';

let double;
beforeEach(() => {
  process.env.LEASEKEEPER_SOCKET = '/nowhere/lock.sock';
  double = installDouble();
});
afterEach(() => double.restore());

test('a lock is held, checked, and given back', async () => {
  const lease = await lock('k', { leaseMs: 5_000 });
  assert.deepEqual(double.held, ['k']);
  assert.ok((await lease.check()) > 4_000);
  assert.ok(lease.remaining() > 4_000);
  assert.equal((await lease.metrics()).renewals, 0);
  await lease.release();
  assert.deepEqual(double.held, []);
  assert.deepEqual(
    double.requests.map(({ op }) => op),
    ['acquire', 'check', 'metrics', 'release'],
  );
});

test('contention: busy at once, or after a wait', async () => {
  const other = double.hold('k');
  await assert.rejects(tryLock('k'), (error) => error.code === 'busy' && error.holder.owner === other.owner);
  const { ms, reason } = await timed(() => lock('k', { waitMs: 100 }));
  assert.equal(reason.code, 'busy');
  assert.ok(ms >= 95, String(ms));
  assert.throws(() => double.hold('k'));
});

test('waiting: first come, first served', async () => {
  const other = double.hold('k');
  const order = [];
  const waiters = ['a', 'b'].map((name) => withLock('k', { waitMs: 5_000 }, async () => order.push(name)));
  await sleep(20);
  assert.deepEqual(order, []);
  other.release();
  await Promise.all(waiters);
  assert.deepEqual(order, ['a', 'b']);
});

test('a wait that is cancelled is out of the way', async () => {
  const other = double.hold('k');
  const controller = new AbortController();
  const waiting = lock('k', { waitMs: 5_000, signal: controller.signal });
  await sleep(10);
  controller.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  other.release();
  await (await tryLock('k')).release();
});

test('a forced loss, whatever the reason', async () => {
  const handler = locked({ key: 'k' }, async () => {
    double.lose('k', 'throttled');
    await soon(currentLease().lost);
    await sleep(1_000);
  });
  const { ms, reason } = await timed(() => handler({}, context()));
  assert.deepEqual([reason.code, reason.reason], ['lost', 'throttled']);
  assert.ok(ms < 500);
  assert.deepEqual(double.held, []);
  assert.throws(() => double.lose('k'));
});

test('the extension vanishes', async () => {
  const lease = await lock('k');
  double.vanish();
  assert.equal(lease.remaining(), 0);
  assert.equal(await soon(lease.lost), 'extension_failed');
  await (await lock('k')).release();
});

test('zero capacity: unavailable for any key', async () => {
  double.capacity = 0;
  await assert.rejects(lock('k'), { code: 'unavailable' });
  double.capacity = 1;
  const lease = await lock('a');
  await assert.rejects(tryLock('b'), { code: 'unavailable' });
  await lease.release();
  await (await tryLock('b')).release();
});

test('releases that are not confirmed', async () => {
  double.releases = 'unconfirmed';
  const strict = { strictRelease: true };
  await assert.rejects(
    withLock('k', strict, async () => {}),
    { code: 'release_unconfirmed' },
  );
  double.releases = 'hang';
  const { ms, reason } = await timed(() => withLock('l', { ...strict, context: context(700) }, async () => {}));
  assert.equal(reason.code, 'release_unconfirmed');
  assert.ok(ms < 700, String(ms));
});

test('it tells the invocation, refuses wrong options, and gives the socket back', async () => {
  await locked({ key: 'k' }, async () => {})({}, context(5_000, 'request-9'));
  assert.equal(double.requests[0].requestId, 'request-9');
  assert.throws(() => installDouble({ size: 1 }), TypeError);
  double.restore();
  await assert.rejects(lock('k'), { code: 'extension_missing' });
});
