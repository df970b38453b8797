// How the package is found and loaded: by ES modules and CommonJS, from node_modules and from a layer.

import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { spawnSync } from 'node:child_process';
import * as esm from 'leasekeeper';
import * as esmMiddy from 'leasekeeper/middy';
import * as esmTesting from 'leasekeeper/testing';
import { here, scratch } from './helpers.mjs';

/** A function's directory and, elsewhere, the layer's node_modules with the package. */
function function_(name, text) {
  const root = scratch();
  const [task, layer] = [join(root, 'var/task'), join(root, 'opt/nodejs/node_modules')];
  mkdirSync(task, { recursive: true });
  mkdirSync(layer, { recursive: true });
  cpSync(dirname(here.resolve('leasekeeper/package.json')), join(layer, 'leasekeeper'), { recursive: true });
  writeFileSync(join(task, name), text.replaceAll('LAYER', layer));
  const env = { PATH: process.env.PATH, NODE_PATH: layer };
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(task, name)], { env, encoding: 'utf8' });
  return { status, out: stdout.trim(), err: stderr };
}

test('both kinds of module get the same objects', () => {
  const cjs = here('leasekeeper');
  assert.deepEqual(Object.keys(esm).sort(), Object.keys(cjs).sort());
  for (const [name, value] of Object.entries(cjs)) assert.equal(esm[name], value, name);
  assert.equal(esmMiddy.lock, here('leasekeeper/middy').lock);
  assert.equal(esmTesting.installDouble, here('leasekeeper/testing').installDouble);
});

test('what is declared is there, and what is there is declared', () => {
  for (const [declarations, module] of [
    ['index.d.ts', esm],
    ['middy.d.ts', esmMiddy],
    ['testing.d.ts', esmTesting],
  ]) {
    const text = readFileSync(join(dirname(here.resolve('leasekeeper/package.json')), declarations), 'utf8');
    const declared = [...text.matchAll(/^export declare (?:class|function) (\w+)/gm)].map(([, name]) => name);
    assert.deepEqual([...new Set(declared)].sort(), Object.keys(module).sort());
  }
});

test('nothing but the entry points can be imported', async () => {
  await assert.rejects(import('leasekeeper/lib/state.js'), { code: 'ERR_PACKAGE_PATH_NOT_EXPORTED' });
});

test('the package depends on nothing', () => {
  const manifest = here('leasekeeper/package.json');
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.scripts, undefined);
});

test('CommonJS finds it in a layer by NODE_PATH', () => {
  const { out, err } = function_(
    'handler.cjs',
    `console.log(typeof require('leasekeeper').locked, typeof require('leasekeeper/middy').lock)`,
  );
  assert.equal(out, 'function function', err);
});

test('an ES module of plain Node does not look at NODE_PATH; createRequire and an absolute path do the same', () => {
  const plain = function_('plain.mjs', `import { locked } from 'leasekeeper'; console.log(typeof locked)`);
  assert.match(plain.err, /ERR_MODULE_NOT_FOUND/);
  const required = `import { createRequire } from 'node:module';
    const { locked } = createRequire(import.meta.url)('leasekeeper'); console.log(typeof locked)`;
  assert.equal(function_('required.mjs', required).out, 'function');
  const absolute = `import { locked } from 'LAYER/leasekeeper/index.mjs'; import { lock } from 'LAYER/leasekeeper/middy.mjs';
    console.log(typeof locked, typeof lock)`;
  assert.equal(function_('absolute.mjs', absolute).out, 'function function');
});
