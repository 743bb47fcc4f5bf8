//! What can go wrong with the journal, in words for the one who has to act.

use super::disk;
use crate::model::record::Lsn;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A journal operation that did not succeed: what was attempted, on which path, why it failed, what to do.
#[derive(Debug)]
pub struct JournalError {
    operation: &'static str,
    path: PathBuf,
    cause: Cause,
}

/// Why it did not succeed.
#[derive(Debug)]
pub enum Cause {
    /// No space. Nothing was lost and nothing written; the journal goes on when there is space (SPEC 9).
    Full,
    /// The system failed a read, write or sync. Fatal: what was being written is in doubt (SPEC 9).
    Io(io::Error),
    /// What is on disk is not what was written.
    Damage {
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong there.
        reason: String,
        /// What `onced check --repair` would drop.
        drops: String,
    },
    /// The file belongs to another store.
    Foreign,
    /// A file that must be there is not.
    Missing {
        /// What `onced check --repair` would drop.
        drops: String,
    },
    /// A frame of `len` bytes, above the limit of `max`. Nothing was written.
    TooLarge {
        /// The frame's length in bytes.
        len: u64,
        /// The most a frame may have: a quarter of a segment.
        max: u64,
    },
    /// An earlier write or sync failed, or the journal was closed: nothing is written any more.
    Poisoned,
    /// Written by a later release, in a format of this version.
    Newer {
        /// The version found.
        version: u32,
    },
    /// The audit trail no longer goes back that far.
    Gone {
        /// The first LSN still kept.
        oldest: Lsn,
    },
    /// There is a journal already where one was to be made.
    Exists,
    /// The caller asked for what breaks the order of the journal. Nothing was written.
    Misuse(String),
}

impl JournalError {
    pub(super) fn new(operation: &'static str, path: PathBuf, cause: Cause) -> JournalError {
        JournalError {
            operation,
            path,
            cause,
        }
    }

    /// An error of the system, with no space told apart.
    pub(super) fn io(operation: &'static str, path: PathBuf, error: io::Error) -> JournalError {
        let cause = if disk::is_full(&error) {
            Cause::Full
        } else {
            Cause::Io(error)
        };
        JournalError {
            operation,
            path,
            cause,
        }
    }

    /// What was attempted.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The file or directory concerned.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why it failed.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Whether it is for want of space alone: a state, not a failure.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.cause, Cause::Full)
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match &self.cause {
            Cause::Full => {
                "free space on this file system, or give it more; the journal goes on by itself"
                    .into()
            }
            Cause::Io(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "the data directory must belong to the user that onced runs as".into()
                }
                io::ErrorKind::ReadOnlyFilesystem => {
                    "mount the file system writable, and look in the system's log for why it is not"
                        .into()
                }
                _ => {
                    "look in the system's log for errors of this disk; start again once it is sound"
                        .into()
                }
            },
            Cause::Damage { drops, .. } | Cause::Missing { drops } => format!(
                "restore a backup, or bring the files back; `onced check --repair` would drop {drops}"
            ),
            Cause::Foreign => {
                "the file belongs to another store: put this store's own file back, or use the \
                               data directory it came from"
                    .into()
            }
            Cause::TooLarge { .. } => {
                "send smaller bodies or smaller batches, or give the store a larger \
                                       file system: a segment is a 32nd of it, at most 64 MiB"
                    .into()
            }
            Cause::Poisoned => "start again: recovery takes up what reached the disk".into(),
            Cause::Newer { .. } => "use the release that wrote it, or a later one".into(),
            Cause::Gone { oldest } => {
                format!(
                    "read from LSN {} on; `audit_retention` says how much is kept",
                    oldest.0
                )
            }
            Cause::Exists => {
                "use an empty directory, or start on this one with the store it belongs to".into()
            }
            Cause::Misuse(_) => {
                "this is a defect of onced: please report it with this message".into()
            }
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot {} {}: {}; {}",
            self.operation,
            self.path.display(),
            self.cause,
            self.hint()
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Full => f.write_str("no space left"),
            Cause::Io(error) => error.fmt(f),
            Cause::Damage { offset, reason, .. } => {
                write!(f, "damaged at offset {offset}: {reason}")
            }
            Cause::Foreign => f.write_str("it carries the id of another store"),
            Cause::Missing { .. } => f.write_str("it is missing"),
            Cause::TooLarge { len, max } => {
                write!(
                    f,
                    "a frame of {len} bytes, above the limit of {max} (a quarter of a segment)"
                )
            }
            Cause::Poisoned => {
                f.write_str("an earlier write or sync failed, or the journal was closed")
            }
            Cause::Newer { version } => {
                write!(
                    f,
                    "its format version is {version}, later than this release knows"
                )
            }
            Cause::Gone { oldest } => write!(f, "the audit trail begins at LSN {}", oldest.0),
            Cause::Exists => f.write_str("it holds a journal already"),
            Cause::Misuse(what) => f.write_str(what),
        }
    }
}

/// No source: the cause is part of the message, once.
impl std::error::Error for JournalError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_where_why_and_what_to_do() {
        let path = || PathBuf::from("/data/journal/0000000000000007.seg");
        let drops = || "every entry from LSN 57 on".to_string();
        let table = [
            (Cause::Full, "no space left; free space"),
            (
                Cause::Io(io::ErrorKind::PermissionDenied.into()),
                "must belong to the user",
            ),
            (
                Cause::Io(io::Error::other("device says no")),
                "device says no; look in",
            ),
            (
                Cause::Damage {
                    offset: 8192,
                    reason: "a gap".into(),
                    drops: drops(),
                },
                "damaged at offset 8192: a gap; restore a backup, or bring the files back; \
                 `onced check --repair` would drop every entry from LSN 57 on",
            ),
            (Cause::Missing { drops: drops() }, "it is missing; restore"),
            (Cause::Foreign, "another store; the file"),
            (
                Cause::TooLarge { len: 9, max: 8 },
                "9 bytes, above the limit of 8",
            ),
            (Cause::Poisoned, "was closed; start again"),
            (
                Cause::Newer { version: 2 },
                "version is 2, later than this release knows; use",
            ),
            (
                Cause::Gone { oldest: Lsn(5) },
                "begins at LSN 5; read from LSN 5 on",
            ),
            (Cause::Exists, "journal already; use an empty"),
        ];
        for (cause, expected) in table {
            let text = JournalError::new("read", path(), cause).to_string();
            assert!(
                text.starts_with("cannot read /data/journal/0000000000000007.seg: "),
                "{text}"
            );
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn want_of_space_is_told_apart_from_failure() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(JournalError::io("write", PathBuf::new(), kind.into()).is_full());
        }
        assert!(!JournalError::io("write", PathBuf::new(), io::ErrorKind::Other.into()).is_full());
    }
}
