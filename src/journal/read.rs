//! The audit trail: reads durable frames again, also while the writer goes on.

use super::Mark;
use super::cursor::{Cursor, Step};
use super::error::{Cause, JournalError};
use super::frame::Entries;
use super::segment::{self, HEADER_LEN, file_name};
use super::shared::{STRIDE, Shared};
use crate::model::record::Lsn;
use std::io;
use std::sync::Arc;

/// Where readings begin. Clones are handles of the same trail.
#[derive(Clone)]
pub struct Trail {
    shared: Arc<Shared>,
}

impl Trail {
    pub(super) fn new(shared: Arc<Shared>) -> Trail {
        Trail { shared }
    }

    /// The first LSN still kept, or the next one where there is none.
    #[must_use]
    pub fn oldest(&self) -> Lsn {
        self.shared.with(|state| {
            state
                .kept
                .front()
                .map_or(Lsn(state.durable.0.saturating_add(1)), |kept| {
                    kept.first_lsn
                })
        })
    }

    /// Bytes of the segments that are kept, whole files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let sizes = |state: &mut super::shared::State| {
            let sizes = state.kept.iter().map(|kept| kept.size);
            sizes.fold(0, u64::saturating_add)
        };
        self.shared.with(sizes)
    }

    /// The last LSN that is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.shared.with(|state| state.durable)
    }

    /// Reads the entries after `after`, up to and with `through` or the last durable one, whichever is first.
    ///
    /// # Errors
    /// `Gone` where the entry after `after` is no longer kept; `Io`, `Damage`, `Foreign` and `Newer` of the
    /// segment that holds it.
    pub fn read(&self, after: Lsn, through: Lsn) -> Result<Reader, JournalError> {
        let first = Lsn(after.0.saturating_add(1));
        let found = self.shared.with(|state| {
            let held = state
                .kept
                .iter()
                .rev()
                .find(|kept| kept.first_lsn <= first)?;
            let indexed = held.index.find(first);
            Some((
                held.number,
                indexed.unwrap_or((held.first_lsn, HEADER_LEN as u64)),
            ))
        });
        let Some((number, (next, offset))) = found else {
            return Err(gone(&self.shared));
        };
        let cursor = open(&self.shared, number, offset)?;
        let mut reader = Reader {
            shared: Arc::clone(&self.shared),
            after,
            through: Lsn(0),
            number,
            next,
            cursor,
            noted: 0,
        };
        reader.extend(through);
        Ok(reader)
    }
}

/// A reading of the trail. Memory: one frame at a time.
pub struct Reader {
    shared: Arc<Shared>,
    after: Lsn,
    through: Lsn,
    number: u64,
    /// The LSN at the cursor.
    next: Lsn,
    cursor: Cursor,
    /// The offset up to which this reader has looked after the index.
    noted: u64,
}

impl Reader {
    /// Reads on up to `through`, or the last durable entry, whichever is first: how a trail is followed. Never
    /// takes back.
    pub fn extend(&mut self, through: Lsn) {
        let durable = self.shared.with(|state| state.durable);
        let through = through.min(durable);
        if through > self.through {
            self.through = through;
            self.cursor.forget();
        }
    }

    /// The entries of the next frame that has any to read; `None` when all are read, until the reading is
    /// extended.
    ///
    /// # Errors
    /// `Gone` where the trail was pruned meanwhile, `Io` where the system fails, `Damage` and `Missing` where
    /// what was durable cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, JournalError> {
        loop {
            if self.next > self.through {
                return Ok(None);
            }
            let offset = self.cursor.offset();
            let step = self.cursor.step().map_err(|error| self.failed(error))?;
            let head = match step {
                Step::Frame(head) if head.first_lsn == self.next => head,
                Step::Frame(_) | Step::End(_) | Step::Bad => {
                    self.next_segment(offset)?;
                    continue;
                }
            };
            self.next = head.next_lsn();
            if offset.saturating_sub(self.noted) >= STRIDE {
                self.noted = offset;
                self.shared.with(|state| {
                    if let Some(kept) = state.kept(self.number) {
                        kept.index.note(head.first_lsn, offset);
                    }
                });
            }
            if head.count > 0 && self.next.0 > self.after.0.saturating_add(1) {
                let entries = Entries::of(head.first_lsn, self.cursor.frame());
                let (after, through) = (self.after, self.through);
                return Ok(Some(Batch {
                    mark: head.mark,
                    entries,
                    after,
                    through,
                }));
            }
        }
    }

    /// Goes on in the next segment, if this one ended where the reading is.
    fn next_segment(&mut self, offset: u64) -> Result<(), JournalError> {
        enum There {
            Gone,
            Unread,
            Next(u64, Lsn),
            Hole,
        }
        let (number, next) = (self.number, self.next);
        let there = self.shared.with(|state| {
            let mut kept = state.kept.iter().skip_while(|kept| kept.number != number);
            let Some(this) = kept.next() else {
                return There::Gone;
            };
            if this
                .end
                .is_none_or(|end| end.last_lsn.0.saturating_add(1) != next.0)
            {
                return There::Unread;
            }
            match kept.next() {
                Some(following) if following.number == number.saturating_add(1) => {
                    There::Next(following.number, following.first_lsn)
                }
                _ => There::Hole,
            }
        });
        const OPERATION: &str = "read the audit trail from";
        let drops = || format!("the audit trail up to segment {number}");
        match there {
            There::Gone => Err(gone(&self.shared)),
            There::Unread => {
                let reason = format!("no frame of LSN {} verifies there", next.0);
                let cause = Cause::Damage {
                    offset,
                    reason,
                    drops: drops(),
                };
                Err(JournalError::new(
                    OPERATION,
                    self.shared.path(&file_name(number)),
                    cause,
                ))
            }
            There::Hole => {
                let name = file_name(number.saturating_add(1));
                let cause = Cause::Missing { drops: drops() };
                Err(JournalError::new(OPERATION, self.shared.path(&name), cause))
            }
            There::Next(number, first_lsn) => {
                self.cursor = open(&self.shared, number, HEADER_LEN as u64)?;
                self.number = number;
                self.next = first_lsn;
                self.noted = 0;
                Ok(())
            }
        }
    }

    fn failed(&self, error: io::Error) -> JournalError {
        let path = self.shared.path(&file_name(self.number));
        JournalError::new("read the audit trail from", path, Cause::Io(error))
    }
}

/// The entries of one frame, as far as they were asked for, with their LSNs.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    mark: Mark,
    entries: Entries<'a>,
    after: Lsn,
    through: Lsn,
}

impl Batch<'_> {
    /// The clocks when the frame was made.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = (Lsn, &'a [u8]);

    fn next(&mut self) -> Option<(Lsn, &'a [u8])> {
        let (after, through) = (self.after, self.through);
        self.entries
            .find(|(lsn, _)| *lsn > after)
            .filter(|(lsn, _)| *lsn <= through)
    }
}

/// Opens a segment that was kept a moment ago.
fn open(shared: &Arc<Shared>, number: u64, offset: u64) -> Result<Cursor, JournalError> {
    match segment::open(&*shared.disk, number, Some(&shared.store_id)) {
        Ok((header, file)) => Ok(Cursor::new(
            file,
            &shared.store_id,
            number,
            header.size,
            offset,
        )),
        // Pruned between the look at the list and now: whatever was found there says nothing.
        Err(_) if shared.with(|state| state.kept(number).is_none()) => Err(gone(shared)),
        Err(error) => Err(error),
    }
}

fn gone(shared: &Arc<Shared>) -> JournalError {
    let oldest = Trail::new(Arc::clone(shared)).oldest();
    let path = shared.disk.path().to_path_buf();
    JournalError::new("read the audit trail from", path, Cause::Gone { oldest })
}
