//! All that the journal asks of a file system: one directory of preallocated files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sync;

/// Room in a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What an unprivileged process may still allocate.
    pub free: u64,
    /// The size of the whole.
    pub total: u64,
}

/// One directory. Names are file names in it, without separators.
pub trait Disk: Send + Sync {
    /// Where it is, for messages.
    fn path(&self) -> &Path;

    /// The names of all files in it, in no order.
    ///
    /// # Errors
    /// What the system answers.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a new file of `len` bytes that are allocated: writing them can no longer meet a full disk. Length
    /// and allocation are durable on return, the name after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists`; `StorageFull` or `QuotaExceeded`, after which the name may be there with less than `len`.
    fn create(&self, name: &str, len: u64) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading, and for syncing what others wrote.
    ///
    /// # Errors
    /// What the system answers; `NotFound` where there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// What the system answers; `NotFound` where there is none.
    fn open_to_write(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file; one of the new name is replaced. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the system answers.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the system answers.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Confirms the syncs of data before it, where blocks may have been new.
    ///
    /// # Errors
    /// The file system has given up, and what was synced may be lost.
    fn confirm(&self) -> io::Result<()>;

    /// Makes the names durable: everything created, renamed and removed before.
    ///
    /// # Errors
    /// What the system answers. What had not been synced is in doubt then, whatever a later call says.
    fn sync_dir(&self) -> io::Result<()>;

    /// Room in the file system that holds the directory.
    ///
    /// # Errors
    /// What the system answers.
    fn space(&self) -> io::Result<Space>;
}

/// One file of a [`Disk`]. Usable from several threads at once.
#[expect(
    clippy::len_without_is_empty,
    reason = "an empty file is of no interest to anybody"
)]
pub trait DiskFile: Send + Sync {
    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends before; what the system answers.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. Durable after [`DiskFile::sync_data`].
    ///
    /// # Errors
    /// What the system answers; any part may have been written then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written before durable.
    ///
    /// # Errors
    /// What the system answers. What had not been synced is in doubt then, whatever a later call says.
    fn sync_data(&self) -> io::Result<()>;

    /// Its length in bytes.
    ///
    /// # Errors
    /// What the system answers.
    fn len(&self) -> io::Result<u64>;
}

/// Whether an error says that there is no space: a state, not a failure (SPEC 9).
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A directory of the system's file system.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    /// Held open to be synced, and so that a directory put in its place is not mistaken for it.
    dir: File,
}

impl RealDisk {
    /// The directory at `path`, which must exist.
    ///
    /// # Errors
    /// What the system answers; `NotADirectory` for anything else there.
    pub fn open(path: &Path) -> io::Result<RealDisk> {
        let dir = File::open(path)?;
        if !dir.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(RealDisk {
            path: path.to_path_buf(),
            dir,
        })
    }

    /// The directory at `path`, made if it is missing and then durable in its parent, which must exist.
    ///
    /// # Errors
    /// What the system answers.
    pub fn create(path: &Path) -> io::Result<RealDisk> {
        match std::fs::create_dir(path) {
            // A crash may have come between making the directory and syncing its parent: synced again.
            Ok(()) => sync_parent(path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => sync_parent(path)?,
            Err(error) => return Err(error),
        }
        RealDisk::open(path)
    }
}

impl Disk for RealDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        std::fs::read_dir(&self.path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn create(&self, name: &str, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.path.join(name))?;
        allocate(&file, len)?;
        file.sync_all()?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(File::open(self.path.join(name))?)))
    }

    fn open_to_write(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn confirm(&self) -> io::Result<()> {
        sync::confirm(&self.dir)
    }

    fn space(&self) -> io::Result<Space> {
        let stat = rustix::fs::fstatvfs(&self.dir)?;
        Ok(Space {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Allocates `len` bytes to an empty file. File systems that cannot do it ahead get zeros written: on the ones
/// that overwrite in place that comes to the same.
fn allocate(file: &File, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
            Err(error) => return Err(error.into()),
        }
    }
    static ZEROS: [u8; 65_536] = [0; 65_536];
    let mut offset = 0;
    while offset < len {
        let left = usize::try_from(len - offset).unwrap_or(usize::MAX);
        let part = ZEROS.get(..left).unwrap_or(&ZEROS);
        file.write_all_at(part, offset)?;
        offset += part.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_directory_does_what_the_trait_says() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::create(&folder.path().join("journal")).unwrap();
        let file = disk.create("a", 8192).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        assert_eq!(
            disk.create("a", 1).err().unwrap().kind(),
            io::ErrorKind::AlreadyExists
        );
        file.write_at(4096, b"hello").unwrap();
        file.sync_data().unwrap();
        let mut bytes = [0xFF; 6];
        disk.open("a").unwrap().read_at(4096, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello\0");
        let past = disk
            .open("a")
            .unwrap()
            .read_at(8190, &mut bytes)
            .unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
        // What recovery does to a segment that it may only read.
        disk.open("a").unwrap().sync_data().unwrap();
        assert!(disk.open("a").unwrap().write_at(0, b"x").is_err());
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        disk.open_to_write("b").unwrap().write_at(0, b"x").unwrap();
        disk.remove("b").unwrap();
        assert_eq!(
            disk.open("b").err().unwrap().kind(),
            io::ErrorKind::NotFound
        );
        let space = disk.space().unwrap();
        assert!(space.total >= space.free && space.total > 0);
    }

    #[test]
    fn a_directory_must_be_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"").unwrap();
        for name in ["file", "missing"] {
            assert!(RealDisk::open(&folder.path().join(name)).is_err(), "{name}");
        }
    }
}
