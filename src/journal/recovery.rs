//! Opens a journal: finds its end, refuses damage, hands out what the checkpoint lacks, and then the writer.

use super::Mark;
use super::cursor::{Cursor, Step};
use super::disk::{Disk, DiskFile};
use super::error::{Cause, JournalError};
use super::frame::{Frame, Head};
use super::highest::{HIGHEST, Highest};
use super::prepare::Preparer;
use super::room::Room;
use super::segment::{self, HEADER_LEN, Header, StoreId, drops_from_segment, file_name, number_of};
use super::shared::{End, Index, Kept, Shared};
use super::writer::{Options, Writer};
use crate::model::record::Lsn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

const OPEN: &str = "open the journal in";
const READ: &str = "read the journal from segment";

/// What was cut off the journal's end: a frame that a crash left unfinished. It was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment's file.
    pub path: PathBuf,
    /// Where the frame begins.
    pub offset: u64,
    /// The frame's length.
    pub bytes: u64,
}

/// A journal that is being read at start. Nothing on disk is changed before [`Recovery::into_writer`]; the
/// newest segment is synced, so that no more is read than a power cut right after would leave.
pub struct Recovery {
    disk: Arc<dyn Disk>,
    store_id: StoreId,
    checkpoint: Lsn,
    highest: u64,
    /// All segments, oldest first; the walk begins at `at`.
    segments: Vec<Found>,
    at: usize,
    cursor: Cursor,
    /// The LSN at the cursor.
    next: Lsn,
    mark: Mark,
    torn: Option<TornTail>,
    /// Where the last frame of the newest segment ended, once that is reached.
    end: Option<u64>,
}

/// A segment and its header.
struct Found {
    header: Header,
    index: Index,
}

/// Opens the journal of a store for reading what is after its checkpoint.
///
/// # Errors
/// `Missing` for any segment from the one that holds the LSN after the checkpoint to the highest, and for the
/// record of the highest; `Foreign` for another store's file; `Newer`; `Damage` where headers, names or
/// numbers do not fit together; `Io`.
pub fn open(
    disk: Arc<dyn Disk>,
    store_id: StoreId,
    checkpoint: Lsn,
) -> Result<Recovery, JournalError> {
    let highest = Highest::open(&*disk, Some(&store_id), false)?.number;
    let numbers = list(&*disk)?;
    check_highest(&*disk, &numbers, highest)?;
    let mut opened = Vec::new();
    let mut start = None;
    // From the newest down, so that it is known which must be there.
    for number in numbers.iter().rev() {
        let (header, file) = segment::open(&*disk, *number, Some(&store_id))?;
        if start.is_none() && header.first_lsn.0 <= checkpoint.0.saturating_add(1) {
            start = Some((*number, Arc::clone(&file)));
        }
        if opened.is_empty() {
            file.sync_data().map_err(|error| {
                let path = disk.path().join(file_name(*number));
                JournalError::new("sync segment", path, Cause::Io(error))
            })?;
        }
        opened.push(Found {
            header,
            index: Index::default(),
        });
    }
    opened.reverse();
    let lowest = opened.first().map_or(1, |found| found.header.number);
    let Some((number, file)) = start else {
        return Err(missing(&*disk, lowest.saturating_sub(1)));
    };
    check_no_hole(&*disk, &opened, number)?;
    let at = opened
        .iter()
        .position(|found| found.header.number == number)
        .unwrap_or(0);
    let header = opened.get(at).map(|found| found.header);
    let Some(header) = header else {
        return Err(missing(&*disk, number));
    };
    Ok(Recovery {
        disk,
        store_id,
        checkpoint,
        highest,
        segments: opened,
        at,
        cursor: cursor(file, &header),
        next: header.first_lsn,
        mark: header.mark_before,
        torn: None,
        end: None,
    })
}

impl Recovery {
    /// The next frame with an entry that the checkpoint lacks, whole; `None` at the end of the journal.
    ///
    /// # Errors
    /// `Damage` for anything but an unfinished last frame; `Io`.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, JournalError> {
        while self.end.is_none() {
            let offset = self.cursor.offset();
            let step = self.cursor.step().map_err(|error| self.failed(error))?;
            match step {
                Step::Frame(head) => {
                    self.check_lsn(&head, offset)?;
                    self.next = head.next_lsn();
                    self.mark = head.mark;
                    if let Some(found) = self.segments.get_mut(self.at) {
                        found.index.note(head.first_lsn, offset);
                    }
                    if head.count > 0 && self.next.0 > self.checkpoint.0.saturating_add(1) {
                        return Ok(Some(Frame::from_wire(&head, self.cursor.frame())));
                    }
                }
                Step::End(head) => {
                    self.check_lsn(&head, offset)?;
                    self.next_segment(offset)?;
                }
                Step::Bad => {
                    if self.at + 1 == self.segments.len() {
                        self.check_tail(offset)?;
                    }
                    self.next_segment(offset)?;
                }
            }
        }
        Ok(None)
    }

    /// The last LSN in the journal, as far as it was read.
    #[must_use]
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.next.0.saturating_sub(1))
    }

    /// The clocks of the last frame, as far as the journal was read; `None` before the first frame of a store.
    #[must_use]
    pub fn last_mark(&self) -> Option<Mark> {
        Some(self.mark).filter(|mark| *mark != Mark::default())
    }

    /// What was cut off the end, once that is reached.
    #[must_use]
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// Begins a fresh segment at `next_lsn`, once the journal was read to its end and the checkpoint covers
    /// whatever `next_lsn` leaves out. The segment counts as released up to the checkpoint given to [`open`]
    /// until [`Preparer::release`] says more.
    ///
    /// # Errors
    /// `Full` where there is neither a spare nor space nor a segment that can be given up: free some, and open
    /// again; all is as before. `Misuse` before the end, for an LSN that was used, and for unusable options.
    /// `Io`, fatal.
    pub fn into_writer(
        self,
        next_lsn: Lsn,
        options: Options,
    ) -> Result<(Writer, Preparer, Arc<Room>), JournalError> {
        let (shared, highest, end) = self.ready(next_lsn, options)?;
        start(shared, highest, next_lsn, end)
    }

    /// Goes on in the newest segment where a disk has no space for a fresh one: what lies behind its last frame is
    /// overwritten with zeros that are durable before the first new frame, so that nothing of an old tail is left to
    /// be mistaken.
    ///
    /// # Errors
    /// `Full` where that segment cannot be gone on in: `next_lsn` leaves LSNs out, or segments have another size
    /// now. Else as [`Recovery::into_writer`].
    pub fn into_writer_in_place(
        self,
        next_lsn: Lsn,
        options: Options,
    ) -> Result<(Writer, Preparer, Arc<Room>), JournalError> {
        let newest = self.segments.last().map(|found| found.header);
        let same = newest.filter(|header| header.size == options.segment_size);
        let (Some(header), Some(offset), true) = (same, self.end, next_lsn == self.next) else {
            let path = self.disk.path().to_path_buf();
            return Err(JournalError::new("begin a segment in", path, Cause::Full));
        };
        let torn = self.torn.as_ref().map_or(0, |torn| torn.bytes);
        let (shared, highest, end) = self.ready(next_lsn, options)?;
        let preparer = Preparer::new(Arc::clone(&shared));
        preparer.adopt()?;
        let room = Arc::clone(&shared.room);
        let place = (header.number, offset, torn);
        let writer = Writer::go_on(shared, highest, next_lsn, end.mark, place)?;
        Ok((writer, preparer, room))
    }

    /// What a writer is made of.
    fn ready(
        self,
        next_lsn: Lsn,
        options: Options,
    ) -> Result<(Arc<Shared>, Highest, End), JournalError> {
        if let Some(fault) = options.fault() {
            return Err(misuse(&*self.disk, fault));
        }
        if self.end.is_none() {
            return Err(misuse(
                &*self.disk,
                "the journal was not read to its end".into(),
            ));
        }
        if next_lsn < self.next {
            let fault = format!("LSN {} is in the journal already", next_lsn.0);
            return Err(misuse(&*self.disk, fault));
        }
        let mut highest = Highest::open(&*self.disk, Some(&self.store_id), true)?;
        let newest = self.segments.last().map_or(0, |found| found.header.number);
        if newest > highest.number {
            highest.record(&*self.disk, &self.store_id, newest)?;
        }
        let end = End {
            last_lsn: self.last_lsn(),
            mark: self.mark,
        };
        let kept = kept(self.segments, end);
        let shared = Shared::new(
            self.disk,
            self.store_id,
            options,
            kept.into(),
            self.checkpoint,
        );
        Ok((Arc::new(shared), highest, end))
    }

    /// The frame must go on where the one before it ended, and no frame may be in a segment that is not
    /// recorded: the record comes first.
    fn check_lsn(&self, head: &Head, offset: u64) -> Result<(), JournalError> {
        if head.first_lsn != self.next {
            let reason = format!(
                "LSN {} follows, and {} should",
                head.first_lsn.0, self.next.0
            );
            return Err(self.damage(offset, reason));
        }
        if self.number() > self.highest {
            return Err(wrong_highest(&*self.disk, self.highest, self.number()));
        }
        Ok(())
    }

    /// In the newest segment nothing verifies at `offset`. That is the end, unless a frame follows that does:
    /// it was written only after the one before was durable.
    fn check_tail(&mut self, offset: u64) -> Result<(), JournalError> {
        let later = self
            .cursor
            .later_frame(self.next)
            .map_err(|error| self.failed(error))?;
        if let Some(later) = later {
            let reason = format!(
                "no frame of LSN {} verifies there, and one at offset {later} does",
                self.next.0
            );
            return Err(self.damage(offset, reason));
        }
        let bytes = self
            .cursor
            .torn_len(self.next)
            .map_err(|error| self.failed(error))?;
        if bytes > 0 {
            let path = self.disk.path().join(file_name(self.number()));
            self.torn = Some(TornTail {
                path,
                offset,
                bytes,
            });
        }
        Ok(())
    }

    /// The segment ended at `offset`. The next one's header says whether it should have.
    fn next_segment(&mut self, offset: u64) -> Result<(), JournalError> {
        let Some(following) = self.segments.get(self.at + 1).map(|found| found.header) else {
            if self.last_lsn() < self.checkpoint {
                let reason = format!(
                    "the journal ends with LSN {}, and the checkpoint is at {}",
                    self.last_lsn().0,
                    self.checkpoint.0
                );
                return Err(self.damage(offset, reason));
            }
            self.end = Some(offset);
            return Ok(());
        };
        if following.lsn_before != self.last_lsn() {
            let reason = format!(
                "no frame of LSN {} verifies there, and the journal went on to {} before segment {}",
                self.next.0, following.lsn_before.0, following.number
            );
            return Err(self.damage(offset, reason));
        }
        if following.first_lsn > self.next && following.first_lsn.0 - 1 > self.checkpoint.0 {
            let reason = format!(
                "LSNs {} to {} were left out as in the checkpoint, which is at {}",
                self.next.0,
                following.first_lsn.0 - 1,
                self.checkpoint.0
            );
            return Err(self.damage(offset, reason));
        }
        let (header, file) = segment::open(&*self.disk, following.number, Some(&self.store_id))?;
        self.cursor = cursor(file, &header);
        self.at += 1;
        self.next = header.first_lsn;
        Ok(())
    }

    fn number(&self) -> u64 {
        self.segments
            .get(self.at)
            .map_or(0, |found| found.header.number)
    }

    fn damage(&self, offset: u64, reason: String) -> JournalError {
        let newest = self.segments.last().map_or(0, |found| found.header.number);
        let after = match newest - self.number().min(newest) {
            0 => String::new(),
            1 => format!(" and segment {newest}"),
            _ => format!(" and segments {} to {newest}", self.number() + 1),
        };
        let drops = format!(
            "every entry from LSN {} on: segment {} from offset {offset} on{after}",
            self.next.0,
            self.number()
        );
        let path = self.disk.path().join(file_name(self.number()));
        JournalError::new(
            READ,
            path,
            Cause::Damage {
                offset,
                reason,
                drops,
            },
        )
    }

    fn failed(&self, error: io::Error) -> JournalError {
        JournalError::new(
            READ,
            self.disk.path().join(file_name(self.number())),
            Cause::Io(error),
        )
    }
}

/// The numbers of all segments, ascending.
pub(super) fn list(disk: &dyn Disk) -> Result<Vec<u64>, JournalError> {
    let names = disk
        .list()
        .map_err(|error| JournalError::io("list", disk.path().to_path_buf(), error))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The newest segment is the highest recorded, or the one after it if a crash came in between.
fn check_highest(disk: &dyn Disk, numbers: &[u64], highest: u64) -> Result<(), JournalError> {
    match numbers.last() {
        Some(newest) if *newest < highest => Err(missing(disk, highest)),
        Some(newest) if *newest > highest.saturating_add(1) => {
            Err(wrong_highest(disk, highest, *newest))
        }
        Some(_) => Ok(()),
        None => Err(missing(disk, highest.max(1))),
    }
}

/// From the segment where the walk begins to the newest, all must be there.
fn check_no_hole(disk: &dyn Disk, found: &[Found], start: u64) -> Result<(), JournalError> {
    let mut expected = start;
    for number in found
        .iter()
        .map(|found| found.header.number)
        .filter(|number| *number >= start)
    {
        if number != expected {
            return Err(missing(disk, expected));
        }
        expected = number.saturating_add(1);
    }
    Ok(())
}

/// How each segment ended follows from the header of the one after it.
fn kept(segments: Vec<Found>, end: End) -> Vec<Kept> {
    let mut end = end;
    let mut kept: Vec<Kept> = segments
        .into_iter()
        .rev()
        .map(|Found { header, index }| {
            let this = Kept {
                number: header.number,
                size: header.size,
                first_lsn: header.first_lsn,
                end: Some(end),
                index,
            };
            end = End {
                last_lsn: header.lsn_before,
                mark: header.mark_before,
            };
            this
        })
        .collect();
    kept.reverse();
    kept
}

/// The writer in a fresh segment, and what goes with it.
pub(super) fn start(
    shared: Arc<Shared>,
    highest: Highest,
    next_lsn: Lsn,
    end: End,
) -> Result<(Writer, Preparer, Arc<Room>), JournalError> {
    let preparer = Preparer::new(Arc::clone(&shared));
    preparer.adopt()?;
    if shared.room.spares() == 0 {
        preparer.prepare()?;
    }
    let room = Arc::clone(&shared.room);
    let writer = Writer::begin(shared, highest, next_lsn, end)?;
    Ok((writer, preparer, room))
}

pub(super) fn cursor(file: Arc<dyn DiskFile>, header: &Header) -> Cursor {
    Cursor::new(
        file,
        &header.store_id,
        header.number,
        header.size,
        HEADER_LEN as u64,
    )
}

fn missing(disk: &dyn Disk, number: u64) -> JournalError {
    let cause = Cause::Missing {
        drops: drops_from_segment(number),
    };
    JournalError::new(OPEN, disk.path().join(file_name(number)), cause)
}

fn wrong_highest(disk: &dyn Disk, highest: u64, found: u64) -> JournalError {
    let reason =
        format!("the highest segment recorded is {highest}, and segment {found} is in use");
    let drops = "no entry: it would record the highest segment it finds".into();
    JournalError::new(
        OPEN,
        disk.path().join(HIGHEST),
        Cause::Damage {
            offset: 0,
            reason,
            drops,
        },
    )
}

pub(super) fn misuse(disk: &dyn Disk, fault: String) -> JournalError {
    JournalError::new(OPEN, disk.path().to_path_buf(), Cause::Misuse(fault))
}
