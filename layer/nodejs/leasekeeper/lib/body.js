'use strict';
// A response's body that is a stream and holds a lock: given back before the stream's end is passed on.

const { Readable, Transform, pipeline } = require('node:stream');
const { attach } = require('./errors.js');
const { settled } = require('./lock.js');

class HeldBody extends Transform {
  #hold;

  constructor(hold) {
    super({ decodeStrings: false });
    this.#hold = hold;
    hold.lease.lost.then(() => this.destroy(hold.lease.abandon()));
  }

  /** Here the source is made to go on: by whoever reads, but what it runs belongs to the request. */
  _read(size) {
    this.#hold.within(() => super._read(size));
  }

  _transform(chunk, encoding, done) {
    this.push(chunk, encoding);
    done();
  }

  _flush(done) {
    this.#hold.giveBack().then(() => done(), done);
  }

  /** After the end, too, and then the lock is back already. */
  _destroy(error, done) {
    settled(this.#hold.giveBack()).then(({ error: cleanUp }) => {
      if (error && cleanUp) attach(error, cleanUp);
      done(error ?? cleanUp);
    });
  }
}

function isStream(value) {
  return value instanceof ReadableStream || (typeof value?.pipe === 'function' && value._readableState !== undefined);
}

/** The stream that Middy would send: the response's body, or the response itself. */
function streamOf(response) {
  return [response?.body, response].find(isStream);
}

/** The response with a body in place of its own that gives the lock back; nothing if no stream is in it. */
function heldBody(response, hold) {
  const source = streamOf(response);
  if (!source) return undefined;
  const body = new HeldBody(hold);
  // Whatever goes wrong is told by the body.
  pipeline(source instanceof ReadableStream ? Readable.fromWeb(source) : source, body, () => {});
  return { body, response: source === response ? body : { ...response, body } };
}

module.exports = { heldBody, streamOf };
