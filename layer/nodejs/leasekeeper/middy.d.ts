import type { LambdaContext, LockedOptions } from './index.js';

/** All of `locked`'s options but `onLost`: no middleware can end Middy's wait for the handler. */
export interface LockMiddlewareOptions<Event, Context> extends Omit<LockedOptions<[event: Event, context: Context]>, 'onLost'> {
  /**
   * Is a stream in the response to hold the lock until it has ended? For Middy that streams; without it such a response is
   * a `TypeError`.
   */
  stream?: boolean | undefined;
}

/** What Middy's `use` takes. Its request is Middy's. */
export interface LockMiddleware<Event> {
  before(request: { event: Event }): Promise<void>;
  after(request: { event: Event }): Promise<void>;
  onError(request: { event: Event }): Promise<void>;
}

/**
 * A Middy middleware: what Middy runs after it runs under a lock, which is given back before the response, in reverse order of
 * several. The lease's `signal` is aborted then: Middy's early time-out does not wait for the handler. `currentLease()` is the
 * lease in the handler, in what it calls, and in the hooks after it. Use it last, next to the handler, unless other middlewares
 * have to run under the lock.
 */
export declare function lock<Event = unknown, Context = LambdaContext>(
  options: LockMiddlewareOptions<Event, Context>,
): LockMiddleware<Event>;
