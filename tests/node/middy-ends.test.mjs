// The ends of a Middy request that its hooks are not told in the usual way.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { currentLease, lock as plainLock, ProtocolError } from 'leasekeeper';
import { lock } from 'leasekeeper/middy';
import { context, soon, startScript, until } from './helpers.mjs';
import { isFree, isHeld, major, middy, real } from './middy.mjs';

const K = { key: 'k' };
const thrower = (thrown) => () => {
  throw thrown;
};
const failing = (thrown) => async () => {
  throw thrown;
};
const never = async () => assert.fail('it must not run');
/** How a call failed, whatever was thrown. */
const thrownBy = (call) =>
  call.then(
    () => assert.fail('it must fail'),
    (thrown) => thrown,
  );
/** Given back, if not before the response: sent, not awaited. */
const isGivenBack = async () => (await plainLock('k', { waitMs: 1_000 })).release();

test('whatever is thrown, the lock is given back, and what was thrown stays what it was', async () => {
  await real();
  const second = new Error('second');
  for (const thrown of [undefined, null, 0, '', false, 'text', new Error('first'), Object.freeze(new Error('frozen'))]) {
    const alone = middy().use(lock(K)).handler(failing(thrown));
    assert.equal(await thrownBy(alone({}, context())), thrown);
    await isFree();
    const twice = middy().use(lock(K)).onError(thrower(second)).handler(failing(thrown));
    assert.equal(await thrownBy(twice({}, context())), second);
    await isGivenBack();
  }
});

test('what was thrown and is no error can be answered or mapped by an inner hook', async () => {
  await real();
  for (const thrown of [undefined, null, 0, '', 'text']) {
    const mapped = middy()
      .use(lock(K))
      .onError(() => isHeld())
      .onError((request) => {
        request.error = new Error('mapped');
      })
      .handler(failing(thrown));
    await assert.rejects(mapped({}, context()), { message: 'mapped' });
    await isFree();
    if (major < 6) continue; // It does not tell of an early answer.
    const answered = middy()
      .use(lock(K))
      .onError(() => 'sorry')
      .handler(failing(thrown));
    assert.equal(await answered({}, context()), 'sorry');
    await isFree();
  }
});

test('an onError of a later middleware that throws no object: with Middy 7 the lock is given back', {
  skip: major < 7 && 'Middy 5 and 6 fail at it before they tell',
}, async () => {
  await real();
  for (const thrown of [undefined, null, 0, 'text']) {
    const handler = middy()
      .use(lock(K))
      .onError(thrower(thrown))
      .handler(failing(new Error('first')));
    assert.equal(await thrownBy(handler({}, context())), thrown);
    await isGivenBack();
  }
});

test('an onError of a later middleware that throws what Middy cannot write to leaves the lock for the next invocation', async () => {
  await real();
  const frozen = Object.freeze(new Error('frozen'));
  for (const [index, thrown] of (major < 7 ? [frozen, 'text'] : [frozen]).entries()) {
    const handler = middy()
      .use(lock({ key: `left ${index}` }))
      .onError(thrower(thrown))
      .handler(failing(new Error('first')));
    await assert.rejects(handler({}, context(10_000, 'left')), TypeError);
    await isHeld(`left ${index}`);
  }
});

test('an early answer that is set by a hook that throws then is none: the error stands, and is told under the lock', {
  skip: major < 7 && 'Middy 6 gives the answer, Middy 5 knows none',
}, async () => {
  await real();
  const mine = new Error('mine');
  for (const answer of ['early', undefined]) {
    const told = [];
    const set = (request) => {
      request.earlyResponse = answer;
      throw mine;
    };
    const inner = () =>
      middy()
        .use([lock({ key: 'j' }), lock(K)])
        .onError(async () => {
          await isHeld('j');
          await isHeld();
          told.push('inner');
        });
    for (const handler of [
      inner().before(set).handler(never),
      inner()
        .after(set)
        .handler(async () => 'done'),
    ]) {
      await assert.rejects(handler({}, context()), (error) => error === mine);
      await isFree('j');
      await isFree();
    }
    assert.deepEqual(told, ['inner', 'inner']);
  }
});

test('what an error’s hook answers after such a hook is the answer', { skip: major < 7 && 'the same' }, async () => {
  await real();
  const handler = middy()
    .use(lock(K))
    .onError(() => 'sorry')
    .after((request) => {
      request.earlyResponse = undefined;
      throw new Error('mine');
    })
    .handler(async () => 'done');
  assert.equal(await handler({}, context()), 'sorry');
  await isFree();
});

test('a plugin’s requestEnd sees the early answer itself', { skip: major < 6 && 'Middy 5 does not tell' }, async () => {
  await real();
  const answered = { statusCode: 201 };
  const seen = [];
  const plugin = { requestEnd: ({ response }) => void seen.push(response) };
  const early = () => answered;
  for (const handler of [
    middy(plugin).use(lock(K)).before(early).handler(never),
    middy(plugin)
      .use(lock(K))
      .after(early)
      .handler(async () => 'done'),
    middy(plugin)
      .use(lock(K))
      .onError(early)
      .handler(failing(new Error('mine'))),
  ]) {
    assert.equal(await handler({}, context()), answered);
    assert.equal(seen.pop(), answered);
  }
});

for (const [what, plugin, outcome] of [
  ['an error', {}, { status: 'rejected', reason: { name: 'TimeoutError' } }],
  ['an answer', { timeoutEarlyResponse: () => 'too late' }, { status: 'fulfilled', value: 'too late' }],
]) {
  test(`work that Middy’s own end outruns is told by its lease’s signal: ${what}`, async () => {
    await real();
    const seen = {};
    const handler = middy({ timeoutEarlyInMillis: 1_200, ...plugin })
      .use(lock(K))
      .handler(async () => {
        const lease = currentLease();
        seen.lease = lease;
        seen.aborted = new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
        await seen.aborted;
        seen.reason = lease.signal.reason;
        seen.isLost = lease.isLost;
        seen.remaining = lease.remaining();
        seen.check = await thrownBy(lease.check());
      });
    const [ended] = await Promise.allSettled([handler({}, context(1_300))]);
    assert.deepEqual([ended.status, ended.value, ended.reason?.name], [outcome.status, outcome.value, outcome.reason?.name]);
    await isFree();
    await soon(seen.aborted);
    await until('the work has seen it', () => seen.check);
    assert.ok(seen.reason instanceof ProtocolError);
    assert.match(seen.reason.message, /given back/);
    assert.deepEqual([seen.isLost, seen.remaining, seen.check.code], [false, 0, 'protocol']);
  });
}

test('a signal that is asked for once the lock is back is aborted, and a loss stays a loss', async () => {
  await real();
  let lease;
  const handler = middy()
    .use(lock(K))
    .handler(async () => {
      lease = currentLease();
    });
  await handler({}, context());
  assert.ok(lease.signal.aborted && lease.signal.reason instanceof ProtocolError);
  const extension = await startScript();
  const losing = middy()
    .use(lock(K))
    .handler(async () => {
      lease = currentLease();
      assert.equal(lease.signal.aborted, false);
      // Without a turn of the loop that would have seen it.
      extension.say({ event: 'lost', lease: 7, reason: 'stolen' });
    });
  await assert.rejects(losing({}, context()), { code: 'lost' });
  assert.equal(lease.signal.reason.reason, 'stolen');
});
