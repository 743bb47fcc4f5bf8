//! Makes spares ahead of the writer, and ends the audit trail where its limits say so.

use super::disk::{DiskFile, is_full};
use super::error::JournalError;
use super::read::Trail;
use super::segment::{file_name, is_unfinished, spare_name, spare_number_of, unfinished_name};
use super::shared::{Kept, Shared, Spare};
use crate::model::record::Lsn;
use crate::model::time::Timestamp;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Makes spares and gives segments up. For another thread than the writer's; may be shared by several.
pub struct Preparer {
    shared: Arc<Shared>,
    /// One at a time changes names.
    turn: Mutex<()>,
}

impl Preparer {
    pub(super) fn new(shared: Arc<Shared>) -> Preparer {
        Preparer {
            shared,
            turn: Mutex::new(()),
        }
    }

    /// Makes one spare: out of a segment beyond the limits of the audit trail, else of new space, else, since
    /// the trail goes before an answer is refused for space, out of the oldest segment that is in
    /// the checkpoint.
    ///
    /// To be called while [`Room::wants_spares`](super::room::Room::wants_spares).
    ///
    /// # Errors
    /// `Full` where there is no space and no such segment: nothing is lost and all goes on as before. Fatal:
    /// `Io` for any other failure, `Poisoned` after one; the writer is then poisoned too.
    pub fn prepare(&self) -> Result<(), JournalError> {
        let _turn = self.turn.lock();
        self.shared.check("make a spare segment in")?;
        while let Some(kept) = self.take_oldest(false) {
            if self.recycle_or_remove(&kept, true)? {
                return Ok(());
            }
        }
        loop {
            let full = match self.allocate() {
                Err(error) if error.is_full() => error,
                done => return done,
            };
            let Some(kept) = self.take_oldest(true) else {
                return Err(full);
            };
            if self.recycle_or_remove(&kept, true)? {
                return Ok(());
            }
        }
    }

    /// Makes one spare without new space, out of the oldest segment that is in the checkpoint, whatever the limits
    /// of the audit trail say. `false` if there is none of the right size; then some may have been removed.
    ///
    /// # Errors
    /// Fatal: `Io` for a failed rename, removal or sync, `Poisoned` after one.
    pub fn recycle(&self) -> Result<bool, JournalError> {
        let _turn = self.turn.lock();
        self.shared.check("recycle a segment in")?;
        while let Some(kept) = self.take_oldest(true) {
            if self.recycle_or_remove(&kept, true)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Everything up to this LSN is durable in the checkpoint: the segments before are kept for the audit trail
    /// alone.
    pub fn release(&self, through: Lsn) {
        self.shared
            .with(|state| state.released = state.released.max(through.min(state.durable)));
    }

    /// Ends the audit trail where its limits of age and size say so, oldest first. `now` is engine time.
    ///
    /// # Errors
    /// Fatal: `Io` for a failed rename, removal or sync, `Poisoned` after one.
    pub fn prune(&self, now: Timestamp) -> Result<(), JournalError> {
        let _turn = self.turn.lock();
        self.shared.check("prune the audit trail in")?;
        self.shared.with(|state| state.now = state.now.max(now));
        while let Some(kept) = self.take_oldest(false) {
            self.recycle_or_remove(&kept, self.shared.room.wants_spares())?;
        }
        Ok(())
    }

    /// Gives the space of the oldest segment that is in the checkpoint back to the file system, whatever the
    /// limits say: the audit trail goes before an answer is refused for space. The bytes; 0 if there is none.
    ///
    /// # Errors
    /// Fatal: `Io` for a failed removal or sync, `Poisoned` after one.
    pub fn make_space(&self) -> Result<u64, JournalError> {
        let _turn = self.turn.lock();
        self.shared.check("free space in")?;
        let Some(kept) = self.take_oldest(true) else {
            return Ok(0);
        };
        self.recycle_or_remove(&kept, false)?;
        Ok(kept.size)
    }

    /// The audit trail.
    #[must_use]
    pub fn trail(&self) -> Trail {
        Trail::new(Arc::clone(&self.shared))
    }

    /// Takes over the spares that an earlier run left whole, and removes what else it left.
    pub(super) fn adopt(&self) -> Result<(), JournalError> {
        const OPERATION: &str = "take over the spare segments in";
        let disk = &self.shared.disk;
        let io = |error| self.shared.fatal(OPERATION, "", error);
        // A rename that made a spare of a segment may not be durable: were the spare written first, a crash
        // could bring the segment's name back with another's header.
        disk.sync_dir().map_err(io)?;
        let names = disk.list().map_err(io)?;
        let mut removed = false;
        for name in names {
            let number = spare_number_of(&name);
            if number.is_none() && !is_unfinished(&name) {
                continue;
            }
            let whole = match number {
                Some(_) => {
                    let file = disk.open_to_write(&name).map_err(io)?;
                    let fits = file.len().map_err(io)? == self.shared.options.segment_size;
                    fits.then_some(file)
                }
                None => None,
            };
            match whole {
                Some(file) => self
                    .shared
                    .with(|state| state.spares.push_back(Spare { name, file })),
                None => {
                    disk.remove(&name).map_err(io)?;
                    removed = true;
                }
            }
            let after = number.unwrap_or(0).saturating_add(1);
            self.shared
                .with(|state| state.next_spare = state.next_spare.max(after));
        }
        if removed {
            disk.sync_dir().map_err(io)?;
        }
        Ok(())
    }

    /// Once off the trail no reader trusts what it finds in the file, so it may be overwritten.
    fn take_oldest(&self, anyway: bool) -> Option<Kept> {
        self.shared
            .with(|state| state.take_oldest(&self.shared.options, anyway))
    }

    /// Makes a spare of a segment that was taken off the trail, if that is wanted and it has the right size;
    /// else removes it. Whether it is a spare now.
    fn recycle_or_remove(&self, kept: &Kept, wanted: bool) -> Result<bool, JournalError> {
        let recycle = wanted && kept.size == self.shared.options.segment_size;
        let segment = file_name(kept.number);
        let disk = &self.shared.disk;
        if !recycle {
            return disk
                .remove(&segment)
                .and_then(|()| disk.sync_dir())
                .map(|()| false)
                .map_err(|error| self.shared.fatal("remove segment", &segment, error));
        }
        let name = spare_name(self.number());
        let spare = disk
            .rename(&segment, &name)
            .and_then(|()| disk.sync_dir())
            .and_then(|()| disk.open_to_write(&name))
            .map_err(|error| self.shared.fatal("recycle segment", &segment, error))?;
        self.add(name, spare);
        Ok(true)
    }

    /// Makes a spare of new space.
    fn allocate(&self) -> Result<(), JournalError> {
        const OPERATION: &str = "allocate segment";
        let number = self.number();
        let (unfinished, name) = (unfinished_name(number), spare_name(number));
        let disk = &self.shared.disk;
        let made = disk
            .create(&unfinished, self.shared.options.segment_size)
            .and_then(|file| {
                disk.rename(&unfinished, &name)?;
                Ok(file)
            });
        let file = match made {
            Ok(file) => file,
            Err(error) if is_full(&error) => {
                self.discard(&unfinished)?;
                return Err(JournalError::io(OPERATION, self.shared.path(&name), error));
            }
            Err(error) => return Err(self.shared.fatal(OPERATION, &name, error)),
        };
        disk.sync_dir()
            .map_err(|error| self.shared.fatal(OPERATION, &name, error))?;
        self.add(name, file);
        Ok(())
    }

    /// Removes what a full disk left of an allocation, which would keep it full.
    fn discard(&self, unfinished: &str) -> Result<(), JournalError> {
        let disk = &self.shared.disk;
        match disk.remove(unfinished) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.and_then(|()| disk.sync_dir()),
        }
        .map_err(|error| {
            self.shared
                .fatal("remove the unfinished", unfinished, error)
        })
    }

    fn add(&self, name: String, file: Arc<dyn DiskFile>) {
        self.shared
            .with(|state| state.spares.push_back(Spare { name, file }));
    }

    fn number(&self) -> u64 {
        self.shared.with(|state| {
            let number = state.next_spare;
            state.next_spare = number.saturating_add(1);
            number
        })
    }
}
