//! Answers that come piece by piece: their length is not known when they begin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame};

use super::link::{Link, Stage};
use super::pieces::Pieces;
use crate::engine::backup::{Cut, Outflow};

/// The body of every response.
pub type Reply = Either<Full<Bytes>, Stream>;

/// Where the pieces come from.
#[derive(Debug)]
pub enum Source {
    /// A backup. Cut short, it breaks the connection off: what came is then no whole answer.
    Backup(Outflow),
    /// What is made while the client reads.
    Pieces(Pieces),
}

/// An answer on its way.
#[derive(Debug)]
pub struct Stream {
    source: Source,
    link: Option<Arc<Link>>,
}

impl Stream {
    pub(super) fn new(source: Source) -> Stream {
        Stream { source, link: None }
    }

    /// Tells the connection's stream that an answer is on its way, and of its end.
    pub(super) fn begin(&mut self, link: &Arc<Link>) {
        link.set(match &self.source {
            // Who follows and goes away is gone.
            Source::Pieces(pieces) if pieces.follow => Stage::Waiting,
            _ => Stage::Streaming,
        });
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
        match &mut self.get_mut().source {
            Source::Backup(source) => {
                let chunk = source.poll_chunk(cx);
                chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
            }
            Source::Pieces(pieces) => {
                let piece = pieces.poll_piece(cx);
                piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.set(Stage::Answered);
        }
    }
}
