// Runs the vectors in Node: the package leasekeeper, the raw client of docs/SOCKET.md, and Node's JSON.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const GRANT = { lease: 7, valid_ms: 1, lease_ms: 100, owner: 'o', table: 't', token: null, waited_ms: 0 };

const part = createRequire(join(HERE, '../../layer/nodejs/leasekeeper/lib/index.js'));
const { plan } = part('./budget.js');
const { Elapsed } = part('./clock.js');
const { LockError } = part('./errors.js');
const { key } = part('./key.js');
const { State } = part('./state.js');
const { decode, encode } = part('./wire.js');

/** The file's cases, with every <<TEXT*N>> written out. */
function cases(file) {
  const written = (_, value) =>
    typeof value === 'string' ? value.replace(/<<(.+?)\*(\d+)>>/g, (_all, text, times) => text.repeat(times)) : value;
  return JSON.parse(readFileSync(join(HERE, file), 'utf8'), written).cases;
}

/** What the client's first request makes of a line that comes before its grant. */
async function meets({ Lock, LockError }, directory, line) {
  const path = join(directory, 'lock.sock');
  const server = createServer((connection) => {
    connection.on('error', () => {});
    connection.once('data', () => connection.end(`${line.replace(/\n$/, '')}\n${JSON.stringify({ id: 1, ok: GRANT })}\n`));
  });
  await new Promise((resolve) => server.listen(path, resolve));
  process.env.LEASEKEEPER_SOCKET = path;
  try {
    const lock = await Lock.acquire('k', undefined, 0);
    await lock.check().catch(() => {}); // The connection has ended; nothing is left behind.
    return { owner: lock.owner };
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    return { code: error.code, ...error.details };
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

/** What the client's first request must make of a case's line. */
function expected(testCase) {
  const { reply, broken, line } = testCase;
  if (broken) return { code: 'extension_missing' };
  if (!reply || (reply.id ?? 1) !== 1) return { owner: GRANT.owner }; // About another request, or none: passed over.
  if (reply.ok) return { owner: reply.ok.owner };
  const { message: _, ...rest } = JSON.parse(line).error; // A raw client hands the line's own words through.
  return rest;
}

let passed = 0;
const failures = [];
function check(name, got, wanted) {
  try {
    assert.deepEqual(got, wanted);
    passed += 1;
  } catch {
    failures.push(`${name}: ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`);
  }
}

/** What the package reads in a line from the extension, in the vectors' words. */
function read(line) {
  const text = line.replace(/\r?\n$/, '');
  let read;
  try {
    read = decode(Buffer.from(text));
  } catch {
    return { broken: true };
  }
  if (read === undefined) return { ignored: true };
  if (read.event) return { event: read };
  return { reply: read.error ? { id: read.id, error: written(read.error) } : read };
}

/** An error's content under its names on the wire. */
function written({ code, message, details }) {
  const snake = (value) =>
    value !== null && typeof value === 'object'
      ? Object.fromEntries(
          Object.entries(value).map(([name, inner]) => [
            name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
            snake(inner),
          ]),
        )
      : value;
  return { code, message, ...snake(details) };
}

/** What is made, or the error's code. */
function orError(make) {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    return { error: error.code };
  }
}

/** One client's side of one connection, whose clocks a case moves. */
class Guard {
  clocks = { boot: 0, mono: 0, wall: 0 };
  answers = new Map();
  sent = [];
  stuck = false;

  constructor() {
    const shown = (name) => () => this.clocks[name];
    const clocks = { boot: shown('boot'), mono: shown('mono'), wall: shown('wall'), grains: { boot: 0, wall: 0 } };
    this.state = new State(new Elapsed(clocks));
  }

  step(step) {
    for (const [clock, ms] of Object.entries(step.pass ?? {})) this.clocks[clock] += ms;
    this.stuck ||= step.stuck === true;
    if (step.send === 'release') this.state.release();
    else if (step.send) this.ask(step.send);
    this.write();
    if (step.receive !== undefined) this.state.arrived(Buffer.from(step.receive));
    if (step.look) this.state.remaining();
    if (step.end) this.state.end();
    if (step.close) this.state.close();
    if (step.give_up) this.state.giveUpRelease();
    this.write();
  }

  ask(op) {
    let answer = null;
    const tell = (error) => {
      answer = error ? error.code : 'ok';
    };
    const id = this.state.ask(op, op === 'acquire' ? { key: 'k' } : { lease: 7 }, tell);
    this.answers.set(String(id), () => answer);
  }

  write() {
    if (this.stuck || this.state.ended) return;
    const lines = this.state.unwritten();
    this.sent.push(...lines.map((line) => JSON.parse(line).op));
    this.state.wrote(lines.length);
  }

  /** What holds now, as far as a case names it. */
  seen(expected) {
    const codeOf = (use) => {
      try {
        const error = use();
        return error instanceof LockError ? error.code : null;
      } catch (error) {
        return error.code;
      }
    };
    const remaining = this.state.remaining();
    const seen = {
      phase: () => this.state.phase,
      remaining_ms: () => remaining,
      reason: () => this.state.reason,
      use: () => codeOf(() => this.state.held()),
      release: () => codeOf(() => this.state.released()),
      sent: () => this.sent.splice(0),
      answers: () => Object.fromEntries(Object.keys(expected.answers).map((id) => [id, this.answers.get(id)()])),
    };
    return Object.fromEntries(Object.keys(expected).map((what) => [what, seen[what]()]));
  }
}

for (const { name, line, decoded } of cases('requests_valid.json')) {
  const absent = decoded.op === 'acquire' ? { request_id: null, remaining_ms: null, wait_ms: null, lease_ms: null } : {};
  check(name, { ...absent, ...JSON.parse(line) }, { v: 1, ...decoded });
  const { id, op, ...fields } = decoded;
  const given = Object.fromEntries(Object.entries(fields).map(([field, value]) => [field, value ?? undefined]));
  check(`written: ${name}`, { ...absent, ...JSON.parse(encode(id, op, given)) }, { v: 1, ...decoded });
}

for (const { name, kind, word, read_as } of cases('words.json')) {
  const error = kind === 'code' ? { code: word } : { code: 'lost', reason: word };
  const { code, details } = decode(Buffer.from(JSON.stringify({ id: 1, error }))).error;
  check(name, kind === 'code' ? code : details.reason, read_as);
}

for (const { name, template, values, ...expected } of cases('keys.json')) {
  check(
    name,
    orError(() => ({ key: key(template, values) })),
    expected,
  );
}

for (const { name, remaining_ms, setting_wait_ms, setting_lease_ms, wait_ms, lease_ms, reserve_ms, ...expected } of cases(
  'budgets.json',
)) {
  const settings = { waitMs: setting_wait_ms, leaseMs: setting_lease_ms };
  const planned = () => {
    const wishes = { waitMs: wait_ms, leaseMs: lease_ms, reserveMs: reserve_ms };
    const { waitMs = null, boundMs } = plan(wishes, settings, remaining_ms ?? undefined);
    return { sent_ms: waitMs, bound_ms: boundMs };
  };
  check(name, orError(planned), expected);
}

for (const { name, line, ...expected } of cases('server_lines.json')) check(name, read(line), expected);

for (const { name, steps } of cases('guard.json')) {
  const guard = new Guard();
  for (const step of steps) {
    if (step.expect) check(name, guard.seen(step.expect), step.expect);
    else guard.step(step);
  }
}

const scratch = mkdtempSync(join(tmpdir(), 'vectors-'));
try {
  const page = readFileSync(join(HERE, '../../docs/SOCKET.md'), 'utf8');
  const file = join(scratch, 'client.mjs');
  writeFileSync(file, page.match(/```js\n([\s\S]*?)```/)[1]);
  const client = await import(pathToFileURL(file));
  for (const testCase of cases('server_lines.json')) {
    check(`raw client: ${testCase.name}`, await meets(client, scratch, testCase.line), expected(testCase));
  }
} finally {
  rmSync(scratch, { recursive: true });
}

for (const failure of failures) console.log(`failed: ${failure}`);
console.log(`${passed} passed, ${failures.length} failed`);
process.exitCode = failures.length ? 1 : 0;
