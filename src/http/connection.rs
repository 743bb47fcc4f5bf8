//! One connection: hyper's HTTP/1 over a stream that knows when nobody talks any more.
//!
//! Hyper answers what it cannot parse with a bare status. Every answer of this server says what it is, so that
//! one is held back and a whole one is written in its place.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use self::watched::{Silence, Watched};
use super::link::{Link, Stage};
use super::metrics::Limit;
use super::problem::Refusal;
use super::{Face, MAX_HEADER, json, respond};
use crate::model::key::MAX_KEY;

mod fragments;
mod watched;

/// Hyper's read buffer: the largest piece in which a body arrives.
const READ_BUFFER: usize = 64 * 1024;
/// How much is read away after a refusal, so that a client that sends all it has before it looks for an answer
/// sees that and not a reset.
const LINGER: usize = 16 * 1024 * 1024;
/// How long that may take.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Serves a connection until its client leaves, falls silent, or `shutdown` becomes true (then the request
/// in hand is still answered). A dropped sender of `shutdown` means that it never does.
///
/// A client that closes its sending side is still answered, except while a claim waits: that one counts as
/// gone, so that nobody is handed work who is not there.
pub async fn serve<S>(stream: S, face: Arc<Face>, mut shutdown: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let link = Arc::new(Link::default());
    let stream = Watched::new(stream, link.clone(), &face.options);
    let service = service_fn(|request: Request<Incoming>| {
        let (face, link) = (&*face, &link);
        link.set(if request.body().is_end_stream() {
            Stage::Deciding
        } else {
            Stage::Reading
        });
        async move {
            let mut response = respond(face, request, link).await;
            match response.body_mut() {
                Either::Left(_) => link.set(Stage::Answered),
                Either::Right(stream) => stream.begin(link),
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = http1::Builder::new()
        .max_header_size(MAX_HEADER)
        .max_buf_size(READ_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let ended = {
        let mut stop = pin!(stopped(&mut shutdown));
        let mut stopping = false;
        poll_fn(|cx| {
            if !stopping && stop.as_mut().poll(cx).is_ready() {
                stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            Pin::new(&mut connection).poll(cx)
        })
        .await
    };
    let parts = connection.into_parts();
    let stream = parts.io.into_inner();
    let refusal = ended
        .as_ref()
        .err()
        .and_then(|error| unparsed(error, &parts.read_buf, &stream, &link));
    match refusal.as_ref().map(|refusal| refusal.status) {
        Some(StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) => {
            face.met.count(Limit::Head);
        }
        Some(StatusCode::REQUEST_TIMEOUT) => face.met.count(Limit::HeadTime),
        _ => {}
    }
    if stream.has_given_up() {
        face.met.count(Limit::WriteTime);
    }
    let linger = refusal.is_some() || link.unread();
    finish(stream.into_inner(), refusal, linger).await;
}

/// Tells a client that there are too many connections already, and closes this one.
pub async fn refuse<S>(stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let refusal = Refusal::unavailable(
        "the server has as many connections as it takes; close some, or raise the limit",
    );
    finish(stream, Some(refusal), true).await;
}

async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    if shutdown.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What to tell a client whose bytes, `left` among them, were no request. `None` where it was answered, or is gone.
fn unparsed<S>(
    error: &hyper::Error,
    left: &[u8],
    stream: &Watched<S>,
    link: &Link,
) -> Option<Refusal> {
    let held_back = stream.held_back();
    if error.is_parse_too_large() && held_back {
        // Empty lines before a request line are none of it.
        let begun = left.iter().skip_while(|byte| b"\r\n".contains(byte));
        if !left.is_empty() && !begun.take(MAX_HEADER).any(|byte| *byte == b'\n') {
            return Some(Refusal::bad_input_as(
                StatusCode::URI_TOO_LONG,
                format!(
                    "the target has more than the {MAX_HEADER} bytes of a whole head; a key has at most {MAX_KEY}"
                ),
            ));
        }
        return Some(Refusal::bad_input_as(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("a request's head has at most {MAX_HEADER} bytes and 100 headers"),
        ));
    }
    if held_back || (error.is_parse() && !stream.has_written()) {
        return Some(Refusal::bad_input(
            "this is no HTTP/1 request; this port speaks HTTP, the Redis protocol has its own",
        ));
    }
    if link.stage() != Stage::Idle || !error.is_incomplete_message() {
        return None;
    }
    Some(match stream.silence() {
        Some(Silence::Head) => Refusal::bad_input_as(
            StatusCode::REQUEST_TIMEOUT,
            "the head of the request did not arrive in time; send it again",
        ),
        _ => Refusal::bad_input("the request ended in its head; send it again"),
    })
}

/// Says the last word and closes. Errors are the client's: it is gone.
async fn finish<S>(mut stream: S, refusal: Option<Refusal>, linger: bool)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if let Some(refusal) = refusal {
        let bytes = raw(&refusal);
        let written = stream.write_all(&bytes);
        if !matches!(tokio::time::timeout(LINGER_TIME, written).await, Ok(Ok(()))) {
            return;
        }
    }
    if stream.shutdown().await.is_err() || !linger {
        return;
    }
    // Closing with unread bytes would reset the connection, and the answer with it.
    let drained = async {
        let mut buffer = vec![0; 16 * 1024];
        let mut left = LINGER;
        while let Ok(size @ 1..) = stream.read(&mut buffer).await {
            left = left.checked_sub(size)?;
        }
        Some(())
    };
    let _ = tokio::time::timeout(LINGER_TIME, drained).await;
}

/// A refusal as it goes over the wire, where hyper does not write it.
fn raw(refusal: &Refusal) -> Vec<u8> {
    let body = json::problem(
        refusal.outcome,
        refusal.status,
        &refusal.detail,
        refusal.retry_after,
    );
    let retry_after = refusal
        .retry_after
        .map(|span| format!("retry-after: {}\r\n", span.as_secs_up()))
        .unwrap_or_default();
    let mut out = format!(
        "HTTP/1.1 {}\r\nonced-outcome: {}\r\ncontent-type: application/problem+json\r\n{retry_after}\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        refusal.status,
        refusal.outcome,
        body.len()
    )
    .into_bytes();
    out.extend_from_slice(&body);
    out
}
