'use strict';
// The Unix socket under a connection: written at once, and read whenever somebody wants to know, not only by the event loop.

const { readSync } = require('node:fs');
const { connect } = require('node:net');

const CHUNK = 4_096;

/**
 * One socket. `events` has `connected()`, `arrived(bytes)`, `ended()` and `failed(error)`; the last is about the connect only.
 */
class Socket {
  #socket;
  #events;
  #looking = Buffer.allocUnsafe(CHUNK);
  #connected = false;

  constructor(path, events) {
    this.#events = events;
    const buffer = Buffer.allocUnsafe(CHUNK);
    // Bytes come here as the loop reads them, with no stream in between that could keep some.
    const callback = (count) => {
      events.arrived(buffer.subarray(0, count));
      return true;
    };
    this.#socket = connect({ path, onread: { buffer, callback } });
    this.#socket.on('connect', () => {
      this.#connected = true;
      events.connected();
    });
    this.#socket.on('error', (error) => {
      if (!this.#connected) events.failed(error);
    });
    this.#socket.on('end', () => events.ended());
    this.#socket.on('close', () => events.ended());
  }

  /**
   * Reads what has arrived without waiting for the event loop, which a busy handler keeps from reading. The descriptor is
   * the socket's own; where a version of Node should hide it, `canLook` is false and nobody is told that a lease is valid.
   */
  look() {
    while (this.canLook) {
      const count = readNow(this.#socket._handle.fd, this.#looking);
      if (count === undefined) return;
      if (count === 0) return this.#events.ended();
      this.#events.arrived(this.#looking.subarray(0, count));
    }
  }

  get canLook() {
    return this.#connected && !this.#socket.destroyed && this.#socket._handle?.fd >= 0;
  }

  /** Writes text; calls `written` when it has left the process, at once if it can. */
  write(text, written) {
    this.#socket.write(text, (error) => {
      if (!error) written();
    });
    if (this.#socket.errored) {
      // The other side is gone: its last words may say why.
      this.look();
      this.#events.ended();
    } else if (this.#socket.writableLength === 0) {
      written();
    }
  }

  /** Keeps the process alive, or does not. */
  keepAlive(keep) {
    if (keep) this.#socket.ref();
    else this.#socket.unref();
  }

  destroy() {
    this.#socket.destroy();
  }
}

/** How many bytes were read: 0 if none will come any more, undefined if none have come yet. */
function readNow(fd, into) {
  const { stackTraceLimit } = Error;
  // "Nothing yet" is an exception here, and its stack is what costs.
  Error.stackTraceLimit = 0;
  try {
    return readSync(fd, into, 0, CHUNK, null);
  } catch (error) {
    if (error.code === 'EAGAIN') return undefined;
    return error.code === 'EINTR' ? readNow(fd, into) : 0;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

module.exports = { open: (path, events) => new Socket(path, events) };
