'use strict';
// What can go wrong, as something callers branch on and as a text that says what to do.

const ADVICE = {
  stolen: 'another owner has taken it over',
  expired: 'no renewal was confirmed in time; DynamoDB could not be reached',
  deleted: 'its row was removed by someone else',
  denied: "a renewal was refused; check the role's permissions on the lock table",
  throttled: "its renewals were throttled for too long; check the lock table's capacity",
  deadline: "the invocation's deadline has passed",
  thaw: 'the environment was frozen and resumed for another invocation',
  shutdown: 'the environment or the sidecar is shutting down',
  extension_failed: 'the extension failed or went away; see its log',
  max_hold: 'it was held for the longest time that LEASEKEEPER_MAX_HOLD_MS allows',
};

/** The extension's words on a loss begin as ours do. */
const notRepeated = (message) => message.replace(/^the lock was lost: /, '');

/** Every reason of a loss that this version knows. */
const REASONS = Object.keys(ADVICE);

/** What the extension said, if it said anything. */
const words = (message) => (message ? ` (${message})` : '');

// The texts go to whoever invoked the function, so they never tell what `busy` knows of the holder.
const TEXTS = {
  busy: () =>
    'the lock is held by someone else and the wait for it is over: try again later, or allow a longer wait ' +
    '(`waitMs` or LEASEKEEPER_WAIT_MS)',
  budget_exhausted: () =>
    "the invocation has no time left to wait for the lock: raise the function's timeout, or reserve less of it for " +
    'the work (`reserveMs` or LEASEKEEPER_RESERVE_MS)',
  lost: (message, reason) =>
    `the lock was lost (${reason}): ${ADVICE[reason] ?? "see the extension's log"}${words(notRepeated(message))}`,
  unavailable: (message) => `Leasekeeper is unavailable at the moment; try again: ${message}`,
  denied: (message) => `access to the lock table was refused; check the function's role and credentials: ${message}`,
  config: (message) => `Leasekeeper is misconfigured: ${message}`,
  foreign_row: (message) => `the key is used for something other than a lock; use another key or another table: ${message}`,
  protocol: (message) => `the lock request is invalid: ${message}`,
  release_unconfirmed: (message) =>
    'the lock was given back, but this is not confirmed: others may find it held until the extension succeeds or the ' +
    `lease ends${words(message)}`,
  extension_missing: (message) => message,
  unknown: (message) =>
    `this version of the package does not understand the extension's answer; update the package: ${message}`,
};

/** A property that neither logs nor JSON show by themselves. */
function hide(error, name, value) {
  Object.defineProperty(error, name, { value, enumerable: false, configurable: true, writable: true });
}

/** Why there is no lock, or why it is not held any more. Made by `lockError`. */
class LockError extends Error {
  constructor(code, message = '', details = {}) {
    super(TEXTS[code](message, details.reason));
    hide(this, 'name', nameOf(code));
    this.code = code;
    // What the extension itself said, without the advice around it.
    hide(this, 'detail', message);
    if (details.reason !== undefined) this.reason = details.reason;
    if (details.retryAfterMs !== undefined) this.retryAfterMs = details.retryAfterMs;
    // Another tenant's data: there for whoever asks, not for whoever prints.
    if (details.holder !== undefined) hide(this, 'holder', details.holder);
    if (details.metrics !== undefined) hide(this, 'metrics', details.metrics);
  }
}

/** `release_unconfirmed` is `Leasekeeper.ReleaseUnconfirmed`, the name that Lambda reports as the error's type. */
function nameOf(code) {
  return `Leasekeeper.${code.replace(/(?:^|_)([a-z])/g, (_, letter) => letter.toUpperCase())}`;
}

/** Someone else holds the lock and the wait is over. */
class BusyError extends LockError {}
/** The invocation has no time left to wait in. */
class BudgetExhaustedError extends LockError {}
/** The lease is over, for good. */
class LostError extends LockError {}
/** DynamoDB or the extension did not answer in time, or the extension takes no more requests. */
class UnavailableError extends LockError {}
/** A permission or the credentials are missing. */
class DeniedError extends LockError {}
/** A setting is missing or wrong, or the table is not what it must be. */
class ConfigError extends LockError {}
/** The key is used for something other than a lock of protocol version 1. */
class ForeignRowError extends LockError {}
/** The request itself is wrong. */
class ProtocolError extends LockError {}
/** The work is done, but DynamoDB has not confirmed that the row is gone. */
class ReleaseUnconfirmedError extends LockError {}
/** Nothing listens on the socket, or the connection was closed without an answer. */
class ExtensionMissingError extends LockError {}
/** An answer that this package does not understand, as of an extension that is newer. */
class UnknownLockError extends LockError {}

const CLASSES = {
  busy: BusyError,
  budget_exhausted: BudgetExhaustedError,
  lost: LostError,
  unavailable: UnavailableError,
  denied: DeniedError,
  config: ConfigError,
  foreign_row: ForeignRowError,
  protocol: ProtocolError,
  release_unconfirmed: ReleaseUnconfirmedError,
  extension_missing: ExtensionMissingError,
  unknown: UnknownLockError,
};

/** The error of a code; a code that nobody knows is `unknown`. */
function lockError(code, message, details) {
  const known = Object.hasOwn(CLASSES, code) ? code : 'unknown';
  return new CLASSES[known](known, message, details);
}

/** Lets a lock error's stack tell who asked, instead of the socket's event that brought it. For `throw` after an await. */
function fromHere(error) {
  if (error instanceof LockError) Error.captureStackTrace(error, fromHere);
  return error;
}

/** Attaches a clean-up's error to the application's own, which stays what it was. */
function attach(error, cleanUp) {
  if (error instanceof LockError && error.code === cleanUp.code) return; // It says it already.
  console.warn(`leasekeeper: after the work had failed: ${cleanUp.code}: ${cleanUp.message}`);
  if (error !== null && typeof error === 'object' && Object.isExtensible(error)) hide(error, 'lockError', cleanUp);
}

module.exports = {
  CODES: Object.keys(CLASSES).filter((code) => code !== 'unknown'),
  REASONS,
  attach,
  fromHere,
  lockError,
  LockError,
  BusyError,
  BudgetExhaustedError,
  LostError,
  UnavailableError,
  DeniedError,
  ConfigError,
  ForeignRowError,
  ProtocolError,
  ReleaseUnconfirmedError,
  ExtensionMissingError,
  UnknownLockError,
};
