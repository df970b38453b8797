// A lock around a part of the work only: what needs no lock is done before it and after it.

import { setTimeout as work } from 'node:timers/promises';
import { BusyError, withLock } from 'leasekeeper';

export async function handler({ account, work_ms = 50 }, context) {
  if (typeof account !== 'string') throw new TypeError('the event has no account');
  const report = await read(account, work_ms);
  try {
    // The context binds the lock to this invocation; a handler wrapped by `locked` would have passed it on by itself.
    const stored = await withLock(`account:${account}`, { context, waitMs: 1_000 }, (lease) => store(report, lease));
    return { account, stored };
  } catch (error) {
    if (error instanceof BusyError) return { account, stored: false, retry_after_ms: error.retryAfterMs };
    throw error;
  }
}

async function read(account, work_ms) {
  await work(work_ms);
  return { account, lines: 3 };
}

async function store(report, lease) {
  await work(report.lines);
  // A write to DynamoDB would carry lease.conditionCheck() in the same transaction.
  lease.raiseIfLost();
  return true;
}
