//! The body of a response: whole, or a stream that is made while the client takes it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::link::{Link, Stage};

/// What makes the pieces of a stream, one when the one before it was taken.
pub(super) trait Pieces: Send {
    /// The next piece; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

type Making = Pin<Box<dyn Future<Output = (Box<dyn Made>, Option<Bytes>)> + Send>>;

/// [`Pieces`], as one type.
trait Made: Send {
    fn make(self: Box<Self>) -> Making;
}

impl<P: Pieces + 'static> Made for P {
    fn make(mut self: Box<Self>) -> Making {
        Box::pin(async move {
            let piece = self.next().await;
            (self as Box<dyn Made>, piece)
        })
    }
}

/// The body of a response.
pub struct Outgoing(Kind);

enum Kind {
    Whole(Full<Bytes>),
    Stream(Stream),
}

/// No piece is made before hyper asks for it, and it asks when it has room: a client that does not read holds one
/// piece at most.
struct Stream {
    rest: Rest,
    /// Told when the last piece is on its way.
    link: Option<Arc<Link>>,
}

enum Rest {
    Idle(Box<dyn Made>),
    Making(Making),
    Over,
}

impl Outgoing {
    pub(super) fn whole(bytes: Bytes) -> Outgoing {
        Outgoing(Kind::Whole(Full::new(bytes)))
    }

    pub(super) fn stream(pieces: impl Pieces + 'static) -> Outgoing {
        Outgoing(Kind::Stream(Stream {
            rest: Rest::Idle(Box::new(pieces)),
            link: None,
        }))
    }

    /// Tells the connection when the answer is given: at once, or at the end of its stream.
    pub(super) fn tell(&mut self, link: &Arc<Link>) {
        match &mut self.0 {
            Kind::Whole(_) => link.set(Stage::Answered),
            Kind::Stream(stream) => stream.link = Some(link.clone()),
        }
    }
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match std::mem::replace(&mut self.rest, Rest::Over) {
                Rest::Idle(pieces) => self.rest = Rest::Making(pieces.make()),
                Rest::Making(mut making) => {
                    let Poll::Ready((pieces, piece)) = making.as_mut().poll(cx) else {
                        self.rest = Rest::Making(making);
                        return Poll::Pending;
                    };
                    match piece {
                        Some(_) => self.rest = Rest::Idle(pieces),
                        None => self.end(),
                    }
                    return Poll::Ready(piece);
                }
                Rest::Over => return Poll::Ready(None),
            }
        }
    }

    fn end(&mut self) {
        if let Some(link) = self.link.take() {
            link.set(Stage::Answered);
        }
    }
}

/// Hyper asks for no body where the answer to HEAD has none.
impl Drop for Stream {
    fn drop(&mut self) {
        self.end();
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().0 {
            Kind::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Kind::Stream(stream) => {
                let piece = ready!(stream.poll(cx));
                Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(whole) => whole.is_end_stream(),
            Kind::Stream(stream) => matches!(stream.rest, Rest::Over),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(whole) => whole.size_hint(),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}
