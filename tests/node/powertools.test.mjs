// Powertools for AWS Lambda (TypeScript) beside a lock: its middlewares in either order, its wrapper, its batches.

import assert from 'node:assert/strict';
import { Console } from 'node:console';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import { BatchProcessor, EventType, processPartialResponse } from '@aws-lambda-powertools/batch';
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { makeHandlerIdempotent } from '@aws-lambda-powertools/idempotency/middleware';
import { BasePersistenceLayer } from '@aws-lambda-powertools/idempotency/persistence';
import { IdempotencyItemAlreadyExistsError } from '@aws-lambda-powertools/idempotency';
import { Logger } from '@aws-lambda-powertools/logger';
import { search } from '@aws-lambda-powertools/logger/correlationId';
import { injectLambdaContext } from '@aws-lambda-powertools/logger/middleware';
import { currentLease, lock as plainLock, locked, withLock } from 'leasekeeper';
import { lock } from 'leasekeeper/middy';
import { context, sleep, soon, startScript } from './helpers.mjs';
import { isFree, isHeld, major, middy, real } from './middy.mjs';

const K = { key: 'customer:{id}', values: (event) => ({ id: event.customer_id }), waitMs: 0 };
const event = { customer_id: '7' };
const KEY = 'customer:7';

/** Records of the test's own memory. */
class Memory extends BasePersistenceLayer {
  records = new Map();
  /** What became of the records. */
  get statuses() {
    return [...this.records.values()].map((record) => record.getStatus());
  }
  async _putRecord(record) {
    const existing = this.records.get(record.idempotencyKey);
    if (existing) throw new IdempotencyItemAlreadyExistsError('it is there', existing);
    this.records.set(record.idempotencyKey, record);
  }
  async _getRecord(key) {
    return this.records.get(key);
  }
  async _updateRecord(record) {
    this.records.set(record.idempotencyKey, record);
  }
  async _deleteRecord(record) {
    this.records.delete(record.idempotencyKey);
  }
}

/** A handler that counts its runs, and looks at its lock. */
function counted(work = async () => {}) {
  const handler = async (given) => {
    handler.runs += 1;
    assert.equal(currentLease().key, KEY);
    await isHeld(KEY);
    await work(given);
    return { run: handler.runs };
  };
  handler.runs = 0;
  return handler;
}

const idempotent = (persistenceStore) => makeHandlerIdempotent({ persistenceStore, config: new IdempotencyConfig({}) });

// Idempotency outside of the lock, and inside of it; as middlewares, and as wrappers.
const stacks = {
  'idempotency outside': (store, handler) => middy().use(idempotent(store)).use(lock(K)).handler(handler),
  'idempotency inside': (store, handler) => middy().use(lock(K)).use(idempotent(store)).handler(handler),
  'wrappers, idempotency outside': (store, handler) => makeIdempotent(locked(K, handler), { persistenceStore: store }),
  'wrappers, idempotency inside': (store, handler) => locked(K, makeIdempotent(handler, { persistenceStore: store })),
};
for (const [how, stack] of Object.entries(stacks)) {
  const skip = how === 'idempotency inside' && major < 6 && 'Middy 5 does not tell of early answers';

  test(`${how}: an event that is repeated gets the first result, and no lock stays`, { skip }, async () => {
    await real();
    const store = new Memory();
    const handler = counted();
    const whole = stack(store, handler);
    for (const invocation of ['r1', 'r2']) {
      assert.deepEqual(await whole(event, context(10_000, invocation)), { run: 1 });
      await isFree(KEY);
    }
    assert.deepEqual([handler.runs, store.statuses], [1, ['COMPLETED']]);
  });

  test(`${how}: Busy passes, and no record of it stays, so that the retry runs`, async () => {
    await real();
    const store = new Memory();
    const handler = counted();
    const whole = stack(store, handler);
    const other = await plainLock(KEY);
    await assert.rejects(whole(event, context()), { name: 'Leasekeeper.Busy', code: 'busy' });
    assert.deepEqual([handler.runs, store.statuses], [0, []]);
    await other.release();
    assert.deepEqual(await whole(event, context()), { run: 1 });
  });

  test(`${how}: an error passes, leaves no record and no lock`, async () => {
    await real();
    const mine = new Error('mine');
    const store = new Memory();
    const whole = stack(
      store,
      counted(async () => {
        throw mine;
      }),
    );
    await assert.rejects(whole(event, context()), (error) => error === mine);
    assert.deepEqual(store.statuses, []);
    await isFree(KEY);
  });

  // A middleware's error hook deletes the record whichever is outside. A wrapper inside knows nothing of the loss.
  const recorded = how === 'wrappers, idempotency inside' ? ['COMPLETED'] : [];
  test(`${how}: work whose lock was lost is ${recorded.length ? '' : 'not '}recorded as done`, async () => {
    const extension = await startScript();
    const store = new Memory();
    const whole = stack(store, async () => {
      extension.say({ event: 'lost', lease: 7, reason: 'stolen' });
      const { signal } = currentLease();
      await new Promise((resolve) => signal.addEventListener('abort', () => setTimeout(resolve, 10)));
      return 'late';
    });
    await assert.rejects(soon(whole(event, context())), { code: 'lost', reason: 'stolen' });
    // What `locked` wraps goes on after its call has rejected.
    await sleep(50);
    assert.deepEqual(store.statuses, recorded);
  });
}

test('a repeated event is answered without the lock where idempotency is outside', async () => {
  const extension = await startScript();
  const store = new Memory();
  const whole = stacks['idempotency outside'](store, async () => 'done');
  await whole(event, context());
  const asked = extension.ops();
  assert.equal(await whole(event, context()), 'done');
  assert.deepEqual(extension.ops(), asked);
});

for (const order of ['outside', 'inside']) {
  test(`the logger’s context ${order}: every line has the request’s id and the correlation id, and the lock is held`, async () => {
    await real();
    let text = '';
    const sink = new Writable({
      write(chunk, _encoding, done) {
        text += chunk;
        done();
      },
    });
    const logger = new Logger({ serviceName: 'orders', correlationIdSearchFn: search });
    logger.console = new Console(sink, sink);
    const logging = injectLambdaContext(logger, { correlationIdPath: 'correlation', resetKeys: true });
    const hooks = order === 'outside' ? [logging, lock(K)] : [lock(K), logging];
    const handler = middy()
      .use(hooks)
      .handler(async (given) => {
        logger.appendKeys({ order: given.order });
        await isHeld(KEY);
        logger.info('working');
        await withLock('inner', async () => logger.info('inner'));
      });
    for (const id of ['r1', 'r2']) await handler({ ...event, correlation: `c-${id}`, order: id }, context(10_000, id));
    await isFree(KEY);
    const lines = text.trim().split('\n').map(JSON.parse);
    assert.deepEqual(
      lines.map((line) => [line.message, line.function_request_id, line.correlation_id, line.order]),
      ['r1', 'r2'].flatMap((id) => ['working', 'inner'].map((message) => [message, id, `c-${id}`, id])),
    );
  });
}

test('a batch: the record whose lock is busy is the one that failed, and each lock belongs to the invocation', async () => {
  await real();
  const record = (id) => ({ messageId: `m${id}`, eventSource: 'aws:sqs', body: JSON.stringify({ customer_id: id }) });
  const done = [];
  let look = isHeld;
  const recordHandler = locked(
    { ...K, values: ({ body }) => ({ id: JSON.parse(body).customer_id }) },
    async ({ messageId }) => {
      await look(currentLease().key);
      done.push(messageId);
    },
  );
  const processor = new BatchProcessor(EventType.SQS);
  const handler = (given, invocation) => processPartialResponse(given, recordHandler, processor, { context: invocation });
  const other = await plainLock(KEY);
  const batch = { Records: ['6', '7', '8'].map(record) };
  assert.deepEqual(await handler(batch, context()), { batchItemFailures: [{ itemIdentifier: 'm7' }] });
  assert.deepEqual(done.sort(), ['m6', 'm8']);
  assert.deepEqual(
    processor.errors.map(({ code }) => code),
    ['busy'],
  );
  await other.release();
  await isFree(KEY);
  look = async () => {};
  const extension = await startScript();
  await handler(batch, context(10_000, 'r9'));
  const acquires = extension.asked.filter(({ op }) => op === 'acquire');
  assert.deepEqual(
    new Set(acquires.map((asked) => `${asked.request_id} ${asked.key}`)),
    new Set(['6', '7', '8'].map((id) => `r9 customer:${id}`)),
  );
});
