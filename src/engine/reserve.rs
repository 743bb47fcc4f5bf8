//! The reserve: space kept allocated beside the store, so that a full disk stops neither checkpoints nor what
//! finishes work (SPEC 9). It is given up when a checkpoint finds no space, and taken again before anything
//! else when there is some.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::EngineError;
use crate::journal::disk::{Disk, RealDisk, is_full};

/// The file, in the folder of the store.
pub(super) const RESERVE: &str = "reserve";
/// The last of it: for removals alone, which give space back (an eighth).
const LAST: &str = "reserve.last";
/// While one is being allocated; a crash leaves it, the next start removes it.
const UNFINISHED: &str = "reserve.new";
/// More helps nobody: it is enough for a checkpoint of all recent memory.
const MOST: u64 = 32 << 20;

/// Bytes to keep in reserve on a file system of so many: 32 MiB, or a thirty-second of it.
#[must_use]
pub fn reserve_size(file_system: u64) -> u64 {
    (file_system / 32 / 4096 * 4096).min(MOST)
}

/// The reserve of one store.
pub(super) struct Reserve {
    disk: Arc<dyn Disk>,
    /// Of both files.
    size: u64,
    held: bool,
    last_held: bool,
}

impl Reserve {
    /// Finds out whether the reserve is there. Without a size there is none to hold, give up or want.
    pub(super) fn open(folder: &Path, size: u64) -> Result<Reserve, EngineError> {
        let disk = RealDisk::open(folder).map_err(|error| failed("open", folder, error))?;
        Reserve::on(Arc::new(disk), size)
    }

    /// As [`Reserve::open`], in the folder that a disk is.
    pub(super) fn on(disk: Arc<dyn Disk>, size: u64) -> Result<Reserve, EngineError> {
        let mut reserve = Reserve {
            disk,
            size,
            held: false,
            last_held: false,
        };
        reserve.remove(UNFINISHED)?;
        let [(first, first_size), (last, last_size)] = reserve.files();
        reserve.held = reserve.finds(first, first_size)?;
        reserve.last_held = reserve.finds(last, last_size)?;
        Ok(reserve)
    }

    /// The two files, and how large they are.
    fn files(&self) -> [(&'static str, u64); 2] {
        let last = self.size / 8 / 4096 * 4096;
        [(RESERVE, self.size - last), (LAST, last)]
    }

    /// Whether the file is there. One of another size is made anew.
    fn finds(&self, name: &'static str, size: u64) -> Result<bool, EngineError> {
        match self.disk.open(name).and_then(|file| file.len()) {
            Ok(len) if len == size => return Ok(true),
            Ok(_) => drop(self.remove(name)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(self.failed("open", name, error)),
        }
        Ok(size == 0)
    }

    /// Whether it is there, or nobody wants one.
    pub(super) fn is_held(&self) -> bool {
        self.held || self.size == 0
    }

    /// How many bytes it has where it is held.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Gives the space up. `false` if there was nothing left to give.
    pub(super) fn free(&mut self) -> Result<bool, EngineError> {
        self.held = false;
        self.remove(RESERVE)
    }

    /// Gives up the last of it, for removals. `false` if there was nothing left to give.
    pub(super) fn free_last(&mut self) -> Result<bool, EngineError> {
        self.last_held = false;
        self.remove(LAST)
    }

    /// Takes the space again, if there is as much: the last of it first. Whether all is there now.
    pub(super) fn refill(&mut self) -> Result<bool, EngineError> {
        let [(first, first_size), (last, last_size)] = self.files();
        self.last_held = self.last_held || self.take(last, last_size)?;
        self.held = self.held || (self.last_held && self.take(first, first_size)?);
        Ok(self.is_held())
    }

    fn take(&self, name: &'static str, size: u64) -> Result<bool, EngineError> {
        if size == 0 {
            return Ok(true);
        }
        // Asked first, so that a try on a full disk does not take from others what little there is.
        let space = self.disk.space();
        if space.is_ok_and(|space| space.free < size) {
            return Ok(false);
        }
        let made = (self.disk.create(UNFINISHED, size))
            .and_then(|_| self.disk.rename(UNFINISHED, name))
            .and_then(|()| self.disk.sync_dir());
        match made {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => self.remove(UNFINISHED).map(|_| false),
            Err(error) => Err(self.failed("allocate", UNFINISHED, error)),
        }
    }

    /// Whether there was such a file.
    fn remove(&self, name: &str) -> Result<bool, EngineError> {
        match self.disk.remove(name) {
            Ok(()) => {
                let synced = self.disk.sync_dir();
                synced.map_err(|error| self.failed("remove", name, error))?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("remove", name, error)),
        }
    }

    fn failed(&self, operation: &'static str, name: &str, error: io::Error) -> EngineError {
        failed(operation, &self.disk.path().join(name), error)
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> EngineError {
    EngineError::Directory {
        operation,
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_share_of_small_file_systems() {
        for (total, size) in [
            (0, 0),
            (64 << 20, 2 << 20),
            (1 << 30, MOST),
            (1 << 40, MOST),
        ] {
            assert_eq!(reserve_size(total), size, "{total}");
        }
    }

    #[test]
    fn it_is_given_up_once_and_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(RESERVE);
        let mut reserve = Reserve::open(dir.path(), 8192).unwrap();
        assert!(!reserve.is_held());
        assert!(reserve.refill().unwrap());
        assert_eq!(file.metadata().unwrap().len(), 8192);
        let mut reserve = Reserve::open(dir.path(), 8192).unwrap();
        assert!(reserve.is_held());
        assert!(reserve.free().unwrap() && !file.exists());
        assert!(!reserve.free().unwrap() && !reserve.is_held());
        assert!(reserve.refill().unwrap());
        // Of another size, after the file system was enlarged: made anew.
        std::fs::write(dir.path().join(UNFINISHED), "cut").unwrap();
        let mut reserve = Reserve::open(dir.path(), 4096).unwrap();
        assert!(!reserve.is_held() && !file.exists());
        assert!(reserve.refill().unwrap());
        let mut none = Reserve::open(dir.path(), 0).unwrap();
        assert!(none.is_held() && !none.free().unwrap());
    }

    #[test]
    fn more_than_there_is_cannot_be_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::open(dir.path(), 1 << 60).unwrap();
        assert!(!reserve.refill().unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
