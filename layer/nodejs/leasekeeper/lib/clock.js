'use strict';
// The one file that reads clocks: how much time has passed at most.

const { openSync, readSync } = require('node:fs');

/** How finely /proc/uptime tells the boot-time clock. */
const BOOT_GRAIN_MS = 10;
/** How finely `Date` tells the wall clock. */
const WALL_GRAIN_MS = 1;
/** Readings this close together are of one moment. */
const AT_ONCE_MS = 0.5;

const uptime = { fd: undefined, text: Buffer.alloc(64) };

/**
 * The clock that goes on through a suspend, in milliseconds. Node gives it with a resolution that depends on its version,
 * so it is read where the kernel shows it. Elsewhere than on Linux nothing freezes: the other clocks are enough.
 */
function boot() {
  if (uptime.fd === null) return 0;
  try {
    uptime.fd ??= openSync('/proc/uptime', 'r');
    const length = readSync(uptime.fd, uptime.text, 0, uptime.text.length, 0);
    return Number.parseFloat(uptime.text.latin1Slice(0, length)) * 1_000;
  } catch {
    uptime.fd = null;
    return 0;
  }
}

const REAL = {
  mono: () => performance.now(),
  wall: () => Date.now(),
  boot,
  grains: { wall: WALL_GRAIN_MS, boot: BOOT_GRAIN_MS },
};

/**
 * Elapsed time, in milliseconds, added up at every reading from whichever clock moved most: never less than what really
 * passed, but for `slackMs`.
 *
 * The monotonic clock is read to the microsecond. The others are coarse: between two readings close together they seem to
 * stand still and then to jump. Each is therefore compared over a longer stretch, and believed when it has moved more
 * than the sum by its grain or beyond; what that may overlook is the slack.
 */
class Elapsed {
  #clocks;
  #mono;
  /** The coarse clocks: what each shows, what it showed and what the sum was when the two were last found to differ. */
  #coarse;
  #total = 0;

  constructor(clocks = REAL) {
    this.#clocks = clocks;
    const names = Object.keys(clocks.grains);
    this.#coarse = names.map((name) => ({ read: clocks[name], grain: clocks.grains[name], shows: 0, showed: 0, total: 0 }));
    this.#mono = this.#read();
    for (const clock of this.#coarse) clock.showed = clock.shows;
    this.slackMs = 2 * Math.max(0, ...Object.values(clocks.grains));
  }

  /**
   * Reads every clock at one moment. A process that is stopped between two readings would count that time twice: it reads
   * again, a few times, and then rather counts too much.
   */
  #read() {
    for (let attempt = 1; ; attempt += 1) {
      const mono = this.#clocks.mono();
      for (const clock of this.#coarse) clock.shows = clock.read();
      if (this.#clocks.mono() - mono < AT_ONCE_MS || attempt === 5) return mono;
    }
  }

  /** By how much a clock has moved more than the sum. */
  #ahead(clock) {
    return clock.shows - clock.showed - (this.#total - clock.total);
  }

  /** What has passed since this was made. */
  now() {
    const mono = this.#read();
    this.#total += Math.max(0, mono - this.#mono);
    this.#mono = mono;
    let most = 0;
    for (const clock of this.#coarse) {
      const ahead = this.#ahead(clock);
      if (ahead >= clock.grain && ahead > most) most = ahead;
    }
    this.#total += most;
    for (const clock of this.#coarse) {
      // It is what was just believed, or it stood still or stepped back: nothing of before may hide what it shows next.
      if (most > 0 || this.#ahead(clock) <= -clock.grain) {
        clock.showed = clock.shows;
        clock.total = this.#total;
      }
    }
    return this.#total;
  }
}

module.exports = { Elapsed };
