//! Connections: from the socket to the face and back.
//!
//! A Redis connection reads what has come, hands all of it to its session, and writes all replies at once; it
//! reads on only when they are written. An HTTP connection is hyper's; [`Counted`] counts what it reads.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::limits::{Room, Seat, Share};
use super::shutdown::Stop;
use crate::engine::Engine;
use crate::http;
use crate::resp::{self, Flow, Session};

/// The first read of a connection, and the largest: reads grow while they come back full.
const READ: (usize, usize) = (4 << 10, 256 << 10);
/// How long a client may take to see the end after its last reply.
const FAREWELL: Duration = Duration::from_millis(500);

/// What Redis connections share.
#[derive(Clone)]
pub struct Redis {
    /// Who decides.
    pub engine: Engine,
    /// What sessions share.
    pub face: Arc<resp::Face>,
    /// How long a client may hold others up while bytes in flight are short.
    pub patience: Duration,
}

/// Serves one Redis connection until the client goes, the session ends it, or `stop` is called.
pub async fn redis(stream: TcpStream, face: Redis, share: Share, seat: Seat, stop: Stop) {
    let mut connection = Connection {
        stream,
        share,
        input: BytesMut::new(),
        read: READ.0,
        patience: face.patience,
    };
    // A client that goes is no event; what it was owed is gone with it.
    if let Err(error) = connection.run(&face, stop).await {
        tracing::debug!("a connection broke: {error}");
    }
    drop(seat);
}

struct Connection {
    stream: TcpStream,
    share: Share,
    /// What has come and is not a whole command yet.
    input: BytesMut,
    /// How much to read next.
    read: usize,
    patience: Duration,
}

/// How reading ended.
enum Came {
    Bytes,
    End,
    Stop,
    TooSlow,
}

impl Connection {
    async fn run(&mut self, face: &Redis, stop: Stop) -> io::Result<()> {
        let mut session = Session::new(Arc::clone(&face.face));
        let mut output = BytesMut::new();
        let called = stop.called();
        tokio::pin!(called);
        loop {
            let came = tokio::select! {
                biased;
                () = &mut called => Came::Stop,
                came = self.read() => came?,
            };
            match came {
                Came::Bytes => {}
                // Whole commands were answered when they came; a part of one is nothing.
                Came::End => return Ok(()),
                // What has come by now is in hand, and answered.
                Came::Stop => {
                    self.try_read()?;
                }
                Came::TooSlow => {
                    let error =
                        b"-ERR the command came too slowly while memory for requests is short\r\n";
                    self.write(error).await?;
                    return self.farewell().await;
                }
            }
            let flow = self.answer(face, &mut session, &mut output).await?;
            if matches!(flow, Flow::Close) || matches!(came, Came::Stop) {
                return self.farewell().await;
            }
        }
    }

    /// Answers every whole command of the input.
    async fn answer(
        &mut self,
        face: &Redis,
        session: &mut Session,
        output: &mut BytesMut,
    ) -> io::Result<Flow> {
        while !self.input.is_empty() {
            let before = self.input.len();
            let flow = session.serve(&face.engine, &mut self.input, output).await;
            if self.input.len() < before {
                self.share
                    .hold(self.input.len().saturating_add(output.len()));
            }
            self.write(output).await?;
            *output = BytesMut::new();
            if matches!(flow, Flow::Close) {
                return Ok(flow);
            }
            // The session takes whole commands, and stops early where their replies are many.
            if self.input.len() == before {
                return Ok(flow);
            }
            self.share.hold(self.input.len());
        }
        // An idle connection holds no buffer.
        self.input = BytesMut::new();
        Ok(Flow::Continue)
    }

    /// Waits for bytes. Safe to drop: what was read is in the input.
    async fn read(&mut self) -> io::Result<Came> {
        loop {
            let slow = self.share.holds_others_up();
            tokio::select! {
                biased;
                ready = self.stream.readable() => ready?,
                () = tokio::time::sleep(self.patience), if slow => return Ok(Came::TooSlow),
            }
            self.share.room().await;
            match self.try_read()? {
                Some(0) => return Ok(Came::End),
                Some(_) => return Ok(Came::Bytes),
                None => {}
            }
        }
    }

    /// Reads what is there; `None` where nothing is.
    fn try_read(&mut self) -> io::Result<Option<usize>> {
        self.input.reserve(self.read);
        match self.stream.try_read_buf(&mut self.input) {
            Ok(bytes) => {
                self.share.add(bytes);
                self.read = if bytes >= self.read {
                    self.read.saturating_mul(4).min(READ.1)
                } else {
                    bytes.next_power_of_two().clamp(READ.0, READ.1)
                };
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes all of it. A client that takes nothing is waited for, unless others need the memory.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            let written = tokio::time::timeout(self.patience, self.stream.write(left)).await;
            match written {
                Ok(written) => left = left.get(written?..).unwrap_or_default(),
                Err(_) if self.share.is_short() => return Err(io::ErrorKind::TimedOut.into()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    async fn farewell(&mut self) -> io::Result<()> {
        farewell(&mut self.stream).await
    }
}

/// Ends a connection so that its last reply arrives: closing while bytes are unread would have the system
/// tear it down, and the client might lose what it has not read yet.
pub async fn farewell<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    let drain = async {
        while stream.read(&mut rest).await? > 0 {}
        Ok(())
    };
    tokio::time::timeout(FAREWELL, drain)
        .await
        .unwrap_or(Ok(()))
}

/// Serves one HTTP connection until the client goes, or `stop` is called and its request is answered.
pub async fn http<S>(stream: S, face: Arc<http::Face>, share: Share, seat: Seat, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    http::connection::serve(Counted::new(stream, share), face, stop.called()).await;
    drop(seat);
}

/// A stream whose reads count as bytes in flight until the connection writes: then the request that they
/// belong to was decided.
struct Counted<S> {
    stream: S,
    share: Share,
    /// What it waits for before it may read.
    room: Option<Pin<Box<dyn Future<Output = Room> + Send>>>,
}

impl<S> Counted<S> {
    fn new(stream: S, share: Share) -> Counted<S> {
        Counted {
            stream,
            share,
            room: None,
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.share.may_read() {
            let share = &self.share;
            let wait = self.room.get_or_insert_with(|| Box::pin(share.wait()));
            let room = ready!(wait.as_mut().poll(cx));
            self.room = None;
            self.share.enter(room);
        }
        self.room = None;
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_room(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let came = buffer.filled().len().saturating_sub(before);
        self.share.add(came);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.share.hold(0);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.share.hold(0);
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
