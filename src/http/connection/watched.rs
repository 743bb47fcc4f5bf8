//! A stream that gives up on silence, and that knows what an end of input means at the moment.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::fragments::Fragments;
use crate::http::Options;
use crate::http::link::{Link, Stage};

/// Where nothing came any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// On a connection that has yet to send its first byte.
    Start,
    /// In the head of a request.
    Head,
    /// Between requests.
    Idle,
}

/// The stream below hyper.
///
/// * Silence longer than its limit reads as the end of the input, which makes hyper finish.
/// * The end of the input is kept back from hyper while an answer is on its way: hyper would drop the request,
///   and a client that closed its sending side still wants its answer. While a claim waits it is passed on.
/// * What hyper writes while there is no request is its own bare refusal, and is held back.
/// * Targets that hyper cuts are noted.
/// * The stream is shut down by its owner, after hyper.
pub(super) struct Watched<S> {
    stream: S,
    link: Arc<Link>,
    header_timeout: Duration,
    idle_timeout: Duration,
    /// How long a client may take nothing of an answer.
    write_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    given_up: bool,
    deadline: Option<Pin<Box<Sleep>>>,
    /// What the deadline is for, while it stands.
    armed: Option<Silence>,
    /// Bytes came since the last request.
    begun: bool,
    /// No request came yet.
    fresh: bool,
    silence: Option<Silence>,
    held_back: bool,
    written: bool,
    fragments: Fragments,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, link: Arc<Link>, options: &Options) -> Watched<S> {
        Watched {
            stream,
            link,
            header_timeout: options.header_timeout,
            idle_timeout: options.idle_timeout,
            write_timeout: options.body_timeout,
            stalled: None,
            given_up: false,
            deadline: None,
            armed: None,
            begun: false,
            fresh: true,
            silence: None,
            held_back: false,
            written: false,
            fragments: Fragments::default(),
        }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// The silence that ended the input, if one did.
    pub(super) fn silence(&self) -> Option<Silence> {
        self.silence
    }

    /// Whether hyper refused something by itself.
    pub(super) fn held_back(&self) -> bool {
        self.held_back
    }

    /// Whether the client took nothing of an answer for too long.
    pub(super) fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// Whether anything was written.
    pub(super) fn has_written(&self) -> bool {
        self.written
    }

    /// Nothing is there to read: ready once that has lasted too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.link.stage() != Stage::Idle {
            // A request in hand has time limits of its own.
            self.armed = None;
            return Poll::Pending;
        }
        let kind = match (self.begun, self.fresh) {
            (true, _) => Silence::Head,
            (false, true) => Silence::Start,
            (false, false) => Silence::Idle,
        };
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep(self.header_timeout)));
        if self.armed != Some(kind) {
            let span = match kind {
                Silence::Start | Silence::Head => self.header_timeout,
                Silence::Idle => self.idle_timeout,
            };
            // A sleep that is never polled costs nothing and says what time it would be.
            deadline.as_mut().reset(sleep(span).deadline());
            self.armed = Some(kind);
        }
        ready!(deadline.as_mut().poll(cx));
        self.silence = Some(kind);
        Poll::Ready(())
    }

    /// What came of a write: a client that takes nothing for too long is given up. It keeps the answer's memory, its
    /// place among the connections, and one among the readers of the audit trail.
    fn taken(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        self.given_up = true;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Bytes that hyper writes of its own accord. "Go on" is written while a request is in hand.
    fn hold_back(&mut self) -> bool {
        let own = self.link.stage() == Stage::Idle;
        self.held_back |= own;
        self.written |= !own;
        own
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.silence.is_some() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() == before => match this.link.stage() {
                Stage::Deciding | Stage::Answered | Stage::Streaming => {
                    this.link.park(cx.waker());
                    Poll::Pending
                }
                Stage::Idle | Stage::Reading | Stage::Waiting => Poll::Ready(Ok(())),
            },
            Poll::Ready(Ok(())) => {
                this.begun = true;
                let came = buffer.filled().get(before..).unwrap_or_default();
                let link = &this.link;
                this.fragments.look(came, |target| link.note_cut(target));
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => this.poll_silence(cx).map(Ok),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.hold_back() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.taken(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.hold_back() {
            let bytes = slices.iter().map(|slice| slice.len());
            return Poll::Ready(Ok(bytes.fold(0, usize::saturating_add)));
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.taken(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Hyper flushes when all it had is written: with an answer given before, the next request may begin.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        if this.link.stage() == Stage::Answered {
            this.link.set(Stage::Idle);
            this.fresh = false;
            this.begun = false;
            this.armed = None;
            // Hyper may have asked for bytes already, and then waits for them without asking again.
            if this.poll_silence(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, duplex};
    use tokio::time::timeout;

    /// A read of a stream whose client has closed its sending side, at that stage of a request.
    async fn read_at(stage: Stage, then: Option<Stage>) -> Option<usize> {
        let (client, stream) = duplex(16);
        drop(client);
        let link = Arc::new(Link::default());
        link.set(stage);
        let mut stream = Watched::new(stream, link.clone(), &Options::default());
        let mut buffer = [0; 4];
        let mut read = std::pin::pin!(stream.read(&mut buffer));
        let mut turns = 0;
        let ended = poll_fn(|cx| {
            let polled = read.as_mut().poll(cx);
            turns += 1;
            if let (Some(stage), 1) = (then, turns) {
                link.set(stage);
            }
            polled
        });
        let ended = timeout(Duration::from_millis(50), ended).await;
        ended.ok().map(|read| read.unwrap())
    }

    #[tokio::test]
    async fn an_end_of_input_is_kept_back_while_an_answer_is_on_its_way() {
        // (stage, stage a moment later, what is read: Some(0) is the end)
        let table = [
            (Stage::Idle, None, Some(0)),
            (Stage::Reading, None, Some(0)),
            (Stage::Deciding, None, None),
            (Stage::Answered, None, None),
            (Stage::Streaming, None, None),
            (Stage::Waiting, None, Some(0)),
            (Stage::Deciding, Some(Stage::Waiting), Some(0)),
            (Stage::Deciding, Some(Stage::Answered), None),
            (Stage::Answered, Some(Stage::Idle), Some(0)),
        ];
        for (stage, then, expected) in table {
            assert_eq!(read_at(stage, then).await, expected, "{stage:?} {then:?}");
        }
    }
}
