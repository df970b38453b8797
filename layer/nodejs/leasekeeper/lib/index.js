'use strict';
// Leasekeeper for Node: locks that the Leasekeeper extension holds and renews, over its Unix socket.

const { currentLease } = require('./context.js');
const { key } = require('./key.js');
const { Lease } = require('./lease.js');
const { lock, tryLock, withLock } = require('./lock.js');
const { locked } = require('./locked.js');
const errors = require('./errors.js');

module.exports = {
  locked,
  lock,
  tryLock,
  withLock,
  currentLease,
  key,
  Lease,
  LockError: errors.LockError,
  BusyError: errors.BusyError,
  BudgetExhaustedError: errors.BudgetExhaustedError,
  LostError: errors.LostError,
  UnavailableError: errors.UnavailableError,
  DeniedError: errors.DeniedError,
  ConfigError: errors.ConfigError,
  ForeignRowError: errors.ForeignRowError,
  ProtocolError: errors.ProtocolError,
  ReleaseUnconfirmedError: errors.ReleaseUnconfirmedError,
  ExtensionMissingError: errors.ExtensionMissingError,
  UnknownLockError: errors.UnknownLockError,
};
