//! The audit trail as faces read it: page by page, without the engine's lock, on blocking threads.
//!
//! Between two pages a reading is a position and a filter: it holds no file, no frame and no lock, so a client
//! that takes its time costs nothing and keeps no segment from being recycled. It is told when its place in the
//! trail is gone ([`TrailError::Gone`]).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Engine;
use crate::journal::error::{Cause, JournalError};
use crate::journal::read::Trail;
use crate::model::record::Lsn;
use crate::store::{Change, Decision, decode_entry};

/// How many readings there may be at once.
pub const MAX_READERS: usize = 64;
/// How many of them read from the disk at the same time: answers come first.
const TURNS: usize = 2;
/// Events of a page.
const PAGE: usize = 512;
/// Entries that are looked at for one page: a filter that finds nothing ends its turn too.
const LOOK: usize = 64 * 1024;

/// One decision of the audit trail (SPEC 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the journal.
    pub lsn: Lsn,
    /// The namespace concerned.
    pub namespace: Box<str>,
    /// The key concerned; `None` for a policy, and for a sum over keys that were not told apart.
    pub key: Option<Bytes>,
    /// Who decided what, when.
    pub decision: Decision,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this namespace.
    pub namespace: Option<Box<str>>,
    /// Only those of this key.
    pub key: Option<Bytes>,
}

impl Filter {
    fn takes(&self, change: &Change) -> bool {
        let key = change.key().map(|key| key.key());
        let namespace = self.namespace.as_deref();
        namespace.is_none_or(|wanted| wanted == change.namespace())
            && self.key.as_deref().is_none_or(|wanted| key == Some(wanted))
    }
}

/// Why the trail is not read, or no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailError {
    /// What comes after the position asked for is no longer kept.
    Gone {
        /// The first LSN that is.
        oldest: Lsn,
    },
    /// The position asked for is behind the last durable entry.
    Ahead {
        /// That entry.
        durable: Lsn,
    },
    /// There are [`MAX_READERS`] readings already.
    Readers,
    /// The system failed, or what was durable cannot be read; the log says what.
    Unreadable,
}

impl fmt::Display for TrailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrailError::Gone { oldest } => write!(
                f,
                "the audit trail begins at LSN {} by now, and what came before is no longer kept; go on with \
                 after={}, or without after= from the oldest",
                oldest.0,
                oldest.0.saturating_sub(1)
            ),
            TrailError::Ahead { durable } => write!(
                f,
                "the last LSN of this store is {}: what was read further came from another store, or from this one \
                 before it was restored; read again without after=",
                durable.0
            ),
            TrailError::Readers => write!(
                f,
                "there are {MAX_READERS} readers of the audit trail already; end one of them, or try again"
            ),
            TrailError::Unreadable => f.write_str(
                "the audit trail cannot be read there; the server's log names the file, and `onced check` what is \
                 wrong with it",
            ),
        }
    }
}

impl std::error::Error for TrailError {}

/// How far the journal is, for those who follow it.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    durable: Lsn,
    /// Nothing comes any more.
    over: bool,
}

/// The trail, and who reads it.
pub(super) struct Trails {
    trail: Trail,
    readers: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    progress: watch::Sender<Progress>,
}

impl Trails {
    pub(super) fn new(trail: Trail) -> Trails {
        Trails {
            trail,
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            turns: Arc::new(Semaphore::new(TURNS)),
            progress: watch::Sender::default(),
        }
    }

    /// How many read it now.
    pub(super) fn readers(&self) -> u64 {
        MAX_READERS.saturating_sub(self.readers.available_permits()) as u64
    }

    /// Bytes of the journal's segments.
    pub(super) fn bytes(&self) -> u64 {
        self.trail.bytes()
    }

    /// A frame is durable up to there.
    pub(super) fn landed(&self, durable: Lsn) {
        self.progress
            .send_modify(|progress| progress.durable = durable);
    }

    /// Nothing comes any more.
    pub(super) fn end(&self) {
        self.progress.send_modify(|progress| progress.over = true);
    }
}

/// A reading of the audit trail.
pub struct Events {
    trail: Trail,
    turns: Arc<Semaphore>,
    progress: watch::Receiver<Progress>,
    filter: Arc<Filter>,
    after: Lsn,
    /// It begins with the oldest that is kept, whichever that is when it does.
    anywhere: bool,
    _place: OwnedSemaphorePermit,
}

impl Engine {
    /// A reading of the durable events after `after`, or of all that are kept.
    ///
    /// # Errors
    /// `Readers`, `Gone` and `Ahead` of [`TrailError`].
    pub fn events(&self, after: Option<Lsn>, filter: Filter) -> Result<Events, TrailError> {
        let trails = &self.inner.trails;
        let place = trails.readers.clone().try_acquire_owned();
        let place = place.map_err(|_| TrailError::Readers)?;
        let (oldest, durable) = (trails.trail.oldest(), trails.trail.durable());
        let first = Lsn(oldest.0.saturating_sub(1));
        let anywhere = after.is_none();
        let after = after.unwrap_or(first);
        if after < first {
            return Err(TrailError::Gone { oldest });
        }
        if after > durable {
            return Err(TrailError::Ahead { durable });
        }
        Ok(Events {
            trail: trails.trail.clone(),
            turns: trails.turns.clone(),
            progress: trails.progress.subscribe(),
            filter: Arc::new(filter),
            after,
            anywhere,
            _place: place,
        })
    }
}

impl Events {
    /// The last LSN that was looked at.
    #[must_use]
    pub fn after(&self) -> Lsn {
        self.after
    }

    /// The last LSN that is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.trail.durable()
    }

    /// The next events up to `through`, at most so many and at most a page. None of them may be wanted: all are
    /// read only when [`Events::after`] has reached `through`.
    ///
    /// # Errors
    /// `Gone` and `Unreadable` of [`TrailError`].
    pub async fn next(&mut self, through: Lsn, most: usize) -> Result<Vec<Event>, TrailError> {
        loop {
            let turn = self.turns.clone().acquire_owned().await;
            let (trail, filter, after) = (self.trail.clone(), self.filter.clone(), self.after);
            let read = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                page(&trail, &filter, after, through, most.min(PAGE))
            });
            // A thread that panicked ends the process.
            match read.await.unwrap_or(Err(TrailError::Unreadable)) {
                // It went while nobody had read of it yet.
                Err(TrailError::Gone { oldest }) if self.anywhere => {
                    self.after = Lsn(oldest.0.saturating_sub(1));
                }
                Err(error) => return Err(error),
                Ok((events, after)) => {
                    self.anywhere = false;
                    self.after = after;
                    return Ok(events);
                }
            }
        }
    }

    /// Resolves when something new is durable; `false`: nothing comes any more.
    pub async fn more(&mut self) -> bool {
        let after = self.after;
        if self.trail.durable() > after {
            return true;
        }
        let waited = (self.progress).wait_for(|progress| progress.over || progress.durable > after);
        matches!(waited.await, Ok(progress) if progress.durable > after)
    }
}

/// Events, and the last LSN that was looked at for them.
fn page(
    trail: &Trail,
    filter: &Filter,
    after: Lsn,
    through: Lsn,
    most: usize,
) -> Result<(Vec<Event>, Lsn), TrailError> {
    let through = through.min(trail.durable());
    if after >= through || most == 0 {
        return Ok((Vec::new(), after));
    }
    let mut reader = trail.read(after, through).map_err(told)?;
    let (mut events, mut last, mut looked) = (Vec::new(), after, 0);
    while let Some(batch) = reader.next_batch().map_err(told)? {
        for (lsn, bytes) in batch {
            looked += 1;
            last = lsn;
            take(filter, lsn, bytes, &mut events)?;
            if events.len() >= most || looked >= LOOK {
                return Ok((events, last));
            }
        }
    }
    // LSNs at the end that nothing has were left out by a start.
    Ok((events, last.max(through)))
}

/// Decodes an entry, and keeps it if it is wanted.
fn take(
    filter: &Filter,
    lsn: Lsn,
    bytes: &[u8],
    events: &mut Vec<Event>,
) -> Result<(), TrailError> {
    let entry = decode_entry(bytes).map_err(|error| {
        tracing::error!(lsn = lsn.0, %error, "an entry of the audit trail cannot be read");
        TrailError::Unreadable
    })?;
    if filter.takes(&entry.change) {
        events.push(Event {
            lsn,
            namespace: entry.change.namespace().into(),
            key: entry
                .change
                .key()
                .map(|key| Bytes::copy_from_slice(key.key())),
            decision: entry.decision,
        });
    }
    Ok(())
}

fn told(error: JournalError) -> TrailError {
    if let Cause::Gone { oldest } = error.cause() {
        return TrailError::Gone { oldest: *oldest };
    }
    tracing::error!(%error, "the audit trail cannot be read");
    TrailError::Unreadable
}
