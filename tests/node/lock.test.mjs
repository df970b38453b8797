// Locks against the real extension, its rows in memory.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { BusyError, currentLease, key, LockError, lock, ProtocolError, tryLock, withLock } from 'leasekeeper';
import { context, sleep, startExtension, startScript, timed } from './helpers.mjs';

before(() => startExtension());

test('a lock is held until it is given back, and tells of itself', async () => {
  const lease = await lock('a', { waitMs: 1_000, leaseMs: 9_000 });
  assert.equal(lease.key, 'a');
  assert.equal(lease.table, 'locks');
  assert.match(lease.owner, /^[0-9a-f-]{36}$/);
  assert.equal(lease.leaseMs, 9_000);
  assert.equal(lease.token, null);
  assert.ok(lease.waitedMs < 1_000);
  assert.equal(lease.isLost, false);
  lease.raiseIfLost();
  const checked = await lease.check();
  assert.ok(checked > 7_000 && checked <= 8_100, String(checked));
  assert.ok(lease.remaining() > 7_000 && lease.remaining() <= 8_100);
  assert.equal((await lease.metrics()).writeRequests, 1);
  await assert.rejects(tryLock('a'), BusyError);
  await lease.release();
  assert.equal(lease.remaining(), 0);
  await assert.rejects(lease.check(), ProtocolError);
  assert.equal((await lease.metrics()).writeRequests, 2);
  await (await tryLock('a')).release();
});

test('busy says when to come again, and of the holder only to whoever asks', async () => {
  const held = await lock('b');
  const error = await tryLock('b').then(assert.fail, (error) => error);
  assert.ok(error instanceof LockError && error instanceof Error);
  assert.equal(error.name, 'Leasekeeper.Busy');
  assert.equal(error.code, 'busy');
  assert.ok(error.retryAfterMs > 0 && error.retryAfterMs <= 20_000);
  assert.equal(error.holder.owner, held.owner);
  const { inspect } = await import('node:util');
  for (const text of [error.message, error.stack, inspect(error), JSON.stringify(error)]) {
    assert.ok(!text.includes(held.owner), text);
  }
  await held.release();
});

test('the stack tells who asked', async () => {
  const held = await lock('stack');
  async function whoAsked() {
    await tryLock('stack');
  }
  const error = await whoAsked().then(assert.fail, (error) => error);
  assert.match(error.stack, /^Leasekeeper\.Busy: .*\n.*acquire[\s\S]*whoAsked/);
  await held.release();
});

test('who waits gets the lock soon after it is given back', async () => {
  const held = await lock('c');
  setTimeout(() => held.release(), 200);
  const { ms, value } = await timed(() => lock('c', { waitMs: 5_000 }));
  assert.ok(ms >= 190 && ms < 1_500, String(ms));
  assert.ok(value.waitedMs >= 150);
  await value.release();
});

test('a wait ends when it is over, or when its signal is aborted', async () => {
  const held = await lock('d');
  const over = await timed(() => lock('d', { waitMs: 300 }));
  assert.equal(over.reason.code, 'busy');
  assert.ok(over.ms >= 290 && over.ms < 2_000, String(over.ms));

  const controller = new AbortController();
  setTimeout(() => controller.abort(new Error('enough')), 100);
  const cancelled = await timed(() => lock('d', { waitMs: 10_000, signal: controller.signal }));
  assert.equal(cancelled.reason.message, 'enough');
  assert.ok(cancelled.ms < 1_000, String(cancelled.ms));
  await assert.rejects(lock('d', { signal: controller.signal }), { message: 'enough' });

  await held.release();
  // The wait that was cancelled stands in nobody's way.
  await (await tryLock('d')).release();
});

test('a signal that is aborted once the lock is held ends nothing', async () => {
  const controller = new AbortController();
  const lease = await lock('e', { signal: controller.signal });
  controller.abort();
  await lease.check();
  await lease.release();
});

test('a block holds the lock, knows its lease, and gives it back whatever becomes of it', async () => {
  const result = await withLock('f', { waitMs: 100 }, async (lease) => {
    assert.equal(currentLease(), lease);
    await assert.rejects(tryLock('f'), BusyError);
    await withLock('g', async (inner) => assert.equal(currentLease(), inner));
    assert.equal(currentLease(), lease);
    return 42;
  });
  assert.equal(result, 42);
  assert.throws(currentLease, ProtocolError);
  const failure = new Error('mine');
  await assert.rejects(
    withLock('f', () => {
      throw failure;
    }),
    (error) => error === failure && !('lockError' in error),
  );
  await (await tryLock('f')).release();
});

test('releasing twice is releasing once', async () => {
  const lease = await lock('h');
  const first = lease.release();
  assert.equal(lease.release(), first);
  await first;
  await lease.release();
});

test('await using gives the lock back', { skip: !Symbol.asyncDispose }, async () => {
  const lease = await lock('i');
  await lease[Symbol.asyncDispose]();
  await lease[Symbol.asyncDispose]();
  await (await tryLock('i')).release();
});

test('keys are any Unicode, and bytes count', async () => {
  for (const name of ['客户:東京', 'naïve\u0000\n"\\', '😀'.repeat(512), '\u{10ffff}', 'é'.repeat(1_024)]) {
    const lease = await lock(name);
    assert.equal(lease.key, name);
    await assert.rejects(tryLock(name), BusyError);
    await lease.release();
  }
  for (const name of ['', 'é'.repeat(1_025), '\ud83d', 'a\udc00b']) await assert.rejects(lock(name), ProtocolError);
  for (const name of [undefined, 7, null, {}]) await assert.rejects(lock(name), TypeError);
});

test('two keys of one template never meet by accident', async () => {
  const first = await lock(key('{a}{b}', { a: 'ab', b: 'c' }));
  const second = await tryLock(key('{a}{b}', { a: 'a', b: 'bc' }));
  await Promise.all([first.release(), second.release()]);
});

test('the ownership check is in the form of either client of the SDK', async () => {
  const lease = await lock('j');
  const common = {
    TableName: 'locks',
    ConditionExpression: '#owner = :mine',
    ExpressionAttributeNames: { '#owner': 'owner' },
    ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
  };
  assert.deepEqual(lease.conditionCheck().ConditionCheck, {
    ...common,
    Key: { key: { S: 'j' } },
    ExpressionAttributeValues: { ':mine': { S: lease.owner } },
  });
  assert.deepEqual(lease.documentConditionCheck().ConditionCheck, {
    ...common,
    Key: { key: 'j' },
    ExpressionAttributeValues: { ':mine': lease.owner },
  });
  await lease.release();
});

test('wrong options are refused before anything is sent', async () => {
  for (const options of [
    { wait: 1 },
    { waitMS: 1 },
    { onLost: 'abort' },
    { waitMs: '1' },
    { signal: 1 },
    { strictRelease: 1 },
    null,
  ]) {
    await assert.rejects(lock('k', options), TypeError, JSON.stringify(options));
  }
  for (const options of [{ waitMs: -1 }, { waitMs: 1.5 }, { waitMs: 86_400_001 }, { leaseMs: 99 }, { reserveMs: Number.NaN }]) {
    await assert.rejects(lock('k', options), ProtocolError, JSON.stringify(options));
  }
  await assert.rejects(tryLock('k', { waitMs: 5 }), TypeError);
  await assert.rejects(
    withLock('k', { onLost: 'cancel' }, async () => {}),
    TypeError,
  );
  await assert.rejects(withLock('k', {}), TypeError);
  await assert.rejects(lock('k', { context: {} }), TypeError);
});

test('many at once: each key has one holder at a time', async () => {
  const inside = new Map();
  let most = 0;
  await Promise.all(
    Array.from({ length: 40 }, (_, index) =>
      withLock(`crowd:${index % 4}`, { waitMs: 20_000 }, async ({ key }) => {
        inside.set(key, (inside.get(key) ?? 0) + 1);
        most = Math.max(most, inside.get(key));
        await sleep(2);
        inside.set(key, inside.get(key) - 1);
      }),
    ),
  );
  assert.equal(most, 1);
});

test('a handler in a CPU loop for twice the lease keeps the lock', async () => {
  const lease = await lock('busy', { leaseMs: 1_000 });
  const end = performance.now() + 2_000;
  while (performance.now() < end);
  assert.ok((await lease.check()) > 0);
  assert.ok((await lease.metrics()).renewals >= 4);
  assert.ok(lease.remaining() > 0);
  await lease.release();
});

test('a lock outside any invocation is told how to name one', async () => {
  const detail = 'field request_id is required under Lambda';
  await startScript(({ id }) => [{ id, error: { code: 'protocol', message: detail } }]);
  for (const advice of [detail, '`locked`', 'option `context`']) {
    await assert.rejects(lock('k'), (error) => error instanceof ProtocolError && error.message.includes(advice));
  }
  await assert.rejects(lock('k', { context: context() }), { detail });
});
