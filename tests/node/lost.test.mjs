// What a lease says when the extension says so, is stopped, dies, or comes back.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ExtensionMissingError, LostError, lock, tryLock, UnavailableError, withLock } from 'leasekeeper';
import { answer, context, GRANT, sleep, soon, startExtension, startScript, timed, until } from './helpers.mjs';

test('a loss is told by every way of asking, once and for good', async () => {
  const extension = await startScript();
  const lease = await lock('k');
  const told = [];
  lease.signal.addEventListener('abort', () => told.push(lease.signal.reason));
  extension.say({ event: 'lost', lease: 7, reason: 'stolen' });
  assert.equal(await soon(lease.lost), 'stolen');
  extension.say({ event: 'lost', lease: 7, reason: 'thaw' });
  await sleep(20);
  assert.equal(told.length, 1);
  assert.ok(told[0] instanceof LostError);
  assert.equal(told[0].reason, 'stolen');
  assert.equal(told[0].name, 'Leasekeeper.Lost');
  assert.equal(lease.isLost, true);
  assert.equal(lease.remaining(), 0);
  assert.throws(() => lease.raiseIfLost(), { code: 'lost', reason: 'stolen' });
  await assert.rejects(lease.check(), { code: 'lost', reason: 'stolen' });
  await assert.rejects(lease.release(), { code: 'lost', reason: 'stolen' });
  assert.equal(await soon(lease.lost), 'stolen');
  // Nothing was asked about a lease that was known to be over.
  assert.deepEqual(extension.ops(), ['acquire']);
  await until('the connection is closed', () => extension.connections.size === 0);
});

test('a loss is seen without the event loop', async () => {
  const extension = await startExtension();
  const lease = await lock('k');
  assert.ok(lease.remaining() > 0);
  extension.signal('SIGKILL');
  // Nothing is awaited: the event loop has not turned since.
  const end = performance.now() + 5_000;
  while (lease.remaining() > 0) assert.ok(performance.now() < end, 'remaining() goes on believing');
  assert.equal(lease.isLost, true);
  assert.equal(lease.signal.aborted, true);
  assert.throws(() => lease.raiseIfLost(), { reason: 'extension_failed' });
  await assert.rejects(lease.release(), { code: 'lost', reason: 'extension_failed' });
});

test('an extension that dies ends the wait, the work and the lease, and its next one serves', async () => {
  const extension = await startExtension();
  const held = await lock('k');
  const waiting = timed(() => lock('k', { waitMs: 30_000 }));
  const working = timed(() =>
    withLock('w', ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve))),
  );
  await sleep(100);
  await extension.kill();
  assert.equal(await soon(held.lost), 'extension_failed');
  const waited = await waiting;
  assert.ok(waited.reason instanceof ExtensionMissingError && waited.ms < 2_000, `${waited.reason} ${waited.ms}`);
  const worked = await working;
  assert.equal(worked.reason.reason, 'extension_failed');
  await assert.rejects(tryLock('k'), (error) => {
    assert.ok(error instanceof ExtensionMissingError);
    assert.match(error.message, /add the Leasekeeper layer.*run the sidecar.*leasekeeper\/testing/s);
    return true;
  });
  await startExtension({}, extension.socket);
  await (await tryLock('k')).release();
});

test('a stopped extension costs what the budgets say', async () => {
  const extension = await startExtension();
  const lease = await lock('k', { context: context(3_000) });
  extension.signal('SIGSTOP');
  const checked = await timed(() => lease.check());
  assert.ok(checked.reason instanceof UnavailableError, String(checked.reason));
  assert.ok(checked.ms > 2_000 && checked.ms < 2_900, String(checked.ms));
  const acquired = await timed(() => lock('other', { waitMs: 60_000, context: context(1_200) }));
  assert.equal(acquired.reason.code, 'unavailable');
  assert.ok(acquired.ms > 900 && acquired.ms < 1_190, String(acquired.ms));
  const released = await timed(() => lease.release());
  assert.equal(released.reason.code, 'release_unconfirmed');
  assert.ok(released.ms < 1_000, String(released.ms));
  extension.signal('SIGCONT');
  // The release that was asked for is done all the same.
  await until('the lock is free', () =>
    tryLock('k').then(
      (next) => next.release().then(() => true),
      () => false,
    ),
  );
});

test('a release costs an invocation at most a second, and leaves it 200 ms', async () => {
  await startScript((request) => (request.op === 'release' ? [] : answer(request)));
  for (const [left, least, most] of [
    [60_000, 990, 1_300],
    [700, 490, 690],
    [150, 0, 140],
  ]) {
    const lease = await lock('k', { context: shrinking(left) });
    const { ms, reason } = await timed(() => lease.release());
    assert.equal(reason.code, 'release_unconfirmed');
    assert.equal((await lease.metrics()).cleanupFailures, 1);
    assert.ok(ms >= least && ms <= most, `${ms} with ${left}`);
  }
});

/** An invocation that has plenty of time until the lock is held, and then so much. */
function shrinking(left) {
  let asked = 0;
  return {
    awsRequestId: 'request-1',
    getRemainingTimeInMillis() {
      asked += 1;
      return asked <= 2 ? 10_000 : left;
    },
  };
}

test('with no time left nothing is sent', async () => {
  const extension = await startScript();
  for (const ms of [0, 200]) {
    await assert.rejects(lock('k', { context: context(ms) }), {
      code: 'budget_exhausted',
      name: 'Leasekeeper.BudgetExhausted',
    });
  }
  await assert.rejects(lock('k', { context: context(3_000), reserveMs: 3_000 }), { code: 'budget_exhausted' });
  assert.deepEqual(extension.asked, []);
});

test('answers that are over before they are read confirm nothing', async () => {
  const over = { lease: 7, valid_ms: 0, lease_ms: 20_000, owner: 'o', table: 't', token: null };
  await startScript((request) =>
    request.op === 'release' ? answer(request) : [{ id: request.id, ok: request.op === 'acquire' ? over : { valid_ms: 0 } }],
  );
  const lease = await lock('k');
  assert.equal(lease.remaining(), 0);
  await assert.rejects(lease.check(), { code: 'unavailable', message: /too busy to read/ });
  await lease.release();
});

test('an answer that came while the event loop was busy counts, though its time-out is first', async () => {
  await startExtension();
  const lease = await lock('k', { context: context(60_000) });
  const checking = lease.check();
  // The answer comes within a moment, the time-out after 3 s; the event loop sees both only then.
  const end = performance.now() + 3_200;
  while (performance.now() < end);
  assert.ok((await checking) > 10_000);
  await lease.release();
});

test('lines in parts, unknown lines and nonsense', async () => {
  const extension = await startScript();
  const lease = await lock('k');
  const [connection] = extension.connections;
  connection.write('{"notice":"hello"}\n{"event":"lost","lease":8,"reason":"stolen"}\n{"event":"pau');
  connection.write('sed","lease":7}\n{"id":99,"ok":{}}\n');
  assert.ok((await lease.check()) > 17_000);
  connection.write('nonsense\n');
  assert.equal(await soon(lease.lost), 'extension_failed');
});

test('renewed makes the client ask, and the answer extends what remains', async () => {
  const extension = await startScript((request) =>
    request.op === 'acquire'
      ? [{ id: request.id, ok: { ...GRANT, valid_ms: 500 } }]
      : request.op === 'check'
        ? [{ id: request.id, ok: { valid_ms: 18_000 } }]
        : answer(request),
  );
  const lease = await lock('k');
  assert.ok(lease.remaining() <= 500);
  extension.say({ event: 'renewed', lease: 7 });
  await until('the answer is read', () => lease.remaining() > 17_000);
  assert.deepEqual(extension.ops(), ['acquire', 'check']);
  await lease.release();
});

test('what the extension says before it closes the connection is the error', async () => {
  await startScript((_request, connection) => {
    connection.end('{"id":null,"error":{"code":"denied","message":"user 7 may not connect"}}\n');
  });
  await assert.rejects(lock('k'), (error) => error.code === 'denied' && error.message.includes('user 7 may not connect'));
});

test('what waits for an extension that reads nothing is bounded', async () => {
  const extension = await startExtension();
  // However long this takes, the lease is not over meanwhile.
  const lease = await lock('k', { leaseMs: 300_000 });
  extension.signal('SIGSTOP');
  const checks = Array.from({ length: 10_000 }, () => lease.check());
  const refused = await Promise.all(checks.map((check) => check.catch((error) => error.message)));
  assert.ok(refused.some((text) => text.includes('does not read its requests')));
  assert.ok(refused.some((text) => text.includes('did not answer within')));
  extension.signal('SIGCONT');
  await lease.release();
});
