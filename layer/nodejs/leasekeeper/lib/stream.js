'use strict';
// A streaming response that holds its lock: given back before the stream's end is passed on.

const { within } = require('./context.js');
const { attach } = require('./errors.js');
const { conclude, lossOf, settled, whole } = require('./lock.js');

/**
 * Runs a streaming handler under a lease. The stream's `end` is held back until the lock was given back; a lock that was lost
 * until then, or with strict release an unconfirmed one, is the handler's error, and the stream's end is never passed on.
 */
async function holdStreaming(lease, onLost, stream, work) {
  const end = holdBackEnd(stream, lease);
  try {
    const loss = lossOf(lease, onLost);
    const body = settled(within({ lease }, async () => whole(await work())));
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

const isFunction = (arg) => typeof arg === 'function';

/** Resolves when nothing more can be written. */
function closed(stream) {
  if (stream.destroyed) return Promise.resolve({});
  return new Promise((resolve) => {
    stream.once?.('close', () => resolve({}));
    stream.once?.('error', () => resolve({}));
  });
}

/** Puts functions of our own before the stream's `end`, and before its `write` from the end on. */
function holdBackEnd(stream, lease) {
  const { end, write } = stream;
  const late = [];
  const hold = { asked: false };
  hold.outcome = new Promise((resolve) => {
    hold.resolve = resolve;
  });
  hold.failure = new Promise((resolve) => {
    hold.outcome.then((error) => error && resolve(error));
  });
  const restore = () => {
    for (const [name, ours, original] of [
      ['end', heldBack, end],
      ['write', tooLate, write],
    ]) {
      if (stream[name] === ours) delete stream[name];
      if (stream[name] !== original) stream[name] = original;
    }
  };
  hold.restore = restore;

  function heldBack(...args) {
    const callback = args.find(isFunction);
    const [chunk, encoding] = args.filter((arg) => !isFunction(arg));
    if (hold.asked) return stream;
    hold.asked = true;
    if (chunk !== undefined && chunk !== null) stream.write(chunk, encoding);
    // The lock is on its way back: what is written from now on would be written without it.
    stream.write = tooLate;
    settled(lease.handBack()).then(({ error }) => {
      restore();
      if (!error) end.call(stream, callback);
      for (const args of late) {
        // After its end the stream refuses them by itself, as it does every such write.
        if (error) args.find(isFunction)?.(error);
        else write.apply(stream, args);
      }
      hold.resolve(error);
    });
    return stream;
  }
  function tooLate(...args) {
    late.push(args);
    return false;
  }
  stream.end = heldBack;
  return hold;
}

module.exports = { holdStreaming };
