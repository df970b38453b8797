import middy from './lib/middy.js';

export const { lock } = middy;
