'use strict';
// Asking for a lock, and work under it.

const { Connection } = require('./connection.js');
const { currentInvocation, invocationOf, within } = require('./context.js');
const { attach, fromHere, lockError } = require('./errors.js');
const { checkKey } = require('./key.js');
const { Lease } = require('./lease.js');
const { readSettings } = require('./settings.js');

const WISHES = ['waitMs', 'leaseMs', 'reserveMs'];
const LOCK_OPTIONS = [...WISHES, 'context', 'signal', 'strictRelease'];
const WORK_OPTIONS = [...LOCK_OPTIONS, 'onLost'];

/** A misspelt option must not become a lock that is less than was wished. */
function checkOptions(options, known) {
  if (options === null || typeof options !== 'object') throw new TypeError('the options must be an object');
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new TypeError(`unknown option \`${name}\`: ${known.join(', ')} are known`);
  }
  const { onLost, strictRelease, signal } = options;
  if (![undefined, 'abort', 'notify'].includes(onLost)) throw new TypeError("`onLost` must be 'abort' or 'notify'");
  if (![undefined, true, false].includes(strictRelease)) throw new TypeError('`strictRelease` must be true or false');
  if (signal !== undefined && typeof signal?.addEventListener !== 'function') {
    throw new TypeError('`signal` must be an AbortSignal');
  }
}

async function acquire(key, options) {
  checkKey(key);
  const settings = readSettings();
  const { waitMs, leaseMs, reserveMs, context, signal, strictRelease } = options;
  const invocation = context === undefined ? currentInvocation() : invocationOf(context);
  const wishes = { waitMs, leaseMs, reserveMs };
  try {
    const { connection, grant } = await Connection.acquire({ key, settings, wishes, invocation, signal });
    return new Lease(connection, key, grant, strictRelease ?? settings.strictRelease);
  } catch (error) {
    throw invocation ? fromHere(error) : forgotten(fromHere(error));
  }
}

/** Where a request without an invocation should have had one, the error says how it gets one. */
function forgotten(error) {
  if (error?.code !== 'protocol' || !error.detail.includes('request_id')) return error;
  const advice = 'take the lock in the handler, wrapped by `locked`, or with the option `context`';
  return lockError('protocol', `${error.detail}; ${advice}`);
}

async function lock(key, options = {}) {
  checkOptions(options, LOCK_OPTIONS);
  return acquire(key, options);
}

async function tryLock(key, options = {}) {
  checkOptions(
    options,
    LOCK_OPTIONS.filter((name) => name !== 'waitMs'),
  );
  return acquire(key, { ...options, waitMs: 0 });
}

/** Resolves with how it ended, and never rejects. */
function settled(promise) {
  return promise.then(
    (value) => ({ value }),
    (error) => ({ error }),
  );
}

/** Resolves when the lease is lost, if that is what ends the work. */
function lossOf(lease, onLost) {
  return onLost === 'notify' ? new Promise(() => {}) : lease.lost.then(() => ({ lost: true }));
}

/** What the caller gets: the work's own error before any of the release, which is attached to it then. */
async function conclude(outcome, lease) {
  if (outcome.lost) throw lease.abandon();
  if (!('error' in outcome)) {
    await lease.handBack();
    return outcome.value;
  }
  const { error: cleanUp } = await settled(lease.release());
  if (cleanUp) attach(outcome.error, cleanUp);
  throw outcome.error;
}

/** What work has come to; a generator has not run yet, and would run without the lock. */
function whole(value) {
  const kind = Object.prototype.toString.call(value);
  if (kind !== '[object Generator]' && kind !== '[object AsyncGenerator]') return value;
  throw new TypeError('the work has given a generator: it would run after the lock is given back. Lock inside of it');
}

/** Runs work under a lease and gives it back before this settles. */
async function hold(lease, onLost, work) {
  const body = settled(within({ lease }, async () => whole(await work(lease))));
  return conclude(await Promise.race([lossOf(lease, onLost), body]), lease);
}

async function withLock(key, options, work) {
  if (typeof options === 'function' && work === undefined) return withLock(key, {}, options);
  checkOptions(options, WORK_OPTIONS);
  if (typeof work !== 'function') throw new TypeError('withLock(key, options, work): `work` must be a function');
  return hold(await acquire(key, options), options.onLost, work);
}

module.exports = { WISHES, acquire, checkOptions, conclude, hold, lock, lossOf, settled, tryLock, whole, withLock };
