//! Where the extension is and what the function's environment says: read once, complained about when a lock is asked for.

use crate::LockError;
use leasekeeper_wire as wire;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What this crate reads of the environment. The extension reads the same variables and more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `LEASEKEEPER_SOCKET`
    pub(crate) socket: PathBuf,
    /// `AWS_LAMBDA_RUNTIME_API`: there is a layer here, and a missing socket is made anew.
    pub(crate) under_lambda: bool,
    /// `LEASEKEEPER_STRICT_RELEASE`: an unconfirmed hand-back fails the invocation.
    pub(crate) strict_release: bool,
    /// `LEASEKEEPER_WAIT_MS`: the wait that is asked for outside an invocation. Inside one the extension has the same
    /// environment, so it is not sent; it says how long an answer may take.
    pub(crate) wait: Option<Duration>,
    /// `LEASEKEEPER_LEASE_MS`: outside an invocation, what a wait without a setting of its own goes by.
    pub(crate) lease: Option<Duration>,
    /// What is wrong with a variable: no lock is asked for then.
    pub(crate) wrong: Option<String>,
}

impl Settings {
    pub(crate) fn at(socket: PathBuf) -> Self {
        let wrong = socket.as_os_str().is_empty().then(|| "the socket path is empty".to_owned());
        Self { socket, wrong, ..Self::default() }
    }

    pub(crate) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut settings = Self::at(wire::DEFAULT_SOCKET.into());
        settings.under_lambda = lookup("AWS_LAMBDA_RUNTIME_API").is_some();
        if let Err(wrong) = settings.fill(lookup) {
            settings.wrong = Some(wrong);
        }
        settings
    }

    fn fill(&mut self, lookup: impl Fn(&str) -> Option<OsString>) -> Result<(), String> {
        if let Some(socket) = lookup("LEASEKEEPER_SOCKET") {
            self.socket = socket.into();
            if !self.socket.is_absolute() {
                return Err(format!("LEASEKEEPER_SOCKET is {:?}: an absolute path is expected", self.socket));
            }
        }
        let text = |name: &str| match lookup(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(format!("{name} is not UTF-8")),
        };
        let whole = |name: &str, least: u64, most: u64| match text(name)? {
            None => Ok(None),
            // Digits only: the parser also takes a plus sign.
            Some(text) => match text.parse::<u64>() {
                Ok(ms) if !text.starts_with('+') && (least..=most).contains(&ms) => Ok(Some(Duration::from_millis(ms))),
                _ => Err(format!("{name} is {text:?}: whole milliseconds from {least} to {most} are expected")),
            },
        };
        self.wait = whole("LEASEKEEPER_WAIT_MS", 0, wire::MAX_WAIT_MS)?;
        self.lease = whole("LEASEKEEPER_LEASE_MS", wire::MIN_LEASE_MS, wire::MAX_LEASE_MS)?;
        self.strict_release = match text("LEASEKEEPER_STRICT_RELEASE")?.as_deref() {
            None | Some("false" | "0") => false,
            Some("true" | "1") => true,
            Some(other) => return Err(format!("LEASEKEEPER_STRICT_RELEASE is {other:?}: true or false is expected")),
        };
        Ok(())
    }

    /// # Errors
    /// [`LockError::Config`] that names what is wrong.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.wrong.as_ref().map_or(Ok(()), |wrong| Err(LockError::config(wrong.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(variables: &[(&str, &str)]) -> Settings {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        Settings::read(|name| variables.get(name).map(|value| OsString::from(*value)))
    }

    #[test]
    fn nothing_set_is_the_defaults() {
        let settings = read(&[]);
        assert_eq!(settings.socket, PathBuf::from("/tmp/leasekeeper/lock.sock"));
        assert!(!settings.strict_release && !settings.under_lambda);
        assert_eq!((settings.wait, settings.lease), (None, None));
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn what_is_set_is_taken() {
        let settings = read(&[
            ("LEASEKEEPER_SOCKET", "/run/lock.sock"),
            ("LEASEKEEPER_STRICT_RELEASE", "true"),
            ("LEASEKEEPER_WAIT_MS", "1500"),
            ("LEASEKEEPER_LEASE_MS", "9000"),
            ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001"),
        ]);
        assert_eq!(settings.socket, PathBuf::from("/run/lock.sock"));
        assert!(settings.strict_release && settings.under_lambda);
        assert_eq!(settings.wait, Some(Duration::from_millis(1_500)));
        assert_eq!(settings.lease, Some(Duration::from_secs(9)));
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn a_wrong_value_is_named_and_never_replaced() {
        for (name, value) in [
            ("LEASEKEEPER_SOCKET", ""),
            ("LEASEKEEPER_SOCKET", "lock.sock"),
            ("LEASEKEEPER_STRICT_RELEASE", "maybe"),
            ("LEASEKEEPER_STRICT_RELEASE", ""),
            ("LEASEKEEPER_WAIT_MS", "-1"),
            ("LEASEKEEPER_WAIT_MS", "+1"),
            ("LEASEKEEPER_WAIT_MS", "1.5"),
            ("LEASEKEEPER_WAIT_MS", "86400001"),
            ("LEASEKEEPER_LEASE_MS", "99"),
            ("LEASEKEEPER_LEASE_MS", "ten"),
        ] {
            let error = read(&[(name, value)]).check().expect_err("a wrong value");
            assert_eq!(error.code(), wire::Code::Config);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
