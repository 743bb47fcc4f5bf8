//! Why an engine does not start, or cannot go on.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::journal::error::{Cause, JournalError};
use crate::store::StoreError;

/// A failure of storage. None of them is answered around: the process stops and says why (SPEC 9).
#[derive(Debug)]
pub enum EngineError {
    /// Of the journal.
    Journal(JournalError),
    /// Of the store.
    Store(StoreError),
    /// Of the data directory itself.
    Directory {
        /// What was attempted.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The directory was used before and what it held is not there.
    Missing {
        /// What is not there.
        path: PathBuf,
        /// The store it belongs to, where that is known.
        store: Option<String>,
    },
    /// The file that names the store of the directory does not.
    Marker {
        /// The file.
        path: PathBuf,
    },
    /// The parts of the directory belong to different stores.
    Mixed {
        /// The file that says so.
        path: PathBuf,
    },
    /// A restore into the directory did not come to its end.
    Unfinished {
        /// The file that says so.
        path: PathBuf,
    },
    /// An entry of the journal cannot be read although its frame is sound.
    Entry {
        /// Its place.
        lsn: u64,
        /// Why.
        reason: String,
    },
    /// A thread could not be started.
    Thread(io::Error),
    /// The limits do not fit together: the text says which.
    Limits(String),
}

impl EngineError {
    /// Whether want of space is the cause.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            EngineError::Journal(error) => error.is_full(),
            EngineError::Store(error) => matches!(error, StoreError::Full { .. }),
            EngineError::Directory { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                )
            }
            _ => false,
        }
    }

    /// Whether damage, not the disk's refusal, is the cause: a restart does not help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            EngineError::Journal(error) => matches!(
                error.cause(),
                Cause::Damage { .. } | Cause::Foreign | Cause::Missing { .. } | Cause::Newer { .. }
            ),
            EngineError::Store(error) => matches!(
                error,
                StoreError::Damage { .. } | StoreError::Newer { .. } | StoreError::NotAStore { .. }
            ),
            EngineError::Missing { .. }
            | EngineError::Marker { .. }
            | EngineError::Mixed { .. }
            | EngineError::Unfinished { .. }
            | EngineError::Entry { .. } => true,
            EngineError::Directory { .. } | EngineError::Thread(_) | EngineError::Limits(_) => {
                false
            }
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Journal(error) => error.fmt(f),
            EngineError::Store(error) => error.fmt(f),
            EngineError::Directory {
                operation,
                path,
                source,
            } => write!(
                f,
                "cannot {operation} {}: {source}; {}",
                path.display(),
                hint(source.kind())
            ),
            EngineError::Missing { path, store } => {
                write!(
                    f,
                    "{} is missing, but this directory was used",
                    path.display()
                )?;
                if let Some(store) = store {
                    write!(f, " by store {store}")?;
                }
                f.write_str("; mount or restore it, or choose another data directory")
            }
            EngineError::Marker { path } => write!(
                f,
                "{} does not hold the id of a store; put it back, or let `onced check --repair` write \
                 it anew",
                path.display()
            ),
            EngineError::Mixed { path } => write!(
                f,
                "{} belongs to another store than the rest of the data directory; put back what \
                 belongs together, or restore a backup",
                path.display()
            ),
            EngineError::Unfinished { path } => write!(
                f,
                "a restore into this directory was cut short, as {} says: what it holds is not whole; run \
                 `onced restore` again",
                path.display()
            ),
            EngineError::Entry { lsn, reason } => write!(
                f,
                "entry {lsn} of the journal cannot be read: {reason}; run `onced check`, or restore \
                 a backup"
            ),
            EngineError::Thread(_) => f.write_str("cannot start a thread"),
            EngineError::Limits(text) => f.write_str(text),
        }
    }
}

/// What to do next.
fn hint(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind;
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space, or enlarge the file system or the quota, and start again"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "make the data directory writable for this user, or choose another"
        }
        _ => "look at the disk and the kernel's log; start again once it is sound",
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            EngineError::Journal(error) => error.source(),
            EngineError::Store(error) => error.source(),
            EngineError::Directory { source, .. } | EngineError::Thread(source) => Some(source),
            _ => None,
        }
    }
}

impl From<JournalError> for EngineError {
    fn from(error: JournalError) -> EngineError {
        EngineError::Journal(error)
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> EngineError {
        EngineError::Store(error)
    }
}
