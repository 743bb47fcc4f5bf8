//! Why the store could not do something, for people: what was attempted, where, why, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What a store operation failed of.
///
/// Only [`StoreError::Full`] is a state that passes by itself (SPEC 9): call `Store::reopen`, answer 507 to
/// what creates records, and try again. Everything else is fatal to whoever holds the store.
#[derive(Debug)]
pub enum StoreError {
    /// A write found no space on the file system, or a quota used up. What was committed before is intact.
    Full {
        /// What was attempted.
        operation: &'static str,
        /// The database file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Any other failed read, write or sync. The process has to stop: nothing may succeed after it.
    Io {
        /// What was attempted.
        operation: &'static str,
        /// The database file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not hold what was written to it.
    Damage {
        /// What was attempted.
        operation: &'static str,
        /// The database file.
        path: PathBuf,
        /// The table concerned, where it is known.
        table: Option<Box<str>>,
        /// The record concerned, escaped, where it is known.
        key: Option<Box<str>>,
        /// What is wrong.
        reason: Box<str>,
    },
    /// Written by a later version. Nothing was touched.
    Newer {
        /// The database file.
        path: PathBuf,
        /// The format it has.
        found: u32,
        /// The highest format this version knows.
        known: u32,
    },
    /// The file is something else, or its creation was cut short.
    NotAStore {
        /// The file.
        path: PathBuf,
        /// How that shows.
        reason: Box<str>,
    },
    /// A store was to be created where there is a file already. Nothing was touched.
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process has the database open.
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// The caller handed in what the format cannot hold, or out of order: a defect of the program.
    Invalid {
        /// What was attempted.
        operation: &'static str,
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// The store was closed while a reader was still asking.
    Closed,
}

impl StoreError {
    /// What to do next.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            StoreError::Full { .. } => {
                "free some space, or enlarge the file system or the quota; it goes on by itself"
            }
            StoreError::Io { .. } => {
                "look at the disk and the kernel's log; after a restart the store recovers what the disk has"
            }
            StoreError::Damage { .. } => {
                "run `onced check --data-dir` on the directory for the whole list, then restore a backup"
            }
            StoreError::Newer { .. } => "start the version of onced that wrote it, or a later one",
            StoreError::NotAStore { .. } => {
                "look whether the data directory is the right one; an empty one comes up as a new store"
            }
            StoreError::Exists { .. } => "open it, or choose an empty directory",
            StoreError::InUse { .. } => "stop the other process, or choose another data directory",
            StoreError::Invalid { .. } => "this is a defect of onced: report it with this message",
            StoreError::Closed => "the server is stopping; ask again after its restart",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Full {
                operation,
                path,
                source,
            } => {
                write!(
                    f,
                    "cannot {operation}: no space for {}: {source}",
                    path.display()
                )?;
            }
            StoreError::Io {
                operation,
                path,
                source,
            } => {
                write!(f, "cannot {operation}: {}: {source}", path.display())?;
            }
            StoreError::Damage {
                operation,
                path,
                table,
                key,
                reason,
            } => {
                write!(f, "cannot {operation}: {} is damaged", path.display())?;
                if let Some(table) = table {
                    write!(f, ", table {table}")?;
                }
                if let Some(key) = key {
                    write!(f, ", key {key}")?;
                }
                write!(f, ": {reason}")?;
            }
            StoreError::Newer { path, found, known } => write!(
                f,
                "{} has format {found}, and this version knows formats up to {known}",
                path.display()
            )?,
            StoreError::NotAStore { path, reason } => {
                write!(f, "{} is not a store of onced: {reason}", path.display())?;
            }
            StoreError::Exists { path } => {
                write!(f, "{} exists already", path.display())?;
            }
            StoreError::InUse { path } => {
                write!(f, "{} is open in another process", path.display())?;
            }
            StoreError::Invalid { operation, reason } => write!(f, "cannot {operation}: {reason}")?,
            StoreError::Closed => f.write_str("the store is closed")?,
        }
        write!(f, "; {}", self.hint())
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Full { source, .. } | StoreError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Whether a system error says that space or a quota is used up.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A failed system call.
pub(super) fn io_error(operation: &'static str, path: &Path, source: io::Error) -> StoreError {
    let path = path.to_owned();
    if is_full(&source) {
        StoreError::Full {
            operation,
            path,
            source,
        }
    } else {
        StoreError::Io {
            operation,
            path,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_where_why_and_what_to_do() {
        let path = PathBuf::from("/data/onced.redb");
        let errors = [
            io_error(
                "checkpoint",
                &path,
                io::Error::from(io::ErrorKind::StorageFull),
            ),
            io_error(
                "checkpoint",
                &path,
                io::Error::from(io::ErrorKind::PermissionDenied),
            ),
            StoreError::Damage {
                operation: "open the store",
                path: path.clone(),
                table: Some("open".into()),
                key: Some("ns\\x00k".into()),
                reason: "the checksum differs".into(),
            },
            StoreError::Newer {
                path: path.clone(),
                found: 9,
                known: 1,
            },
            StoreError::NotAStore {
                path: path.clone(),
                reason: "it is empty".into(),
            },
            StoreError::Exists { path: path.clone() },
            StoreError::InUse { path: path.clone() },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("/data/onced.redb"), "{text}");
            assert!(text.ends_with(error.hint()), "{text}");
        }
    }

    #[test]
    fn a_used_up_quota_counts_as_full() {
        for (kind, full) in [
            (io::ErrorKind::StorageFull, true),
            (io::ErrorKind::QuotaExceeded, true),
            (io::ErrorKind::PermissionDenied, false),
        ] {
            let error = io_error("checkpoint", Path::new("x"), io::Error::from(kind));
            assert_eq!(matches!(error, StoreError::Full { .. }), full, "{kind:?}");
        }
    }
}
