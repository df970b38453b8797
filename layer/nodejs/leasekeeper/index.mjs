// The ES module's entry: the same objects as the CommonJS one, so that an error or a lease is the same in both.
import leasekeeper from './lib/index.js';

export const {
  locked,
  lock,
  tryLock,
  withLock,
  currentLease,
  key,
  Lease,
  LockError,
  BusyError,
  BudgetExhaustedError,
  LostError,
  UnavailableError,
  DeniedError,
  ConfigError,
  ForeignRowError,
  ProtocolError,
  ReleaseUnconfirmedError,
  ExtensionMissingError,
  UnknownLockError,
} = leasekeeper;
