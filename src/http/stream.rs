//! Answers that come piece by piece: their length is not known when they begin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame};

use super::link::{Link, Stage};
use crate::engine::backup::{Cut, Outflow};

/// The body of every response.
pub type Reply = Either<Full<Bytes>, Stream>;

/// A backup on its way. Cut short, it breaks the connection off: what came is then no whole answer.
#[derive(Debug)]
pub struct Stream {
    source: Outflow,
    link: Option<Arc<Link>>,
}

impl Stream {
    pub(super) fn new(source: Outflow) -> Stream {
        Stream { source, link: None }
    }

    /// Tells the connection's stream that an answer is on its way, and of its end.
    pub(super) fn begin(&mut self, link: &Arc<Link>) {
        link.set(Stage::Streaming);
        self.link = Some(link.clone());
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let chunk = self.get_mut().source.poll_chunk(cx);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.set(Stage::Answered);
        }
    }
}
