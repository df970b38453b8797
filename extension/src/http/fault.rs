//! What a failed request means to the SDK: may it be asked again?

use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::retry::ErrorKind;
use hyper_util::client::legacy;
use std::error::Error;
use std::io;

pub(super) fn sort(error: legacy::Error) -> ConnectorError {
    let broken = error.is_connect() || find::<io::Error>(&error).is_some();
    match find::<hyper::Error>(&error) {
        _ if broken => ConnectorError::io(error.into()),
        Some(fault) if fault.is_user() => ConnectorError::user(error.into()),
        Some(fault) if fault.is_closed() || fault.is_canceled() => ConnectorError::io(error.into()),
        Some(fault) if fault.is_incomplete_message() => {
            ConnectorError::other(error.into(), Some(ErrorKind::TransientError))
        }
        _ => ConnectorError::other(error.into(), None),
    }
}

/// The first of the error and its causes that is of this type.
fn find<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
