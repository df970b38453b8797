//! The Extensions API, asked through the HTTP client that the store uses too: `lambda-extension`'s, with the servers that come
//! with it, would be a thirteenth of the binary more.

use super::event::Event;
use crate::http::Http;
use ::http::{Method, Request, StatusCode, Uri};
use aws_smithy_types::body::SdkBody;
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt;

const REGISTER: &str = "/2020-01-01/extension/register";
const NEXT: &str = "/2020-01-01/extension/event/next";

/// Announced events and answers are a few hundred bytes.
const MAX_BODY: usize = 1024 * 1024;

/// Where `AWS_LAMBDA_RUNTIME_API` leads.
#[derive(Clone, Debug)]
pub(super) struct Api {
    /// Host and port.
    authority: String,
    http: Http,
}

/// What registering told.
#[derive(Debug)]
pub(super) struct Registered {
    /// Sent with every later request.
    pub(super) id: String,
    /// The function's name; empty if it was not said.
    pub(super) function: String,
}

/// Why there is no useful answer.
#[derive(Debug)]
pub(super) struct Fault {
    /// The answer's status, if there was one.
    status: Option<StatusCode>,
    text: String,
}

impl Api {
    /// `None` if it cannot be a host and port.
    pub(super) fn new(authority: Option<String>) -> Option<Self> {
        let authority = authority?.parse::<Uri>().ok()?.authority()?.to_string();
        Some(Self { authority, http: Http::plain() })
    }

    /// Asks to hear of these events, under this name.
    pub(super) async fn register(&self, name: &str, events: &[&str]) -> Result<Registered, Fault> {
        let request =
            Request::builder().header("Lambda-Extension-Name", name).header("Content-Type", "application/json");
        let (status, id, body) =
            self.exchange(Method::POST, REGISTER, request, json!({"events": events}).to_string()).await?;
        let fault = |text: String| Fault { status: Some(status), text };
        let id = id.ok_or_else(|| fault("the answer names no identifier".into()))?;
        let told: Value = serde_json::from_slice(&body).map_err(|error| fault(error.to_string()))?;
        Ok(Registered { id, function: told["functionName"].as_str().unwrap_or_default().into() })
    }

    /// One event. It takes as long as it takes: a time-out here would leave the environment waiting for us for ever.
    pub(super) async fn next(&self, id: &str) -> Result<Event, Fault> {
        let request = Request::builder().header("Lambda-Extension-Identifier", id);
        let (status, _, body) = self.exchange(Method::GET, NEXT, request, String::new()).await?;
        Event::decode(&body).map_err(|text| Fault { status: Some(status), text })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        request: ::http::request::Builder,
        body: String,
    ) -> Result<(StatusCode, Option<String>, Vec<u8>), Fault> {
        let uri = format!("http://{}{path}", self.authority);
        let request = request.method(method).uri(uri).body(SdkBody::from(body)).map_err(Fault::before)?;
        let response = self.http.call(request.try_into().map_err(Fault::before)?).await.map_err(Fault::before)?;
        let response = response.try_into_http1x().map_err(Fault::before)?;
        let status = response.status();
        let id =
            response.headers().get("Lambda-Extension-Identifier").and_then(|id| id.to_str().ok()).map(String::from);
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| Fault { status: Some(status), text: chain(&*error) })?.to_bytes();
        if !status.is_success() {
            let begins: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            return Err(Fault { status: Some(status), text: format!("{begins:?}") });
        }
        Ok((status, id, body.into()))
    }
}

impl Fault {
    /// Nothing was answered.
    fn before(error: impl Error + 'static) -> Self {
        Self { status: None, text: chain(&error) }
    }

    /// 403 is how a subscription is refused.
    pub(super) fn is_refusal(&self) -> bool {
        self.status == Some(StatusCode::FORBIDDEN)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// An error with its causes, which alone say what went wrong.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_is_a_host_and_a_port() {
        for right in ["127.0.0.1:9001", "localhost:1", "[::1]:9001", "169.254.100.1:9001"] {
            assert_eq!(Api::new(Some(right.into())).map(|api| api.authority).as_deref(), Some(right));
        }
        for wrong in [None, Some(""), Some("/path"), Some("a b"), Some("http://")] {
            assert!(Api::new(wrong.map(String::from)).is_none(), "{wrong:?}");
        }
    }
}
