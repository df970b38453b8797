//! Sorts what went wrong with a request: may it have been committed, and does asking again help?

use crate::http::Attempt;
use crate::store::Text;
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use leasekeeper_core::{Answer, Refusal};
use std::error::Error;

/// What a message needs to be of use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'p> {
    /// The action as policies name it.
    pub(super) action: &'static str,
    /// The table.
    pub(super) table: &'p str,
    /// The Region, if one is known.
    pub(super) region: Option<&'p str>,
}

/// Turns an error that is no failed condition into an answer.
pub(super) fn answer<E>(error: &SdkError<E, HttpResponse>, attempt: &Attempt, place: Place<'_>) -> Answer<Text>
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    match error {
        SdkError::ServiceError(refused) => {
            let status = refused.raw().status().as_u16();
            match refused.err().code() {
                Some(code) => coded(code, refused.err().message().unwrap_or("no message"), status, place),
                None => uncoded(status, place),
            }
        }
        // The request went out and what came back cannot be read.
        SdkError::ResponseError(torn) => match torn.raw().status().as_u16() {
            status @ 400.. => uncoded(status, place),
            _ => Answer::Unknown(told(place, error)),
        },
        _ if attempt.sent() => Answer::Unknown(told(place, error)),
        _ => unsent(error, place),
    }
}

/// A request that was given up after its time-out.
pub(super) fn timed_out(attempt: &Attempt, place: Place<'_>) -> Answer<Text> {
    let text = |what| format!("{} on table `{}`: {what} in time", place.action, place.table);
    if attempt.sent() {
        Answer::Unknown(text("no answer"))
    } else if attempt.dispatched() {
        Answer::Unavailable(text("no connection"))
    } else {
        Answer::Unavailable(text("settings and credentials were not loaded"))
    }
}

fn told<E>(place: Place<'_>, error: &SdkError<E, HttpResponse>) -> String
where
    E: Error + Send + Sync + 'static,
{
    let causes: Vec<_> = causes(error).map(|cause| without_request(cause.to_string())).collect();
    format!("{} on table `{}`: {}", place.action, place.table, one_line(&causes.join(": ")))
}

/// Of an endpoint that cannot be used the SDK says with which request, in the words of the program and with all its values.
fn without_request(text: String) -> String {
    match (text.find(" to request `"), text.rfind('`')) {
        (Some(from), Some(to)) => format!("{}{}", &text[..from], &text[to + 1..]),
        _ => text,
    }
}

/// The store's own words. An answer below 500 was never applied.
fn coded(code: &str, message: &str, status: u16, place: Place<'_>) -> Answer<Text> {
    let Place { action, table, region } = place;
    let (region, message) = (region.unwrap_or("(none set)"), one_line(message));
    let text = || format!("{action} on table `{table}`: {code}: {message}");
    match code {
        "LimitExceededException"
        | "PriorRequestNotComplete"
        | "ProvisionedThroughputExceededException"
        | "ReplicatedWriteConflictException"
        | "RequestLimitExceeded"
        | "SlowDown"
        | "TooManyRequestsException"
        | "TransactionConflictException"
        | "TransactionInProgressException" => Answer::Throttled(text()),
        _ if code.contains("Throttl") => Answer::Throttled(text()),
        // A signature that grew old on its way, over a freeze or a wall clock's step: the next one is fresh.
        "InvalidSignatureException" if message.contains("expired") || message.contains("not yet current") => {
            Answer::Unavailable(text())
        }
        "RequestExpired" | "RequestTimeTooSkewed" => Answer::Unavailable(text()),
        "RequestTimeout" | "RequestTimeoutException" => Answer::Unknown(text()),
        "AccessDenied"
        | "AccessDeniedException"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => Answer::Denied(Refusal::Denied, text()),
        "ResourceNotFoundException" => Answer::Denied(
            Refusal::Config,
            format!(
                "{action}: there is no table `{table}` in Region {region} (expected: partition key `key` of type S, \
                 no sort key): {code}: {message}"
            ),
        ),
        "ValidationException" => Answer::Denied(
            Refusal::Config,
            format!("{} (expected of the table: partition key `key` of type S, no sort key)", text()),
        ),
        _ if status >= 500 => Answer::Unknown(text()),
        _ => Answer::Denied(Refusal::Config, text()),
    }
}

/// An answer that does not speak DynamoDB: a proxy's, or something else at the endpoint.
fn uncoded(status: u16, place: Place<'_>) -> Answer<Text> {
    let text = format!("{} on table `{}`: HTTP status {status} without an error code", place.action, place.table);
    match status {
        429 => Answer::Throttled(text),
        401 | 403 | 407 => Answer::Denied(Refusal::Denied, text),
        400 | 404 | 405 => Answer::Denied(Refusal::Config, text),
        _ => Answer::Unknown(text),
    }
}

/// It never left: no connection, no credentials, or nothing that a request could be made of.
fn unsent<E>(error: &SdkError<E, HttpResponse>, place: Place<'_>) -> Answer<Text>
where
    E: Error + Send + Sync + 'static,
{
    let text = told(place, error);
    match credentials(error) {
        // Looked for everywhere and found nowhere, or wrongly set: the next attempt would find the same.
        Some(CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_)) => {
            Answer::Denied(Refusal::Denied, format!("no credentials for {text}"))
        }
        // There is a source of credentials and it did not answer well this time.
        Some(_) => Answer::Unavailable(format!("credentials cannot be loaded for {text}")),
        None if matches!(error, SdkError::DispatchFailure(failure) if failure.is_io() || failure.is_timeout()) => {
            Answer::Unavailable(text)
        }
        // What follows is found before anything was connected.
        None if place.region.is_none() => {
            Answer::Denied(Refusal::Config, format!("no Region is set (AWS_REGION): {text}"))
        }
        None if text.contains("endpoint") => Answer::Denied(
            Refusal::Config,
            format!(
                "{text} (an endpoint is a URL, such as http://localhost:8000: AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL)"
            ),
        ),
        None => Answer::Denied(Refusal::Config, text),
    }
}

fn credentials<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e CredentialsError> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The SDK lists on many lines where it looked for credentials; a log line and an error's text are one.
fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").replace(":; ", ": ")
}

/// An error and what is behind it, outermost first.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lines_become_one_and_keep_their_parts_apart() {
        assert_eq!(one_line("a: b"), "a: b");
        assert_eq!(
            one_line("not found. Attempted:\n  First: no\r\n\n  Second: no\n"),
            "not found. Attempted: First: no; Second: no"
        );
    }

    #[test]
    fn an_endpoint_that_cannot_be_used_is_named_without_the_request() {
        let text = "failed to apply endpoint `x` to request `Request { body: {\"key\": \"`k`\"} }`";
        assert_eq!(without_request(text.into()), "failed to apply endpoint `x`");
        assert_eq!(without_request("no connection".into()), "no connection");
    }
}
