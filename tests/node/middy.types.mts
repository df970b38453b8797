// What a TypeScript user of Middy writes, against Middy's own types; compiled, never run.

import type { Context } from 'aws-lambda';
import { lock } from 'leasekeeper/middy';
import middy6, { type MiddlewareObj as Middleware6 } from 'middy6-core';
import middy7, { type MiddlewareObj as Middleware7 } from 'middy7-core';
import parser7 from 'middy7-http-json-body-parser';

interface Order {
  order_id: string;
}

const middleware = lock({ key: (event: Order) => `order:${event.order_id}`, waitMs: 0, strictRelease: true });
export const as6: Middleware6<Order> = middleware;
export const as7: Middleware7<Order> = middleware;

export const six = middy6<Order, { done: string }>()
  .use(middleware)
  .handler(async (event, context, { signal }) => {
    const time: number = context.getRemainingTimeInMillis();
    return { done: `${event.order_id satisfies string} ${time} ${signal.aborted}` };
  });
export const seven = middy7<Order, { done: string }>()
  .use(middleware)
  .use([lock({ key: 'second', stream: true }), lock({ key: '{id}', values: (event: Order) => ({ id: event.order_id }) })])
  .handler(async (event, context) => ({ done: `${event.order_id satisfies string} ${context.functionName satisfies string}` }));
export const inferred = middy7()
  .use(lock({ key: (event: Order, context: Context) => `${context.functionName}:${event.order_id}` }))
  .handler(async (event) => event.order_id satisfies string);
export const parsed = middy7()
  .use(parser7())
  .use(lock<{ body: Order }>({ key: '{id}', values: { id: (event) => event.body.order_id } }))
  .handler(async () => 1);

// @ts-expect-error: no middleware can end Middy's wait
lock({ key: 'k', onLost: 'abort' });
// @ts-expect-error: neither true nor false
lock({ key: 'k', stream: 1 });
// @ts-expect-error: a misspelt option
lock({ key: 'k', wait: 5 });
// @ts-expect-error: a key that is no string
lock({ key: (event: Order) => event });
// biome-ignore format: what is expected is in one line
// @ts-expect-error: the handler's event keeps its type
export const event6 = middy6().use(middleware).handler(async (event) => event.customer_id);
// biome-ignore format: the same
// @ts-expect-error: the same
export const event7 = middy7().use(middleware).handler(async (event) => event.customer_id);
// biome-ignore format: the same
// @ts-expect-error: so does its context
export const context6 = middy6().use(middleware).handler(async (_event, context) => context.nothing);
