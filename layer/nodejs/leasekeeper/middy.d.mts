export * from './middy.js';
