// Prints what a lock costs beyond the bare socket exchange: acquire and release, at the median, in milliseconds.

import { connect } from 'node:net';
import { lock } from 'leasekeeper';
import { startScript } from './helpers.mjs';

const ROUNDS = 600;

/** The same two exchanges on a connection of their own, with nothing around them. */
function bare(path) {
  return new Promise((resolve, reject) => {
    let step = 0;
    const socket = connect(path, () => socket.write('{"v":1,"id":1,"op":"acquire","key":"k"}\n'));
    socket.on('error', reject).on('data', () => {
      step += 1;
      if (step === 1) socket.write('{"v":1,"id":2,"op":"release","lease":7}\n');
      else socket.destroy();
    });
    socket.on('close', resolve);
  });
}

async function median(cycle) {
  const took = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const began = performance.now();
    await cycle();
    took.push(performance.now() - began);
  }
  // The first rounds compile.
  return took.slice(ROUNDS / 3).sort((a, b) => a - b)[ROUNDS / 3];
}

const { path } = await startScript();
const client = () => lock('k').then((lease) => lease.release());
await median(client);
const without = await median(() => bare(path));
const withClient = await median(client);
const ms = (value) => `${value.toFixed(3)} ms`;
console.log(
  `a lock and its release: ${ms(withClient)}, the bare exchange ${ms(without)}, the client ${ms(withClient - without)}`,
);
