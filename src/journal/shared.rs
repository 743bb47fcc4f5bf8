//! What the writer, the preparer and the readers know of the journal together.

use super::Mark;
use super::disk::{Disk, DiskFile};
use super::error::{Cause, JournalError};
use super::room::Room;
use super::segment::StoreId;
use super::writer::Options;
use crate::model::record::Lsn;
use crate::model::time::Timestamp;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// One journal in use.
pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) store_id: StoreId,
    pub(super) options: Options,
    pub(super) room: Arc<Room>,
    state: Mutex<State>,
}

/// What changes. The lock is never held over IO.
pub(super) struct State {
    /// The segments there are, oldest first; the last one is being written.
    pub(super) kept: VecDeque<Kept>,
    pub(super) spares: VecDeque<Spare>,
    /// Bytes for frames in the segment that is being written.
    pub(super) remaining: u64,
    /// The last LSN that is durable.
    pub(super) durable: Lsn,
    /// Everything up to here is in the checkpoint.
    pub(super) released: Lsn,
    /// The latest engine time heard of.
    pub(super) now: Timestamp,
    /// Numbers the names of spares.
    pub(super) next_spare: u64,
}

/// A segment on disk.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) number: u64,
    /// Bytes of the whole file.
    pub(super) size: u64,
    pub(super) first_lsn: Lsn,
    /// How it ended; `None` while it is being written.
    pub(super) end: Option<End>,
    pub(super) index: Index,
}

/// How a segment ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) last_lsn: Lsn,
    pub(super) mark: Mark,
}

/// A preallocated file that is to become a segment.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
}

/// Where some of a segment's frames begin, so that a reader need not start at the first: ascending, far apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(Vec<(Lsn, u64)>);

/// The distance of frames in the index, in bytes.
pub(super) const STRIDE: u64 = 256 * 1024;

impl Index {
    /// Notes that a frame begins there, if it is far enough behind the last one noted.
    pub(super) fn note(&mut self, first_lsn: Lsn, offset: u64) {
        let due = self
            .0
            .last()
            .map_or(STRIDE, |(_, last)| last.saturating_add(STRIDE));
        if offset >= due {
            self.0.push((first_lsn, offset));
        }
    }

    /// The last frame noted that begins at this LSN or before.
    pub(super) fn find(&self, lsn: Lsn) -> Option<(Lsn, u64)> {
        let behind = self.0.partition_point(|(first, _)| *first <= lsn);
        self.0.get(behind.checked_sub(1)?).copied()
    }
}

impl Shared {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        store_id: StoreId,
        options: Options,
        kept: VecDeque<Kept>,
        released: Lsn,
    ) -> Shared {
        let room = Arc::new(Room::new(options.spares));
        let end = kept.back().and_then(|kept| kept.end);
        let state = Mutex::new(State {
            kept,
            spares: VecDeque::new(),
            remaining: 0,
            durable: end.map_or(released, |end| end.last_lsn),
            released,
            now: end.map_or(Timestamp::default(), |end| end.mark.time),
            next_spare: 1,
        });
        Shared {
            disk,
            store_id,
            options,
            room,
            state,
        }
    }

    /// Looks at the state or changes it; the room follows in the same step.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let answer = act(&mut state);
        self.room.set(
            state.remaining,
            state.spares.len(),
            self.options.segment_size,
        );
        answer
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// Refuses where a write or sync has failed before.
    pub(super) fn check(&self, operation: &'static str) -> Result<(), JournalError> {
        if self.room.is_over() {
            let path = self.disk.path().to_path_buf();
            return Err(JournalError::new(operation, path, Cause::Poisoned));
        }
        Ok(())
    }

    /// A failure after which nothing may be written any more, want of space included.
    pub(super) fn fatal(
        &self,
        operation: &'static str,
        name: &str,
        error: io::Error,
    ) -> JournalError {
        self.room.end();
        JournalError::new(operation, self.path(name), Cause::Io(error))
    }
}

impl State {
    /// Takes the oldest segment off the audit trail, if everything in it is in the checkpoint and, unless
    /// `anyway`, it is beyond the limits of age or size. Never the newest: until the next one is begun, it is
    /// the one that the record of the highest asks for.
    pub(super) fn take_oldest(&mut self, options: &Options, anyway: bool) -> Option<Kept> {
        if self.kept.len() < 2 {
            return None;
        }
        let released = |kept: &Kept| kept.end.filter(|end| end.last_lsn <= self.released);
        let end = self.kept.front().and_then(released)?;
        let bytes = || {
            let sizes = self.kept.iter().take_while(|kept| released(kept).is_some());
            sizes.fold(0, |sum: u64, kept| sum.saturating_add(kept.size))
        };
        let too_old = || self.now.since(end.mark.time) > options.audit_age;
        if anyway || too_old() || bytes() > options.audit_bytes {
            return self.kept.pop_front();
        }
        None
    }

    /// The segment of that number, if it is still there.
    pub(super) fn kept(&mut self, number: u64) -> Option<&mut Kept> {
        self.kept.iter_mut().find(|kept| kept.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_finds_the_last_frame_noted_before_an_lsn() {
        let mut index = Index::default();
        assert_eq!(index.find(Lsn(9)), None);
        for lsn in 1..=100 {
            index.note(Lsn(lsn), 4096 + lsn * 50_000);
        }
        assert_eq!(index.find(Lsn(5)), None);
        assert_eq!(index.find(Lsn(6)), Some((Lsn(6), 304_096)));
        assert_eq!(index.find(Lsn(11)), Some((Lsn(6), 304_096)));
        assert_eq!(index.find(Lsn(12)), Some((Lsn(12), 604_096)));
        assert_eq!(index.0.len(), 16);
    }
}
