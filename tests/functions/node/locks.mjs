// The tests' Node function: what its event names happens under the lock `key`, with the package of the layer.

import { spawn } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { currentLease, lock, locked } from 'leasekeeper';

/** What an invocation left behind. */
let leaked;

const deeds = {
  async sleep(ms) {
    await sleep(ms);
  },
  /** Nothing of this process runs meanwhile. */
  async block(ms) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  },
  /** The same, with all of a CPU. */
  async spin(ms) {
    const end = performance.now() + ms;
    while (performance.now() < end);
  },
  async exit(code) {
    process.exit(code);
  },
  async abort() {
    process.abort();
  },
  async kill() {
    process.kill(process.pid, 'SIGKILL');
  },
  async fail(message) {
    throw new RangeError(message);
  },
  /** Tells the moment, on the clock that all processes share. */
  async word(label) {
    console.log(`word ${label} ${process.hrtime.bigint()}`);
  },
  /** Asks again and again for so long whether the lock is held; tells when it was not. */
  async checks(ms) {
    const end = performance.now() + ms;
    while (performance.now() < end) {
      try {
        await currentLease().check();
      } catch (error) {
        console.log(`refused ${error.code} ${error.reason}`);
        await deeds.word('refused');
        throw error;
      }
      await sleep(20);
    }
  },
  /** A process that outlives this one, in a group of its own. */
  async child(command) {
    const child = spawn('sh', ['-c', command], { detached: true, stdio: 'inherit' });
    child.unref();
    console.log(`child ${child.pid}`);
  },
  /** Another lock, which nobody gives back. */
  async leak(key) {
    leaked = await lock(key);
  },
  /** Another lock, which is given back. */
  async also(key) {
    await (await lock(key)).release();
  },
  /** Removes everything in the temporary directory. */
  async empty() {
    const directory = process.env.TMPDIR;
    for (const name of readdirSync(directory)) rmSync(join(directory, name), { recursive: true });
  },
};

async function doAll(all) {
  for (const [deed, argument] of all) await deeds[deed](argument);
}

const work = locked({ key: (event) => event.key }, async (event) => {
  const lease = currentLease();
  console.log('held');
  await doAll(event.deeds ?? []);
  const validMs = await lease.check();
  const { renewals } = await lease.metrics();
  return { owner: lease.owner, valid_ms: validMs, remaining_ms: lease.remaining(), renewals };
});

/** A write of the application's in one transaction with the ownership check, by either client of the SDK: was it done? */
async function write(form, lease) {
  const { DynamoDBClient, TransactWriteItemsCommand } = await import('@aws-sdk/client-dynamodb');
  const { DynamoDBDocumentClient, TransactWriteCommand } = await import('@aws-sdk/lib-dynamodb');
  const client = new DynamoDBClient({});
  const put = (key) => ({ Put: { TableName: 'orders', Item: { key } } });
  try {
    if (form === 'client') {
      await client.send(new TransactWriteItemsCommand({ TransactItems: [lease.conditionCheck(), put({ S: form })] }));
    } else {
      const items = [lease.documentConditionCheck(), put(form)];
      await DynamoDBDocumentClient.from(client).send(new TransactWriteCommand({ TransactItems: items }));
    }
    return true;
  } catch (error) {
    if (error.name !== 'TransactionCanceledException' || error.CancellationReasons[0].Code !== 'ConditionalCheckFailed')
      throw error;
    return false;
  } finally {
    client.destroy();
  }
}

/** Writes while the lock is held, and after its release. */
async function effects({ writes }, context) {
  const lease = await lock('effects', { context });
  const held = [];
  const after = [];
  for (const form of writes) held.push(await write(form, lease));
  await lease.release();
  for (const form of writes) after.push(await write(form, lease));
  return { held, after };
}

export async function handler(event, context) {
  if (event.writes !== undefined) return effects(event, context);
  if (event.key !== undefined) return work(event, context);
  if (event.deeds !== undefined) return doAll(event.deeds);
  // Asked before anything is awaited: the event loop has not turned since the environment woke.
  const remaining = leaked.remaining();
  const reason = await Promise.race([leaked.lost, sleep(2_000, 'not told')]);
  return { remaining, reason, is_lost: leaked.isLost };
}
