'use strict';
// The socket's messages: requests as they are written, replies and events as they are read.

const { CODES, REASONS } = require('./errors.js');

const DEFAULT_SOCKET = '/tmp/leasekeeper/lock.sock';
/** The longest line, with its newline. */
const MAX_LINE = 65_536;
const MAX_KEY = 2_048;
const MAX_REQUEST_ID = 256;
const MAX_WAIT_MS = 86_400_000;
const MIN_LEASE_MS = 100;
const MAX_LEASE_MS = 86_400_000;

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The line of a request; fields that are undefined are left out. */
function encode(id, op, fields) {
  return `${JSON.stringify({ v: 1, id, op, ...fields })}\n`;
}

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const isWhole = (value) => Number.isInteger(value) && value >= 0;
const isText = (value) => typeof value === 'string';
const isNumber = (value) => typeof value === 'number';

/** `retry_after_ms` is `retryAfterMs`. */
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** A record with its known fields under their names in this language; undefined if one has the wrong form. */
function record(value, fields) {
  if (!isObject(value)) return undefined;
  const read = {};
  for (const [name, { is, absent }] of Object.entries(fields)) {
    const field = value[name] ?? absent;
    if (field === undefined) continue;
    if (!is(field)) return undefined;
    read[camel(name)] = field;
  }
  return read;
}

const whole = { is: isWhole, absent: 0 };
const number = { is: isNumber, absent: 0 };
const text = { is: isText };

const METRICS = {
  write_requests: whole,
  read_requests: whole,
  renewals: whole,
  conditional_failures: whole,
  request_failures: whole,
  wait_ms: whole,
  wait_timeouts: whole,
  cleanup_failures: whole,
  lost: whole,
  consumed_read_units: number,
  consumed_write_units: number,
};

/** A lease's figures; undefined if they cannot be read. */
const metrics = (value) => record(value, METRICS);

/** Every figure there is, none counted yet. */
const noMetrics = () => metrics({});

const HOLDER = {
  owner: text,
  lease_ms: whole,
  unchanged_ms: whole,
  function: text,
  request_id: text,
  log_stream: text,
  host: text,
};

function holder(value) {
  const read = record(value, HOLDER);
  return read?.owner === undefined ? undefined : read;
}

/** What a grant says; undefined if it cannot be read. */
function granted(value) {
  const read = record(value, {
    lease: { is: isWhole },
    valid_ms: { is: isWhole },
    lease_ms: { is: isWhole },
    owner: text,
    table: text,
    token: { is: isWhole },
    waited_ms: whole,
  });
  if (!read || [read.lease, read.validMs, read.leaseMs, read.owner, read.table].includes(undefined)) return undefined;
  return { token: null, ...read };
}

/** An error reply's content: its code, its message, and what else is known of it. */
function failure(value) {
  const broken = () => ({ code: 'unknown', message: JSON.stringify(value), details: {} });
  if (!isObject(value) || !isText(value.code) || !(value.message === undefined || isText(value.message))) return broken();
  const details = {};
  const take = (name, field, read) => {
    if (value[field] === undefined || value[field] === null) return true;
    details[name] = read(value[field]);
    return details[name] !== undefined;
  };
  const readable =
    take('retryAfterMs', 'retry_after_ms', (ms) => (isWhole(ms) ? ms : undefined)) &&
    take('holder', 'holder', holder) &&
    take('reason', 'reason', (reason) => (isText(reason) ? reasonOf(reason) : undefined)) &&
    take('metrics', 'metrics', metrics);
  if (!readable) return broken();
  const code = CODES.includes(value.code) ? value.code : 'unknown';
  if (code === 'lost') details.reason ??= 'unknown';
  return { code, message: value.message ?? '', details };
}

const reasonOf = (word) => (REASONS.includes(word) ? word : 'unknown');

const EVENTS = ['renewed', 'danger', 'recovered', 'ending', 'lost'];

/**
 * Reads one line without its newline: a reply, an event, or nothing of interest (undefined).
 * Throws if the line is no JSON object: then the two ends are out of step.
 */
function decode(bytes) {
  const line = JSON.parse(UTF8.decode(bytes));
  if (!isObject(line)) throw new SyntaxError('a line that is no JSON object');
  if (Object.hasOwn(line, 'event')) {
    const { event, lease, reason, within_ms } = line;
    if (!EVENTS.includes(event) || !isWhole(lease) || (event === 'lost' && !isText(reason))) return undefined;
    if (event === 'ending') return isWhole(within_ms) ? { event, lease, within_ms } : undefined;
    return { event, lease, ...(event === 'lost' && { reason: reasonOf(reason) }) };
  }
  const id = isWhole(line.id) ? line.id : null;
  if (Object.hasOwn(line, 'error')) return { id, error: failure(line.error) };
  return Object.hasOwn(line, 'ok') ? { id, ok: line.ok } : undefined;
}

module.exports = {
  DEFAULT_SOCKET,
  MAX_LINE,
  MAX_KEY,
  MAX_REQUEST_ID,
  MAX_WAIT_MS,
  MIN_LEASE_MS,
  MAX_LEASE_MS,
  decode,
  encode,
  granted,
  isWhole,
  metrics,
  noMetrics,
};
