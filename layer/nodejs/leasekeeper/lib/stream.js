'use strict';
// A streaming response that holds its lock: given back before the stream's end is passed on.

const { within } = require('./context.js');
const { attach } = require('./errors.js');
const { conclude, lossOf, settled } = require('./lock.js');

/**
 * Runs a streaming handler under a lease. The stream's `end` is held back until the lock was given back; a lock that was lost
 * until then, or with strict release an unconfirmed one, is the handler's error, and the stream's end is never passed on.
 */
async function holdStreaming(lease, onLost, stream, work) {
  const end = holdBackEnd(stream, lease);
  try {
    const loss = lossOf(lease, onLost);
    const body = settled(within({ lease }, async () => work()));
    const broken = end.failure.then((error) => ({ broken: error }));
    const first = await Promise.race([loss, broken, body]);
    if ('broken' in first) throw first.broken;
    if (first.lost) return conclude(first, lease);
    if ('error' in first) {
      // After the end the lock is back, or its failure came first.
      if (!end.asked) return await conclude(first, lease);
      const error = await end.outcome;
      if (error) attach(first.error, error);
      throw first.error;
    }
    // What still flows into the stream flows under the lock.
    const last = await Promise.race([loss, end.outcome.then((error) => ({ ended: true, error })), closed(stream)]);
    if (last.lost || !last.ended) return await conclude(last.lost ? last : first, lease);
    if (last.error) throw last.error;
    return first.value;
  } finally {
    end.restore();
  }
}

/** Resolves when nothing more can be written. */
function closed(stream) {
  if (stream.destroyed) return Promise.resolve({});
  return new Promise((resolve) => {
    stream.once?.('close', () => resolve({}));
    stream.once?.('error', () => resolve({}));
  });
}

/** Puts a function of our own before the stream's `end`. */
function holdBackEnd(stream, lease) {
  const original = stream.end;
  const hold = { asked: false };
  hold.outcome = new Promise((resolve) => {
    hold.resolve = resolve;
  });
  hold.failure = new Promise((resolve) => {
    hold.outcome.then((error) => error && resolve(error));
  });
  const restore = () => {
    if (stream.end === heldBack) delete stream.end;
    if (stream.end !== original) stream.end = original;
  };
  hold.restore = restore;

  function heldBack(...args) {
    const callback = args.find((arg) => typeof arg === 'function');
    const [chunk, encoding] = args.filter((arg) => typeof arg !== 'function');
    if (hold.asked) return stream;
    hold.asked = true;
    if (chunk !== undefined && chunk !== null) stream.write(chunk, encoding);
    settled(lease.handBack()).then(({ error }) => {
      restore();
      if (!error) original.call(stream, callback);
      hold.resolve(error);
    });
    return stream;
  }
  stream.end = heldBack;
  return hold;
}

module.exports = { holdStreaming };
