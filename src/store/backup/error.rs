//! Why a file is not taken for a backup, or not read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A backup that cannot be used. Each says which file, and what to do.
#[derive(Debug)]
pub enum BackupError {
    /// The system refused to read it.
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It does not begin as a backup.
    NotABackup {
        /// The file.
        path: PathBuf,
    },
    /// It ends before its end record: the copy was cut.
    Cut {
        /// The file.
        path: PathBuf,
        /// Where it ends, in bytes.
        offset: u64,
    },
    /// It does not hold what was written to it.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where that was seen, in bytes.
        offset: u64,
        /// What is wrong.
        reason: Box<str>,
    },
    /// A later version wrote it.
    Newer {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: u32,
        /// The highest format this version knows.
        known: u32,
    },
}

impl BackupError {
    /// Whether the file itself is at fault, not the reading of it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(self, BackupError::Io { .. })
    }

    pub(super) fn damaged(path: &Path, offset: u64, reason: impl ToString) -> BackupError {
        BackupError::Damaged {
            path: path.to_owned(),
            offset,
            reason: reason.to_string().into(),
        }
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Io { path, source } => write!(
                f,
                "cannot read the backup {}: {source}; look whether the path is right and the disk sound",
                path.display()
            ),
            BackupError::NotABackup { path } => write!(
                f,
                "{} is no backup of onced: it does not begin as one; give a file that `onced backup` wrote",
                path.display()
            ),
            BackupError::Cut { path, offset } => write!(
                f,
                "the backup {} is cut: it ends at offset {offset}, before its end record; copy it again from \
                 where it is whole, or take another backup",
                path.display()
            ),
            BackupError::Damaged {
                path,
                offset,
                reason,
            } => write!(
                f,
                "the backup {} is damaged at offset {offset}: {reason}; copy it again from where it is whole, \
                 or take another backup",
                path.display()
            ),
            BackupError::Newer { path, found, known } => write!(
                f,
                "the backup {} has format {found}, and this version knows formats up to {known}; restore it \
                 with the version of onced that wrote it, or a later one",
                path.display()
            ),
        }
    }
}

impl std::error::Error for BackupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BackupError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
