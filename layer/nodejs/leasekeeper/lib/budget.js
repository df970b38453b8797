'use strict';
// How long to wait: for the lock, for the extension's answers, for the release. All in milliseconds.

const { lockError } = require('./errors.js');
const { MAX_LEASE_MS, MAX_WAIT_MS, MIN_LEASE_MS, isWhole } = require('./wire.js');

/** Kept of every invocation for posting its response. */
const KEPT = 200;
/** The default wait inside an invocation, at most. */
const WAIT = 5_000;
/** The extension's lease unless its settings say otherwise. */
const LEASE = 20_000;
/** The last request of a wait is not clipped by the wait: one attempt's time-out, and some for two processes to take turns. */
const LAST_ATTEMPT = 3_500;
/** Of a wait that the invocation's end cuts short this is left for the answer, or a busy lock would look like silence. */
const LAST_WORD = 300;
/** How long an answer that needs no DynamoDB may take; a starved extension on a small function needs some of it. */
const ANSWER = 3_000;
/** What a release may cost an invocation at most. */
const RELEASE = 1_000;
/** Outside an invocation: the extension's own budget for a release is 10 s at most. */
const RELEASE_OUTSIDE = 11_000;

/**
 * Fits the wishes into what remains of the invocation, if there is one. `waitMs` and `leaseMs` are what is sent; where one is
 * undefined the extension's own setting and rule apply. `boundMs` is when the client stops waiting for the answer.
 */
function plan({ waitMs, leaseMs, reserveMs }, settings, remaining) {
  range('waitMs', waitMs, 0, MAX_WAIT_MS);
  range('reserveMs', reserveMs, 0, MAX_WAIT_MS);
  range('leaseMs', leaseMs, MIN_LEASE_MS, MAX_LEASE_MS);
  if (remaining === undefined) {
    const wait = Math.min(waitMs ?? settings.waitMs ?? (leaseMs ?? settings.leaseMs ?? LEASE) + WAIT, MAX_WAIT_MS);
    // Sent even when nobody asked for it: this process and the extension can have different environments here.
    return { waitMs: wait, leaseMs, boundMs: wait + LAST_ATTEMPT };
  }
  const left = Math.max(0, remaining - Math.max(reserveMs ?? KEPT, KEPT));
  if (left === 0) throw lockError('budget_exhausted');
  const usual = settings.waitMs ?? WAIT;
  const cut = Math.min(left, Math.max(0, remaining - KEPT - LAST_WORD));
  const wait = waitMs === undefined && reserveMs === undefined ? undefined : Math.min(waitMs ?? usual, cut);
  return { waitMs: wait, leaseMs, boundMs: Math.min((wait ?? usual) + LAST_ATTEMPT, remaining - KEPT) };
}

function range(name, value, least, most) {
  if (value === undefined) return;
  if (typeof value !== 'number') throw new TypeError(`${name} must be a number of milliseconds, not ${typeof value}`);
  if (!isWhole(value) || value < least || value > most) {
    throw lockError('protocol', `\`${name}\` must be whole milliseconds from ${least} to ${most}, not ${value}`);
  }
}

/** For an answer that needs no DynamoDB. */
function answerBound(remaining) {
  return remaining === undefined ? ANSWER : Math.min(ANSWER, Math.max(0, remaining - KEPT));
}

/** For the release. */
function releaseBound(remaining) {
  return remaining === undefined ? RELEASE_OUTSIDE : Math.min(RELEASE, Math.max(0, remaining - KEPT));
}

module.exports = { answerBound, plan, releaseBound };
