'use strict';
// What belongs to the running invocation, however deep in its calls: the invocation itself, and the lease it works under.

const { AsyncLocalStorage } = require('node:async_hooks');
const { lockError } = require('./errors.js');
const { MAX_REQUEST_ID } = require('./wire.js');

const storage = new AsyncLocalStorage();

/** Is this the context object of a Lambda invocation? */
function isContext(value) {
  return typeof value?.awsRequestId === 'string' && typeof value?.getRemainingTimeInMillis === 'function';
}

/** The invocation of a context object: its id, and how much of it is left. */
function invocationOf(context) {
  if (!isContext(context)) {
    throw new TypeError('`context` must be what Lambda passes to a handler: awsRequestId and getRemainingTimeInMillis()');
  }
  const requestId = context.awsRequestId;
  const length = Buffer.byteLength(requestId);
  if (length < 1 || length > MAX_REQUEST_ID) {
    throw lockError('protocol', `the request id must have 1 to ${MAX_REQUEST_ID} bytes, not ${length}`);
  }
  return {
    requestId,
    remainingMs() {
      const left = Math.trunc(context.getRemainingTimeInMillis());
      if (Number.isNaN(left)) throw lockError('protocol', 'getRemainingTimeInMillis() gives no number');
      return Math.min(Math.max(0, left), Number.MAX_SAFE_INTEGER);
    },
  };
}

/** The invocation that this code runs in, as far as a wrapped handler has told. */
const currentInvocation = () => storage.getStore()?.invocation;

/** Runs a function with more known about where it runs. */
function within(more, work) {
  return storage.run({ ...storage.getStore(), ...more }, work);
}

/** A scope for code that no function of ours is around. What is known in it can change while it lasts. */
function scope(invocation) {
  const outer = storage.getStore();
  const store = { ...outer, ...(invocation && { invocation }) };
  return {
    run: (work) => storage.run(store, work),
    /**
     * For whoever calls, and all that it runs later, unless it runs in another scope. It must run by itself, after an await:
     * what was entered is also entered for a caller that has not got its promise yet.
     */
    enter() {
      if (storage.getStore() === outer) storage.enterWith(store);
    },
    holds(lease) {
      store.lease = lease ?? outer?.lease;
    },
    /** Nothing more is known in it than around it. */
    leave() {
      store.invocation = outer?.invocation;
      store.lease = outer?.lease;
    },
  };
}

/** The lease of the innermost block around the caller. */
function currentLease() {
  const lease = storage.getStore()?.lease;
  if (lease) return lease;
  throw lockError('protocol', 'no lock is held here: currentLease() is for code that runs inside `locked` or `withLock`');
}

module.exports = { currentInvocation, currentLease, invocationOf, isContext, scope, within };
