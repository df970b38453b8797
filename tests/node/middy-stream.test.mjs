// The Middy middleware where the response is streamed.

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { currentLease } from 'leasekeeper';
import { lock } from 'leasekeeper/middy';
import { context, sleep, soon, startScript, until } from './helpers.mjs';
import { isFree, isHeld, major, real, response, streaming } from './middy.mjs';

const K = { key: 'k', stream: true };

for (const [what, make] of [
  ['a Readable', (parts) => Readable.from(parts)],
  ['the body of an HTTP response', (parts) => ({ statusCode: 200, body: Readable.from(parts) })],
  ...(major < 6 ? [] : [['a web stream', (parts) => Readable.toWeb(Readable.from(parts, { objectMode: false }))]]),
]) {
  test(`${what} flows under the lock, which is back before its end is seen`, async () => {
    await real();
    async function* parts() {
      await isHeld();
      yield 'a';
      await sleep(20);
      await isHeld();
      assert.equal(currentLease().key, 'k');
      yield '日';
    }
    const handler = (await streaming()).use(lock(K)).handler(async () => make(parts()));
    const { stream, seen } = response(isFree);
    await handler({}, stream, context());
    assert.deepEqual(seen, { text: 'a日', ended: true });
  });
}

test('a text is a response that is done; two locks hold one stream', async () => {
  await real();
  const { stream, seen } = response(isFree);
  await (await streaming()).use(lock(K)).handler(async () => ({ statusCode: 200, body: 'done' }))({}, stream, context());
  assert.deepEqual(seen, { text: 'done', ended: true });
  const second = response(async () => {
    await isFree('j');
    await isFree('k');
  });
  const body = async function* () {
    await isHeld('j');
    await isHeld('k');
    yield 'both';
  };
  const two = (await streaming()).use([lock({ ...K, key: 'j' }), lock(K)]).handler(async () => Readable.from(body()));
  await two({}, second.stream, context());
  assert.deepEqual(second.seen, { text: 'both', ended: true });
});

test('a stream that fails gives the lock back, and so does an outer hook that fails after it', async () => {
  await real();
  const mine = new Error('mine');
  const failing = async function* () {
    yield 'a';
    throw mine;
  };
  const handler = (await streaming()).use(lock(K)).handler(async () => Readable.from(failing()));
  const { stream, seen } = response();
  await assert.rejects(handler({}, stream, context()), (error) => error === mine);
  assert.equal(seen.ended, false);
  await isFree();
  const endless = new Readable({ read() {} });
  const outer = (await streaming())
    .after(() => {
      throw mine;
    })
    .use(lock(K))
    .handler(async () => endless);
  await assert.rejects(outer({}, response().stream, context()), (error) => error === mine);
  await isFree();
  await until('the stream that nobody reads is over', () => endless.destroyed);
});

test('a client that goes away, and a loss, end the stream', async () => {
  const extension = await startScript();
  const endless = () =>
    new Readable({
      read() {
        setTimeout(() => this.push('x'), 5);
      },
    });
  const handler = (await streaming()).use(lock(K)).handler(async () => endless());
  const gone = response();
  const running = handler({}, gone.stream, context());
  setTimeout(() => gone.stream.destroy(), 50);
  await assert.rejects(soon(running), { code: 'ERR_STREAM_PREMATURE_CLOSE' });
  await until('it is given back', () => extension.ops().includes('release'));
  const lost = response();
  const losing = handler({}, lost.stream, context());
  setTimeout(() => extension.say({ event: 'lost', lease: 7, reason: 'stolen' }), 50);
  await assert.rejects(soon(losing), { code: 'lost', reason: 'stolen' });
  assert.equal(lost.seen.ended, false);
});
