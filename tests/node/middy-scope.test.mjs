// What Middy's code knows of its lock and its invocation, and what code beside it does not.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { currentLease, locked, ProtocolError, lock as plainLock } from 'leasekeeper';
import { lock } from 'leasekeeper/middy';
import { context, sleep, startScript } from './helpers.mjs';
import { middy, real } from './middy.mjs';

const slow = (ms) => async () => {
  await sleep(ms);
  return 'done';
};
const current = () => {
  try {
    return currentLease().key;
  } catch (error) {
    return error.code;
  }
};

test('whoever calls Middy gets nothing of its lock, while it is held and after', async () => {
  await real();
  const handler = middy()
    .use(lock({ key: 'mine' }))
    .handler(slow(50));
  const running = handler({}, context());
  assert.throws(currentLease, ProtocolError);
  await sleep(20);
  assert.throws(currentLease, ProtocolError);
  assert.equal(await running, 'done');
  assert.throws(currentLease, ProtocolError);
});

test('code that runs beside a Middy handler is in no invocation of its', async () => {
  const extension = await startScript();
  const handler = middy()
    .use(lock({ key: 'outer' }))
    .handler(slow(20));
  const beside = async () => (await plainLock('beside')).release();
  await Promise.all([handler({}, context(5_000, 'request-a')), beside()]);
  const { request_id, remaining_ms } = extension.asked.find(({ key }) => key === 'beside');
  assert.deepEqual([request_id, remaining_ms], [undefined, undefined]);
});

test('of two records of one invocation, none gets the other’s lease, though its own is back', async () => {
  await real();
  const seen = [];
  const record = (key, ms) =>
    middy()
      .after(() => void seen.push(current()))
      .use(lock({ key }))
      .handler(async () => {
        await sleep(ms);
        seen.push(current());
      });
  const shared = context();
  await Promise.all([record('a', 100)({}, shared), record('b', 20)({}, shared)]);
  assert.deepEqual(seen, ['b', 'protocol', 'a', 'protocol']);
});

test('the key’s functions and the hooks know the invocation; hooks of later middlewares, as they read it, the lease', async () => {
  const extension = await startScript();
  const seen = [];
  const handler = middy()
    .use(
      lock({
        key: async () => {
          await (await plainLock('for the key')).release();
          return 'k';
        },
      }),
    )
    .before(({ event }) => void seen.push(event.name, current()))
    .before(async () => (await plainLock('in before')).release())
    .after(() => void seen.push(current()))
    .handler(async () => void seen.push(current()));
  await handler({ name: 'event' }, context(5_000, 'request-7'));
  assert.deepEqual(seen, ['event', 'k', 'k', 'k']);
  const asked = extension.asked.filter(({ op }) => op === 'acquire').map(({ key, request_id }) => [key, request_id]);
  assert.deepEqual(
    asked,
    ['for the key', 'k', 'in before'].map((key) => [key, 'request-7']),
  );
});

test('inside another lock its lease is the current one until Middy’s own, and again after it', async () => {
  await real();
  const seen = [];
  const inner = middy()
    .after(() => void seen.push(current()))
    .use(lock({ key: 'inner' }))
    .handler(async () => void seen.push(current()));
  const outer = locked({ key: 'outer' }, async (event, given) => {
    await inner(event, given);
    seen.push(current());
  });
  await outer({}, context());
  assert.deepEqual(seen, ['inner', 'outer', 'outer']);
});
