'use strict';
// A Middy middleware that runs what comes after it under a lock. Middy itself is not needed: a middleware is an object of hooks.

const { heldBody, streamOf } = require('./body.js');
const { attach } = require('./errors.js');
const { checkKey } = require('./key.js');
const { WISHES, acquire, checkOptions, settled, whole } = require('./lock.js');
const { keyMaker } = require('./locked.js');
const { watch } = require('./watch.js');

const OPTIONS = [...WISHES, 'key', 'values', 'strictRelease', 'stream'];

/** A middleware. Wrong options fail here, before anything runs. */
function lock(options) {
  checkOptions(options, OPTIONS);
  const keyOf = keyMaker(options);
  const { stream } = options;
  if (![undefined, true, false].includes(stream)) throw new TypeError('`stream` must be true or false');
  const held = new WeakMap();

  return {
    async before(request) {
      const watched = watch(request);
      await watched.holding(async () => {
        const key = checkKey(await keyOf(request.event, request.context));
        const hold = new Hold(request, watched, await acquire(key, options), stream);
        held.set(request, hold);
        return hold;
      });
    },
    async after(request) {
      await held.get(request)?.done(whole(request.response));
    },
    async onError(request) {
      await held.get(request)?.failed(request.error);
    },
  };
}

/** A lock that a request holds. */
class Hold {
  #request;
  #watched;
  #stream;
  #back;
  #body;

  constructor(request, watched, lease, stream) {
    this.#request = request;
    this.#watched = watched;
    this.#stream = stream;
    this.lease = lease;
  }

  /** Runs work that belongs to the request, whoever calls. */
  within(work) {
    return this.#watched.within(work);
  }

  /** Does a stream give it back? */
  get flows() {
    return this.#body !== undefined;
  }

  /** Gives the lock back after work that has succeeded. Rejects if the lock was lost. */
  giveBack() {
    return this.#end(() => this.lease.handBack());
  }

  /** The work has come to a response. One whose body is a stream is work that goes on: the stream gives the lock back. */
  async done(response) {
    const answer = this.keep(response);
    // No await in between: whoever looks for the stream from now on must find it in the response.
    if (answer === undefined) await this.giveBack();
    else this.#request.response = answer;
  }

  /** The response that holds the lock until its stream has ended; nothing if no stream is in it. */
  keep(response) {
    if (!streamOf(response)) return undefined;
    if (!this.#stream) {
      throw new TypeError(
        'the response is a stream, which would flow without the lock: `stream: true` holds the lock until it has ended',
      );
    }
    const held = heldBody(response, this);
    this.#body = held.body;
    return held.response;
  }

  /** Would its stream never end? Nobody reads it, and it is not in the response. */
  isAstray(response) {
    return this.#body.readableFlowing === null && this.#body !== streamOf(response);
  }

  /** Gives the lock back, whatever still flows. */
  drop() {
    this.#body.destroy();
    return this.giveBack();
  }

  /** Gives the lock back after work that has failed. The error stays what it was. */
  async failed(error) {
    const already = this.#back !== undefined;
    const back = this.#end(() => this.lease.release());
    this.#body?.destroy();
    const { error: cleanUp } = await settled(back);
    if (cleanUp && !already) attach(error, cleanUp);
  }

  /** Once. Middy's own end before the deadline does not wait for the handler, and no hook can tell: it may still run. */
  #end(release) {
    this.#watched.remove(this);
    if (!this.#back) {
      this.#back = release();
      this.lease.stopWork();
    }
    return this.#back;
  }
}

module.exports = { lock };
