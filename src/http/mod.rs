//! The HTTP face (SPEC 6): it translates between requests, commands and outcomes, and decides nothing.
//!
//! * [`handle`] answers one request, [`connection::serve`] all of a connection.
//! * [`routes`] is the one table of what can be asked.
//! * [`guard`] keeps browsers out, `credentials` says who asks, [`body`] bounds what is read, [`problem`] says no.

pub mod answer;
pub mod batch;
pub mod body;
pub mod connection;
mod credentials;
mod document;
mod events;
pub mod guard;
pub mod json;
mod link;
mod manual;
pub mod metrics;
pub mod openapi;
pub mod params;
pub mod percent;
mod pieces;
pub mod policy;
pub mod problem;
pub mod routes;
pub mod stream;
pub mod transfer;
mod verbs;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::http::request::Parts;
use hyper::{Request, Response};
use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};

use self::answer::Answer;
use self::body::Upload;
use self::guard::Hosts;
use self::link::Link;
use self::metrics::{Live, Met};
use self::problem::Refusal;
use self::routes::Found;
use self::stream::Reply;
use crate::engine::{self, Engine};
use crate::model::access::Access;

/// How the face behaves; the defaults are SPEC 10's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The largest payload of a claim, in bytes.
    pub payload_limit: usize,
    /// The largest result, in bytes.
    pub result_limit: usize,
    /// Host names the server answers to besides loopback.
    pub hosts: Vec<String>,
    /// Who may do what, at first.
    pub access: Access,
    /// How long a request's head may take, from its first byte (of a new connection: from its start).
    pub header_timeout: Duration,
    /// How long a request's body may take.
    pub body_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
}

/// The content type of a result given as text.
const TEXT: &str = "text/plain; charset=utf-8";
/// The largest head of a request, in bytes (SPEC 10).
pub const MAX_HEADER: usize = 16 * 1024;
/// Bytes of bodies on their way at once, over all connections (SPEC 10).
pub const MAX_IN_FLIGHT: usize = 256 * 1024 * 1024;

impl Default for Options {
    fn default() -> Options {
        Options {
            payload_limit: 1024 * 1024,
            result_limit: 1024 * 1024,
            hosts: Vec::new(),
            access: Access::default(),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
        }
    }
}

/// Whether requests are answered, as `/readyz` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not yet.
    Starting,
    /// Yes.
    Ready,
    /// Not any more.
    Stopping,
}

/// What all connections share.
pub struct Face {
    engine: Engine,
    options: Options,
    hosts: Hosts,
    access: RwLock<Arc<Access>>,
    readiness: watch::Receiver<Readiness>,
    /// A permit for each byte of a body on its way.
    room: Arc<Semaphore>,
    /// How often each limit was met.
    met: Met,
    /// What the server knows of itself.
    live: OnceLock<Box<dyn Fn() -> Live + Send + Sync>>,
}

impl Face {
    /// A face of that engine. `room` holds a permit for each byte of a body that may be on its way at once;
    /// it may be shared with others, and must have more than either limit.
    #[must_use]
    pub fn new(
        engine: Engine,
        options: Options,
        readiness: watch::Receiver<Readiness>,
        room: Arc<Semaphore>,
    ) -> Face {
        Face {
            engine: engine.facing(engine::Face::Http),
            hosts: Hosts::new(&options.hosts),
            access: RwLock::new(Arc::new(options.access.clone())),
            options,
            readiness,
            room,
            met: Met::default(),
            live: OnceLock::new(),
        }
    }

    /// Shows what the server knows among the figures. Said once: a second time changes nothing.
    pub fn show(&self, live: impl Fn() -> Live + Send + Sync + 'static) {
        let _ = self.live.set(Box::new(live));
    }

    /// Who may do what now.
    fn access(&self) -> Arc<Access> {
        self.access.read().clone()
    }

    /// From the next request on these credentials are asked for.
    pub fn set_access(&self, access: Arc<Access>) {
        *self.access.write() = access;
    }
}

/// Answers one request.
pub async fn handle<B>(face: &Face, request: Request<B>) -> Response<Reply>
where
    B: Body<Data = Bytes> + Unpin,
{
    respond(face, request, &Link::default()).await
}

async fn respond<B>(face: &Face, request: Request<B>, link: &Link) -> Response<Reply>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (parts, body) = request.into_parts();
    let mut body = Upload::new(body);
    // The next one on this connection may be the one that was cut, and this one whole: none is taken then.
    let cut = link.may_be_cut(&parts.uri);
    let answer = if cut {
        Err(Refusal::bad_input(
            "a `#` and what follows it is no part of a request's target; write %23 for the sign itself",
        ))
    } else {
        verbs::answer(face, &parts, &mut body, link).await
    };
    let mut answer = answer.unwrap_or_else(Answer::from);
    if cut || !body.discard(&parts.headers).await {
        answer.close = true;
        link.leave_unread();
    }
    debug_assert!(
        is_told(&parts, &answer),
        "{} {} answers what the reference does not tell of: {:?}",
        parts.method,
        parts.uri.path(),
        answer.told()
    );
    let mut headers = parts.headers;
    headers.clear();
    answer.into_response(headers, &parts.method)
}

/// Whether the reference tells of that answer; of paths that no route has there is nothing to tell.
fn is_told(parts: &Parts, answer: &Answer) -> bool {
    match routes::find(&parts.method, parts.uri.path()) {
        Found::Route(route, _) => openapi::tells(route, answer),
        Found::Path(_) | Found::Nothing => true,
    }
}
