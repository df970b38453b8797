'use strict';
// What a connection is made over: the extension's socket, unless a test has installed its double.

const socket = require('./socket.js');

module.exports = { socket, current: socket };
