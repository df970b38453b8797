//! Several locks at once, in one order for everyone, so that two who want the same ones never wait for each other.

use crate::{Acquire, Guard, IntoKey, Key, Lease, LockError, Locks};

/// Owns several held locks. Gives them back in the reverse of the order in which they were acquired, on drop too.
#[derive(Debug)]
#[must_use = "the locks are given back when the guards are dropped"]
pub struct Guards {
    held: Vec<Guard>,
}

impl Guards {
    /// The leases, in the keys' order.
    pub fn leases(&self) -> impl ExactSizeIterator<Item = Lease> {
        self.held.iter().map(Guard::lease)
    }

    /// Gives every lock back, one after the other, whatever becomes of the others.
    ///
    /// # Errors
    /// The first that [`Guard::release`] gave.
    pub async fn release(mut self) -> Result<(), LockError> {
        let mut outcome = Ok(());
        while let Some(guard) = self.held.pop() {
            outcome = outcome.and(guard.release().await);
        }
        outcome
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        while self.held.pop().is_some() {}
    }
}

impl Locks {
    /// Acquires a lock for each key in the order of their bytes, a key that stands twice once. `set` sets the options of
    /// each: a wait is each lock's own.
    ///
    /// ```no_run
    /// # async fn example(locks: leasekeeper::Locks, wait: std::time::Duration) -> Result<(), leasekeeper::LockError> {
    /// let guards = locks.acquire_all(["account:7", "account:3"], |acquire| acquire.wait(wait)).await?;
    /// // … the transfer …
    /// guards.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why one of them could not be had; those that were held by then are given back before this returns. A wrong key is
    /// reported before anything is sent.
    pub async fn acquire_all<K: IntoKey>(
        &self,
        keys: impl IntoIterator<Item = K>,
        set: impl Fn(Acquire) -> Acquire,
    ) -> Result<Guards, LockError> {
        let mut keys = keys.into_iter().map(IntoKey::into_key).collect::<Result<Vec<Key>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        let mut guards = Guards { held: Vec::with_capacity(keys.len()) };
        for key in keys {
            match set(self.acquire(key)).await {
                Ok(guard) => guards.held.push(guard),
                Err(error) => {
                    if let Err(clean_up) = guards.release().await {
                        tracing::warn!(code = %clean_up.code(), "after a lock could not be had: {clean_up}");
                    }
                    return Err(error);
                }
            }
        }
        Ok(guards)
    }
}
