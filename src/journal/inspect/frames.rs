//! Reading the frames of a segment: those that follow one another, and what still verifies behind a fault.

use super::super::cursor::{Cursor, Step};
use super::super::error::{Cause, JournalError};
use super::super::frame::{Entries, Head};
use super::super::recovery::TornTail;
use super::super::segment::{Header, file_name};
use super::{Inspector, Region};
use crate::model::record::Lsn;
use std::io;

/// Where the reading of frames ended.
pub(super) struct Ended {
    pub(super) offset: u64,
    pub(super) next: Lsn,
    /// Why it should not have ended there.
    pub(super) fault: Option<String>,
}

impl Inspector<'_> {
    /// Reads frames from an offset, at which that LSN is next. `until` is the segment that follows and the LSN
    /// with which its header says that this one ended.
    pub(super) fn frames(
        &mut self,
        header: &Header,
        (offset, next): (u64, Lsn),
        until: Option<(u64, Lsn)>,
        newest: bool,
    ) -> Result<Ended, JournalError> {
        let mut cursor = self.cursor(header, offset)?;
        self.found.plan.meet(header.mark_before);
        let mut next = next;
        loop {
            let offset = cursor.offset();
            let ended = |fault| Ended {
                offset,
                next,
                fault,
            };
            let step = cursor
                .step()
                .map_err(|error| self.failed(header.number, error))?;
            let (Step::Frame(head) | Step::End(head)) = step else {
                return self.at_bad(header, cursor, next, until, newest);
            };
            if head.first_lsn != next {
                let fault = format!("LSN {} follows, and {} should", head.first_lsn.0, next.0);
                return Ok(ended(Some(fault)));
            }
            if head.is_end() {
                self.found.plan.meet(head.mark);
                let after = Ended {
                    offset: cursor.offset(),
                    next,
                    fault: None,
                };
                return Ok(joined(after, offset, until));
            }
            if let Err(fault) = self.entries(&head, cursor.frame(), None) {
                return Ok(ended(Some(fault)));
            }
            self.found.frames += 1;
            self.found.entries += u64::from(head.count);
            self.found.plan.meet(head.mark);
            next = head.next_lsn();
        }
    }

    /// Nothing verifies at the cursor: in the newest segment that is the end, unless a frame follows that does.
    fn at_bad(
        &mut self,
        header: &Header,
        mut cursor: Cursor,
        next: Lsn,
        until: Option<(u64, Lsn)>,
        newest: bool,
    ) -> Result<Ended, JournalError> {
        let offset = cursor.offset();
        let mut ended = Ended {
            offset,
            next,
            fault: None,
        };
        if !newest {
            return Ok(joined(ended, offset, until));
        }
        let failed = |error| self.failed(header.number, error);
        if let Some(later) = cursor.later_frame(next).map_err(failed)? {
            ended.fault = Some(format!(
                "no frame of LSN {} verifies there, and one at offset {later} does",
                next.0
            ));
            return Ok(ended);
        }
        let bytes = cursor.torn_len(next).map_err(failed)?;
        if bytes > 0 {
            self.found.torn = Some(TornTail {
                path: self.disk.path().join(file_name(header.number)),
                offset,
                bytes,
            });
        }
        Ok(ended)
    }

    /// Hands out the entries of a frame; why one of them is none.
    fn entries(&mut self, head: &Head, wire: &[u8], region: Option<Region>) -> Result<(), String> {
        for (lsn, bytes) in Entries::of(head.first_lsn, wire) {
            let covered = self.checkpoint.is_none_or(|checkpoint| lsn <= checkpoint);
            let region = region.unwrap_or(if covered {
                Region::Covered
            } else {
                Region::Ahead
            });
            (self.visit)(region, lsn, bytes)
                .map_err(|reason| format!("entry {} cannot be read: {reason}", lsn.0))?;
        }
        Ok(())
    }

    /// Where frames go on behind a fault so that no entry after the checkpoint is left out.
    pub(super) fn resume(
        &mut self,
        header: &Header,
        end: &Ended,
        checkpoint: Lsn,
    ) -> Result<Option<(u64, Lsn)>, JournalError> {
        if end.fault.is_none() || end.next > checkpoint {
            return Ok(None);
        }
        let failed = |error| self.failed(header.number, error);
        let Some(later) = self
            .cursor(header, end.offset)?
            .later_frame(end.next)
            .map_err(failed)?
        else {
            return Ok(None);
        };
        let mut cursor = self.cursor(header, later)?;
        let (Step::Frame(head) | Step::End(head)) = cursor.step().map_err(failed)? else {
            return Ok(None);
        };
        let follows = head.first_lsn.0 <= checkpoint.0.saturating_add(1);
        Ok(follows.then_some((later, head.first_lsn)))
    }

    /// Hands out what verifies behind a fault; the number of its entries.
    pub(super) fn salvage(
        &mut self,
        header: &Header,
        (offset, next): (u64, Lsn),
    ) -> Result<u64, JournalError> {
        let mut cursor = self.cursor(header, offset)?;
        let mut expected = next;
        let mut entries = 0;
        self.found.plan.meet(header.mark_before);
        loop {
            let failed = |error| self.failed(header.number, error);
            match cursor.step().map_err(failed)? {
                Step::Frame(head) => {
                    // What cannot be read is dropped all the same.
                    let _ = self.entries(&head, cursor.frame(), Some(Region::Dropped));
                    entries += u64::from(head.count);
                    expected = head.next_lsn();
                    let last = Lsn(expected.0.saturating_sub(1));
                    self.found.plan.top = self.found.plan.top.max(last);
                    self.found.plan.meet(head.mark);
                }
                Step::End(_) => return Ok(entries),
                Step::Bad => match cursor.later_frame(expected).map_err(failed)? {
                    Some(later) => cursor = self.cursor(header, later)?,
                    None => return Ok(entries),
                },
            }
        }
    }

    fn cursor(&self, header: &Header, offset: u64) -> Result<Cursor, JournalError> {
        let name = file_name(header.number);
        let file = self
            .disk
            .open(&name)
            .map_err(|error| self.failed(header.number, error))?;
        Ok(Cursor::new(
            file,
            self.store_id,
            header.number,
            header.size,
            offset,
        ))
    }

    fn failed(&self, number: u64, error: io::Error) -> JournalError {
        let path = self.disk.path().join(file_name(number));
        JournalError::new("read segment", path, Cause::Io(error))
    }
}

/// Whether a segment ended as the next one says.
fn joined(ended: Ended, offset: u64, until: Option<(u64, Lsn)>) -> Ended {
    let last = ended.next.0.saturating_sub(1);
    match until {
        Some((number, before)) if before.0 != last => Ended {
            offset,
            fault: Some(format!(
                "no frame of LSN {} verifies there, and the journal went on to {} before segment {number}",
                ended.next.0, before.0
            )),
            ..ended
        },
        _ => ended,
    }
}
