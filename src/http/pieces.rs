//! A body that is made piece by piece, each when the client has taken the one before.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;

/// What makes the pieces.
pub(super) trait Make: Send {
    /// The next piece; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

type Making = Pin<Box<dyn Future<Output = (Box<dyn Maker>, Option<Bytes>)> + Send>>;

/// [`Make`], as one type.
trait Maker: Send {
    fn make(self: Box<Self>) -> Making;
}

impl<M: Make + 'static> Maker for M {
    fn make(mut self: Box<Self>) -> Making {
        Box::pin(async move {
            let piece = self.next().await;
            (self as Box<dyn Maker>, piece)
        })
    }
}

/// Pieces on their way. None is made before it is asked for, and hyper asks when it has room: a client that does not
/// read holds one at most.
pub struct Pieces {
    rest: Rest,
    /// They come for as long as the client stays.
    pub(super) follow: bool,
}

enum Rest {
    Idle(Box<dyn Maker>),
    Making(Making),
    Over,
}

impl Pieces {
    pub(super) fn new(maker: impl Make + 'static, follow: bool) -> Pieces {
        Pieces {
            rest: Rest::Idle(Box::new(maker)),
            follow,
        }
    }

    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match std::mem::replace(&mut self.rest, Rest::Over) {
                Rest::Idle(maker) => self.rest = Rest::Making(maker.make()),
                Rest::Making(mut making) => {
                    let Poll::Ready((maker, piece)) = making.as_mut().poll(cx) else {
                        self.rest = Rest::Making(making);
                        return Poll::Pending;
                    };
                    if piece.is_some() {
                        self.rest = Rest::Idle(maker);
                    }
                    return Poll::Ready(piece);
                }
                Rest::Over => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pieces on their way")
    }
}
