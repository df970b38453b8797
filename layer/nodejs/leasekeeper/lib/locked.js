'use strict';
// A handler, or any async function, that runs under a lock.

const { invocationOf, isContext, within } = require('./context.js');
const { KeyTemplate, checkKey, typeName } = require('./key.js');
const { WISHES, acquire, checkOptions, hold } = require('./lock.js');
const { holdStreaming } = require('./stream.js');

const OPTIONS = [...WISHES, 'key', 'values', 'onLost', 'strictRelease'];

// How `awslambda.streamifyResponse` marks a handler for the runtime.
const STREAMING = Symbol.for('aws.lambda.runtime.handler.streaming');
const MARKS = [STREAMING, Symbol.for('aws.lambda.runtime.handler.streaming.highWaterMark')];

/** Wraps a handler so that it runs under the lock that `key` names. Wrong options fail here, before anything runs. */
function locked(options, handler) {
  checkOptions(options, OPTIONS);
  checkHandler(handler);
  const keyOf = keyMaker(options);
  const marked = handler[STREAMING] !== undefined;

  async function lockedHandler(...args) {
    const streaming = marked || isStreamCall(args);
    if (!streaming && handler.length >= 3 && typeof args[2] === 'function') {
      throw new TypeError(
        'locked() takes no handler that answers by a callback: the lock must be given back before the answer. Make it async',
      );
    }
    const context = args[streaming ? 2 : 1];
    const invocation = isContext(context) ? { invocation: invocationOf(context) } : {};
    return within(invocation, async () => {
      const key = checkKey(await keyOf.apply(this, args));
      const lease = await acquire(key, options);
      const work = () => promised(handler.apply(this, args));
      return streaming ? holdStreaming(lease, options.onLost, args[1], work) : hold(lease, options.onLost, work);
    });
  }

  Object.defineProperty(lockedHandler, 'name', { value: handler.name, configurable: true });
  for (const mark of MARKS) {
    if (handler[mark] !== undefined) lockedHandler[mark] = handler[mark];
  }
  return lockedHandler;
}

/** Where the wrapped function comes between `awslambda.streamifyResponse` and the handler, only the arguments tell. */
function isStreamCall([, stream, context]) {
  return typeof stream?.write === 'function' && typeof stream?.end === 'function' && isContext(context);
}

function checkHandler(handler) {
  if (typeof handler !== 'function') throw new TypeError(`locked() wraps a function, not ${typeName(handler)}`);
  const kind = Object.prototype.toString.call(handler);
  if (kind === '[object GeneratorFunction]' || kind === '[object AsyncGeneratorFunction]') {
    throw new TypeError('locked() takes no generator: it would run after the lock is given back. Lock inside of it');
  }
}

/** Work that goes on after its call has returned without a promise would go on without the lock. */
function promised(result) {
  if (typeof result?.then === 'function') return result;
  throw new TypeError('locked() takes async functions: this one has returned no promise. Make it async');
}

/** The function that gives the key of a call. */
function keyMaker({ key, values }) {
  if (typeof key === 'function') {
    if (values !== undefined) throw new TypeError('`values` are for a key template; this `key` is a function');
    return key;
  }
  if (typeof key !== 'string') throw new TypeError('`key` must be a function or a key template');
  const template = new KeyTemplate(key);
  if (typeof values === 'function') {
    return async function (...args) {
      return template.render(await values.apply(this, args));
    };
  }
  if (values !== undefined && (values === null || typeof values !== 'object')) {
    throw new TypeError('`values` must be a function, or an object of functions by placeholder');
  }
  const makers = Object.entries(values ?? {});
  template.checkNames(makers.map(([name]) => name));
  for (const [name, maker] of makers) {
    if (typeof maker !== 'function') throw new TypeError(`the value ${JSON.stringify(name)} must be given by a function`);
  }
  if (makers.length === 0) {
    const constant = template.render();
    return () => constant;
  }
  return async function (...args) {
    const made = makers.map(async ([name, maker]) => [name, await maker.apply(this, args)]);
    return template.render(Object.fromEntries(await Promise.all(made)));
  };
}

module.exports = { keyMaker, locked };
