// The Middy middleware where a streamed body is not what the response ends with.

import assert from 'node:assert/strict';
import { PassThrough, pipeline, Readable } from 'node:stream';
import { test } from 'node:test';
import { currentLease, lock as plainLock } from 'leasekeeper';
import { lock } from 'leasekeeper/middy';
import { answer, context, sleep, startScript, until } from './helpers.mjs';
import { isFree, isHeld, major, middy, real, response, streaming } from './middy.mjs';

const K = { key: 'k', stream: true };

/** More than the buffers take. */
function big() {
  async function* parts() {
    for (let part = 0; part < 50; part += 1) yield 'x'.repeat(16_384);
  }
  return Readable.from(parts());
}
const download = async () => ({ statusCode: 200, body: big() });

test('an early answer in the place of a body ends it, and every lock is back before the answer', {
  skip: major < 6 && 'Middy 5 does not tell',
}, async () => {
  let confirmed = 0;
  await startScript((request, connection) => {
    if (request.op !== 'release') return answer(request);
    setTimeout(() => {
      confirmed += 1;
      connection.write(`${JSON.stringify(answer(request)[0])}\n`);
    }, 50);
  });
  const early = () => ({ statusCode: 304, body: '' });
  const [last, between] = [await streaming(), await streaming()];
  last.after(early).use([lock({ ...K, key: 'j' }), lock(K)]);
  between
    .use(lock({ ...K, key: 'j' }))
    .after(early)
    .use(lock(K));
  for (const handler of [last, between]) {
    confirmed = 0;
    const body = big();
    const { stream, seen } = response(async () => assert.equal(confirmed, 2));
    await handler.handler(async () => ({ statusCode: 200, body }))({}, stream, context());
    assert.deepEqual(seen, { text: '', ended: true });
    assert.equal(confirmed, 2);
    await until('the body that nobody reads is over', () => body.destroyed);
  }
});

test('a body that an outer after takes out of the response is over, and the lock on its way back', async () => {
  await real();
  for (const [replace, expected] of [
    [(request) => (request.response = { statusCode: 200, body: 'instead' }), 'instead'],
    [(request) => (request.response.body = 'instead'), 'instead'],
    [(request) => (request.response = 'instead'), 'instead'],
  ]) {
    const body = big();
    const handler = (await streaming())
      .after((request) => void replace(request))
      .use([lock({ ...K, key: 'j' }), lock(K)])
      .handler(async () => ({ statusCode: 200, body }));
    const { stream, seen } = response();
    await handler({}, stream, context());
    assert.deepEqual(seen, { text: expected, ended: true });
    // Long before the invocation would end it.
    for (const key of ['j', 'k']) await (await plainLock(key, { waitMs: 1_000 })).release();
    assert.equal(body.destroyed, true);
  }
});

test('a body that an outer after reads from, or gives back as it is, flows under the lock to its end', async () => {
  await real();
  for (const change of [
    (request) => {
      request.response.body = pipeline(request.response.body, new PassThrough(), () => {});
    },
    (request) => {
      request.response = { ...request.response, statusCode: 201 };
    },
    ...(major < 6 ? [] : [(request) => request.response]),
  ]) {
    async function* parts() {
      yield 'x'.repeat(100_000);
      await sleep(20);
      await isHeld();
      assert.equal(currentLease().key, 'k');
      yield 'end';
    }
    const handler = (await streaming())
      .after(change)
      .use(lock(K))
      .handler(async () => ({ statusCode: 200, body: Readable.from(parts()) }));
    const { stream, seen } = response(isFree);
    await handler({}, stream, context());
    assert.deepEqual([seen.text.length, seen.ended], [100_003, true]);
  }
});

test('a stream is not held unless this was asked for: it is an error that gives the lock back', async () => {
  await real();
  for (const make of [download, async () => big()]) {
    for (const [handler, args] of [
      [middy(), []],
      [await streaming(), [response().stream]],
    ]) {
      const call = handler.use(lock({ key: 'k' })).handler(make);
      await assert.rejects(call({}, ...args, context()), { name: 'TypeError', message: /stream: true/ });
      await isFree();
    }
  }
});

test('`stream` is true or false', () => {
  assert.throws(() => lock({ key: 'k', stream: 1 }), TypeError);
  lock({ key: 'k', stream: false });
});
