// What the tests of Middy share: the newest Middy that runs on this Node, and a streaming response as the runtime gives one.

import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { tryLock } from 'leasekeeper';
import { startExtension } from './helpers.mjs';

const node = Number(process.versions.node.split('.')[0]);
/** Middy's major version: 5 is the last that runs on Node 18, 6 on Node 20. */
export const major = node >= 22 ? 7 : node >= 20 ? 6 : 5;

const load = async (name) => (await import(name)).default;
export const middy = await load(`middy${major}-core`);
export const jsonBodyParser = await load(`middy${major}-http-json-body-parser`);
export const httpErrorHandler = await load(`middy${major}-http-error-handler`);

/** One extension for all tests of a file, which keep their leases apart by giving them back. */
let extension;
export async function real() {
  extension ??= await startExtension();
  process.env.LEASEKEEPER_SOCKET = extension.socket;
}
export const isFree = async (key = 'k') => (await tryLock(key)).release();
export const isHeld = (key = 'k') => assert.rejects(tryLock(key), { code: 'busy' });

/** Middy in its streaming mode, for a runtime like Lambda's. */
export async function streaming() {
  globalThis.awslambda = {
    streamifyResponse(handler) {
      handler[Symbol.for('aws.lambda.runtime.handler.streaming')] = 'response';
      return handler;
    },
    HttpResponseStream: { from: (stream) => stream },
  };
  if (major < 7) return middy({ streamifyResponse: true });
  const { executionModeStreamifyResponse: executionMode } = await import('middy7-core/StreamifyResponse');
  return middy({ executionMode });
}

/** The response, with a look at the world when its end is seen. */
export function response(atEnd = async () => {}) {
  const seen = { text: '', ended: false };
  const stream = new Writable({
    write(chunk, _encoding, done) {
      seen.text += chunk;
      done();
    },
    final(done) {
      seen.ended = true;
      atEnd().then(() => done(), done);
    },
  });
  stream.on('error', () => {});
  return { stream, seen };
}
