// A small function that does its work under a lock, with nothing but the standard library.

import { connect } from 'node:net';

/** What the extension answered: `code` to branch on, `details` with reason, holder or retry_after_ms where known. */
export class LockError extends Error {
  constructor({ code = 'unknown', message = '', ...details }) {
    super(`${code}: ${message}`);
    Object.assign(this, { name: 'LockError', code, details });
  }
}

/** One lease on a connection of its own. If the process dies or forgets it, the connection's end gives it back. */
export class Lock {
  #socket = connect(process.env.LEASEKEEPER_SOCKET ?? '/tmp/leasekeeper/lock.sock');
  #text = '';
  #number = 0;
  #pending;
  #turn = Promise.resolve();
  #problem;
  #late = false;
  #granted;

  constructor() {
    this.#socket.setEncoding('utf8');
    this.#socket.on('data', (text) => this.#read(text));
    this.#socket.on('error', (error) => (this.#problem ??= error.message));
    this.#socket.on('timeout', () => {
      this.#late = true;
      this.#socket.destroy(new Error(`no answer to ${this.#pending.op} in time`));
    });
    this.#socket.on('close', () => {
      this.#problem ??= 'the extension closed the connection';
      this.#pending?.reject(this.#gone());
    });
  }

  static async acquire(key, context, waitMs = 2000) {
    // Under Lambda both are required: they bind the lease to the invocation.
    const invocation = context && {
      request_id: context.awsRequestId,
      remaining_ms: Math.max(0, Math.trunc(context.getRemainingTimeInMillis())),
    };
    const lock = new Lock();
    try {
      lock.#granted = await lock.#ask('acquire', waitMs + 4000, { key, wait_ms: waitMs, ...invocation });
      return lock;
    } catch (error) {
      lock.#socket.destroy();
      throw error;
    }
  }

  get owner() {
    return this.#granted.owner;
  }

  get waitedMs() {
    return this.#granted.waited_ms;
  }

  /** Asks whether the lock is still held, and returns for how many more milliseconds it is at least. */
  async check() {
    const asked = performance.now(); // Before the request is sent: what the answer spends on its way is not ours to use.
    const { valid_ms } = await this.#ask('check', 5000, { lease: this.#granted.lease });
    return valid_ms - (performance.now() - asked);
  }

  /** Gives the lock back. Fails with `lost` if it was lost before: then the work was not protected to its end. */
  async release() {
    try {
      await this.#ask('release', 1000, { lease: this.#granted.lease });
    } catch (error) {
      if (error.code !== 'release_unconfirmed') throw error;
      console.log(`the work is done; ${error.message}`); // The extension goes on trying, and the lease's end frees the lock.
    } finally {
      this.#socket.destroy();
    }
  }

  /** One request after the other, whoever asks. */
  #ask(op, timeoutMs, fields) {
    const answer = this.#turn.then(() => this.#send(op, timeoutMs, fields));
    this.#turn = answer.catch(() => {});
    return answer;
  }

  #send(op, timeoutMs, fields) {
    return new Promise((resolve, reject) => {
      this.#pending = { op, id: ++this.#number, resolve, reject };
      if (this.#socket.destroyed) return reject(this.#gone());
      this.#socket.setTimeout(timeoutMs);
      this.#socket.write(`${JSON.stringify({ v: 1, id: this.#number, op, ...fields })}\n`);
    });
  }

  #read(text) {
    const lines = (this.#text + text).split('\n');
    this.#text = lines.pop();
    for (const line of lines) {
      try {
        this.#answer(JSON.parse(line));
      } catch (error) {
        return this.#socket.destroy(error); // Out of step: nothing that follows can be believed.
      }
    }
  }

  #answer(reply) {
    if (!reply || typeof reply !== 'object' || Array.isArray(reply)) throw new Error('a line that is no JSON object');
    const { id, resolve, reject } = this.#pending ?? {};
    if (reply.event) return; // Comes unasked; `check` tells what matters.
    if (reply.ok && reply.id === id) resolve?.(reply.ok);
    // An error without an id is about a line that could not be read: ours.
    else if (reply.error && (reply.id ?? id) === id) reject?.(new LockError(reply.error));
    else return;
    this.#socket.setTimeout(0);
  }

  #gone() {
    const message = this.#problem;
    if (!this.#granted) return new LockError({ code: 'extension_missing', message });
    if (this.#late && this.#pending.op === 'release') return new LockError({ code: 'release_unconfirmed', message });
    return new LockError({ code: 'lost', message, reason: 'extension_failed' });
  }
}

/** Locks the customer, works for `work_ms`, and gives the lock back before it answers. */
export async function handler(event, context) {
  const { customer_id, work_ms = 100 } = event;
  if (customer_id === undefined) throw new TypeError('the event has no customer_id');
  const lock = await Lock.acquire(`customer:${customer_id}`, context);
  try {
    await new Promise((resolve) => setTimeout(resolve, work_ms));
    await lock.check();
  } catch (error) {
    await lock.release().catch(() => {}); // The body's own error is never replaced.
    throw error;
  }
  await lock.release();
  return { customer_id, owner: lock.owner, waited_ms: lock.waitedMs };
}
