'use strict';
// A stand-in for the extension, in this process: for unit tests that need neither a socket nor DynamoDB.

const { randomUUID } = require('node:crypto');
const transport = require('./transport.js');
const { noMetrics } = require('./wire.js');

const OPTIONS = ['capacity', 'leaseMs', 'table', 'releases'];

const snake = (figures) =>
  Object.fromEntries(
    Object.entries(figures).map(([name, value]) => [name.replace(/[A-Z]/g, (l) => `_${l.toLowerCase()}`), value]),
  );

/** One lock that somebody holds. */
class Held {
  constructor(key, owner, connection, lease) {
    Object.assign(this, { key, owner, connection, lease });
  }
}

/** Speaks the extension's side of one connection. What it says is delivered by the event loop, or when somebody looks. */
class FakeLink {
  canLook = true;
  #double;
  #events;
  #lines = [];
  #leases = 0;
  #over = false;

  constructor(double, events) {
    this.#double = double;
    this.#events = events;
    queueMicrotask(() => !this.#over && events.connected());
  }

  say(message) {
    if (this.#over) return;
    this.#lines.push(`${JSON.stringify(message)}\n`);
    queueMicrotask(() => this.look());
  }

  look() {
    while (this.#lines.length > 0 && !this.#over) this.#events.arrived(Buffer.from(this.#lines.shift()));
  }

  write(text, written) {
    written();
    const { id, op, ...fields } = JSON.parse(text);
    this.#double.asked(this, id, op, fields);
  }

  nextLease() {
    this.#leases += 1;
    return this.#leases;
  }

  keepAlive() {}

  destroy() {
    if (this.#over) return;
    this.#over = true;
    this.#double.gone(this);
  }

  /** The extension goes away. */
  vanish() {
    this.look();
    if (!this.#over) this.#events.ended();
  }
}

/** What `installDouble` gives. */
class Double {
  /** How many locks can be held at once; 0: none, for any key. */
  capacity = Number.POSITIVE_INFINITY;
  /** What becomes of releases: `confirmed`, `unconfirmed`, or `hang`. */
  releases = 'confirmed';
  /** What was asked for: `{ op, key, waitMs, leaseMs, requestId }`. */
  requests = [];
  #leaseMs = 20_000;
  #table = 'locks';
  #held = new Map();
  #waiting = [];
  #links = new Set();
  #previous = transport.current;

  constructor(options) {
    for (const name of Object.keys(options)) {
      if (!OPTIONS.includes(name)) throw new TypeError(`unknown option \`${name}\`: ${OPTIONS.join(', ')} are known`);
    }
    if (options.capacity !== undefined) this.capacity = options.capacity;
    if (options.releases !== undefined) this.releases = options.releases;
    this.#leaseMs = options.leaseMs ?? this.#leaseMs;
    this.#table = options.table ?? this.#table;
    transport.current = {
      open: (_path, events) => {
        const link = new FakeLink(this, events);
        this.#links.add(link);
        return link;
      },
    };
  }

  /** Puts the real socket back. Whoever still waits is told that the extension is gone. */
  restore() {
    transport.current = this.#previous;
    this.vanish();
  }

  /** The keys that are held now, by the code under test or by `hold`. */
  get held() {
    return [...this.#held.keys()];
  }

  /** Takes a lock in the name of someone else, at once. */
  hold(key) {
    if (this.#held.has(key)) throw new Error(`${key} is held already`);
    const held = new Held(key, randomUUID());
    this.#held.set(key, held);
    return { owner: held.owner, release: () => this.#free(held) };
  }

  /** The code under test loses its lock of this key. */
  lose(key, reason = 'stolen') {
    const held = this.#held.get(key);
    if (!held?.connection) throw new Error(`the code under test does not hold ${key}`);
    held.connection.say({ event: 'lost', lease: held.lease, reason });
    this.#free(held);
  }

  /** Every connection ends, as if the extension had died; new ones find it again. */
  vanish() {
    for (const link of [...this.#links]) link.vanish();
  }

  #free(held) {
    if (this.#held.get(held.key) !== held) return;
    this.#held.delete(held.key);
    this.#admit();
  }

  /** Grants what can be granted, in the order in which it was asked for. */
  #admit() {
    for (const waiter of [...this.#waiting]) {
      if (this.#held.has(waiter.key) || this.#held.size >= this.capacity) continue;
      this.#stopWaiting(waiter);
      this.#grant(waiter);
    }
  }

  #stopWaiting(waiter) {
    clearTimeout(waiter.timer);
    this.#waiting = this.#waiting.filter((other) => other !== waiter);
  }

  #grant({ link, id, key, leaseMs, since }) {
    const held = new Held(key, randomUUID(), link, link.nextLease());
    this.#held.set(key, held);
    const waited = Math.floor(performance.now() - since);
    const valid = Math.floor(leaseMs * 0.9);
    const { owner, lease } = held;
    const grant = { lease, valid_ms: valid, lease_ms: leaseMs, owner, table: this.#table, token: null, waited_ms: waited };
    link.say({ id, ok: grant });
  }

  #acquire(link, id, { key, wait_ms, lease_ms, remaining_ms }) {
    const leaseMs = lease_ms ?? this.#leaseMs;
    const waiter = { link, id, key, leaseMs, since: performance.now() };
    if (this.capacity <= 0) {
      return link.say({ id, error: { code: 'unavailable', message: 'the double has no capacity' } });
    }
    if (!this.#held.has(key) && this.#held.size < this.capacity) return this.#grant(waiter);
    const wait = wait_ms ?? (remaining_ms === undefined ? leaseMs + 5_000 : Math.min(5_000, Math.max(0, remaining_ms * 0.75)));
    waiter.timer = setTimeout(() => {
      this.#stopWaiting(waiter);
      this.#refuse(waiter);
    }, wait);
    this.#waiting.push(waiter);
  }

  #refuse({ link, id, key, leaseMs }) {
    const other = this.#held.get(key);
    if (!other) return link.say({ id, error: { code: 'unavailable', message: 'the double has no capacity left' } });
    const holder = { owner: other.owner, lease_ms: this.#leaseMs, unchanged_ms: 0 };
    link.say({ id, error: { code: 'busy', message: 'held', retry_after_ms: leaseMs, holder } });
  }

  /** A connection's request. */
  asked(link, id, op, fields) {
    const held = [...this.#held.values()].find((one) => one.connection === link && one.lease === fields.lease);
    this.requests.push({
      op,
      key: fields.key ?? held?.key,
      waitMs: fields.wait_ms,
      leaseMs: fields.lease_ms,
      requestId: fields.request_id,
    });
    if (op === 'acquire') return this.#acquire(link, id, fields);
    if (!held) return link.say({ id, error: { code: 'protocol', message: 'the lease is not this connection’s' } });
    if (op === 'check') return link.say({ id, ok: { valid_ms: Math.floor(this.#leaseMs * 0.9) } });
    if (op === 'metrics') return link.say({ id, ok: snake(noMetrics()) });
    if (this.releases === 'hang') return;
    if (this.releases === 'unconfirmed') {
      return link.say({ id, error: { code: 'release_unconfirmed', message: 'the double does not confirm' } });
    }
    link.say({ id, ok: { metrics: snake(noMetrics()) } });
    this.#free(held);
  }

  /** A connection was closed by the code under test, or has ended: what it held is free. */
  gone(link) {
    this.#links.delete(link);
    for (const waiter of this.#waiting.filter((one) => one.link === link)) this.#stopWaiting(waiter);
    for (const held of [...this.#held.values()].filter((one) => one.connection === link)) this.#free(held);
  }
}

/** From now on every lock of this process is asked of the double, until its `restore`. */
function installDouble(options = {}) {
  return new Double(options);
}

if (Symbol.dispose) Double.prototype[Symbol.dispose] = Double.prototype.restore;

module.exports = { installDouble };
