'use strict';
// What the function's environment says: read when a lock is asked for, so that a wrong value fails that and nothing else.

const { isAbsolute } = require('node:path');
const { lockError } = require('./errors.js');
const { DEFAULT_SOCKET, MAX_LEASE_MS, MAX_WAIT_MS, MIN_LEASE_MS } = require('./wire.js');

/** The longest path that a Unix socket can have. */
const MAX_SOCKET = 107;

const config = (message) => lockError('config', message);

/** Throws the `config` error that names the variable. */
function readSettings(env = process.env) {
  const whole = (name, least, most) => {
    const text = env[name];
    if (text === undefined) return undefined;
    const ms = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
    if (ms >= least && ms <= most) return ms;
    throw config(`${name} is ${JSON.stringify(text)}: whole milliseconds from ${least} to ${most} are expected`);
  };
  const socket = env.LEASEKEEPER_SOCKET ?? DEFAULT_SOCKET;
  if (!isAbsolute(socket) || Buffer.byteLength(socket) > MAX_SOCKET) {
    throw config(
      `LEASEKEEPER_SOCKET is ${JSON.stringify(socket)}: an absolute path of at most ${MAX_SOCKET} bytes is expected`,
    );
  }
  const strict = env.LEASEKEEPER_STRICT_RELEASE;
  if (![undefined, 'true', '1', 'false', '0'].includes(strict)) {
    throw config(`LEASEKEEPER_STRICT_RELEASE is ${JSON.stringify(strict)}: true or false is expected`);
  }
  return {
    socket,
    underLambda: env.AWS_LAMBDA_RUNTIME_API !== undefined,
    strictRelease: strict === 'true' || strict === '1',
    // Inside an invocation the extension knows these two, and they only say how long its answer may take.
    waitMs: whole('LEASEKEEPER_WAIT_MS', 0, MAX_WAIT_MS),
    leaseMs: whole('LEASEKEEPER_LEASE_MS', MIN_LEASE_MS, MAX_LEASE_MS),
  };
}

module.exports = { readSettings };
