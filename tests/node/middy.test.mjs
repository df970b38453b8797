// The Middy middleware, with the newest Middy of each Node.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BusyError, currentLease, locked, ProtocolError, lock as plainLock } from 'leasekeeper';
import { lock } from 'leasekeeper/middy';
import { answer, context, sleep, soon, startScript } from './helpers.mjs';
import { httpErrorHandler, isFree, isHeld, jsonBodyParser, major, middy, real, response, streaming } from './middy.mjs';

const K = { key: 'k' };
/** Middy 5 writes no early answer into its request before the end of it: there a lock must be used last. */
const early = { skip: major < 6 && 'Middy 5 does not tell' };
const busy = { name: 'Leasekeeper.Busy' };

/** A handler that sees the lock held, and one that must not run. */
const work = async () => {
  await isHeld();
  return { statusCode: 200, body: 'done' };
};
const never = async () => assert.fail('it must not run');

test('the lock is held in the handler and back before the response; the key is of the event as the earlier hooks left it', async () => {
  await real();
  const seen = [];
  const handler = middy()
    .use(jsonBodyParser())
    .use(lock({ key: 'order:{order_id}', values: (event) => event.body }))
    .after(async () => {
      await isHeld('order:7');
      seen.push('inner after');
    })
    .handler(async (event, given, { signal }) => {
      assert.equal(currentLease().key, 'order:7');
      await isHeld('order:7');
      seen.push(event.body.order_id, given.awsRequestId, signal.aborted);
      return 'done';
    });
  const event = { headers: { 'Content-Type': 'application/json' }, body: '{"order_id":"7"}' };
  assert.equal(await handler(event, context()), 'done');
  assert.deepEqual(seen, ['7', 'request-1', false, 'inner after']);
  await isFree('order:7');
  assert.throws(currentLease, ProtocolError);
});

test('the invocation is named to the extension, and bounds the wait; nothing of it is left for the next', async () => {
  const extension = await startScript();
  const handler = middy()
    .use(lock({ key: 'outer', waitMs: 700, leaseMs: 9_000 }))
    .handler(async () => (await plainLock('inner')).release());
  await handler({}, context(8_000));
  await handler({}, context(6_000, 'request-2'));
  const [outer, inner, ...later] = extension.asked.filter(({ op }) => op === 'acquire');
  assert.deepEqual([outer.key, outer.request_id, outer.wait_ms, outer.lease_ms], ['outer', 'request-1', 700, 9_000]);
  assert.ok(outer.remaining_ms > 5_000 && outer.remaining_ms <= 8_000);
  assert.deepEqual([inner.key, inner.request_id], ['inner', 'request-1']);
  assert.deepEqual(
    later.map((asked) => asked.request_id),
    ['request-2', 'request-2'],
  );
  await (await plainLock('outside')).release();
  assert.equal(extension.asked.filter(({ op }) => op === 'acquire').at(-1).request_id, undefined);
  await assert.rejects(handler({}, context(150)), { code: 'budget_exhausted' });
});

test('a lock that is busy, and a key that cannot be made, are errors like any other, and the handler does not run', async () => {
  await real();
  const other = await plainLock('k');
  const handler = middy()
    .use(lock({ ...K, waitMs: 0 }))
    .handler(never);
  await assert.rejects(handler({}, context()), (error) => error instanceof BusyError && error.name === busy.name);
  const http = (order) =>
    middy()
      .use(order.map((make) => make()))
      .onError(({ error }) => {
        if (error instanceof BusyError) error.statusCode = 409;
      })
      .handler(never);
  const ours = () => lock({ ...K, waitMs: 0 });
  const theirs = () => httpErrorHandler({ logger: false });
  for (const order of [
    [theirs, ours],
    [ours, theirs],
  ]) {
    const { statusCode, body } = await http(order)({}, context());
    assert.deepEqual([statusCode, /held by someone else/.test(body)], [409, true]);
  }
  await other.release();
  const wrong = middy()
    .use(lock({ key: '{id}', values: () => ({ id: 7 }) }))
    .handler(never);
  await assert.rejects(wrong({}, context()), TypeError);
  await isFree();
});

test('an error of the handler is its own; the lock is back before it is told, and before the hooks of the outer', async () => {
  await real();
  const mine = new Error('mine');
  const failing = async () => {
    throw mine;
  };
  const order = [];
  const handler = middy()
    .onError(async () => {
      await isFree();
      order.push('outer');
    })
    .use(lock(K))
    .onError(async () => {
      await isHeld();
      order.push('inner');
    })
    .handler(failing);
  await assert.rejects(handler({}, context()), (error) => error === mine);
  assert.deepEqual(order, ['inner', 'outer']);
  for (const hooks of [
    [lock(K), httpErrorHandler({ logger: false, fallbackMessage: 'sorry' })],
    [httpErrorHandler({ logger: false, fallbackMessage: 'sorry' }), lock(K)],
  ]) {
    assert.equal((await middy().use(hooks).handler(failing)({}, context())).statusCode, 500);
    await isFree();
  }
});

test('several locks are taken in order and given back in reverse', async () => {
  const extension = await startScript((request) =>
    request.op === 'acquire' && request.key === 'busy'
      ? [{ id: request.id, error: { code: 'busy', message: '' } }]
      : answer(request),
  );
  const locks = (...keys) => middy().use(keys.map((key) => lock({ key })));
  const keys = [];
  const told = ({ op, key }) => `${op} ${key ?? ''}`.trim();
  const handler = locks('a', 'b')
    .after(() => void keys.push(currentLease().key))
    .handler(async () => void keys.push(currentLease().key));
  const outer = middy().after(() => void keys.push(currentLease().key));
  outer.use(lock({ key: 'first' })).after(() => void keys.push(currentLease().key));
  outer.use(lock({ key: 'second' })).handler(async () => {});
  await handler({}, context());
  assert.deepEqual(extension.asked.map(told), ['acquire a', 'acquire b', 'release', 'release']);
  assert.deepEqual(keys, ['b', 'b']);
  extension.asked.length = 0;
  // Between the two releases the outer lease is the current one; after both there is none.
  await assert.rejects(outer({}, context()), ProtocolError);
  assert.deepEqual(keys, ['b', 'b', 'first']);
  extension.asked.length = 0;
  await assert.rejects(locks('a', 'busy').handler(never)({}, context()), busy);
  assert.deepEqual(extension.asked.map(told), ['acquire a', 'acquire busy', 'release']);
});

test('an error of another before or after, inside or outside, leaves no lock', async () => {
  await real();
  const mine = new Error('mine');
  const fail = () => {
    throw mine;
  };
  for (const handler of [middy().use(lock(K)).after(fail).handler(work), middy().after(fail).use(lock(K)).handler(work)]) {
    await assert.rejects(handler({}, context()), (error) => error === mine);
    await isFree();
  }
});

test('an early answer of a later before, after or onError gives every lock back first', early, async () => {
  await real();
  const two = () => middy().use([lock({ key: 'j' }), lock(K)]);
  const answered = { statusCode: 201 };
  const say = async () => {
    await isHeld('j');
    await isHeld('k');
    return answered;
  };
  const failing = async () => {
    throw new Error('mine');
  };
  const none = (request) => {
    request.earlyResponse = undefined;
  };
  for (const [handler, expected] of [
    [two().before(say).handler(never), answered],
    [two().after(say).handler(work), answered],
    [two().onError(say).handler(failing), answered],
    [two().before(none).handler(never), undefined],
    [two().after(none).handler(work), undefined],
  ]) {
    assert.equal(await handler({}, context()), expected);
    await isFree('j');
    await isFree('k');
    assert.throws(currentLease, ProtocolError);
  }
});

test('with Middy 5 a lock that is not used last outlives an early answer', {
  skip: major > 5 && 'Middy 6 and 7 tell',
}, async () => {
  await real();
  const handler = middy()
    .use(lock({ key: 'left' }))
    .before(() => 'early')
    .handler(never);
  assert.equal(await handler({}, context()), 'early');
  await isHeld('left');
  // What is left of it is not taken for the next invocation's.
  const next = middy()
    .after(() => assert.throws(currentLease, ProtocolError))
    .use(lock(K))
    .handler(work);
  assert.equal((await next({}, context(10_000, 'request-2'))).body, 'done');
});

test('an early answer waits until the release is confirmed', early, async () => {
  let confirmed = 0;
  await startScript((request, connection) => {
    if (request.op !== 'release') return answer(request);
    setTimeout(() => {
      confirmed += 1;
      connection.write(`${JSON.stringify(answer(request)[0])}\n`);
    }, 50);
  });
  const two = () => middy().use([lock({ key: 'j' }), lock(K)]);
  const failing = async () => {
    throw new Error('mine');
  };
  for (const handler of [
    two()
      .before(() => 'early')
      .handler(never),
    two()
      .after(() => 'early')
      .handler(async () => 'late'),
    two()
      .onError(() => 'early')
      .handler(failing),
  ]) {
    confirmed = 0;
    assert.equal(await handler({}, context()), 'early');
    assert.equal(confirmed, 2);
  }
});

test('an onError of a later middleware that throws ends the request at once: the release is sent, not awaited', async () => {
  await real();
  const mine = new Error('mine');
  for (const thrown of [new Error('theirs'), mine]) {
    const handler = middy()
      .use(lock(K))
      .onError(() => {
        throw thrown;
      })
      .handler(async () => {
        throw mine;
      });
    await assert.rejects(handler({}, context()), (error) => error === thrown);
    await (await plainLock('k', { waitMs: 1_000 })).release();
  }
});

test('an error that an inner hook puts in the place of the first is told under the lock', async () => {
  await real();
  const handler = middy()
    .use(lock(K))
    .onError(() => isHeld())
    .onError((request) => {
      request.error = new Error('mapped', { cause: request.error });
    })
    .handler(async () => {
      throw new Error('mine');
    });
  await assert.rejects(handler({}, context()), { message: 'mapped' });
  await isFree();
});

test('a loss is told to the handler, is the call’s error once it has ended, and reaches the outer hooks', async () => {
  const extension = await startScript();
  let reason;
  const handler = middy()
    .use(httpErrorHandler({ logger: false }))
    .onError(({ error }) => {
      if (error.code === 'lost') error.statusCode = 409;
    })
    .use(lock(K))
    .handler(async (_event, _context, { signal }) => {
      const lease = currentLease();
      extension.say({ event: 'lost', lease: 7, reason: 'stolen' });
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
      reason = lease.signal.reason.reason;
      assert.equal(signal.aborted, false);
      return 'done';
    });
  assert.equal((await soon(handler({}, context()))).statusCode, 409);
  assert.equal(reason, 'stolen');
});

test('an error of work whose lock was lost stays its own, with the loss attached', async () => {
  const extension = await startScript();
  const mine = new Error('mine');
  const handler = middy()
    .use(lock(K))
    .handler(async () => {
      extension.say({ event: 'lost', lease: 7, reason: 'expired' });
      await currentLease().lost;
      throw mine;
    });
  await assert.rejects(soon(handler({}, context())), (error) => error === mine && error.lockError.code === 'lost');
});

test('a loss that an early answer finds is the call’s error', early, async () => {
  const extension = await startScript();
  const handler = middy()
    .use(lock(K))
    .before(async ({ context: _ }) => {
      extension.say({ event: 'lost', lease: 7, reason: 'expired' });
      await currentLease().lost;
      return 'early';
    })
    .handler(never);
  await assert.rejects(soon(handler({}, context())), { code: 'lost', reason: 'expired' });
});

test('Middy’s own end before the deadline aborts its signal, and the lock is back before its answer', async () => {
  await real();
  let aborted;
  const handler = middy({ timeoutEarlyInMillis: 700, timeoutEarlyResponse: () => 'too late' })
    .use(lock(K))
    .handler(async (_event, _context, { signal }) => {
      signal.addEventListener('abort', () => {
        aborted = true;
      });
      await new Promise(() => {});
    });
  const began = performance.now();
  assert.equal(await handler({}, context(1_500)), 'too late');
  assert.ok(performance.now() - began < 1_500);
  assert.equal(aborted, true);
  await isFree();
});

test('Middy’s own end without time for a release: the error is Middy’s, and the lock is given back all the same', async () => {
  await real();
  const handler = middy({ timeoutEarlyInMillis: 50 })
    .use(lock(K))
    .handler(() => new Promise(() => {}));
  await assert.rejects(handler({}, context(800)), { name: 'TimeoutError' });
  await (await plainLock('k', { waitMs: 1_000 })).release();
});

test('`locked` goes around all of Middy, and around the handler inside of it', async () => {
  await real();
  const around = locked(
    K,
    middy()
      .before(() => 'early')
      .handler(never),
  );
  assert.equal(await around({}, context()), 'early');
  await isFree();
  const inside = middy().handler(locked(K, work));
  assert.equal((await inside({}, context())).body, 'done');
  await isFree();
  const stream = locked(K, (await streaming()).handler(work));
  const { stream: out, seen } = response(isFree);
  await stream({}, out, context());
  assert.deepEqual(seen, { text: 'done', ended: true });
});

test('concurrent requests keep their own leases', async () => {
  await real();
  const handler = middy()
    .use(lock({ key: (event) => event.id }))
    .handler(async (event) => {
      await sleep(5);
      return currentLease().key === event.id;
    });
  const calls = Array.from({ length: 20 }, (_, index) => handler({ id: `c${index}` }, context(10_000, `request-${index}`)));
  assert.ok((await Promise.all(calls)).every(Boolean));
});

test('wrong options fail where they are written', () => {
  for (const options of [undefined, {}, { key: 7 }, { ...K, wait: 5 }, { ...K, onLost: 'abort' }, { ...K, signal: 1 }]) {
    assert.throws(() => lock(options), TypeError, JSON.stringify(options));
  }
  assert.throws(() => lock({ key: 'c:{x}' }), ProtocolError);
});
