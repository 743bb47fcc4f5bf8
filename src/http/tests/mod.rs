//! The face as its clients see it, over an engine whose clock stands still until it is moved.

mod batch;
mod bodies;
mod bulk;
mod credentials;
mod events;
mod framing;
mod keys;
mod manual;
mod metrics;
mod namespaces;
mod openapi;
mod outcomes;
mod requests;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::header::HeaderMap;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::{Face, Options, Readiness, handle};
use crate::engine::clock::{ManualClock, Source};
use crate::engine::{self, Engine};
use crate::model::policy::{FingerprintKind, Policy};
use crate::model::time::Span;

/// 2026-01-02T03:04:05.678Z.
const START: u64 = 1_767_323_045_678;

/// A face, its clock, and what else a test may turn.
struct House {
    face: Arc<Face>,
    clock: Arc<ManualClock>,
    readiness: watch::Sender<Readiness>,
}

/// Headers of a request, as tables hold them.
type Headers = [(&'static str, &'static str)];

/// An answer.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl House {
    fn new() -> House {
        House::with(Options::default())
    }

    fn with(options: Options) -> House {
        House::with_engine(options, |_| {})
    }

    fn with_engine(options: Options, set: impl FnOnce(&mut engine::Options)) -> House {
        let clock = ManualClock::new(START, 0);
        let json = Policy {
            fingerprint: FingerprintKind::Json,
            ..Policy::default()
        };
        let mut engine = engine::Options {
            clock: Source::Manual(clock.clone()),
            policies: [("json".to_owned(), json)].into(),
            ..engine::Options::default()
        };
        set(&mut engine);
        let engine = Engine::volatile(engine);
        let (readiness, receiver) = watch::channel(Readiness::Ready);
        let room = Arc::new(Semaphore::new(super::MAX_IN_FLIGHT));
        House {
            face: Arc::new(Face::new(engine, options, receiver, room)),
            clock,
            readiness,
        }
    }

    async fn ask(&self, method: &str, target: &str) -> Reply {
        self.send(method, target, &[], "").await
    }

    async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let request = request(method, target, headers, body.into());
        Reply::of(handle(&self.face, request).await).await
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Span::from_millis(millis));
    }
}

/// A request to localhost, unless it names another host.
fn request(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(target);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost:6623");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).unwrap()
}

impl Reply {
    async fn of(response: hyper::Response<super::stream::Reply>) -> Reply {
        let (parts, body) = response.into_parts();
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    fn header(&self, name: &str) -> &str {
        let mut all = self.headers.get_all(name).iter();
        let value = all.next().map_or("", |value| value.to_str().unwrap());
        assert!(all.next().is_none(), "{name} is there once");
        value
    }

    fn outcome(&self) -> &str {
        self.header("onced-outcome")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.body.escape_ascii()))
    }

    fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap_or_default().into()
    }

    fn token(&self) -> u64 {
        self.json()["token"].as_u64().unwrap()
    }

    /// A complete RFC 9457 document of this status and outcome, and nothing secret in it.
    fn assert_problem(&self, status: u16, outcome: &str) {
        let json = self.json();
        let what = format!("{self:?}");
        assert_eq!((self.status, self.outcome()), (status, outcome), "{what}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(json["type"], format!("/manual/problems/{outcome}"));
        assert_eq!(json["status"], status);
        assert_eq!(json["outcome"], outcome);
        assert!(json["title"].as_str().is_some_and(|it| !it.is_empty()));
        assert!(json["detail"].as_str().is_some_and(|it| it.len() > 10));
        assert!(json.get("token").is_none(), "never the holder's token");
        match json.get("retry_after_ms").and_then(Value::as_u64) {
            Some(millis) => {
                let seconds = millis.div_ceil(1000).max(1);
                assert_eq!(self.header("retry-after"), seconds.to_string());
            }
            None => assert_eq!(self.header("retry-after"), ""),
        }
    }
}

/// Options whose limits are small enough to be met.
fn small() -> Options {
    Options {
        payload_limit: 10,
        result_limit: 20,
        body_timeout: Duration::from_millis(50),
        header_timeout: Duration::from_millis(50),
        idle_timeout: Duration::from_millis(100),
        ..Options::default()
    }
}
