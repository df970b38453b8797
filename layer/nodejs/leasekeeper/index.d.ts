/// <reference lib="esnext.disposable" />

/** What a caller branches on: the same words in every language. A code of a newer extension is `unknown`. */
export type LockErrorCode =
  | 'busy'
  | 'budget_exhausted'
  | 'lost'
  | 'unavailable'
  | 'denied'
  | 'config'
  | 'foreign_row'
  | 'protocol'
  | 'release_unconfirmed'
  | 'extension_missing'
  | 'unknown';

/** Why a lease ended before it was given back. A reason of a newer extension is `unknown`. */
export type LostReason =
  | 'stolen'
  | 'expired'
  | 'deleted'
  | 'denied'
  | 'throttled'
  | 'deadline'
  | 'thaw'
  | 'shutdown'
  | 'extension_failed'
  | 'max_hold'
  | 'unknown';

/** A lease's figures, from its acquire on. */
export interface Metrics {
  /** Requests that could write: put, update, delete. */
  writeRequests: number;
  readRequests: number;
  /** Renewals known to be committed. */
  renewals: number;
  /** Writes whose condition did not hold. */
  conditionalFailures: number;
  /** Requests with no useful answer. */
  requestFailures: number;
  /** How long the acquire took, in milliseconds. */
  waitMs: number;
  /** 1 if the wait ended without the lock. */
  waitTimeouts: number;
  /** 1 if the release was not confirmed within its budget. */
  cleanupFailures: number;
  /** 1 if the lease was lost. */
  lost: number;
  consumedReadUnits: number;
  consumedWriteUnits: number;
}

/** What the lock's row says of whoever holds it. Another tenant's data: keep it from your callers. */
export interface Holder {
  owner: string;
  leaseMs: number;
  /** For how long this environment has seen the row unchanged, in milliseconds. */
  unchangedMs: number;
  function?: string;
  requestId?: string;
  logStream?: string;
  /** Outside Lambda: the host and the process. */
  host?: string;
}

/** Why there is no lock, or why it is not held any more. */
export declare class LockError extends Error {
  protected constructor();
  readonly code: LockErrorCode;
  /** What the extension itself said, without the advice that the message adds. */
  readonly detail: string;
  /** The figures of the acquire that failed or of the lease that was lost, where the extension gave them. */
  readonly metrics?: Metrics;
}
/** Someone else holds the lock and the wait is over. */
export declare class BusyError extends LockError {
  readonly code: 'busy';
  /** No later than this, in milliseconds, the lock can be free or taken over, unless its holder renews it. */
  readonly retryAfterMs?: number;
  /** Not shown by logs or JSON, nor part of the message. */
  readonly holder?: Holder;
}
/** The invocation has no time left to wait in. */
export declare class BudgetExhaustedError extends LockError {
  readonly code: 'budget_exhausted';
}
/** The lease is over, for good. */
export declare class LostError extends LockError {
  readonly code: 'lost';
  readonly reason: LostReason;
}
/** DynamoDB or the extension did not answer in time, or the extension takes no more requests. */
export declare class UnavailableError extends LockError {
  readonly code: 'unavailable';
}
/** A permission or the credentials are missing. */
export declare class DeniedError extends LockError {
  readonly code: 'denied';
}
/** A setting is missing or wrong, or the table is not what it must be. */
export declare class ConfigError extends LockError {
  readonly code: 'config';
}
/** The key is used for something other than a lock of protocol version 1. */
export declare class ForeignRowError extends LockError {
  readonly code: 'foreign_row';
}
/** The request itself is wrong: a key, a template, a range, or a lease that was given back. */
export declare class ProtocolError extends LockError {
  readonly code: 'protocol';
}
/** The work is done, but DynamoDB has not confirmed that the row is gone. The extension goes on trying. */
export declare class ReleaseUnconfirmedError extends LockError {
  readonly code: 'release_unconfirmed';
}
/** Nothing listens on the socket, or the connection was closed without an answer. */
export declare class ExtensionMissingError extends LockError {
  readonly code: 'extension_missing';
}
/** An answer that this package does not understand, as of an extension that is newer. */
export declare class UnknownLockError extends LockError {
  readonly code: 'unknown';
}

/** What a lease needs of the context that Lambda passes to a handler. */
export interface LambdaContext {
  readonly awsRequestId: string;
  getRemainingTimeInMillis(): number;
}

/** All durations are whole milliseconds. */
export interface Wishes {
  /**
   * How long to wait for the lock: 0 (try once) to 86,400,000, and never longer than the invocation has. By default the
   * extension's setting, else min(5 s, what remains of the invocation less the reserve). Outside an invocation
   * LEASEKEEPER_WAIT_MS of this process, else the lease and 5 s.
   */
  waitMs?: number | undefined;
  /** The lease to write, 100 to 86,400,000: after a crash others wait this long. By default the extension's setting, else 20 s. */
  leaseMs?: number | undefined;
  /** What to keep of the invocation for the work and the release. By default the extension's setting. */
  reserveMs?: number | undefined;
  /** Is an unconfirmed release an error? By default LEASEKEEPER_STRICT_RELEASE, else it is logged: the work is done. */
  strictRelease?: boolean | undefined;
}

export interface LockOptions extends Wishes {
  /** The invocation that the lease belongs to. Not needed inside a `locked` handler; otherwise required under Lambda. */
  context?: LambdaContext | undefined;
  /** Aborting it ends the wait for the lock, which then rejects with the signal's reason. A lock that is held stays so. */
  signal?: AbortSignal | undefined;
}

export interface WorkOptions {
  /**
   * What happens when the lock is lost. `abort` (the default): the call rejects at once, and the work is told by
   * `lease.signal`, since JavaScript cannot stop it. `notify`: it is told only; the call rejects once it has ended.
   */
  onLost?: 'abort' | 'notify' | undefined;
}

/** One element of `TransactItems` for the AWS SDK v3. */
export interface ConditionCheckItem<Value> {
  ConditionCheck: {
    TableName: string;
    Key: { key: Value };
    ConditionExpression: string;
    ExpressionAttributeNames: Record<string, string>;
    ExpressionAttributeValues: Record<string, Value>;
    ReturnValuesOnConditionCheckFailure: 'ALL_OLD';
  };
}

/** A held lock. */
export declare class Lease implements AsyncDisposable {
  private constructor();
  readonly key: string;
  /** The lock table's name or ARN. */
  readonly table: string;
  /** The row's owner, which a transaction's condition compares. */
  readonly owner: string;
  /** The fencing token; null without fencing. */
  readonly token: number | null;
  /** The lease that was written, in milliseconds. */
  readonly leaseMs: number;
  /** How long the acquire took, in milliseconds. */
  readonly waitedMs: number;
  /** Asks the extension whether the lease is valid; resolves with for how many milliseconds it is, at least. */
  check(): Promise<number>;
  /**
   * For how many milliseconds the lease is valid without another renewal, at least: 0 when it was lost or given back, or the
   * extension is gone. It reads the socket and asks nothing, so after the event loop was busy it can be 0 though the
   * lease was renewed: then `check`.
   */
  remaining(): number;
  /** Throws `LostError` if the lease is known to be lost. */
  raiseIfLost(): void;
  /** Is the lease known to be lost? */
  readonly isLost: boolean;
  /** Resolves when the lease is lost, and never if it is given back. It never rejects, and keeps no process alive. */
  readonly lost: Promise<LostReason>;
  /**
   * Aborted when the lease is lost, with a `LostError` as its reason. A lock of the Middy middleware goes back though work may
   * still run: then it is aborted with a `ProtocolError`.
   */
  readonly signal: AbortSignal;
  /** The lease's figures up to now; once it is over, the last that were told. */
  metrics(): Promise<Metrics>;
  /**
   * Gives the lock back, within min(1 s, what remains of the invocation less 200 ms), outside an invocation 11 s. Called
   * again it gives the same promise.
   */
  release(): Promise<void>;
  /** For a transaction of `@aws-sdk/client-dynamodb`: it is refused once the lock was given back or taken over. */
  conditionCheck(): ConditionCheckItem<{ S: string }>;
  /** The same for `@aws-sdk/lib-dynamodb`. */
  documentConditionCheck(): ConditionCheckItem<string>;
  /** For `await using`: gives the lock back unless `release` was called. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Acquires a lock. Give it back with `release`, or hold it with `await using`. */
export declare function lock(key: string, options?: LockOptions): Promise<Lease>;

/** Acquires a lock, or fails at once with `BusyError` if someone else holds it. */
export declare function tryLock(key: string, options?: Omit<LockOptions, 'waitMs'>): Promise<Lease>;

/** Runs work under a lock and gives the lock back before this settles. */
export declare function withLock<Result>(
  key: string,
  options: LockOptions & WorkOptions,
  work: (lease: Lease) => Result | PromiseLike<Result>,
): Promise<Result>;
export declare function withLock<Result>(key: string, work: (lease: Lease) => Result | PromiseLike<Result>): Promise<Result>;

type Made<Args extends readonly unknown[], Value> = (...args: Args) => Value | PromiseLike<Value>;

export interface LockedOptions<Args extends readonly unknown[]> extends Wishes, WorkOptions {
  /** Gives the key of a call from its arguments; or a key template, such as `customer:{customer_id}`. */
  key: string | Made<Args, string>;
  /** The template's values: one function for each placeholder, or one for all of them. */
  values?: Readonly<Record<string, Made<Args, string>>> | Made<Args, Readonly<Record<string, string>>> | undefined;
}

/**
 * Wraps a handler, or any async function, so that it runs under a lock. Arguments, `this` and the result pass through. A
 * streaming handler (`awslambda.streamifyResponse`, inside or around) gives the lock back before the stream's end is passed on.
 */
export declare function locked<Handler extends (...args: any[]) => PromiseLike<unknown>>(
  options: LockedOptions<Parameters<Handler>>,
  handler: Handler,
): (...args: Parameters<Handler>) => Promise<Awaited<ReturnType<Handler>>>;

/** The lease of the innermost `locked`, `withLock` or Middy lock around the caller; `ProtocolError` where there is none. */
export declare function currentLease(): Lease;

/**
 * The key of a template and its values. With two or more placeholders each value is framed by its length in bytes, so that no
 * two lists of values make the same key.
 */
export declare function key(template: string, values?: Readonly<Record<string, string>>): string;
