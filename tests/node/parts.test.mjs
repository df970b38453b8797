// The client's parts by themselves: settings, budgets, clocks, errors, keys.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as leasekeeper from 'leasekeeper';
import { part } from './helpers.mjs';

const { readSettings } = part('settings.js');
const { answerBound, plan, releaseBound } = part('budget.js');
const { Elapsed } = part('clock.js');
const { CODES, REASONS, lockError } = part('errors.js');
const { key } = leasekeeper;

test('nothing set is the defaults', () => {
  assert.deepEqual(readSettings({}), {
    socket: '/tmp/leasekeeper/lock.sock',
    underLambda: false,
    strictRelease: false,
    waitMs: undefined,
    leaseMs: undefined,
  });
  const env = {
    LEASEKEEPER_SOCKET: '/run/lock.sock',
    LEASEKEEPER_STRICT_RELEASE: '1',
    LEASEKEEPER_WAIT_MS: '0',
    LEASEKEEPER_LEASE_MS: '9000',
    AWS_LAMBDA_RUNTIME_API: '127.0.0.1:9001',
  };
  assert.deepEqual(readSettings(env), {
    socket: '/run/lock.sock',
    underLambda: true,
    strictRelease: true,
    waitMs: 0,
    leaseMs: 9_000,
  });
});

test('a wrong setting is named and never replaced', async () => {
  for (const [name, value] of [
    ['LEASEKEEPER_SOCKET', ''],
    ['LEASEKEEPER_SOCKET', 'lock.sock'],
    ['LEASEKEEPER_SOCKET', `/${'s'.repeat(107)}`],
    ['LEASEKEEPER_STRICT_RELEASE', 'maybe'],
    ['LEASEKEEPER_STRICT_RELEASE', ''],
    ['LEASEKEEPER_WAIT_MS', '-1'],
    ['LEASEKEEPER_WAIT_MS', '+1'],
    ['LEASEKEEPER_WAIT_MS', '1.5'],
    ['LEASEKEEPER_WAIT_MS', ''],
    ['LEASEKEEPER_WAIT_MS', '86400001'],
    ['LEASEKEEPER_LEASE_MS', '99'],
    ['LEASEKEEPER_LEASE_MS', 'ten'],
  ]) {
    process.env[name] = value;
    try {
      const wrong = (error) => error.code === 'config' && error.message.includes(name);
      await assert.rejects(leasekeeper.lock('k'), wrong, `${name}=${value}`);
    } finally {
      delete process.env[name];
    }
  }
});

test('waits and bounds', () => {
  const none = {};
  for (const [wishes, settings, remaining, expected] of [
    // Without wishes the extension's own rule applies, and only the client's patience is set.
    [{}, none, 60_000, [undefined, undefined, 8_500]],
    [{}, none, 3_000, [undefined, undefined, 2_800]],
    [{}, { waitMs: 50_000 }, 90_000, [undefined, undefined, 53_500]],
    // A reserve is kept of the wait, and a wait never outlasts the invocation.
    [{ reserveMs: 8_000 }, none, 60_000, [5_000, undefined, 8_500]],
    [{ reserveMs: 8_000 }, none, 10_000, [2_000, undefined, 5_500]],
    [{ reserveMs: 8_000, waitMs: 30_000 }, none, 20_000, [12_000, undefined, 15_500]],
    [{ waitMs: 30_000 }, none, 10_000, [9_500, undefined, 9_800]],
    // Outside an invocation a wait outlasts one dead holder, and is sent.
    [{}, none, undefined, [25_000, undefined, 28_500]],
    [{ leaseMs: 30_000 }, none, undefined, [35_000, 30_000, 38_500]],
    [{}, { leaseMs: 60_000 }, undefined, [65_000, undefined, 68_500]],
    [{}, { leaseMs: 60_000, waitMs: 7_000 }, undefined, [7_000, undefined, 10_500]],
    [{ leaseMs: 86_400_000 }, none, undefined, [86_400_000, 86_400_000, 86_403_500]],
    [{ waitMs: 0 }, none, undefined, [0, undefined, 3_500]],
  ]) {
    const { waitMs, leaseMs, boundMs } = plan(wishes, settings, remaining);
    assert.deepEqual([waitMs, leaseMs, boundMs], expected, JSON.stringify([wishes, settings, remaining]));
  }
  assert.deepEqual([60_000, 2_000, 100, undefined].map(answerBound), [3_000, 1_800, 0, 3_000]);
  assert.deepEqual([60_000, 700, 150, undefined].map(releaseBound), [1_000, 500, 0, 11_000]);
});

/** Clocks that a test moves: grains as the real ones have. */
function clocks() {
  const shown = { mono: 1_000, wall: 5_000_000, boot: 70_000 };
  const coarse = (name, grain) => () => Math.floor(shown[name] / grain) * grain;
  return {
    shown,
    elapsed: new Elapsed({
      mono: () => shown.mono,
      wall: coarse('wall', 1),
      boot: coarse('boot', 10),
      grains: { wall: 1, boot: 10 },
    }),
  };
}

test('coarse clocks add nothing to what the fine one tells, however often they are read', () => {
  const { shown, elapsed } = clocks();
  for (let step = 0; step < 10_000; step += 1) {
    for (const name of Object.keys(shown)) shown[name] += 0.13;
    elapsed.now();
  }
  assert.ok(Math.abs(elapsed.now() - 1_300) <= elapsed.slackMs, String(elapsed.now()));
});

test('elapsed time is never less than any clock tells, but for the slack', () => {
  // A fixed sequence, so that a failure comes again.
  let seed = 7;
  const random = (below) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed % below;
  };
  for (let round = 0; round < 300; round += 1) {
    const { shown, elapsed } = clocks();
    const moved = { mono: 0, wall: 0, boot: 0 };
    for (let step = 0; step < 40; step += 1) {
      const frozen = ['none', 'mono', 'wall', 'boot'][random(4)];
      const ms = random(40) / 4;
      for (const name of Object.keys(shown)) {
        if (name === frozen) continue;
        shown[name] += ms;
        moved[name] += ms;
      }
      if (random(3) === 0) elapsed.now();
    }
    const now = elapsed.now();
    for (const [name, ms] of Object.entries(moved)) {
      assert.ok(now + elapsed.slackMs >= ms, `round ${round}: ${now} though ${name} tells ${ms}`);
    }
  }
});

test('freezes that stop different clocks add up; a wall clock that steps back hides nothing that comes after', () => {
  const { shown, elapsed } = clocks();
  shown.wall += 3_000;
  elapsed.now();
  shown.boot += 2_000;
  assert.ok(elapsed.now() >= 5_000 - elapsed.slackMs);
  shown.wall -= 60_000;
  elapsed.now();
  shown.wall += 1_000;
  assert.ok(elapsed.now() >= 6_000 - elapsed.slackMs);
  assert.ok(elapsed.now() <= 6_000 + elapsed.slackMs);
});

test('the real clocks agree with each other', () => {
  const before = performance.now();
  const elapsed = new Elapsed();
  const after = performance.now();
  while (performance.now() - after < 300) elapsed.now();
  const least = performance.now() - after;
  const now = elapsed.now();
  const most = performance.now() - before;
  // The wall clock of a machine may be adjusted meanwhile, by a little.
  assert.ok(now >= least && now <= most + elapsed.slackMs + 5, `${now} is not in ${least} to ${most}`);
});

test('every code has a class, a name for Lambda, and a text', () => {
  assert.equal(CODES.length, 10);
  assert.equal(REASONS.length, 10);
  for (const code of [...CODES, 'unknown']) {
    const error = lockError(code, 'words', code === 'lost' ? { reason: 'stolen' } : {});
    const name = error.name.replace(/^Leasekeeper\./, '');
    assert.ok(error instanceof leasekeeper.LockError);
    assert.equal(name.toLowerCase(), code.replaceAll('_', ''));
    const className = name === 'Unknown' ? 'UnknownLockError' : `${name}Error`;
    assert.ok(error instanceof leasekeeper[className], className);
    assert.ok(error.message.length > 0);
    assert.ok(error.stack.startsWith(`Leasekeeper.${name}: `) || error.stack.startsWith('Error'), error.stack);
  }
  assert.equal(lockError('quota_exceeded', 'w').code, 'unknown');
  assert.match(lockError('lost', '', { reason: 'moved' }).message, /moved/);
});

test('keys: names in any script, values that look like names of Object', () => {
  assert.equal(key('{größe}:{_x1}', { größe: 'é', _x1: '' }), '2:é:0:');
  assert.equal(key('{constructor}', { constructor: 'v' }), 'v');
  assert.throws(() => key('{toString}', {}), leasekeeper.ProtocolError);
  assert.throws(() => key('{x}', { x: '\ud800' }), leasekeeper.ProtocolError);
  assert.throws(() => key('{x}', { x: 1 }), TypeError);
  assert.throws(() => key(7), TypeError);
});
