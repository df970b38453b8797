'use strict';
// What one connection knows: what waits to be written or answered, and how the lease stands. No clock of its own, no socket.

const { Elapsed } = require('./clock.js');
const { lockError } = require('./errors.js');
const { MAX_LINE, decode, encode, granted, isWhole, metrics, noMetrics } = require('./wire.js');

const NEWLINE = 10;
/** How many characters may wait for an extension that does not read. */
const MAX_UNWRITTEN = MAX_LINE;

class State {
  /** What has arrived of a line that is not whole yet. */
  #partial = Buffer.alloc(0);
  /** Lines that nobody has written yet. */
  #unwritten = [];
  #nextId = 1;
  /** Requests without an answer, by id. */
  #waiting = new Map();
  #lease;
  /** Until when, in elapsed time, the last answer said that the lease is valid. */
  #validUntil = 0;
  /** From before the release is written, the lease is not valid any more. */
  #releasing = false;
  /** A check of our own is on its way. */
  #refreshing = false;
  /** What the extension said before it closed. */
  #parting;
  /** What it said of the lease's loss or of a release without a confirmation. */
  #words = '';
  #elapsed;

  /**
   * `held` (asked for, held, or on its way back), `lost`, `released` (confirmed), `unconfirmed` (given back as far as this side
   * can) or `closed` (by this side). All but the first are final.
   */
  phase = 'held';
  /** With `lost`: why. */
  reason = undefined;
  ended = false;
  metrics = noMetrics();

  constructor(elapsed = new Elapsed()) {
    this.#elapsed = elapsed;
  }

  /** The lease that may be used. Throws the error that says why none may be. */
  held() {
    if (this.phase === 'lost') throw this.lost();
    if (this.phase !== 'held' || this.#lease === undefined || this.#releasing) throw givenBack();
    return this.#lease;
  }

  get mayBeUsed() {
    return this.phase === 'held' && this.#lease !== undefined && !this.#releasing;
  }

  lost() {
    return lockError('lost', this.#words, { reason: this.reason, metrics: this.metrics });
  }

  /** How long the lease is valid without another renewal, at least, in milliseconds. */
  remaining() {
    const now = this.#elapsed.now();
    return this.mayBeUsed ? Math.max(0, this.#validUntil - now - this.#elapsed.slackMs) : 0;
  }

  /** How the release ended: undefined, or its error. */
  released() {
    if (this.phase === 'released') return undefined;
    return this.phase === 'lost' ? this.lost() : lockError('release_unconfirmed', this.#words);
  }

  /** Why a request got no answer. */
  whyEnded() {
    if (this.#parting) return fromWire(this.#parting);
    if (this.phase === 'lost' && this.#lease !== undefined) return this.lost();
    if (this.phase !== 'held' && this.phase !== 'lost') return givenBack();
    return lockError('extension_missing', 'the Leasekeeper extension closed the connection without an answer: see its log');
  }

  /** Sends a request; `tell(error, ok)` is called once. Throws if the connection has ended. */
  ask(op, fields, tell) {
    if (this.ended) throw this.whyEnded();
    if (this.#unwritten.reduce((sum, { line }) => sum + line.length, 0) > MAX_UNWRITTEN) {
      throw lockError('unavailable', 'the extension does not read its requests: it is stopped or overloaded; see its log');
    }
    return this.#send(op, fields, op, tell);
  }

  /** Asks for the release, unless the lease is over or on its way back. */
  release() {
    if (!this.mayBeUsed) return;
    this.#releasing = true;
    // Nobody is told of the answer: the outcome is the phase.
    this.#send('release', { lease: this.#lease }, 'release');
  }

  /** The time that the release may take is over. */
  giveUpRelease() {
    this.#settle('unconfirmed');
  }

  /** Closed by this side. */
  close() {
    this.#settle('closed');
    this.#over();
  }

  /** Nothing comes any more. A release that went out was asked for: its outcome is open, and not its holder's loss. */
  end() {
    if (this.ended) return;
    const asked = this.#releasing && !this.#unwritten.some(({ kind }) => kind === 'release');
    if (asked) this.#settle('unconfirmed');
    else this.#settle('lost', 'extension_failed');
    this.#over();
  }

  #over() {
    if (this.ended) return;
    this.ended = true;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    this.#unwritten = [];
    for (const { tell } of waiting) tell?.(this.whyEnded());
  }

  /** The lines to write; they count as unwritten until `wrote` is called. */
  unwritten() {
    return this.#unwritten.map(({ line }) => line);
  }

  /** So many lines have left the process. */
  wrote(count) {
    this.#unwritten.splice(0, count);
  }

  #send(op, fields, kind, tell) {
    const id = this.#nextId++;
    // Before the line is written: validity counts from here.
    const sent = this.#elapsed.now();
    this.#unwritten.push({ kind, line: encode(id, op, fields) });
    this.#waiting.set(id, { kind, sent, tell });
    return id;
  }

  #settle(phase, reason) {
    if (this.phase !== 'held') return;
    this.phase = phase;
    this.reason = reason;
    // Also where the extension goes on trying: whoever asked has no confirmation.
    if (phase === 'unconfirmed') this.metrics = { ...this.metrics, cleanupFailures: 1 };
  }

  /** Takes in what was read. */
  arrived(bytes) {
    // Another reading of the clocks, so that two that stop by turns are both caught.
    this.#elapsed.now();
    let rest = this.#partial.length ? Buffer.concat([this.#partial, bytes]) : bytes;
    for (let at = rest.indexOf(NEWLINE); at >= 0 && !this.ended; at = rest.indexOf(NEWLINE)) {
      const line = rest.subarray(0, at);
      rest = rest.subarray(at + 1);
      try {
        this.#read(decode(line));
      } catch {
        return this.end();
      }
    }
    // A copy: what was read belongs to the reader.
    this.#partial = Buffer.from(rest);
    if (this.#partial.length > MAX_LINE) this.end();
  }

  #read(line) {
    if (line === undefined) return;
    if (line.event !== undefined) return this.#happened(line);
    if (line.id === null) return this.#unaddressed(line);
    const waiting = this.#waiting.get(line.id);
    if (!waiting) return;
    this.#waiting.delete(line.id);
    if (waiting.kind === 'refresh') this.#refreshing = false;
    if (line.error) this.#failed(waiting.kind, line.error);
    else this.#succeeded(waiting.kind, waiting.sent, line.ok);
    waiting.tell?.(line.error && fromWire(line.error), line.ok);
  }

  /** Said before the extension closes the connection. */
  #unaddressed({ error }) {
    this.#parting = error;
  }

  #succeeded(kind, sent, ok) {
    if (kind === 'acquire') {
      const grant = granted(ok);
      if (!grant) return;
      this.#lease = grant.lease;
      // The extension granted no earlier than its own wait after it was asked.
      this.#valid(Math.min(sent + grant.waitedMs, this.#elapsed.now()), grant.validMs);
    } else if (kind === 'check' || kind === 'refresh') {
      if (isWhole(ok?.valid_ms)) this.#valid(sent, ok.valid_ms);
    } else if (kind === 'metrics') {
      this.metrics = metrics(ok) ?? this.metrics;
    } else if (kind === 'release') {
      this.metrics = metrics(ok?.metrics) ?? this.metrics;
      this.#settle('released');
    }
  }

  #failed(kind, { code, message, details }) {
    this.metrics = details.metrics ?? this.metrics;
    if (kind === 'acquire') return;
    if (code === 'lost') {
      this.#words = message;
      this.#settle('lost', details.reason);
    } else if (kind === 'release') {
      this.#words = message;
      this.#settle('unconfirmed');
    }
  }

  /** Validity never moves back: what an earlier answer promised still holds. */
  #valid(from, validMs) {
    this.#validUntil = Math.max(this.#validUntil, from + validMs);
  }

  #happened({ event, lease, reason }) {
    if (lease !== this.#lease) return;
    if (event === 'lost') {
      this.#settle('lost', reason);
    } else if ((event === 'renewed' || event === 'recovered') && !this.#refreshing && this.mayBeUsed) {
      // The event can be old: only an answer to a question of now says how long the lease is valid.
      this.#refreshing = true;
      this.#send('check', { lease }, 'refresh');
    }
  }
}

const givenBack = () => lockError('protocol', 'the lease was already given back, or is not held yet');

const fromWire = ({ code, message, details }) => lockError(code, message, details);

module.exports = { State };
