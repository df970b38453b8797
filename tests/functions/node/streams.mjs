// The tests' Node function that streams: writes the event's `parts` under the lock `key`, with a pause after each, and ends.

import { setTimeout as sleep } from 'node:timers/promises';
import { locked } from 'leasekeeper';

async function write({ parts, pause_ms, fails }, stream) {
  for (const part of parts) {
    stream.write(part);
    await sleep(pause_ms);
  }
  if (fails) throw new RangeError('the body fails');
  stream.end();
}

export const handler = locked(
  { key: ({ key }) => key },
  awslambda.streamifyResponse(async (event, stream) => {
    const writing = write(event, stream);
    // What still flows when the handler has returned flows under the lock too.
    if (!event.returns_early) await writing;
  }),
);
