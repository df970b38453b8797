// What the tests share: the extension as a process, a scripted one, Node as a child, and the package's inner parts.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const EXTENSION = process.env.LEASEKEEPER_BINARY;
const PATIENCE_MS = 20_000;

export const here = createRequire(import.meta.url);
/** A part of the package that its users cannot import. */
export const part = (name) => here(join(dirname(here.resolve('leasekeeper/package.json')), 'lib', name));

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A directory of the test's own, removed when this process ends. */
export function scratch() {
  const directory = mkdtempSync(join(tmpdir(), 'leasekeeper-node-'));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Waits for a promise, which by itself keeps no process alive. */
export async function soon(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${PATIENCE_MS} ms`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Waits until something is so. */
export async function until(what, holds) {
  const end = performance.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
    await sleep(5);
  }
}

function listens(path) {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}

/** The real extension with its rows in memory; its socket is LEASEKEEPER_SOCKET from now on. Ended with the tests. */
export async function startExtension(settings = {}, socket = join(scratch(), 'leasekeeper/lock.sock')) {
  const env = { LEASEKEEPER_STORE: 'memory', LEASEKEEPER_TABLE: 'locks', LEASEKEEPER_SOCKET: socket, ...settings };
  const child = spawn(EXTENSION, [], { env, stdio: 'ignore' });
  const exited = new Promise((resolve) => child.on('exit', resolve));
  // Neither it nor what is around it keeps this process; it ends with it.
  child.unref();
  // Before its directory is removed, which it would fill again.
  process.prependListener('exit', () => child.kill('SIGKILL'));
  const kill = async () => {
    child.ref();
    child.kill('SIGKILL');
    await exited;
  };
  await until('the extension listens', () => listens(socket));
  process.env.LEASEKEEPER_SOCKET = socket;
  return { socket, kill, signal: (name) => child.kill(name) };
}

export const GRANT = { lease: 7, valid_ms: 18_000, lease_ms: 20_000, owner: 'own', table: 'locks', token: null, waited_ms: 0 };

/** What a well-behaved extension answers. */
export function answer({ id, op }) {
  if (op === 'acquire') return [{ id, ok: GRANT }];
  if (op === 'check') return [{ id, ok: { valid_ms: 18_000 } }];
  return [{ id, ok: op === 'release' ? { metrics: { write_requests: 2 } } : { write_requests: 1 } }];
}

/**
 * A socket that answers each request by a script: a list of messages, or nothing. `connection` in the request closes or says
 * something unasked. Its path is LEASEKEEPER_SOCKET from now on.
 */
export async function startScript(script = answer) {
  const path = join(scratch(), 'lock.sock');
  const asked = [];
  const connections = new Set();
  const server = createServer((connection) => {
    let text = '';
    connections.add(connection.unref());
    connection.on('error', () => {});
    connection.on('close', () => connections.delete(connection));
    connection.setEncoding('utf8').on('data', (more) => {
      const lines = (text + more).split('\n');
      text = lines.pop();
      for (const line of lines) {
        const request = JSON.parse(line);
        asked.push(request);
        for (const message of script(request, connection) ?? []) connection.write(`${JSON.stringify(message)}\n`);
      }
    });
  });
  await new Promise((resolve) => server.listen(path, resolve));
  server.unref();
  process.env.LEASEKEEPER_SOCKET = path;
  const say = (message) => {
    for (const connection of connections) connection.write(`${JSON.stringify(message)}\n`);
  };
  return { path, asked, connections, say, ops: () => asked.map(({ op }) => op) };
}

/** A context as Lambda passes one, of an invocation that ends in so many milliseconds. */
export function context(ms = 10_000, awsRequestId = 'request-1') {
  const end = performance.now() + ms;
  return { awsRequestId, getRemainingTimeInMillis: () => Math.max(0, Math.floor(end - performance.now())) };
}

/** Runs an ES module's text in a process of its own: its exit code, its output, and how long it took. */
export async function run(text, env = {}) {
  const began = performance.now();
  const child = spawn(process.execPath, ['--input-type=module', '-e', text], {
    cwd: dirname(here.resolve('./helpers.mjs')),
    env: { ...process.env, NODE_OPTIONS: '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (more) => (out += more));
  child.stderr.setEncoding('utf8').on('data', (more) => (out += more));
  const [code, signal] = await new Promise((resolve) => child.on('close', (...how) => resolve(how)));
  return { code, signal, out, ms: performance.now() - began };
}

/** How long it took, in milliseconds, and what came of it. */
export async function timed(work) {
  const began = performance.now();
  const [outcome] = await Promise.allSettled([work()]);
  return { ms: performance.now() - began, ...outcome };
}
