//! From a listening socket to connections: admitted, or refused with an answer.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::connection::{self, Redis, farewell};
use super::limits::{Budget, Connections, Seat, count};
use super::shutdown::Stop;
use super::unix::UnixSocket;
use crate::http;

/// How long accepting pauses when the system is out of files or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a refusal may take.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// How many refusals are on their way at the same time; beyond that a connection is just closed.
const REFUSALS: usize = 64;
/// Redis's own words, which clients recognise.
const REDIS_REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";

/// Everything a new connection needs.
#[derive(Clone)]
pub(super) struct Doors {
    pub(super) redis: Redis,
    pub(super) http: Arc<http::Face>,
    pub(super) connections: Connections,
    pub(super) budget: Budget,
    pub(super) stop: Stop,
    pub(super) refusals: Refusals,
}

/// Counts refusals that are on their way.
#[derive(Clone)]
pub(super) struct Refusals(Arc<Semaphore>);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals(Arc::new(Semaphore::new(REFUSALS)))
    }
}

impl Doors {
    /// Serves the Redis protocol until the stop is called.
    pub(super) async fn redis(self, listener: TcpListener) {
        let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
        let serve = |doors: &Doors, stream: TcpStream, seat: Option<Seat>| {
            send_at_once(&stream);
            let Some(seat) = seat else {
                count(&doors.redis.met.redis_refused);
                doors.refuse(refuse_redis(stream));
                return;
            };
            let (face, share) = (doors.redis.clone(), doors.budget.share());
            tokio::spawn(connection::redis(
                stream,
                face,
                share,
                seat,
                doors.stop.clone(),
            ));
        };
        self.accept(accept, serve).await;
    }

    /// Serves HTTP until the stop is called.
    pub(super) async fn http(self, listener: TcpListener) {
        let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
        let serve = |doors: &Doors, stream: TcpStream, seat| {
            send_at_once(&stream);
            doors.serve_http(stream, seat);
        };
        self.accept(accept, serve).await;
    }

    /// Serves HTTP on a Unix socket until the stop is called.
    pub(super) async fn unix(self, socket: UnixSocket) {
        let accept = || async { socket.listener.accept().await.map(|(stream, _)| stream) };
        self.accept(accept, Doors::serve_http).await;
    }

    fn serve_http<S>(&self, stream: S, seat: Option<Seat>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Some(seat) = seat else {
            count(&self.redis.met.http_refused);
            self.refuse(http::connection::refuse(stream));
            return;
        };
        let (face, stop) = (Arc::clone(&self.http), self.stop.watch());
        tokio::spawn(async move {
            http::connection::serve(stream, face, stop).await;
            drop(seat);
        });
    }

    /// Hands each connection to `serve`, with its seat if there is one left.
    async fn accept<S, A>(&self, accept: impl Fn() -> A, serve: impl Fn(&Doors, S, Option<Seat>))
    where
        A: Future<Output = io::Result<S>>,
    {
        let called = self.stop.clone().called();
        tokio::pin!(called);
        // One line for a row of failures.
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut called => return,
                accepted = accept() => accepted,
            };
            match accepted {
                Ok(stream) => {
                    failing = false;
                    serve(self, stream, self.connections.admit());
                }
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("cannot accept connections: {error}; trying again");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Lets a refusal be said, if not too many are already.
    fn refuse(&self, refusal: impl Future<Output = ()> + Send + 'static) {
        if let Ok(place) = Arc::clone(&self.refusals.0).try_acquire_owned() {
            tokio::spawn(async move {
                refusal.await;
                drop(place);
            });
        }
    }
}

async fn refuse_redis(mut stream: TcpStream) {
    let said = async {
        stream.write_all(REDIS_REFUSAL).await?;
        farewell(&mut stream).await
    };
    // A client that takes no answer misses it.
    let _ = tokio::time::timeout(REFUSAL_TIME, said).await;
}

/// Replies are written whole: waiting for more to send would only delay them.
fn send_at_once(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("cannot switch delays off for a connection: {error}");
    }
}

/// The connection was gone before it was accepted; that says nothing of the next one.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}
