import testing from './lib/testing.js';

export const { installDouble } = testing;
