//! Appends frames: one write and one sync each, after which the frame is durable.

use super::Mark;
use super::disk::DiskFile;
use super::error::{Cause, JournalError};
use super::frame::{Frame, HEAD_LEN, max_frame};
use super::highest::Highest;
use super::room::usable;
use super::segment::{
    HEADER_LEN, Header, MAX_SEGMENT_SIZE, MIN_SEGMENT_SIZE, Place, file_name, segment_size,
};
use super::shared::{End, Index, Kept, Shared};
use crate::model::record::Lsn;
use crate::model::time::Span;
use std::sync::Arc;

/// How a journal is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a new segment: a multiple of 4096, from [`MIN_SEGMENT_SIZE`] to [`MAX_SEGMENT_SIZE`].
    pub segment_size: u64,
    /// Spares to have ready.
    pub spares: usize,
    /// How long what is in the checkpoint stays readable, by engine time.
    pub audit_age: Span,
    /// How many bytes of whole segments of it stay.
    pub audit_bytes: u64,
}

impl Options {
    /// The defaults on a file system of so many bytes: 2 spares, and of the audit trail 30 days, 1 GiB or an
    /// eighth of the file system, whichever is least.
    #[must_use]
    pub fn for_file_system(total: u64) -> Options {
        Options {
            segment_size: segment_size(total),
            spares: 2,
            audit_age: Span::from_secs(30 * 24 * 3600),
            audit_bytes: (total / 8).min(1 << 30),
        }
    }

    /// These with segments that hold frames of so many bytes, where the usual ones do not and a sixteenth of the file
    /// system of `total` bytes does.
    #[must_use]
    pub fn holding(mut self, frame: u64, total: u64) -> Options {
        let needed = frame.saturating_mul(4).checked_next_multiple_of(1 << 20);
        if let Some(needed) = needed
            && (self.segment_size..=MAX_SEGMENT_SIZE.min(total / 16)).contains(&needed)
        {
            self.segment_size = needed;
        }
        self
    }

    /// Why these cannot be worked with, if so.
    pub(super) fn fault(&self) -> Option<String> {
        let size = self.segment_size;
        let fits =
            (MIN_SEGMENT_SIZE..=MAX_SEGMENT_SIZE).contains(&size) && size.is_multiple_of(4096);
        if fits {
            return None;
        }
        Some(format!(
            "a segment size of {size} bytes is not a multiple of 4096 from {MIN_SEGMENT_SIZE} to \
             {MAX_SEGMENT_SIZE}"
        ))
    }
}

/// The one that appends.
pub struct Writer {
    shared: Arc<Shared>,
    highest: Highest,
    /// The segment that is being written.
    number: u64,
    file: Arc<dyn DiskFile>,
    place: Place,
    offset: u64,
    /// Up to here the segment is cleared.
    cleared: u64,
    next_lsn: Lsn,
    mark: Mark,
}

impl Writer {
    /// Appends a frame. On success it is durable.
    ///
    /// # Errors
    /// Nothing was written, and the next append may succeed: `TooLarge` for a frame above
    /// [`max_frame`] of the segment size, `Full` where it needs a spare and there is none, `Misuse` for a frame
    /// that does not go on at the next LSN. Fatal: `Io` for any failed write or sync, and `Poisoned` for every
    /// append after one; what was being written is then in doubt until the next start.
    pub fn append(&mut self, frame: &mut Frame) -> Result<(), JournalError> {
        self.check(frame)?;
        let len = frame.len() as u64;
        if len > self.remaining() {
            self.rotate()?;
        }
        self.clear(len)?;
        let wire = frame.seal(&self.place, self.offset);
        let written = self.file.write_at(self.offset, wire);
        self.sync_after(written, "append to segment")?;
        let (first_lsn, offset) = (frame.first_lsn(), self.offset);
        self.offset += len;
        self.next_lsn = frame.next_lsn();
        self.mark = frame.mark();
        let (remaining, number) = (self.remaining(), self.number);
        self.shared.with(|state| {
            state.remaining = remaining;
            state.durable = Lsn(self.next_lsn.0.saturating_sub(1));
            state.now = state.now.max(self.mark.time);
            if let Some(kept) = state.kept(number) {
                kept.index.note(first_lsn, offset);
            }
        });
        Ok(())
    }

    /// The LSN with which the next frame must begin.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// The most bytes a frame may have, head included.
    #[must_use]
    pub fn max_frame(&self) -> u64 {
        max_frame(self.shared.options.segment_size)
    }

    /// Closes the journal with an end frame, so that the next start knows where it ended even if the last frame
    /// is damaged. Not closing it loses nothing else.
    ///
    /// # Errors
    /// `Io` for a failed write or sync, `Poisoned` after one.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.shared.check("close the journal in")?;
        self.write_end()?;
        self.shared.room.end();
        Ok(())
    }

    /// Begins the first segment of this run in a spare, which there must be.
    pub(super) fn begin(
        shared: Arc<Shared>,
        highest: Highest,
        next_lsn: Lsn,
        end: End,
    ) -> Result<Writer, JournalError> {
        let mut highest = highest;
        let begun = Begun::new(&shared, &mut highest, next_lsn, end)?;
        let Begun {
            number,
            file,
            place,
        } = begun;
        let offset = HEADER_LEN as u64;
        Ok(Writer {
            shared,
            highest,
            number,
            file,
            place,
            offset,
            cleared: offset,
            next_lsn,
            mark: end.mark,
        })
    }

    /// Goes on in the newest segment: its number, where its last frame ended, and how many bytes behind that an
    /// unfinished one has.
    pub(super) fn go_on(
        shared: Arc<Shared>,
        highest: Highest,
        next_lsn: Lsn,
        mark: Mark,
        (number, offset, torn): (u64, u64, u64),
    ) -> Result<Writer, JournalError> {
        let name = file_name(number);
        let file = shared.disk.open_to_write(&name);
        let file = file.map_err(|error| shared.fatal("go on in segment", &name, error))?;
        let place = Place::new(&shared.store_id, number);
        let mut writer = Writer {
            shared,
            highest,
            number,
            file,
            place,
            offset,
            cleared: offset,
            next_lsn,
            mark,
        };
        // The end frame of a clean stop has no more than a head.
        writer.clear(torn.max(HEAD_LEN as u64))?;
        let remaining = writer.remaining();
        writer.shared.with(|state| {
            state.remaining = remaining;
            if let Some(newest) = state.kept.back_mut() {
                newest.end = None;
            }
        });
        Ok(writer)
    }

    /// Bytes left for frames; the end frame always fits behind them.
    fn remaining(&self) -> u64 {
        let end = self
            .shared
            .options
            .segment_size
            .saturating_sub(HEAD_LEN as u64);
        end.saturating_sub(self.offset)
    }

    fn check(&self, frame: &Frame) -> Result<(), JournalError> {
        const OPERATION: &str = "append to segment";
        self.shared.check(OPERATION)?;
        let failed =
            |cause| JournalError::new(OPERATION, self.shared.path(&file_name(self.number)), cause);
        let (len, max) = (frame.len() as u64, self.max_frame());
        if len > max {
            return Err(failed(Cause::TooLarge { len, max }));
        }
        if frame.first_lsn() != self.next_lsn {
            return Err(failed(Cause::Misuse(format!(
                "a frame of LSN {} where {} is next",
                frame.first_lsn().0,
                self.next_lsn.0
            ))));
        }
        Ok(())
    }

    /// Goes on in a fresh segment.
    fn rotate(&mut self) -> Result<(), JournalError> {
        if self.shared.with(|state| state.spares.is_empty()) {
            return Err(no_spare(&self.shared));
        }
        self.write_end()?;
        let end = End {
            last_lsn: Lsn(self.next_lsn.0.saturating_sub(1)),
            mark: self.mark,
        };
        let begun = Begun::new(&self.shared, &mut self.highest, self.next_lsn, end)?;
        Begun {
            number: self.number,
            file: self.file,
            place: self.place,
        } = begun;
        self.offset = HEADER_LEN as u64;
        self.cleared = self.offset;
        Ok(())
    }

    /// Sees to it that the next `len` bytes are zeros on the disk before a frame goes there.
    ///
    /// A file system keeps space that was only allocated as never written, and notes with the first write that it is:
    /// one more write of its own for each sync, and one more thing that can fail, see [`confirm`](crate::sync::confirm). A frame
    /// that overwrites zeros needs neither. It also spares a read of each page of a recycled segment that is in
    /// no cache any more.
    fn clear(&mut self, len: u64) -> Result<(), JournalError> {
        static ZEROS: [u8; 65_536] = [0; 65_536];
        let end = self.offset.saturating_add(len);
        if end <= self.cleared {
            return Ok(());
        }
        let size = self.shared.options.segment_size;
        // So much at once that it comes up once for some thousand claims, and is over in a moment.
        let to = end.next_multiple_of((size / 64).next_multiple_of(4096));
        let to = to.min(size);
        let mut written = Ok(());
        while self.cleared < to && written.is_ok() {
            let left = usize::try_from(to - self.cleared).unwrap_or(usize::MAX);
            let part = ZEROS.get(..left).unwrap_or(&ZEROS);
            written = self.file.write_at(self.cleared, part);
            self.cleared += part.len() as u64;
        }
        self.sync_after(written, "clear segment")?;
        let confirmed = self.shared.disk.confirm();
        confirmed.map_err(|error| self.fatal("clear segment", error))
    }

    fn write_end(&mut self) -> Result<(), JournalError> {
        self.clear(HEAD_LEN as u64)?;
        let wire = Frame::end(self.next_lsn, self.mark, &self.place, self.offset);
        let written = self.file.write_at(self.offset, &wire);
        self.sync_after(written, "close segment")
    }

    fn sync_after(
        &self,
        written: std::io::Result<()>,
        operation: &'static str,
    ) -> Result<(), JournalError> {
        written
            .and_then(|()| self.file.sync_data())
            .map_err(|error| self.fatal(operation, error))
    }

    fn fatal(&self, operation: &'static str, error: std::io::Error) -> JournalError {
        self.shared.fatal(operation, &file_name(self.number), error)
    }
}

/// A writer that goes away takes its room with it.
impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.room.end();
    }
}

/// A segment that was just begun.
struct Begun {
    number: u64,
    file: Arc<dyn DiskFile>,
    place: Place,
}

impl Begun {
    /// Makes a spare the next segment: header, name, number, each durable before the next, and all before the
    /// first frame. So a crash leaves at most one segment above the highest recorded, without frames.
    fn new(
        shared: &Shared,
        highest: &mut Highest,
        next_lsn: Lsn,
        end: End,
    ) -> Result<Begun, JournalError> {
        const OPERATION: &str = "begin segment";
        let Some(spare) = shared.with(|state| state.spares.pop_front()) else {
            return Err(no_spare(shared));
        };
        let number = highest.number.saturating_add(1);
        let size = shared.options.segment_size;
        let header = Header {
            store_id: shared.store_id,
            number,
            size,
            first_lsn: next_lsn,
            lsn_before: end.last_lsn,
            mark_before: end.mark,
        };
        let name = file_name(number);
        let disk = &*shared.disk;
        spare
            .file
            .write_at(0, &header.encode())
            .and_then(|()| spare.file.sync_data())
            .and_then(|()| disk.rename(&spare.name, &name))
            .and_then(|()| disk.sync_dir())
            .map_err(|error| shared.fatal(OPERATION, &name, error))?;
        highest
            .record(disk, &shared.store_id, number)
            .inspect_err(|_| shared.room.end())?;
        shared.with(|state| {
            if let Some(before) = state.kept.back_mut() {
                before.end = Some(end);
            }
            let index = Index::default();
            state.kept.push_back(Kept {
                number,
                size,
                first_lsn: next_lsn,
                end: None,
                index,
            });
            state.remaining = usable(size);
        });
        Ok(Begun {
            number,
            file: spare.file,
            place: Place::new(&shared.store_id, number),
        })
    }
}

fn no_spare(shared: &Shared) -> JournalError {
    let path = shared.disk.path().to_path_buf();
    JournalError::new("begin a segment in", path, Cause::Full)
}
