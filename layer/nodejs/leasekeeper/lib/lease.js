'use strict';
// A held lock: gives it back, and tells how it stands.

const { fromHere, lockError } = require('./errors.js');

/** Whoever does not await an outcome has not asked for it: its failure must not end the process. */
function quiet(promise) {
  promise.catch(() => {});
  return promise;
}

class Lease {
  #connection;
  #grant;
  #key;
  #releasing;
  #lost;
  #controller;
  #over = false;
  #strict;

  constructor(connection, key, grant, strict) {
    this.#connection = connection;
    this.#key = key;
    this.#grant = grant;
    this.#strict = strict;
  }

  get key() {
    return this.#key;
  }

  get owner() {
    return this.#grant.owner;
  }

  get table() {
    return this.#grant.table;
  }

  get token() {
    return this.#grant.token;
  }

  get leaseMs() {
    return this.#grant.leaseMs;
  }

  get waitedMs() {
    return this.#grant.waitedMs;
  }

  check() {
    return quiet(this.#connection.check());
  }

  remaining() {
    return this.#connection.remaining();
  }

  raiseIfLost() {
    this.#connection.raiseIfLost();
  }

  get isLost() {
    this.#connection.look();
    return this.#connection.phase === 'lost';
  }

  get lost() {
    this.#lost ??= new Promise((resolve) => {
      this.#whenLost(() => resolve(this.#connection.reason));
    });
    return this.#lost;
  }

  get signal() {
    if (!this.#controller) {
      // Before the signal's listeners run, so that whoever awaits the loss is first.
      void this.lost;
      this.#controller = new AbortController();
      this.#whenLost(() => this.#controller.abort(this.#connection.lostError()));
      if (this.#over) this.stopWork();
    }
    return this.#controller.signal;
  }

  /** For work that can outlast its lock, which goes back now: tells it by the signal, unless a loss has done so. */
  stopWork() {
    this.#over = true;
    if (!this.#controller || this.isLost) return;
    this.#controller.abort(lockError('protocol', 'the lock was given back, and this work goes on without it'));
  }

  /** At once if it is lost already; never if it is given back. */
  #whenLost(tell) {
    if (this.#connection.phase === 'lost') return tell();
    const unwatch = this.#connection.watch(() => {
      unwatch();
      if (this.#connection.phase === 'lost') tell();
    });
  }

  metrics() {
    return quiet(this.#connection.askMetrics());
  }

  release() {
    this.#releasing ??= quiet(this.#connection.release());
    return this.#releasing;
  }

  /** Gives the lock back; what is only unconfirmed is logged, unless it is to be strict: the work is done. */
  async handBack(strict = this.#strict) {
    try {
      await this.release();
    } catch (error) {
      if (error.code !== 'release_unconfirmed' || strict) throw fromHere(error);
      console.warn(`leasekeeper: ${error.code}: ${error.message}`);
    }
  }

  /** The error of a lease that is known to be lost. Closes the connection: nothing is left to be given back. */
  abandon() {
    const error = this.#connection.lostError();
    this.#releasing ??= quiet(Promise.reject(error));
    this.#connection.close();
    return error;
  }

  conditionCheck() {
    return this.#condition({ S: this.key }, { S: this.owner });
  }

  documentConditionCheck() {
    return this.#condition(this.key, this.owner);
  }

  #condition(key, owner) {
    return {
      ConditionCheck: {
        TableName: this.table,
        Key: { key },
        ConditionExpression: '#owner = :mine',
        ExpressionAttributeNames: { '#owner': 'owner' },
        ExpressionAttributeValues: { ':mine': owner },
        ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
      },
    };
  }

  /** For `await using`. Once `release` was called by hand, its outcome was told. */
  async dispose() {
    if (!this.#releasing) await this.handBack();
  }

  /** Neither the key nor the table: they are no one's business who prints it. */
  [Symbol.for('nodejs.util.inspect.custom')]() {
    return `Lease { owner: '${this.owner}' }`;
  }
}

// Node 18.18 and 20.4 brought it; before, there is no `await using` either.
if (Symbol.asyncDispose) Lease.prototype[Symbol.asyncDispose] = Lease.prototype.dispose;

module.exports = { Lease };
