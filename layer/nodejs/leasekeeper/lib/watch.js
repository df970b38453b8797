'use strict';
// A look at a Middy request from the outside: where its handler runs, and an end that its locks' own hooks are not told.

const { invocationOf, isContext, scope } = require('./context.js');
const { settled } = require('./lock.js');

/** By request, while it holds a lock or waits for one. */
const watches = new WeakMap();

function watch(request) {
  const watched = watches.get(request);
  if (watched) return watched;
  const { context } = request;
  return new Watch(request, scope(isContext(context) ? invocationOf(context) : undefined));
}

/**
 * Middy calls no more hooks once a middleware has answered early, or one's `onError` has thrown. It writes both into the
 * request, and awaits the response that it reads from it. It calls the handler with the event and the context that it reads
 * from it.
 */
class Watch {
  #holds = [];
  #waiting = 0;
  #request;
  #scope;
  #values = {};
  /** Not the same as having an error: anything can be thrown. */
  #failing = false;
  #answered;

  constructor(request, scope) {
    this.#request = request;
    this.#scope = scope;
    watches.set(request, this);
    for (const name of ['event', 'context', 'internal']) {
      this.#observe(name, {
        get: () => {
          // Middy has awaited a lock by then: what runs here is a frame of its own.
          if (this.#holds.length > 0) scope.enter();
          return this.#values[name];
        },
      });
    }
    this.#observe('response', {
      get: () => {
        this.#look();
        return this.#answered ?? this.#values.response;
      },
      set: (response) => {
        this.#values.response = response;
        if ('earlyResponse' in request) this.#early(response);
        else this.#look();
      },
    });
    this.#observe('error', {
      set: (error) => {
        const thrown = this.#failing && thrownAfter(error, this.#values.error);
        this.#values.error = error;
        this.#failing = true;
        this.#answered = undefined;
        // What is thrown is not awaited: the release is sent, and the invocation ends meanwhile.
        if (thrown) void this.#failed(error);
      },
    });
  }

  #observe(name, hooks) {
    this.#values[name] = this.#request[name];
    const plain = {
      get: () => this.#values[name],
      set: (value) => {
        this.#values[name] = value;
      },
    };
    Object.defineProperty(this.#request, name, { ...plain, ...hooks, configurable: true, enumerable: true });
  }

  /** Waits for a lock that the request is to hold. */
  async holding(acquire) {
    this.#waiting += 1;
    try {
      this.#holds.push(await this.#scope.run(acquire));
    } finally {
      this.#waiting -= 1;
      this.#changed();
    }
  }

  /** Runs work that belongs to the request, whoever calls. */
  within(work) {
    return this.#scope.run(work);
  }

  remove(hold) {
    if (!this.#holds.includes(hold)) return;
    this.#holds = this.#holds.filter((other) => other !== hold);
    this.#changed();
  }

  #changed() {
    this.#scope.holds(this.#holds.at(-1)?.lease);
    if (this.#waiting > 0 || this.#holds.length > 0) return;
    // The request is as any other again.
    watches.delete(this.#request);
    this.#scope.leave();
    for (const name of Object.keys(this.#values)) {
      if (name !== 'response' || !this.#answered) this.#leave(name);
    }
  }

  #leave(name) {
    const value = this.#values[name];
    Object.defineProperty(this.#request, name, { value, writable: true, configurable: true, enumerable: true });
  }

  #early(response) {
    // It is taken back where a hook has failed that had set it.
    if (response === undefined && this.#request.earlyResponse !== undefined) return;
    const failing = this.#failing;
    // Not before `#answered` is there to be read, and Middy has noted the error of such a hook.
    const ended = Promise.resolve().then(async () => {
      if (!failing) return this.#failing ? undefined : this.#done(response);
      await this.#failed(this.#values.error);
      return response;
    });
    // In an error's hooks no response means that the error stands, and what is thrown is not awaited.
    if (response !== undefined || !failing) this.#answered = ended;
    // Middy reads it, too, if it ends in an error.
    ended.then((answer) => this.#settled(ended, answer)).catch(() => {});
  }

  /** From now on the response is what it is for whoever reads it. */
  #settled(ended, answer) {
    if (this.#answered !== ended) return;
    this.#answered = undefined;
    this.#values.response = answer;
    if (watches.get(this.#request) !== this) this.#leave('response');
  }

  /** The innermost first. All are given back, though one of them was lost. */
  async #done(response) {
    let answer = response;
    const errors = [];
    const ended = [...this.#astray(response), ...this.#holds.filter(({ flows }) => !flows).reverse()];
    for (const hold of ended) {
      const { value, error } = await settled(end(hold, answer));
      answer = value ?? answer;
      if (error) errors.push(error);
    }
    if (errors.length > 0) throw errors[0];
    return answer;
  }

  /** The locks of a body that was taken out of the response, and that nobody reads: it would hold them for good. */
  #astray(response) {
    const flowing = this.#holds.filter(({ flows }) => flows);
    // The outermost lock's body is around those of the others.
    return flowing[0]?.isAstray(response) ? flowing.reverse() : [];
  }

  /** Whoever reads or writes the response may change it. Middy itself reads it after all hooks. */
  #look() {
    if (!this.#holds.some(({ flows }) => flows)) return;
    // What a hook does at once is done by then, and Middy has noted its error if it has one.
    queueMicrotask(() => {
      if (this.#answered || this.#failing) return;
      for (const hold of this.#astray(this.#values.response)) void settled(hold.drop());
    });
  }

  async #failed(error) {
    for (const hold of [...this.#holds].reverse()) await hold.failed(error);
  }
}

/** Ends a lock's work by an early answer: by the answer that is to be given instead, if it goes on in that. */
async function end(hold, answer) {
  if (hold.flows) return void (await hold.drop());
  try {
    const kept = hold.keep(answer);
    if (kept === undefined) await hold.giveBack();
    return kept;
  } catch (error) {
    await hold.failed(error);
    throw error;
  }
}

/** Is this what an `onError` hook has thrown, in Middy's way of noting it, and not an error that a hook has put in its place? */
function thrownAfter(error, former) {
  if (error === former || error === null || typeof error !== 'object') return true;
  return Object.hasOwn(error, 'originalError') && error.originalError === former;
}

module.exports = { watch };
