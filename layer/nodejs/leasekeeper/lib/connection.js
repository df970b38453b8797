'use strict';
// One connection to the extension: requests out, replies and events in, each request with its bound.

const { answerBound, plan, releaseBound } = require('./budget.js');
const { fromHere, lockError } = require('./errors.js');
const { State } = require('./state.js');
const transport = require('./transport.js');
const { granted } = require('./wire.js');

/** How long after a connect that found no place in the extension's queue of connections, or no socket, the next is tried. */
const AGAIN_MS = 10;
/** How long a socket that is not there is waited for under Lambda: the extension makes it anew when /tmp was emptied. */
const MADE_ANEW_MS = 250;
const NOT_THERE = ['ENOENT', 'ECONNREFUSED'];

/** A connection whose lease the extension gives back when it closes. */
class Connection {
  #state = new State();
  #link;
  #invocation;
  /** How many requests keep the process alive. */
  #pending = 0;
  /** Told when the phase has changed: what waits for a release, what watches for a loss. */
  #watchers = new Set();
  #published = 'held';
  #opened;
  /** How many of the unwritten lines the socket has, but not yet the kernel. */
  #handed = 0;

  /** Asks for a lock; resolves with the connection and the grant. */
  static async acquire({ key, settings, wishes, invocation, signal }) {
    const { waitMs, leaseMs, boundMs } = plan(wishes, settings, invocation?.remainingMs());
    const end = performance.now() + boundMs;
    const left = () => end - performance.now();
    // Half of a short time is left for the error that names the cause.
    const anew = settings.underLambda ? Math.min(MADE_ANEW_MS, boundMs / 2) : 0;
    const mayCome = () => left() > boundMs - anew;
    for (;;) {
      signal?.throwIfAborted();
      const connection = new Connection(invocation);
      try {
        await connection.#open(settings.socket, left(), boundMs, mayCome, signal);
        const fields = {
          key,
          request_id: invocation?.requestId,
          remaining_ms: invocation?.remainingMs(),
          wait_ms: waitMs,
          lease_ms: leaseMs,
        };
        const late = () => noAnswer(boundMs);
        const grant = granted(await connection.#ask('acquire', fields, left(), late, signal));
        if (!grant) throw lockError('unknown', 'the answer cannot be read');
        return { connection, grant };
      } catch (error) {
        connection.close();
        if (error?.code !== 'EAGAIN' && !NOT_THERE.includes(error?.code)) throw error;
        if (left() <= AGAIN_MS) throw noAnswer(boundMs);
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  }

  constructor(invocation) {
    this.#invocation = invocation;
  }

  #open(path, bound, boundMs, mayCome, signal) {
    return this.#bounded(
      bound,
      () => noAnswer(boundMs),
      signal,
      (settle) => {
        this.#opened = settle;
        this.#link = transport.current.open(path, {
          connected: () => settle(),
          failed: (error) => {
            const again = error.code === 'EAGAIN' || (NOT_THERE.includes(error.code) && mayCome());
            settle(again ? error : cannotConnect(path, error));
          },
          arrived: (bytes) => {
            this.#state.arrived(bytes);
            this.#turn();
          },
          ended: () => {
            this.#state.end();
            this.#turn();
          },
        });
      },
    );
  }

  /** A promise that keeps the process alive until it is settled, by `settle(error, value)`, the bound or the signal. */
  #bounded(bound, late, signal, start) {
    return new Promise((resolve, reject) => {
      let open = true;
      const over = (how) => {
        if (!open) return;
        open = false;
        clearTimeout(timer);
        signal?.removeEventListener('abort', abort);
        this.#keepAlive(-1);
        how();
      };
      const settle = (error, value) => over(() => (error ? reject(error) : resolve(value)));
      const abort = () => over(() => reject(signal.reason));
      const timer = setTimeout(
        () => {
          // A busy event loop runs late timers before it reads what came in time.
          this.look();
          settle(late());
        },
        Math.max(0, bound),
      );
      signal?.addEventListener('abort', abort, { once: true });
      this.#keepAlive(1);
      try {
        start(settle);
        this.#link.keepAlive(true);
      } catch (error) {
        settle(error);
      }
    });
  }

  #keepAlive(more) {
    this.#pending += more;
    this.#link?.keepAlive(this.#pending > 0);
  }

  #ask(op, fields, bound, late, signal) {
    return this.#bounded(bound, late, signal, (settle) => {
      this.#state.ask(op, fields, settle);
      this.#turn();
    });
  }

  /** Reads what has arrived, without waiting for the event loop. */
  look() {
    this.#link.look();
    this.#turn();
  }

  /** Writes what waits, closes what is over, tells of a change. */
  #turn() {
    // Each line anew: writing can find that the other side is gone, and so come back to here.
    while (!this.#state.ended && this.#handed < this.#state.unwritten().length) {
      const line = this.#state.unwritten()[this.#handed];
      this.#handed += 1;
      let written = () => {
        written = () => {};
        this.#handed -= 1;
        this.#state.wrote(1);
      };
      this.#link.write(line, () => written());
    }
    if (this.#state.ended) {
      this.#opened?.(this.#state.phase === 'lost' ? this.#state.whyEnded() : undefined);
      this.#link.destroy();
    }
    if (this.#published !== this.#state.phase) {
      this.#published = this.#state.phase;
      for (const watcher of [...this.#watchers]) watcher();
    }
  }

  /** Calls `watcher` at each change of the phase; gives what ends that. */
  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  get phase() {
    return this.#state.phase;
  }

  get reason() {
    return this.#state.reason;
  }

  get metrics() {
    return { ...this.#state.metrics };
  }

  lostError() {
    return this.#state.lost();
  }

  raiseIfLost() {
    this.look();
    if (this.#state.phase === 'lost') throw this.#state.lost();
  }

  remaining() {
    this.look();
    return this.#link.canLook ? this.#state.remaining() : 0;
  }

  /** A question about the lease, within the time that an answer without DynamoDB may take. */
  async #askLease(op) {
    this.look();
    const lease = this.#state.held();
    const bound = answerBound(this.#invocation?.remainingMs());
    try {
      return await this.#ask(op, { lease }, bound, () => noAnswer(bound));
    } catch (error) {
      throw fromHere(error);
    }
  }

  async check() {
    // An answer can be old by the time the event loop gets to it; a second one is not, unless nothing runs in time.
    for (let attempt = 0; attempt < 2; attempt += 1) {
      await this.#askLease('check');
      const remaining = this.#state.remaining();
      if (remaining > 0) return remaining;
      this.#state.held();
    }
    throw lockError('unavailable', 'this process was too busy to read an answer before its validity was over');
  }

  async askMetrics() {
    try {
      await this.#askLease('metrics');
    } catch (error) {
      if (error.code !== 'lost' && error.code !== 'protocol') throw error;
    }
    return this.metrics;
  }

  /** Gives the lease back within its bound and closes; rejects with the error that this ended with. */
  release() {
    return new Promise((resolve, reject) => {
      let timer;
      const finish = () => {
        unwatch();
        clearTimeout(timer);
        this.#keepAlive(-1);
        const error = this.#state.released();
        this.close();
        if (error) reject(error);
        else resolve();
      };
      const unwatch = this.watch(finish);
      this.#keepAlive(1);
      if (this.#state.phase !== 'held') return finish();
      this.look();
      if (this.#state.phase !== 'held') return;
      this.#state.release();
      this.#turn();
      if (this.#state.phase !== 'held') return;
      timer = setTimeout(() => {
        this.look();
        this.#state.giveUpRelease();
        this.#turn();
      }, releaseBound(this.#invocation?.remainingMs()));
    });
  }

  /** Ends the connection from this side: the extension gives back whatever it still holds for it. */
  close() {
    // Invalid strictly before the other side can see the end and give the row away.
    this.#state.close();
    this.#link?.destroy();
    if (this.#link) this.#turn();
  }
}

/** Something listens, and that is all. */
function noAnswer(boundMs) {
  return lockError(
    'unavailable',
    `the extension did not answer within ${Math.round(boundMs)} ms: it is stopped or overloaded; see its log`,
  );
}

function cannotConnect(path, error) {
  if (error.code === 'EACCES' || error.code === 'EPERM') {
    return lockError(
      'config',
      `this process's user may not use the socket ${path} (${error.code}): run the extension as the same user, or list this ` +
        "one's id in its LEASEKEEPER_PEER_UIDS",
    );
  }
  return lockError(
    'extension_missing',
    `no Leasekeeper extension answers on the socket ${path} (${error.code ?? error.message}): add the Leasekeeper layer to ` +
      'the function; outside Lambda, run the sidecar `leasekeeper` with LEASEKEEPER_TABLE set, and the same ' +
      'LEASEKEEPER_SOCKET for both; in unit tests, `installDouble` of leasekeeper/testing stands in for it',
  );
}

module.exports = { Connection };
