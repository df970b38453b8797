/// <reference lib="esnext.disposable" />
import type { LostReason } from './index.js';

export interface DoubleOptions {
  /** How many locks can be held at once; 0: every lock request is `unavailable`. */
  capacity?: number;
  /** The lease of locks whose request names none, in milliseconds; 20,000 by default. */
  leaseMs?: number;
  /** The table's name; `locks` by default. */
  table?: string;
  /** What becomes of releases; `confirmed` by default. */
  releases?: 'confirmed' | 'unconfirmed' | 'hang';
}

/** A stand-in for the extension. */
export interface Double extends Disposable {
  capacity: number;
  releases: 'confirmed' | 'unconfirmed' | 'hang';
  /** What was asked for so far. */
  readonly requests: ReadonlyArray<{
    op: 'acquire' | 'check' | 'metrics' | 'release';
    key?: string;
    waitMs?: number;
    leaseMs?: number;
    requestId?: string;
  }>;
  /** The keys that are held now, by the code under test or by `hold`. */
  readonly held: string[];
  /** Takes a lock in the name of someone else. */
  hold(key: string): { owner: string; release(): void };
  /** The code under test loses its lock of this key. */
  lose(key: string, reason?: LostReason): void;
  /** Every connection ends, as if the extension had died; new ones find it again. */
  vanish(): void;
  /** Puts the real socket back. */
  restore(): void;
}

/** From now on every lock of this process is asked of the double, until its `restore`. */
export declare function installDouble(options?: DoubleOptions): Double;
