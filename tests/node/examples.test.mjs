// The examples, as Lambda would call them.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { lock, tryLock } from 'leasekeeper';
import { context, run, sleep, startExtension, startScript } from './helpers.mjs';

const load = (name) => import(`./examples/${name}.mjs`);
let socket;
before(async () => {
  ({ socket } = await startExtension());
});

test('handler: the customer is locked while it works, and it sums up', async () => {
  const { handler } = await load('handler');
  const running = handler({ customer_id: '7', work_ms: 150 }, context());
  await sleep(75);
  await assert.rejects(tryLock('customer:7'), { code: 'busy' });
  const answer = await running;
  assert.deepEqual(Object.keys(answer), ['customer_id', 'owner', 'waited_ms']);
  await assert.rejects(handler({ work_ms: 1 }, context()), /customer_id/);
  const held = await lock('customer:7');
  await assert.rejects(handler({ customer_id: '7' }, context(3_000)), { name: 'Leasekeeper.Busy' });
  await held.release();
});

test('handler: the invocation is named, the lock checked and given back', async () => {
  const { asked } = await startScript();
  const { handler } = await load('handler');
  await handler({ customer_id: '123', work_ms: 1 }, context(2_800));
  process.env.LEASEKEEPER_SOCKET = socket;
  assert.deepEqual(
    asked.map(({ op }) => op),
    ['acquire', 'check', 'release'],
  );
  const [{ key, request_id, remaining_ms, wait_ms }] = asked;
  assert.deepEqual([key, request_id, wait_ms], ['customer:123', 'request-1', 2_000]);
  assert.ok(remaining_ms > 2_000 && remaining_ms <= 2_800);
});

test('part: the lock is around a part of the work only, and busy is an answer', async () => {
  const { handler } = await load('part');
  assert.deepEqual(await handler({ account: 'a', work_ms: 5 }, context()), { account: 'a', stored: true });
  const held = await lock('account:a');
  const answer = await handler({ account: 'a', work_ms: 5 }, context());
  assert.equal(answer.stored, false);
  assert.ok(answer.retry_after_ms > 0);
  await held.release();
});

test('batch: a busy message goes back to the queue, and it alone', async () => {
  const { handler } = await load('batch');
  const held = await lock('customer:busy');
  const Records = ['a', 'busy', 'b'].map((customer_id) => ({
    messageId: `message-${customer_id}`,
    body: JSON.stringify({ customer_id, work_ms: 5 }),
  }));
  assert.deepEqual(await handler({ Records }, context()), { batchItemFailures: [{ itemIdentifier: 'message-busy' }] });
  await held.release();
  assert.deepEqual(await handler({ Records }, context()), { batchItemFailures: [] });
});

test('customer: a function and a worker outside Lambda share the same function', async () => {
  const { handler } = await load('customer');
  assert.equal((await handler({ customer_id: '9' }, context())).by, 'function');
  const worker = `process.argv = ['node', 'worker.mjs', '9', '10']; await import('./examples/worker.mjs');`;
  const { code, out } = await run(worker, { LEASEKEEPER_SOCKET: socket });
  assert.equal(code, 0, out);
  const lines = out.trim().split('\n').map(JSON.parse);
  assert.deepEqual(
    lines.map(({ id, by }) => [id, by]),
    [
      ['9', 'worker'],
      ['10', 'worker'],
    ],
  );
});
