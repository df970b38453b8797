// Handlers and functions wrapped by `locked`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { currentLease, LostError, lock, locked, ProtocolError, tryLock, withLock } from 'leasekeeper';
import { answer, context, sleep, soon, startExtension, startScript, timed } from './helpers.mjs';

const failing = (code) => (request) =>
  request.op === 'release' ? [{ id: request.id, error: { code, message: 'why', reason: 'expired' } }] : answer(request);

/** Runs with what is warned of collected. */
async function warnings(work) {
  const warned = [];
  const { warn } = console;
  console.warn = (text) => warned.push(text);
  try {
    return { result: await work(), warned };
  } finally {
    console.warn = warn;
  }
}

test('arguments, this, the result and the name pass through; the lock is back before the answer', async () => {
  await startExtension();
  const wrapped = locked({ key: (event) => `customer:${event.customer_id}` }, async function work(event, given) {
    await assert.rejects(tryLock('customer:7'), { code: 'busy' });
    assert.equal(currentLease().key, 'customer:7');
    return [this, event, given];
  });
  const self = { wrapped };
  const event = { customer_id: '7' };
  const given = context();
  const [seenThis, seenEvent, seenContext] = await self.wrapped(event, given);
  assert.ok(seenThis === self && seenEvent === event && seenContext === given);
  assert.equal(wrapped.name, 'work');
  assert.ok(wrapped.length < 3, 'Lambda takes a function of three parameters for one with a callback');
  await (await tryLock('customer:7')).release();
});

test('the invocation is named to the extension, for the handler and for what it calls', async () => {
  const extension = await startScript();
  const inner = locked({ key: 'inner' }, async () => {});
  const handler = locked({ key: 'outer', waitMs: 700, leaseMs: 9_000 }, async () => {
    await inner();
    await withLock('block', async () => {});
    await (await lock('guard')).release();
    await (await tryLock('other', { context: context(5_000, 'request-2') })).release();
  });
  await handler({}, context(8_000));
  const acquires = extension.asked.filter(({ op }) => op === 'acquire');
  assert.deepEqual(
    acquires.map(({ key, request_id }) => [key, request_id]),
    [
      ['outer', 'request-1'],
      ['inner', 'request-1'],
      ['block', 'request-1'],
      ['guard', 'request-1'],
      ['other', 'request-2'],
    ],
  );
  assert.deepEqual([acquires[0].wait_ms, acquires[0].lease_ms], [700, 9_000]);
  for (const { remaining_ms } of acquires) assert.ok(remaining_ms > 3_000 && remaining_ms <= 8_000);
  // Outside an invocation none is named.
  await inner();
  assert.equal(extension.asked.at(-2).request_id, undefined);
});

test('concurrent invocations keep their own leases', async () => {
  await startExtension();
  const handler = locked({ key: '{id}', values: { id: (event) => event.id } }, async (event) => {
    await sleep(5);
    return currentLease().key === event.id;
  });
  const calls = Array.from({ length: 20 }, (_, index) => handler({ id: `c${index}` }, context()));
  assert.ok((await Promise.all(calls)).every(Boolean));
});

test('keys by template, by function, and by constant', async () => {
  const extension = await startScript();
  const ok = async () => 'ok';
  const event = { tenant: 'acme', order: '日本' };
  const both = { tenant: (e) => e.tenant, order: async (e) => e.order };
  await locked({ key: '{tenant}:{order}', values: both }, ok)(event);
  await locked({ key: '{tenant}:{order}', values: (e) => ({ ...e }) }, ok)(event);
  await locked({ key: async (e) => `plain:${e.tenant}` }, ok)(event);
  await locked({ key: 'nightly {{}}' }, ok)(event);
  const keys = extension.asked.filter(({ op }) => op === 'acquire').map(({ key }) => key);
  assert.deepEqual(keys, ['4:acme:6:日本', '4:acme:6:日本', 'plain:acme', 'nightly {}']);
});

test('wrong wrapping fails where it is written', () => {
  const ok = async () => {};
  for (const [options, handler, error] of [
    [{ key: 'c:{x}' }, ok, ProtocolError],
    [{ key: 'c:{x' }, ok, ProtocolError],
    [{ key: '' }, ok, ProtocolError],
    [{ key: 'c:{x}', values: { y: () => 'v' } }, ok, ProtocolError],
    [{ key: 'c:{x}', values: { x: 'v' } }, ok, TypeError],
    [{ key: () => 'k', values: {} }, ok, TypeError],
    [{ key: 7 }, ok, TypeError],
    [{}, ok, TypeError],
    [undefined, ok, TypeError],
    [{ key: 'k', wait: 5 }, ok, TypeError],
    [{ key: 'k', signal: new AbortController().signal }, ok, TypeError],
    [{ key: 'k' }, undefined, TypeError],
    [{ key: 'k' }, function* () {}, TypeError],
    [{ key: 'k' }, async function* () {}, TypeError],
  ]) {
    assert.throws(() => locked(options, handler), error, JSON.stringify(options));
  }
});

test('a wrong key or value of one call is that call’s error, and nothing is sent', async () => {
  const extension = await startScript();
  const ok = async () => assert.fail('it must not run');
  const failure = new Error('no such customer');
  const refuse = () => {
    throw failure;
  };
  await assert.rejects(locked({ key: refuse }, ok)({}), (error) => error === failure);
  await assert.rejects(locked({ key: () => undefined }, ok)({}), TypeError);
  await assert.rejects(locked({ key: 'c:{x}', values: { x: () => 7 } }, ok)({}), TypeError);
  await assert.rejects(locked({ key: '{x}', values: { x: () => '' } }, ok)({}), ProtocolError);
  await assert.rejects(locked({ key: 'c:{x}', values: () => ({}) }, ok)({}), ProtocolError);
  assert.deepEqual(extension.asked, []);
});

test('callbacks and functions that are not async are refused with words', async () => {
  const extension = await startScript();
  const byCallback = locked({ key: 'k' }, (_event, _context, callback) => callback(null, 1));
  await assert.rejects(
    byCallback({}, context(), () => {}),
    { name: 'TypeError', message: /callback/ },
  );
  assert.deepEqual(extension.asked, []);
  await assert.rejects(locked({ key: 'k' }, () => 42)({}, context()), { name: 'TypeError', message: /async/ });
  // Lambda passes its callback to every handler; one that does not name it is no callback handler.
  assert.equal(await locked({ key: 'k' }, async () => 42)({}, context(), () => {}), 42);
});

test('a loss ends the call at once, or when the work has ended', async () => {
  const extension = await startScript();
  const lose = () => setTimeout(() => extension.say({ event: 'lost', lease: 7, reason: 'stolen' }), 50);
  let seen;
  const handler = (onLost) =>
    locked({ key: 'k', onLost }, async () => {
      seen = currentLease();
      lose();
      await sleep(400);
      return 'done';
    });
  const aborted = await timed(() => handler(undefined)({}, context()));
  assert.ok(aborted.reason instanceof LostError && aborted.reason.reason === 'stolen');
  assert.ok(aborted.ms < 350, String(aborted.ms));
  assert.equal(seen.signal.aborted, true);
  const told = await timed(() => handler('notify')({}, context()));
  assert.ok(told.reason instanceof LostError);
  assert.ok(told.ms >= 390, String(told.ms));
  assert.ok(!extension.ops().includes('release'), 'a lost lease is not given back');
});

test('work that fails once its lock is lost leaves no rejection unhandled', async () => {
  const extension = await startScript();
  const unhandled = [];
  const note = (error) => unhandled.push(error);
  process.on('unhandledRejection', note);
  const handler = locked({ key: 'k' }, async () => {
    extension.say({ event: 'lost', lease: 7, reason: 'thaw' });
    await sleep(400);
    throw new Error('too late for anyone');
  });
  await assert.rejects(handler({}, context()), { code: 'lost', reason: 'thaw' });
  await sleep(600);
  process.off('unhandledRejection', note);
  assert.deepEqual(unhandled, []);
});

test('an unconfirmed release is logged and no error, unless it is to be strict', async () => {
  await startScript(failing('release_unconfirmed'));
  const work = async () => 'done';
  const { result, warned } = await warnings(() => locked({ key: 'k' }, work)({}, context()));
  assert.equal(result, 'done');
  assert.match(warned[0], /^leasekeeper: release_unconfirmed: the lock was given back, but this is not confirmed.*\(why\)$/);
  await assert.rejects(locked({ key: 'k', strictRelease: true }, work)({}, context()), {
    name: 'Leasekeeper.ReleaseUnconfirmed',
  });
  process.env.LEASEKEEPER_STRICT_RELEASE = 'true';
  try {
    await assert.rejects(withLock('k', work), { code: 'release_unconfirmed' });
    assert.equal((await warnings(() => withLock('k', { strictRelease: false }, work))).result, 'done');
  } finally {
    delete process.env.LEASEKEEPER_STRICT_RELEASE;
  }
});

test('work that succeeded under a lock that was lost is an error', async () => {
  await startScript(failing('lost'));
  await assert.rejects(locked({ key: 'k' }, async () => 'done')({}, context()), { code: 'lost', reason: 'expired' });
});

test('the application’s own error stays what it was, with the clean-up’s attached', async () => {
  for (const code of ['lost', 'release_unconfirmed']) {
    await startScript(failing(code));
    const mine = Object.assign(new Error('mine'), { cause: 'kept' });
    const { warned } = await warnings(() =>
      assert.rejects(
        locked({ key: 'k', strictRelease: true }, async () => {
          throw mine;
        })({}, context()),
        (error) => error === mine && error.cause === 'kept' && error.lockError.code === code,
      ),
    );
    assert.ok(!Object.keys(mine).includes('lockError'));
    assert.match(warned[0], /after the work had failed/);
    for (const thrown of ['text', undefined, null, Object.freeze(new Error('frozen'))]) {
      await warnings(() =>
        assert.rejects(
          withLock('k', () => Promise.reject(thrown)),
          (error) => error === thrown,
        ),
      );
    }
  }
});

test('a loss that the work itself reports is told once', async () => {
  const extension = await startScript();
  const { warned } = await warnings(() =>
    assert.rejects(
      withLock('k', { onLost: 'notify' }, async (lease) => {
        extension.say({ event: 'lost', lease: 7, reason: 'stolen' });
        await soon(lease.lost);
        await lease.check();
      }),
      (error) => error.code === 'lost' && error.reason === 'stolen' && error.lockError === undefined,
    ),
  );
  assert.deepEqual(warned, []);
});

test('the functions that give a template its values get the call’s this, as a key’s function does', async () => {
  await startScript();
  const work = async () => currentLease().key;
  const maker = function () {
    return this.tenant;
  };
  const all = function () {
    return { tenant: this.tenant };
  };
  const service = {
    tenant: 'acme',
    byKey: locked({ key: maker }, work),
    byValue: locked({ key: '{tenant}', values: { tenant: maker } }, work),
    byValues: locked({ key: '{tenant}', values: all }, work),
  };
  assert.deepEqual([await service.byKey(), await service.byValue(), await service.byValues()], ['acme', 'acme', 'acme']);
});

test('work that comes to a generator is refused, and the lock is given back', async () => {
  await startExtension();
  const works = [
    async () => (function* () {})(),
    async () => (async function* () {})(),
    () => Promise.resolve((function* () {})()),
  ];
  for (const work of works) {
    const refused = { name: 'TypeError', message: /generator/ };
    await assert.rejects(locked({ key: 'k' }, work)({}, context()), refused);
    await assert.rejects(withLock('k', { context: context() }, work), refused);
    await (await tryLock('k')).release();
  }
});
