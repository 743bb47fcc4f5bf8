//! Compaction: a logical copy into a new file beside the old one, read back, then renamed over it. So it is
//! the old file that counts until the rename, and the new one after it, whenever the process is killed.

use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, TableHandle, WriteTransaction,
};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::backend;
use super::error::{StoreError, io_error};
use super::filter::KeyHasher;
use super::open::{Options, peek, read_meta};
use super::scan::scan;
use super::shared::{Fault, bytewise, explain, open_database};

const OPERATION: &str = "compact the store";

/// Rows of sixteen that the first pass over a table copies. redb splits full pages in halves, so rows that
/// come in order leave every page half empty. The second pass fills them up from in between; were it as
/// large as the first, uneven rows would split pages again.
const FIRST_PASS: u64 = 9;

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes that the file system had allocated to the old file.
    pub before: u64,
    /// Bytes that it has allocated to the new one.
    pub after: u64,
    /// Rows copied: records, bodies, and what the store keeps of itself.
    pub rows: u64,
}

/// Why a store was not compacted. It is as it was.
#[derive(Debug)]
pub enum CompactError {
    /// It could not be read, or the new one not written.
    Store(StoreError),
    /// There is no such file.
    Missing {
        /// Where there is none.
        path: PathBuf,
    },
    /// The file system has too little space for a second file beside the first.
    NoSpace {
        /// The store.
        path: PathBuf,
        /// Bytes it may take.
        needed: u64,
        /// Bytes there are.
        free: u64,
    },
    /// What was read back is not what was copied.
    Differs {
        /// The new file; it is gone.
        path: PathBuf,
        /// The table.
        table: Box<str>,
    },
}

impl fmt::Display for CompactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompactError::Store(error) => error.fmt(f),
            CompactError::Missing { path } => write!(f, "{} is missing", path.display()),
            CompactError::NoSpace { path, needed, free } => write!(
                f,
                "cannot {OPERATION} {}: its copy may take {needed} bytes, and the file system has {free} \
                 free; free {} bytes more, or move the data directory to a larger one",
                path.display(),
                needed.saturating_sub(*free)
            ),
            CompactError::Differs { path, table } => write!(
                f,
                "cannot {OPERATION}: table {table} reads differently from {} than it was written; \
                 look at the disk and the kernel's log; the store is as it was",
                path.display()
            ),
        }
    }
}

impl std::error::Error for CompactError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CompactError::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for CompactError {
    fn from(error: StoreError) -> CompactError {
        CompactError::Store(error)
    }
}

/// Removes what a compaction that was killed left beside the store.
///
/// # Errors
/// What the system says.
pub fn remove_leftover(path: impl AsRef<Path>) -> Result<(), StoreError> {
    let fresh = fresh_path(path.as_ref());
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove the unfinished copy", &fresh, error))
        }
        _ => Ok(()),
    }
}

/// Copies the store in a file that nobody has open, and puts the copy in its place. `free` is how many bytes
/// its file system has to spare. Where the copy would be no smaller, the old one stays.
///
/// # Errors
/// The store is as it was: damaged, in use, or its file system too full or failing.
pub fn compact(
    path: impl AsRef<Path>,
    options: Options,
    free: u64,
) -> Result<Compacted, CompactError> {
    let path = path.as_ref();
    remove_leftover(path)?;
    let failed = |error| io_error(OPERATION, path, error);
    let before = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CompactError::Missing {
                path: path.to_owned(),
            });
        }
        found => found.map_err(failed)?,
    };
    let (old, failure) = peek(&backend::file(path), path, options.cache, OPERATION)?;
    let sound = || -> Result<u64, Fault> {
        let (state, _) = read_meta(&old)?;
        scan(&old, &KeyHasher::new(&state.store_id))?;
        needed(&old)
    };
    let needed = sound()
        .map_err(|fault| explain(OPERATION, path, &failure, fault))?
        .min(before.len());
    if free < needed {
        let path = path.to_owned();
        return Err(CompactError::NoSpace { path, needed, free });
    }
    let fresh = fresh_path(path);
    let copied = copy_and_compare(&old, &fresh, before.mode(), options);
    drop(old);
    let rows = match copied {
        Ok(rows) => rows,
        Err(error) => {
            // It would be removed by the next start; the error at hand says more than one of this.
            let _ = fs::remove_file(&fresh);
            return Err(error);
        }
    };
    let after = fs::metadata(&fresh).map_err(failed)?;
    if allocated(&after) >= allocated(&before) {
        // The old one is as small as it gets.
        fs::remove_file(&fresh).map_err(failed)?;
        return Ok(Compacted {
            before: allocated(&before),
            after: allocated(&before),
            rows,
        });
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    fs::rename(&fresh, path)
        .and_then(|()| File::open(folder.unwrap_or(Path::new(".")))?.sync_all())
        .map_err(failed)?;
    Ok(Compacted {
        before: allocated(&before),
        after: allocated(&after),
        rows,
    })
}

fn fresh_path(path: &Path) -> PathBuf {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".compact");
    PathBuf::from(fresh)
}

fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

/// Bytes that a copy may take: what is in use, and something for its growth.
fn needed(database: &Database) -> Result<u64, Fault> {
    const MARGIN: u64 = 4 << 20;
    // Over a layer that keeps writes in memory, so nothing is written.
    let transaction = database.begin_write()?;
    let stats = transaction.stats()?;
    let used = stats
        .allocated_pages()
        .saturating_mul(stats.page_size() as u64);
    transaction.abort()?;
    Ok(used.saturating_add(used / 8).saturating_add(MARGIN))
}

fn copy_and_compare(
    old: &Database,
    fresh: &Path,
    mode: u32,
    options: Options,
) -> Result<u64, CompactError> {
    let failed = |error| io_error(OPERATION, fresh, error);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(fresh)
        .map_err(failed)?;
    let source = backend::file(fresh);
    let (new, failure) = open_database(&source, fresh, options.cache, OPERATION)?;
    copy(old, new).map_err(|fault| explain(OPERATION, fresh, &failure, fault))?;
    File::open(fresh)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    // Opened anew, so that it is the file that is read, every page of it verified.
    let (new, failure) = peek(&source, fresh, options.cache, OPERATION)?;
    match compare(old, &new).map_err(|fault| explain(OPERATION, fresh, &failure, fault))? {
        Compared::Same(rows) => Ok(rows),
        Compared::Differs(table) => Err(CompactError::Differs {
            path: fresh.to_owned(),
            table,
        }),
    }
}

fn copy(old: &Database, mut new: Database) -> Result<(), Fault> {
    let reading = old.begin_read()?;
    let mut writing = new.begin_write()?;
    writing.set_quick_repair(true);
    for handle in reading.list_tables()? {
        copy_table(&reading, &writing, handle.name())?;
    }
    writing.commit()?;
    // A file grows in steps: its end is given back.
    match new.compact() {
        Ok(_) => {}
        Err(redb::CompactionError::Storage(error)) => return Err(error.into()),
        Err(error) => return Err(Fault::Redb(error.into())),
    }
    Ok(new.close()?)
}

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

fn copy_table(
    reading: &ReadTransaction,
    writing: &WriteTransaction,
    name: &str,
) -> Result<(), Fault> {
    let from: Rows = reading.open_table(bytewise(name))?;
    let mut to = writing.open_table(bytewise(name))?;
    for first in [true, false] {
        for (row, index) in from.iter()?.zip(0_u64..) {
            let (key, value) = row?;
            // Spread evenly: of sixteen rows in a row, these nine.
            let is_first = index % 16 * FIRST_PASS % 16 < FIRST_PASS;
            if is_first == first {
                to.insert(key.value(), value.value())?;
            }
        }
    }
    Ok(())
}

enum Compared {
    Same(u64),
    Differs(Box<str>),
}

/// Compares two databases row by row.
fn compare(old: &Database, new: &Database) -> Result<Compared, Fault> {
    let (old, new) = (old.begin_read()?, new.begin_read()?);
    let names = |transaction: &ReadTransaction| -> Result<Vec<String>, Fault> {
        let tables = transaction.list_tables()?;
        Ok(tables.map(|table| table.name().to_owned()).collect())
    };
    let there = names(&old)?;
    if there != names(&new)? {
        return Ok(Compared::Differs("of tables".into()));
    }
    let mut rows = 0;
    for name in there {
        let (old, new): (Rows, Rows) = (
            old.open_table(bytewise(&name))?,
            new.open_table(bytewise(&name))?,
        );
        if old.len()? != new.len()? {
            return Ok(Compared::Differs(name.into()));
        }
        for (ours, theirs) in old.iter()?.zip(new.iter()?) {
            let ((key, value), (their_key, their_value)) = (ours?, theirs?);
            if key.value() != their_key.value() || value.value() != their_value.value() {
                return Ok(Compared::Differs(name.into()));
            }
            rows += 1;
        }
    }
    Ok(Compared::Same(rows))
}
