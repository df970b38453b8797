//! What the front answers with.

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::json;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body that may end too early.
#[derive(Debug)]
pub(super) struct Reply {
    rest: Option<Bytes>,
    /// What the client is told to expect.
    length: u64,
    torn: bool,
}

impl Reply {
    pub(super) fn whole(body: Bytes) -> Self {
        Self { length: body.len() as u64, rest: Some(body), torn: false }
    }

    /// Announces all of it, sends half of it and fails.
    pub(super) fn torn(self) -> Self {
        let half = self.rest.map(|body| body.slice(..body.len() / 2));
        Self { rest: half, torn: true, ..self }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(match self.rest.take() {
            Some(body) => Some(Ok(Frame::data(body))),
            None if self.torn => Some(Err(io::Error::other("torn on purpose"))),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && !self.torn
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

/// An error in the service's own form.
pub(super) fn error(status: u16, code: &str, message: &str) -> Response<Reply> {
    let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": message});
    answer(status, "application/x-amz-json-1.0", body.to_string())
}

/// An answer in the service's own form.
pub(super) fn success(json: &str) -> Response<Reply> {
    answer(200, "application/x-amz-json-1.0", json.to_owned())
}

/// What a proxy or a stray web server answers.
pub(super) fn page(status: u16) -> Response<Reply> {
    answer(status, "text/html", "<html><body>not DynamoDB</body></html>".to_owned())
}

fn answer(status: u16, kind: &str, body: String) -> Response<Reply> {
    let mut answer = Response::new(Reply::whole(body.into()));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a fault names a valid status");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, kind.parse().expect("a media type is a valid header"));
    answer
}
