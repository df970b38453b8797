//! Requests beside the lock protocol: what people ask of the table.

use super::DynamoStore;
use super::sort::{self, Place};
use crate::http::Attempt;
use crate::store::Text;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use leasekeeper_core::Answer;
use std::error::Error;
use std::time::Duration;
use tokio::time::timeout;

/// What came instead of an answer.
#[derive(Debug)]
pub(crate) struct Unanswered<E> {
    /// Sorted as the lock protocol's requests are, with a text for people: never done, found or failed.
    pub(crate) answer: Answer<Text>,
    /// What the service said, if it said anything.
    pub(crate) said: Option<E>,
}

impl<E: ProvideErrorMetadata> Unanswered<E> {
    /// The service's own name for it.
    pub(crate) fn code(&self) -> Option<&str> {
        self.said.as_ref().and_then(ProvideErrorMetadata::code)
    }
}

impl DynamoStore {
    /// Sends the request that `call` makes, once, and waits for its answer for at most `within`. `call` is given what lets the
    /// attempt follow its request; `action` is the request's name in policies.
    ///
    /// # Errors
    /// Refused, or no answer in time.
    pub(crate) async fn ask<T, E>(
        &self,
        action: &'static str,
        within: Duration,
        call: impl AsyncFnOnce(&Client, Watch) -> Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<T, Unanswered<E>>
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let attempt = Attempt::default();
        let asked = async { call(self.client().await, Watch(attempt.clone())).await };
        let outcome = timeout(within, asked).await;
        let place = Place { action, table: &self.table, region: self.region() };
        match outcome {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err(error)) => {
                let answer = sort::answer(&error, &attempt, place);
                let said = if let SdkError::ServiceError(refused) = error { Some(refused.into_err()) } else { None };
                Err(Unanswered { answer, said })
            }
            Err(_) => Err(Unanswered { answer: sort::timed_out(&attempt, place), said: None }),
        }
    }

    /// The table's name or ARN.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }
}

/// Lets an attempt follow its request below the SDK.
pub(crate) struct Watch(Attempt);

impl Watch {
    /// For `customize().mutate_request(…)`.
    pub(crate) fn follow(self) -> impl Fn(&mut HttpRequest) + Send + Sync {
        move |request| {
            request.add_extension(self.0.clone());
        }
    }
}
