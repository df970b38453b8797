// Runs the vectors in Node: the client of docs/SOCKET.md, and Node's JSON.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const GRANT = { lease: 7, valid_ms: 1, lease_ms: 100, owner: 'o', table: 't', token: null, waited_ms: 0 };

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
    connection.once('data', () =>
      connection.end(`${line.replace(/\n$/, '')}\n${JSON.stringify({ id: 1, ok: GRANT })}\n`),
    );
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

for (const { name, line, decoded } of cases('requests_valid.json')) {
  const absent = decoded.op === 'acquire' ? { request_id: null, remaining_ms: null, wait_ms: null, lease_ms: null } : {};
  check(name, { ...absent, ...JSON.parse(line) }, { v: 1, ...decoded });
}

const scratch = mkdtempSync(join(tmpdir(), 'vectors-'));
try {
  const page = readFileSync(join(HERE, '../../docs/SOCKET.md'), 'utf8');
  const file = join(scratch, 'client.mjs');
  writeFileSync(file, page.match(/```js\n([^]*?)```/)[1]);
  const client = await import(pathToFileURL(file));
  for (const testCase of cases('server_lines.json')) {
    check(testCase.name, await meets(client, scratch, testCase.line), expected(testCase));
  }
} finally {
  rmSync(scratch, { recursive: true });
}

for (const failure of failures) console.log(`failed: ${failure}`);
console.log(`${passed} passed, ${failures.length} failed`);
process.exitCode = failures.length ? 1 : 0;
