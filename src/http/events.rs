//! The audit trail as NDJSON (SPEC 6): one event a line, the oldest first.
//!
//! A stream that cannot go on ends with a line that is the problem document itself: it has a `status` and no
//! `lsn`. One that ends without it is whole. Whoever was cut goes on with `after=` the last line he has.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::json::{self, Object};
use super::metrics::Limit;
use super::pieces::Make;
use super::problem::Refusal;
use super::{Face, Readiness};
use crate::engine::{Event, Events, Filter, TrailError};
use crate::model::record::Lsn;

/// What one event takes as a line, usually.
const USUAL: usize = 256;
/// How long a follower lets new events gather: one look at the disk for many commits.
const GATHER: Duration = Duration::from_millis(20);

/// What is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    /// Exclusive; without it, from the oldest event kept.
    pub(super) after: Option<Lsn>,
    /// At most so many; without it, all.
    pub(super) limit: Option<u64>,
    /// Goes on with those to come, until the server stops.
    pub(super) follow: bool,
    pub(super) filter: Filter,
}

/// A reading on its way to a client.
pub(super) struct Lines {
    events: Events,
    follow: bool,
    left: u64,
    /// Where a reading that does not follow ends: what was durable when it began.
    through: Lsn,
    /// Was read before the head of the answer was sent.
    first: Option<Bytes>,
    over: bool,
    readiness: watch::Receiver<Readiness>,
}

impl Lines {
    /// Begins to read, so that what cannot be read is refused with a status of its own.
    pub(super) async fn begin(face: &Face, asked: Asked) -> Result<Lines, Refusal> {
        let events = face.engine.events(asked.after, asked.filter);
        if matches!(events, Err(TrailError::Readers)) {
            face.met.count(Limit::Readers);
        }
        let events = events?;
        let through = events.durable();
        let mut lines = Lines {
            events,
            follow: asked.follow,
            left: asked.limit.unwrap_or(u64::MAX),
            through,
            first: None,
            over: false,
            readiness: face.readiness.clone(),
        };
        lines.first = Some(lines.page().await?);
        Ok(lines)
    }

    /// The next lines, maybe none.
    async fn page(&mut self) -> Result<Bytes, TrailError> {
        if self.follow {
            self.through = self.events.durable();
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let events = self.events.next(self.through, most).await?;
        self.left = self.left.saturating_sub(events.len() as u64);
        let mut out = Vec::with_capacity(events.len().saturating_mul(USUAL));
        for event in &events {
            line(event, &mut out);
        }
        Ok(out.into())
    }

    /// Whether there may be more to read; waits for it where the trail is followed.
    async fn more(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.events.after() < self.through {
            return true;
        }
        self.follow
            && tokio::select! {
                more = self.events.more() => {
                    tokio::time::sleep(GATHER).await;
                    more
                }
                () = stopping(&mut self.readiness) => false,
            }
    }
}

/// A server that is never told to stop leaves its followers alone.
async fn stopping(readiness: &mut watch::Receiver<Readiness>) {
    let stopping = readiness.wait_for(|now| *now == Readiness::Stopping);
    if stopping.await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Make for Lines {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(first);
        }
        while !self.over && self.more().await {
            match self.page().await {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => return Some(lines),
                Err(error) => {
                    self.over = true;
                    return Some(last_line(error));
                }
            }
        }
        None
    }
}

/// An event as a line.
fn line(event: &Event, out: &mut Vec<u8>) {
    let decision = &event.decision;
    let mut object = Object::begin(out);
    object.number("lsn", event.lsn.0);
    object.text("at", &decision.at.to_string());
    object.text("ns", &event.namespace);
    match &event.key {
        Some(key) => object.key(key),
        None => object.null("key"),
    }
    // What changed nothing has no fact of its own: then it is what was asked.
    let fact = decision.event.map_or(decision.verb, |fact| fact.name());
    object.text("event", fact);
    object.text("outcome", decision.outcome);
    match decision.token {
        Some(token) => object.number("token", token.get()),
        None => object.null("token"),
    }
    object.number("attempt", decision.attempt.into());
    object.number("generation", decision.generation.into());
    match &decision.by {
        Some(by) => object.text("by", by),
        None => object.null("by"),
    }
    object.number("count", decision.count.into());
    object.end();
    out.push(b'\n');
}

/// Why a stream ends before its end, as its last line.
fn last_line(error: TrailError) -> Bytes {
    let refusal = Refusal::from(error);
    let mut out = json::problem(
        refusal.outcome,
        refusal.status,
        &refusal.detail,
        refusal.retry_after,
    );
    out.push(b'\n');
    out.into()
}

impl From<TrailError> for Refusal {
    fn from(error: TrailError) -> Refusal {
        let detail = error.to_string();
        match error {
            TrailError::Gone { .. } => Refusal::gone(detail),
            TrailError::Ahead { .. } => Refusal::bad_input(detail),
            TrailError::Readers => Refusal::unavailable(detail),
            TrailError::Unreadable => Refusal {
                // It does not come back by itself.
                retry_after: None,
                ..Refusal::unavailable(detail)
            },
        }
    }
}
