//! The Runtime API and the Extensions API of one environment, as a small HTTP server.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::time::{Sleep, sleep};
use uuid::Uuid;

use super::env::{ACCOUNT, FUNCTION, FUNCTION_ARN, HANDLER};
use super::state::{Agent, Fault, Posted, RuntimeEvent, Shared, State};

type Body = BoxBody<Bytes, io::Error>;
type Reply = io::Result<Response<Body>>;

/// Serves until the task is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // Out of descriptors or the like: the test at hand fails by its own bounds.
        let Ok((stream, _)) = listener.accept().await else { return };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| route(Arc::clone(&shared), request));
            // An error here is a client that went away or a reply torn on purpose.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn route(shared: Arc<Shared>, request: Request<Incoming>) -> Reply {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match (request.method(), segments.as_slice()) {
        (&Method::POST, ["2020-01-01", "extension", "register"]) => register(&shared, request).await,
        (&Method::GET, ["2020-01-01", "extension", "event", "next"]) => extension_next(&shared, &request).await,
        (&Method::POST, ["2020-01-01", "extension", phase @ ("init" | "exit"), "error"]) => {
            let note = format!("{phase}: {}", body_text(request).await?);
            shared.modify(|state| state.extension_errors.push(note));
            accepted()
        }
        (&Method::GET, ["2018-06-01", "runtime", "invocation", "next"]) => runtime_next(&shared).await,
        (&Method::POST, ["2018-06-01", "runtime", "invocation", id, kind @ ("response" | "error")]) => {
            posted(&shared, id, *kind == "error", request).await
        }
        (&Method::GET, ["2018-06-01", "runtime", "restore", "next"]) => restore_next(&shared).await,
        (&Method::POST, ["2018-06-01", "runtime", phase @ ("init" | "restore"), "error"]) => {
            let note = format!("runtime {phase}: {}", body_text(request).await?);
            shared.modify(|state| state.extension_errors.push(note));
            accepted()
        }
        _ => document(StatusCode::NOT_FOUND, &error("NotFound", &format!("nothing at {path}"))),
    }
}

async fn register(shared: &Shared, request: Request<Incoming>) -> Reply {
    if let Some(fault) = shared.modify(|state| state.register_faults.pop_front()) {
        return faulty(fault);
    }
    let name = header(&request, "lambda-extension-name");
    let wants_account = header(&request, "lambda-extension-accept-feature").contains("accountId");
    let text = body_text(request).await?;
    let events = serde_json::from_str::<Value>(&text).ok().and_then(|body| body["events"].as_array().cloned());
    let Some(events) = events.filter(|_| !name.is_empty()) else {
        return document(StatusCode::BAD_REQUEST, &error("InvalidRequest", "a name and a list of events are needed"));
    };
    let subscribed = |event: &str| events.iter().any(|wanted| wanted == event);
    if shared.managed && subscribed("INVOKE") {
        let refusal = error("Extension.InvalidEventType", "INVOKE cannot be registered for on Managed Instances");
        return document(StatusCode::FORBIDDEN, &refusal);
    }
    let id = Uuid::new_v4().to_string();
    let agent = Agent {
        id: id.clone(),
        invoke: subscribed("INVOKE"),
        shutdown: subscribed("SHUTDOWN"),
        parked: 0,
        events: Default::default(),
    };
    shared.modify(|state| state.agents.push(agent));
    let mut answer = json!({"functionName": FUNCTION, "functionVersion": "$LATEST", "handler": HANDLER});
    if wants_account {
        answer["accountId"] = ACCOUNT.into();
    }
    let mut response = document(StatusCode::OK, &answer)?;
    response.headers_mut().insert("lambda-extension-identifier", id.parse().expect("a UUID is a header value"));
    Ok(response)
}

async fn extension_next(shared: &Shared, request: &Request<Incoming>) -> Reply {
    let id = header(request, "lambda-extension-identifier");
    let generation = shared.modify(|state| {
        let generation = state.generation;
        state.agent(&id).map(|agent| {
            agent.parked += 1;
            generation
        })
    });
    let Some(generation) = generation else {
        return document(StatusCode::FORBIDDEN, &error("Extension.UnknownExtensionIdentifier", "not registered"));
    };
    let parked = Parked { shared, agent: Some(&id), generation };
    let next = shared.take(|state| {
        let State { agents, next_faults, .. } = state;
        let Some(agent) = agents.iter_mut().find(|agent| agent.id == id) else { return Some(Next::Gone) };
        let next = match next_faults.pop_front() {
            Some(fault) => Next::Fault(fault),
            None => Next::Event(agent.events.pop_front()?),
        };
        // In the same step as the event leaves the queue, or the environment would look idle in between.
        agent.parked -= 1;
        Some(next)
    });
    let next = next.await;
    parked.counted_out();
    match next {
        Next::Event(body) => {
            let mut response = full(StatusCode::OK, body)?;
            let event = Uuid::new_v4().to_string().parse().expect("a UUID is a header value");
            response.headers_mut().insert("lambda-extension-event-identifier", event);
            Ok(response)
        }
        Next::Fault(fault) => faulty(fault),
        Next::Gone => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

enum Next {
    Event(String),
    Fault(Fault),
    /// The extension's environment was reset.
    Gone,
}

async fn runtime_next(shared: &Shared) -> Reply {
    let generation = shared.modify(|state| {
        state.runtime_parked += 1;
        state.generation
    });
    let parked = Parked { shared, agent: None, generation };
    let next = shared.take(|state| {
        if state.generation != generation {
            return Some(None);
        }
        let event = state.runtime_events.pop_front()?;
        state.runtime_parked -= 1;
        Some(Some(event))
    });
    let next = next.await;
    parked.counted_out();
    let Some(RuntimeEvent { id, deadline_ms, body }) = next else {
        return Err(io::ErrorKind::ConnectionAborted.into());
    };
    let mut response = full(StatusCode::OK, body)?;
    let headers = response.headers_mut();
    headers.insert("lambda-runtime-aws-request-id", id.parse().expect("a UUID is a header value"));
    headers.insert("lambda-runtime-deadline-ms", deadline_ms.into());
    headers.insert("lambda-runtime-invoked-function-arn", FUNCTION_ARN.parse().expect("an ARN is a header value"));
    Ok(response)
}

async fn restore_next(shared: &Shared) -> Reply {
    let generation = shared.modify(|state| {
        state.awaiting_restore += 1;
        state.generation
    });
    let restored = |state: &State| (state.restored || state.generation != generation).then_some(state.generation);
    match shared.until(restored).await {
        now if now == generation => full(StatusCode::OK, String::new()),
        _ => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn posted(shared: &Shared, id: &str, failed: bool, request: Request<Incoming>) -> Reply {
    let at = Instant::now();
    let kind = header(&request, "lambda-runtime-function-error-type");
    let (body, broken) = match header(&request, "lambda-runtime-function-response-mode").as_str() {
        "streaming" => streamed(shared, id, request.into_body()).await,
        _ => (body_text(request).await?, None),
    };
    let told = failed.then(|| match serde_json::from_str::<Value>(&body) {
        Ok(Value::Object(map)) if map.contains_key("errorType") => map["errorType"].as_str().unwrap_or("").to_owned(),
        _ => kind,
    });
    let taken = shared.modify(|state| match state.calls.get_mut(id) {
        Some(open) if open.posted.is_none() => {
            open.posted = Some(Posted { body, error: told.or(broken), at, ended: Instant::now() });
            true
        }
        _ => false,
    });
    match taken {
        true => accepted(),
        false => document(StatusCode::BAD_REQUEST, &error("InvalidRequestID", "no such invocation is open")),
    }
}

/// A streamed response, which the invocation's state shows as it comes; and the type of the error that it ended with: what its
/// trailers name, or that it broke off.
async fn streamed(shared: &Shared, id: &str, mut body: Incoming) -> (String, Option<String>) {
    let (mut text, mut broken) = (String::new(), None);
    loop {
        shared.modify(|state| {
            if let Some(open) = state.calls.get_mut(id) {
                open.streamed = Some(text.clone());
            }
        });
        match body.frame().await {
            None => return (text, broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => text.push_str(&String::from_utf8_lossy(&data)),
                Err(frame) => {
                    let trailer = frame.trailers_ref().and_then(|all| all.get("lambda-runtime-function-error-type"));
                    broken = trailer.map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
                }
            },
            Some(Err(_)) => return (text, Some("Runtime.TruncatedResponse".into())),
        }
    }
}

/// Counts a waiting request out when its client goes away before an event came.
struct Parked<'a> {
    shared: &'a Shared,
    /// An extension's id; the runtime if absent.
    agent: Option<&'a str>,
    generation: u64,
}

impl Parked<'_> {
    /// The event was taken, or everything counted was forgotten.
    fn counted_out(self) {
        std::mem::forget(self);
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.shared.modify(|state: &mut State| match self.agent {
            Some(id) => {
                if let Some(agent) = state.agent(id) {
                    agent.parked -= 1;
                }
            }
            None if state.generation == self.generation => state.runtime_parked -= 1,
            None => {}
        });
    }
}

fn faulty(fault: Fault) -> Reply {
    match fault {
        Fault::Garbage => full(StatusCode::OK, "<html>not an event".into()),
        Fault::UnknownEvent => document(StatusCode::OK, &json!({"eventType": "RESTORE", "deadlineMs": 1})),
        Fault::Closed => Err(io::ErrorKind::ConnectionAborted.into()),
        Fault::Torn => {
            let body = TornBody::new().boxed();
            Response::builder().header("content-length", 100).body(body).map_err(io::Error::other)
        }
        Fault::Status(status) => {
            let status = StatusCode::from_u16(status).map_err(io::Error::other)?;
            document(status, &error("Extension.Fault", "refused on purpose"))
        }
    }
}

/// A body that breaks off a moment after its first piece: at once, and not even the head would be sent.
struct TornBody {
    begun: bool,
    pause: Pin<Box<Sleep>>,
}

impl TornBody {
    fn new() -> Self {
        Self { begun: false, pause: Box::pin(sleep(Duration::from_millis(20))) }
    }
}

impl hyper::body::Body for TornBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !std::mem::replace(&mut self.begun, true) {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{\"eventType\":")))));
        }
        ready!(self.pause.as_mut().poll(context));
        Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())))
    }
}

fn header(request: &Request<Incoming>, name: &str) -> String {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn body_text(request: Request<Incoming>) -> io::Result<String> {
    let bytes = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn error(kind: &str, message: &str) -> Value {
    json!({"errorType": kind, "errorMessage": message})
}

fn accepted() -> Reply {
    document(StatusCode::ACCEPTED, &json!({"status": "OK"}))
}

fn document(status: StatusCode, body: &Value) -> Reply {
    full(status, body.to_string())
}

fn full(status: StatusCode, body: String) -> Reply {
    let body = Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {}).boxed();
    let builder = Response::builder().status(status).header("content-type", "application/json");
    builder.body(body).map_err(io::Error::other)
}
