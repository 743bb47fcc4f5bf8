//! Online backups (SPEC 6, 9): a checkpoint, whose LSN is the recovery point, then a copy of the store as it is
//! there, on a thread of its own.
//!
//! What the copy reads, the store cannot use again meanwhile: its file grows by what is written, and keeps that
//! size. So a copy ends by itself when it takes too long, when nobody takes what it reads, and when the file system
//! runs short of space: a backup can be taken again.

mod pipe;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

pub use self::pipe::Outflow;
use self::pipe::{Pipe, Push};
use super::clock::Pace;
use super::core::Phase;
use super::{Engine, EngineError, Inner, Unavailable};
use crate::model::record::Lsn;
use crate::store::{Copied, StoreError};

/// How long the checkpoint may take that a backup begins with.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(30);
/// How long is waited in one go, before somebody looks around.
const SLICE: Duration = Duration::from_secs(1);
/// How long a copy goes on: a hundred gigabytes take a quarter of an hour on a common disk.
const PATIENCE: Patience = Patience {
    slice: SLICE,
    stalled: 30,
    longest: Duration::from_secs(3600),
};
/// Chunks between two looks at the file system: 4 MiB.
const LOOK: u64 = 64;
/// By how much the thread gives way to those that answer.
const NICENESS: i32 = 10;

/// When a copy ends by itself.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// How long it waits in one go for whoever takes it.
    slice: Duration,
    /// So many slices without a chunk taken.
    stalled: u32,
    /// All of it.
    longest: Duration,
}

/// Why no backup was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// One is on its way already.
    Running,
    /// The disk is full, or nearly: the copy would make the store's file grow.
    Full,
    /// The checkpoint before it took too long.
    Overloaded,
    /// The engine is stopping, or failed.
    Stopping,
    /// The system gave no thread for it.
    Thread,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Running => {
                "a backup is being taken already; wait for its end, or use that one"
            }
            Refused::Full => {
                "the disk of the data directory is too full for a backup, during which its store may grow; free \
                 space first"
            }
            Refused::Overloaded => {
                "the checkpoint that a backup begins with did not end in time; try again when less is written"
            }
            Refused::Stopping => "the server is stopping; try again",
            Refused::Thread => "the system gives no thread for it; look at the limits of the process",
        })
    }
}

impl std::error::Error for Refused {}

/// Why a backup ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The file system of the data directory ran short of space.
    Space,
    /// Nobody took what was read.
    Stalled,
    /// It took too long.
    TooLong,
    /// The engine stopped.
    Stopping,
    /// The store could not be read; the log says why.
    Failed,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cut::Space => "the disk of the data directory ran short of space; free some first",
            Cut::Stalled => "its reader took nothing for 30 seconds; write it to a faster place",
            Cut::TooLong => "it took an hour; write it to a faster place",
            Cut::Stopping => "the server stopped; take it again",
            Cut::Failed => "the store could not be read",
        })
    }
}

impl std::error::Error for Cut {}

impl Engine {
    /// Begins a backup: everything that was answered until now is in it.
    ///
    /// # Errors
    /// [`Refused`]; nothing was begun.
    pub async fn backup(&self) -> Result<Outflow, Refused> {
        let turn = Turn::take(&self.inner)?;
        if self.inner.is_short_of_space() {
            return Err(Refused::Full);
        }
        self.checkpoint_now().await?;
        let pipe = Arc::new(Pipe::default());
        let (inner, other_end) = (self.inner.clone(), pipe.clone());
        let work = move || {
            // Only that: a refusal changes nothing.
            let _ = rustix::process::nice(NICENESS);
            let ended = copy(&inner, &other_end, PATIENCE);
            // Before its reader hears of the end: he may ask for the next one.
            drop(turn);
            other_end.end(ended);
        };
        let thread = std::thread::Builder::new()
            .name("onced-backup".into())
            .spawn(work)
            .map_err(|error| {
                tracing::warn!("no thread for a backup: {error}");
                Refused::Thread
            })?;
        let mut threads = self.inner.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(Outflow(pipe))
    }

    /// Brings everything that was decided until now to the store.
    async fn checkpoint_now(&self) -> Result<(), Refused> {
        let stopping = |_: Unavailable| Refused::Stopping;
        let wanted = {
            let mut core = self.running().map_err(stopping)?;
            let last = Lsn(core.next_lsn.0.saturating_sub(1));
            core.wanted_in_store = core.wanted_in_store.max(last);
            last
        };
        self.inner.wake_store.notify_one();
        let done = async {
            loop {
                let stored = self.inner.stored.notified();
                {
                    let core = self.running().map_err(stopping)?;
                    if core.in_store >= wanted {
                        return Ok(());
                    }
                    if core.full {
                        return Err(Refused::Full);
                    }
                }
                // Woken at least once in a while: a stop or a full disk is not told here.
                let _ = tokio::time::timeout(SLICE, stored).await;
            }
        };
        let done = tokio::time::timeout(CHECKPOINT_PATIENCE, done).await;
        done.unwrap_or(Err(Refused::Overloaded))
    }
}

/// The right to copy, of one at a time.
struct Turn(Arc<Inner>);

impl Turn {
    fn take(inner: &Arc<Inner>) -> Result<Turn, Refused> {
        if inner.backing_up.swap(true, Ordering::AcqRel) {
            return Err(Refused::Running);
        }
        Ok(Turn(inner.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.backing_up.store(false, Ordering::Release);
    }
}

impl Inner {
    /// Whether the file system has less to spare than what is kept to finish work.
    fn is_short_of_space(&self) -> bool {
        if self.core.lock().full {
            return true;
        }
        let Some((folder, least)) = self.space.get() else {
            return false;
        };
        rustix::fs::statvfs(folder.as_path())
            .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < *least)
    }
}

fn copy(inner: &Inner, pipe: &Pipe, patience: Patience) -> Result<(), Cut> {
    let age = Pace::Machine.start();
    let mut chunks = 0_u64;
    let mut cut = None;
    let mut sink = |chunk: Bytes| {
        chunks += 1;
        let mut stalled = 0;
        loop {
            if stalled > 0 || chunks.is_multiple_of(LOOK) {
                cut = if inner.core.lock().phase != Phase::Running {
                    Some(Cut::Stopping)
                } else if inner.is_short_of_space() {
                    Some(Cut::Space)
                } else if age.elapsed() >= patience.longest {
                    Some(Cut::TooLong)
                } else if stalled >= patience.stalled {
                    Some(Cut::Stalled)
                } else {
                    None
                };
                if cut.is_some() {
                    return false;
                }
            }
            match pipe.push(&chunk, patience.slice) {
                Push::Taken => return true,
                Push::Full => stalled += 1,
                Push::Gone => return false,
            }
        }
    };
    let copied = inner.reader.back_up(&mut sink);
    let ended = match copied {
        Ok(Copied::Whole { lsn, contents }) => {
            let (records, seconds) = (contents.records, age.elapsed().as_secs());
            tracing::info!(
                "a backup up to LSN {}: {records} records in {seconds} s",
                lsn.0
            );
            return Ok(());
        }
        Ok(Copied::Latched) => Err(Cut::Space),
        Ok(Copied::Stopped) => match cut {
            Some(cut) => Err(cut),
            None => {
                tracing::warn!("a backup was given up by its reader");
                return Err(Cut::Stopping);
            }
        },
        Err(StoreError::Closed) => Err(Cut::Stopping),
        Err(error) => {
            tracing::error!("a backup could not read the store: {error}");
            if matches!(error, StoreError::Io { .. }) {
                inner.fail(EngineError::Store(error));
            }
            Err(Cut::Failed)
        }
    };
    if let Err(cut) = ended {
        tracing::warn!("a backup was cut: {cut}");
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Options, Unit};
    use crate::model::command::{Command, Expiry, Set, StringVerb, Verb};
    use crate::model::key::RecordKey;

    /// More than waits between the copy and its reader.
    async fn filled() -> Engine {
        let engine = Engine::volatile(Options::default());
        for name in 0..20_u8 {
            let set = Set {
                value: vec![name; 200_000].into(),
                when: None,
                get: false,
                expiry: Expiry::Never,
            };
            let key = RecordKey::new("default", &[name]).unwrap();
            let set = Command::new(key, Verb::String(StringVerb::Set(Box::new(set))));
            assert!(engine.submit(vec![Unit::One(set)]).await[0].is_ok());
        }
        engine.checkpoint_now().await.unwrap();
        engine
    }

    #[tokio::test]
    async fn a_copy_that_nobody_takes_ends_and_so_does_one_that_takes_too_long() {
        let engine = filled().await;
        let (unread, slice) = (Pipe::default(), Duration::from_millis(1));
        let ends = |stalled, longest| {
            let patience = Patience {
                slice,
                stalled,
                longest,
            };
            copy(&engine.inner, &unread, patience)
        };
        assert_eq!(ends(3, PATIENCE.longest), Err(Cut::Stalled));
        assert_eq!(ends(u32::MAX, Duration::from_millis(50)), Err(Cut::TooLong));
        let begun = engine.backup().await;
        assert!(begun.is_ok(), "and the next one begins");
        drop(begun);
        engine.close().unwrap();
    }
}
