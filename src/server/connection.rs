//! Connections: from the socket to the face and back.
//!
//! A Redis connection reads what has come, hands all of it to its session, and writes all replies at once; it
//! reads on only when they are written. An HTTP connection is the HTTP face's own from the first byte.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::limits::{Met, Seat, Share, count};
use super::shutdown::Stop;
use crate::engine::Engine;
use crate::http::body::{QUIET, SLOW};
use crate::resp::{self, Flow, Session};

/// The first read of a connection, and the largest: reads grow while they come back full.
const READ: (usize, usize) = (4 << 10, 256 << 10);
/// How long a client may take nothing of its replies while bytes in flight are short. Until then it keeps
/// memory that others wait for; whoever reads at all has taken something by then.
const DEAF: Duration = Duration::from_secs(1);
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
    /// What was met.
    pub met: Arc<Met>,
}

/// Serves one Redis connection until the client goes, the session ends it, or `stop` is called.
pub async fn redis(stream: TcpStream, face: Redis, share: Share, seat: Seat, stop: Stop) {
    let mut connection = Connection {
        stream,
        share,
        input: BytesMut::new(),
        read: READ.0,
        growing: false,
        slow: None,
        patience: face.patience,
        met: Arc::clone(&face.met),
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
    /// Little is read at once: what is read takes several times its bytes.
    growing: bool,
    /// Runs while a part of a request is here.
    slow: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    met: Arc<Met>,
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
        let peer = self.stream.peer_addr()?.to_string();
        let mut session = Session::new(Arc::clone(&face.face), peer);
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
                    count(&self.met.slow);
                    // Others need it now, not when the client has seen the end.
                    self.input = BytesMut::new();
                    self.share.hold(session.pending());
                    self.share.got_on();
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
        loop {
            let gone = gone(&self.stream);
            let flow = session.serve_while(&face.engine, &mut self.input, output, gone);
            let flow = flow.await;
            let held = session.pending().saturating_add(self.input.len());
            self.share.hold(held.saturating_add(output.len()));
            self.growing = session.is_growing();
            let got_on = held == 0 || !output.is_empty();
            if got_on {
                self.slow = None;
            }
            if !output.is_empty() {
                self.write(output).await?;
                *output = BytesMut::new();
                self.share.hold(held);
            }
            // Not before its replies are taken: each client that reads nothing would pass, and keep them.
            if got_on {
                self.share.got_on();
            }
            if flow != Flow::More {
                if self.input.is_empty() {
                    // An idle connection holds no buffer.
                    self.input = BytesMut::new();
                }
                return Ok(flow);
            }
        }
    }

    /// Waits for bytes. Safe to drop: what was read is in the input.
    ///
    /// While bytes in flight are short, whoever has none of them may read a little all the same: small commands never
    /// wait for large ones, and at its most that is 4 KiB for each connection. Whoever has some goes on with the next
    /// free bytes or the pass, and is let go if he sends nothing or takes too long.
    async fn read(&mut self) -> io::Result<Came> {
        let mut quiet = 0;
        loop {
            let holds = self.share.holds_any();
            if holds && self.slow.is_none() {
                let patience = self.patience.min(SLOW);
                self.slow = Some(Box::pin(tokio::time::sleep(patience)));
            }
            let looked = async {
                match holds {
                    true => tokio::time::sleep(QUIET.0).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                ready = self.stream.readable() => ready?,
                () = over(&mut self.slow) => {
                    if self.is_too_slow() {
                        return Ok(Came::TooSlow);
                    }
                    continue;
                }
                () = looked => {
                    // What is held and not paid for would look like room.
                    self.share.settle();
                    quiet += u32::from(self.share.is_short());
                    if quiet >= QUIET.1 {
                        return Ok(Came::TooSlow);
                    }
                    continue;
                }
            }
            if holds {
                tokio::select! {
                    biased;
                    () = over(&mut self.slow) => {
                        if self.is_too_slow() {
                            return Ok(Came::TooSlow);
                        }
                        continue;
                    }
                    () = self.share.room() => {}
                }
            }
            match self.try_read()? {
                Some(0) => return Ok(Came::End),
                Some(_) => return Ok(Came::Bytes),
                None => {}
            }
        }
    }

    /// The timer has run: whether that counts. It runs again where it does not.
    fn is_too_slow(&mut self) -> bool {
        self.slow = None;
        self.share.settle();
        self.share.is_short()
    }

    /// Reads what is there; `None` where nothing is.
    fn try_read(&mut self) -> io::Result<Option<usize>> {
        let short = self.share.is_short() && !self.share.holds_any();
        let most = match short || self.growing {
            true => READ.0,
            false => self.read,
        };
        self.input.reserve(most);
        let spare = self.input.capacity().saturating_sub(self.input.len());
        // Of a large buffer that is there anyway all is used, but by whoever may read only a little.
        let space = if most == READ.0 { most } else { spare };
        match self
            .stream
            .try_read_buf(&mut (&mut self.input).limit(space))
        {
            Ok(bytes) => {
                if (1..space).contains(&bytes) {
                    // That was all: the next read waits for an event, without asking the system first. What comes
                    // in between is an event of its own.
                    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    let _ = self.stream.try_io(Interest::READABLE, nothing);
                }
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
        let patience = self.patience.min(DEAF);
        let mut left = bytes;
        while !left.is_empty() {
            let written = tokio::time::timeout(patience, self.stream.write(left)).await;
            match written {
                Ok(written) => left = left.get(written?..).unwrap_or_default(),
                Err(_) => {
                    self.share.settle();
                    if self.share.is_short() {
                        count(&self.met.deaf);
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
        Ok(())
    }

    async fn farewell(&mut self) -> io::Result<()> {
        farewell(&mut self.stream).await
    }
}

/// Returns when the client has closed its sending side, whatever it has sent before and nobody has read yet.
async fn gone(stream: &TcpStream) {
    // Bytes out of band are not listened for: of this interest only the end is ever told.
    let _ = stream.ready(Interest::PRIORITY).await;
}

/// Returns when the timer has run, never if there is none.
async fn over(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
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
