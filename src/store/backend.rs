//! What redb writes to: a file, or what a simulation hands in; and two layers over it.

use parking_lot::{Mutex, RwLock};
use redb::{BackendError, StorageBackend, backends::FileBackend};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use super::error::is_full;
use crate::sync;

/// Opens the storage of a database; called again whenever it has to be opened anew, once the backend it
/// made before is closed.
pub type Source = Arc<dyn Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync>;

type Locked<T> = Result<T, BackendError>;

/// Locks are those of the storage below.
macro_rules! lock_below {
    () => {
        fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
            self.inner.try_lock_range(start, end)
        }

        fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
            self.inner.try_lock_shared_range(start, end)
        }

        fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
            self.inner.lock_range(start, end)
        }

        fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
            self.inner.lock_shared_range(start, end)
        }

        fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
            self.inner.unlock_range(start, end)
        }

        fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
            self.inner.query_lock_range(start, end)
        }
    };
}

/// The storage of an existing file. Also where nothing is written, its lock needs the right to.
pub(super) fn file(path: &Path) -> Source {
    let path = path.to_owned();
    Arc::new(move || {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = File::open(folder)?;
        let inner = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Box::new(OnDisk { inner, folder }) as Box<dyn StorageBackend>)
    })
}

/// A file whose syncs are confirmed: redb writes to new blocks, and goes on from what it has synced.
#[derive(Debug)]
struct OnDisk {
    inner: FileBackend,
    folder: File,
}

impl StorageBackend for OnDisk {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()?;
        sync::confirm(&self.folder)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    lock_below!();
}

/// The first failure of a backend. redb answers every call after it with the fact alone.
#[derive(Debug, Default)]
pub(super) struct Failure(Mutex<Option<io::Error>>);

impl Failure {
    fn note(&self, error: &io::Error) {
        self.0.lock().get_or_insert_with(|| copy(error));
    }

    /// What failed first.
    pub(super) fn first(&self) -> Option<io::Error> {
        self.0.lock().as_ref().map(copy)
    }

    /// Whether that was a lack of space.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().as_ref().is_some_and(is_full)
    }
}

fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// A backend that remembers its first failure.
#[derive(Debug)]
pub(super) struct Watched {
    inner: Box<dyn StorageBackend>,
    failure: Arc<Failure>,
}

impl Watched {
    pub(super) fn new(inner: Box<dyn StorageBackend>, failure: Arc<Failure>) -> Watched {
        Watched { inner, failure }
    }

    fn watch<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.failure.note(error))
    }
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.watch(self.inner.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.watch(self.inner.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.watch(self.inner.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        // After a failed sync nobody knows what the disk has, also where the reason is a lack of space:
        // that is no state to go on from.
        let synced = self.inner.sync_data();
        self.watch(synced.map_err(|error| io::Error::other(format!("sync: {error}"))))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.watch(self.inner.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    lock_below!();
}

const BLOCK: u64 = 4096;

/// A backend whose writes stay in memory: redb recovers and closes a database over it while the storage
/// below stays as it is, byte for byte. So a newer format is refused, and damage reported, untouched.
#[derive(Debug)]
pub(super) struct Peek {
    inner: Box<dyn StorageBackend>,
    over: RwLock<Overlay>,
}

#[derive(Debug)]
struct Overlay {
    len: u64,
    /// How much of the storage below still shows.
    below: u64,
    blocks: HashMap<u64, Vec<u8>>,
}

impl Peek {
    pub(super) fn new(inner: Box<dyn StorageBackend>) -> io::Result<Peek> {
        let len = inner.len()?;
        let over = RwLock::new(Overlay {
            len,
            below: len,
            blocks: HashMap::new(),
        });
        Ok(Peek { inner, over })
    }

    /// The part of a block that shows from below, the rest zeros.
    fn block_below(&self, over: &Overlay, block: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; BLOCK as usize];
        let start = block * BLOCK;
        let there = over.below.saturating_sub(start).min(BLOCK) as usize;
        if let Some(there) = bytes.get_mut(..there)
            && !there.is_empty()
        {
            self.inner.read(start, there)?;
        }
        Ok(bytes)
    }
}

/// The blocks that a range touches, each with the range inside it.
fn blocks(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let end = offset.saturating_add(len as u64);
    (offset / BLOCK..end.div_ceil(BLOCK)).map(move |block| {
        let from = offset.saturating_sub(block * BLOCK) as usize;
        let to = (end - block * BLOCK).min(BLOCK) as usize;
        (block, from..to)
    })
}

fn out_of_range() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "a range beyond the end of the storage",
    )
}

impl StorageBackend for Peek {
    fn len(&self) -> io::Result<u64> {
        Ok(self.over.read().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let over = self.over.read();
        let end = offset
            .checked_add(out.len() as u64)
            .ok_or_else(out_of_range)?;
        if end > over.len {
            return Err(out_of_range());
        }
        let untouched =
            blocks(offset, out.len()).all(|(block, _)| !over.blocks.contains_key(&block));
        if untouched && end <= over.below {
            return self.inner.read(offset, out);
        }
        let mut rest = out;
        for (block, range) in blocks(offset, rest.len()) {
            let (now, later) = rest.split_at_mut(range.len());
            let below;
            let bytes = match over.blocks.get(&block) {
                Some(bytes) => bytes,
                None => {
                    below = self.block_below(&over, block)?;
                    &below
                }
            };
            now.copy_from_slice(bytes.get(range).ok_or_else(out_of_range)?);
            rest = later;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut over = self.over.write();
        if len < over.len {
            over.blocks.retain(|block, _| block * BLOCK < len);
            // What is cut off reads as zeros if the storage grows again.
            let (last, keep) = (len / BLOCK, (len % BLOCK) as usize);
            if let Some(cut) = over
                .blocks
                .get_mut(&last)
                .and_then(|bytes| bytes.get_mut(keep..))
            {
                cut.fill(0);
            }
            over.below = over.below.min(len);
        }
        over.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut over = self.over.write();
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or_else(out_of_range)?;
        if end > over.len {
            return Err(out_of_range());
        }
        let mut rest = data;
        for (block, range) in blocks(offset, data.len()) {
            let (now, later) = rest.split_at(range.len());
            if !over.blocks.contains_key(&block) {
                let below = self.block_below(&over, block)?;
                over.blocks.insert(block, below);
            }
            let target = over
                .blocks
                .get_mut(&block)
                .and_then(|bytes| bytes.get_mut(range));
            target.ok_or_else(out_of_range)?.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    lock_below!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::samples::Dice;
    use redb::backends::InMemoryBackend;

    #[test]
    fn a_peek_reads_as_if_it_had_written_and_leaves_the_storage_alone() {
        let mut dice = Dice::seeded();
        let inner = Arc::new(InMemoryBackend::new());
        let original: Vec<u8> = (0..50_000).map(|_| dice.below(256) as u8).collect();
        inner.set_len(50_000).unwrap();
        inner.write(0, &original).unwrap();
        let peek = Peek::new(Box::new(Shared(inner.clone()))).unwrap();
        let mut model = original.clone();
        for _ in 0..500 {
            let len = dice.below(9000) as usize;
            let at = dice.below(model.len() as u64) as usize;
            let end = (at + len).min(model.len());
            match dice.below(8) {
                0 => {
                    let to = 30_000 + dice.below(30_000) as usize;
                    model.resize(to, 0);
                    peek.set_len(to as u64).unwrap();
                }
                1..4 => {
                    let fill = vec![dice.below(256) as u8; end - at];
                    model[at..end].copy_from_slice(&fill);
                    peek.write(at as u64, &fill).unwrap();
                }
                _ => {
                    let mut out = vec![0; end - at];
                    peek.read(at as u64, &mut out).unwrap();
                    assert!(out == model[at..end]);
                }
            }
        }
        assert!(peek.read(model.len() as u64, &mut [0]).is_err());
        let mut after = vec![0; 50_000];
        inner.read(0, &mut after).unwrap();
        assert!(after == original);
    }

    #[derive(Debug)]
    struct Shared(Arc<InMemoryBackend>);

    impl StorageBackend for Shared {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(offset, data)
        }
    }
}
