//! From a listening socket to connections: admitted, or refused with an answer.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::connection::{self, Redis, farewell};
use super::limits::{Budget, Connections, Seat};
use super::listen::UnixSocket;
use super::shutdown::Stop;
use crate::http;

/// How long accepting pauses when the system is out of files or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// How many refusals are on their way at the same time; beyond that a connection is just closed.
const REFUSALS: usize = 64;

/// Redis's own words, which clients recognise.
const REDIS_REFUSAL: &str = "-ERR max number of clients reached\r\n";
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
        self.accept(accept, REDIS_REFUSAL, |doors, stream: TcpStream, seat| {
            send_at_once(&stream);
            let share = doors.budget.share();
            let serve =
                connection::redis(stream, doors.redis.clone(), share, seat, doors.stop.clone());
            tokio::spawn(serve);
        })
        .await;
    }

    /// Serves HTTP until the stop is called.
    pub(super) async fn http(self, listener: TcpListener) {
        let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
        self.accept(accept, HTTP_REFUSAL, |doors, stream: TcpStream, seat| {
            send_at_once(&stream);
            doors.spawn_http(stream, seat);
        })
        .await;
    }

    /// Serves HTTP on a Unix socket until the stop is called.
    pub(super) async fn unix(self, socket: UnixSocket) {
        let accept = || async { socket.listener.accept().await.map(|(stream, _)| stream) };
        self.accept(accept, HTTP_REFUSAL, |doors, stream, seat| {
            doors.spawn_http(stream, seat);
        })
        .await;
    }

    fn spawn_http<S>(&self, stream: S, seat: Seat)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (face, share) = (Arc::clone(&self.http), self.budget.share());
        tokio::spawn(connection::http(
            stream,
            face,
            share,
            seat,
            self.stop.clone(),
        ));
    }

    async fn accept<S, A>(
        &self,
        accept: impl Fn() -> A,
        refusal: &'static str,
        serve: impl Fn(&Doors, S, Seat),
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
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
                    match self.connections.admit() {
                        Some(seat) => serve(self, stream, seat),
                        None => self.refuse(stream, refusal),
                    }
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

    fn refuse<S>(&self, mut stream: S, refusal: &'static str)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Ok(place) = Arc::clone(&self.refusals.0).try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            let said = async {
                stream.write_all(refusal.as_bytes()).await?;
                farewell(&mut stream).await
            };
            // A client that takes no answer misses it.
            let _ = tokio::time::timeout(PAUSE.saturating_mul(10), said).await;
            drop(place);
        });
    }
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
