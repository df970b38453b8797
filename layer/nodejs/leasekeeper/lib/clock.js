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
  constructor(clocks = REAL) {
    this.clocks = clocks;
    this.total = 0;
    this.coarse = Object.entries(clocks.grains).map(([name, grain]) => ({ name, grain }));
    const { mono, coarse } = this.#readings();
    this.mono = mono;
    // What each clock showed, and what the sum was, when the two were last compared and differed.
    this.coarse = this.coarse.map((clock, index) => ({ ...clock, shown: coarse[index], total: 0 }));
    this.slackMs = 2 * Math.max(0, ...Object.values(clocks.grains));
  }

  /**
   * Every clock at one moment. A process that is stopped between two readings would count that time twice: it reads again, a
   * few times, and then rather counts too much.
   */
  #readings() {
    for (let attempt = 1; ; attempt += 1) {
      const mono = this.clocks.mono();
      const coarse = this.coarse.map((clock) => this.clocks[clock.name]());
      if (this.clocks.mono() - mono < AT_ONCE_MS || attempt === 5) return { mono, coarse };
    }
  }

  /** What has passed since this was made. */
  now() {
    const { mono, coarse: readings } = this.#readings();
    this.total += Math.max(0, mono - this.mono);
    this.mono = mono;
    const ahead = (clock, index) => readings[index] - clock.shown - (this.total - clock.total);
    const most = Math.max(
      0,
      ...this.coarse.map((clock, index) => (ahead(clock, index) >= clock.grain ? ahead(clock, index) : 0)),
    );
    this.total += most;
    this.coarse.forEach((clock, index) => {
      // It is what was just believed, or it stood still or stepped back: nothing of before may hide what it shows next.
      if (most > 0 || ahead(clock, index) <= -clock.grain) Object.assign(clock, { shown: readings[index], total: this.total });
    });
    return this.total;
  }
}

module.exports = { Elapsed };
