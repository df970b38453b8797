// Handlers that stream their response.

import assert from 'node:assert/strict';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import { currentLease, locked, tryLock } from 'leasekeeper';
import { answer, context, sleep, startExtension, startScript, until } from './helpers.mjs';

const STREAMING = Symbol.for('aws.lambda.runtime.handler.streaming');
const WATER = Symbol.for('aws.lambda.runtime.handler.streaming.highWaterMark');

/** What Lambda's runtime puts into its global `awslambda`. */
function streamifyResponse(handler, options) {
  handler[STREAMING] = 'response';
  if (options?.highWaterMark) handler[WATER] = options.highWaterMark;
  return handler;
}

/** The response, and what was so when its end was seen. */
function response(atEnd = async () => {}) {
  const seen = { text: '', ended: false };
  const stream = new Writable({
    write(chunk, _encoding, done) {
      seen.text += chunk;
      done();
    },
    final(done) {
      seen.ended = true;
      atEnd().then(() => done(), done);
    },
  });
  return { stream, seen };
}

/** At the end of the response the lock is free. */
const free = async () => (await tryLock('k')).release();

for (const [how, wrap] of [
  ['around', (handler) => streamifyResponse(locked({ key: 'k' }, handler))],
  ['inside', (handler) => locked({ key: 'k' }, streamifyResponse(handler, { highWaterMark: 9 }))],
]) {
  test(`the lock is back before the end is seen, streamifyResponse ${how}`, async () => {
    await startExtension();
    const handler = wrap(async (event, stream) => {
      await assert.rejects(tryLock('k'), { code: 'busy' });
      await pipeline(Readable.from(event.parts), stream);
      await assert.rejects(currentLease().check(), { code: 'protocol' });
    });
    assert.equal(handler[STREAMING], 'response');
    if (how === 'inside') assert.equal(handler[WATER], 9);
    const { stream, seen } = response(free);
    await handler({ parts: ['a', 'b'] }, stream, context());
    assert.deepEqual(seen, { text: 'ab', ended: true });
  });
}

test('a stream that is still fed when the handler returns is fed under the lock', async () => {
  await startExtension();
  const handler = locked({ key: 'k' }, async (_event, stream) => {
    setTimeout(() => stream.end('later'), 100);
  });
  const { stream, seen } = response(free);
  const running = handler({}, stream, context());
  await sleep(30);
  await assert.rejects(tryLock('k'), { code: 'busy' });
  await running;
  assert.equal(seen.text, 'later');
});

test('the end can come with a chunk, an encoding and a callback', async () => {
  await startScript();
  let called = 0;
  const handler = locked({ key: 'k' }, async (_event, stream) => {
    stream.write('a');
    await new Promise((resolve) => {
      stream.end('YmM=', 'base64', () => {
        called += 1;
        resolve();
      });
      stream.end();
    });
  });
  const { stream, seen } = response();
  await handler({}, stream, context());
  assert.deepEqual([seen.text, called], ['abc', 1]);
});

test('what is written after the end is refused as any stream refuses it, and reaches nobody', async () => {
  let confirm;
  await startScript((request, connection) => {
    if (request.op !== 'release') return answer(request);
    confirm = () => connection.write(`${JSON.stringify(answer(request)[0])}\n`);
  });
  const { stream, seen } = response();
  const broken = new Promise((resolve) => stream.once('error', resolve));
  const refused = [];
  const handler = locked({ key: 'k' }, async () => {
    stream.end('last');
    await until('the lock is on its way back', () => confirm);
    assert.equal(
      stream.write('late', (error) => refused.push(error.code)),
      false,
    );
    assert.equal(stream.write('latin1', 'latin1'), false);
    assert.deepEqual([seen.text, seen.ended], ['last', false]);
    confirm();
  });
  await handler({}, stream, context());
  assert.equal((await broken).code, 'ERR_STREAM_WRITE_AFTER_END');
  assert.deepEqual([seen.text, refused], ['last', ['ERR_STREAM_WRITE_AFTER_END']]);
});

test('what is written after the end of a lock that is lost by then is told the loss', async () => {
  await startScript((request) =>
    request.op === 'release' ? [{ id: request.id, error: { code: 'lost', message: '', reason: 'expired' } }] : answer(request),
  );
  const { stream, seen } = response();
  const refused = [];
  const handler = locked({ key: 'k' }, async () => {
    stream.end();
    stream.write('late', (error) => refused.push(error.code));
    await sleep(1_000);
  });
  await assert.rejects(handler({}, stream, context()), { code: 'lost', reason: 'expired' });
  assert.deepEqual([seen, refused], [{ text: '', ended: false }, ['lost']]);
  // The stream is the runtime's again.
  stream.write('what the runtime says');
  await new Promise((resolve) => stream.end(resolve));
  assert.deepEqual(seen, { text: 'what the runtime says', ended: true });
});

test('a lock that was lost ends the call in an error, and the stream has no end', async () => {
  const extension = await startScript();
  const handler = locked({ key: 'k' }, async (_event, stream) => {
    stream.write('part');
    extension.say({ event: 'lost', lease: 7, reason: 'stolen' });
    await sleep(200);
    stream.write('rest');
  });
  const { stream, seen } = response();
  await assert.rejects(handler({}, stream, context()), { code: 'lost', reason: 'stolen' });
  assert.deepEqual(seen, { text: 'part', ended: false });
});

test('a loss that the release finds is an error too', async () => {
  await startScript((request) =>
    request.op === 'release' ? [{ id: request.id, error: { code: 'lost', message: '', reason: 'expired' } }] : answer(request),
  );
  const handler = locked({ key: 'k' }, (_event, stream) => pipeline(Readable.from(['a']), stream));
  const { stream, seen } = response();
  await assert.rejects(handler({}, stream, context()), { code: 'lost', reason: 'expired' });
  assert.equal(seen.ended, false);
});

test('an error of the handler is its own, and the lock is given back', async () => {
  await startExtension();
  const mine = new Error('mine');
  const handler = locked({ key: 'k' }, async (_event, stream) => {
    stream.write('a');
    throw mine;
  });
  const { stream } = response();
  await assert.rejects(handler({}, stream, context()), (error) => error === mine);
  await free();
  // The stream is the runtime's again.
  await new Promise((resolve) => stream.end(resolve));
});

test('a stream that is destroyed gives the lock back', async () => {
  await startExtension();
  const handler = locked({ key: 'k' }, async (_event, stream) => {
    setTimeout(() => stream.destroy(), 50);
  });
  const { stream } = response();
  await handler({}, stream, context());
  await free();
});
