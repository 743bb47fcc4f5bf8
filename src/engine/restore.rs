//! A restore (SPEC 9): a backup becomes the store of an empty directory.
//!
//! What the old store decided after the recovery point is forgotten, and cannot be known: so `pending` becomes
//! `in_doubt`, no token of before is accepted any more, and tokens go on above all that may have been granted. The
//! new store has an id of its own, and LSNs with a gap, so that nobody who follows the audit trail takes a new entry
//! for one that he saw.
//!
//! ```text
//! DIR/onced.restoring   first of all, and removed last: while it is there, nobody starts on the directory
//! DIR/data.new          the store in the making
//! DIR/data, onced.id    the store; it was read back and checked before the note goes
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::inspect::inspect_unfinished;
use super::open::{
    DATA, FRESH, JOURNAL, MARKER, STORE, StoreId, directory, exists, hex, journal_disk,
    position_from_bytes, random_id, sync_dir, write_marker,
};
use super::{EngineError, Options};
use crate::journal;
use crate::model::policy::Policy;
use crate::model::record::{Lsn, State, Token};
use crate::model::time::Timestamp;
use crate::store::{
    Backup, BackupError, Checkpoint, Contents, Head, Item, KeyHasher, Memtable, Store, StoreError,
};

/// While it is there, a restore has begun and not ended.
const RESTORING: &str = "onced.restoring";
/// What a directory may hold besides: the lock of who restores, and what was cut while it was written.
const LOCK: &str = "lock";
const MARKER_FRESH: &str = "onced.id.new";
/// A restored store goes on at the next multiple of this.
const LSN_GAP: u64 = 1 << 40;
/// Bytes of records that go into the store in one transaction.
const BATCH: usize = 8 << 20;

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The store that the backup was taken of, in hex.
    pub from: String,
    /// The new one.
    pub store: String,
    /// The recovery point.
    pub lsn: Lsn,
    /// The wall clock at the recovery point, where the backup knows it.
    pub taken: Option<Timestamp>,
    /// The wall clock now: what was decided in between is not in it.
    pub restored: Timestamp,
    /// What was in the backup.
    pub contents: Contents,
    /// Records that were `pending` and are `in_doubt`.
    pub in_doubt: u64,
    /// The first token that is granted.
    pub next_token: Token,
}

/// Why nothing was restored: what was begun is gone again.
#[derive(Debug)]
pub enum RestoreError {
    /// The backup cannot be used.
    Backup(BackupError),
    /// The directory has something in it.
    NotEmpty {
        /// What.
        path: PathBuf,
    },
    /// The wall clock is before the recovery point, so that tokens above it may have been granted.
    ClockBehind {
        /// The recovery point.
        taken: Timestamp,
        /// The wall clock.
        now: Timestamp,
    },
    /// There is no token above those that may have been granted.
    OutOfTokens,
    /// The new store is not what was in the backup.
    Differs(String),
    /// The store could not be made.
    Engine(EngineError),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Backup(error) => error.fmt(f),
            RestoreError::Engine(error) => error.fmt(f),
            RestoreError::NotEmpty { path } => write!(
                f,
                "there is {} already; a restore goes into an empty directory: give another, or move what is there \
                 away",
                path.display()
            ),
            RestoreError::ClockBehind { taken, now } => write!(
                f,
                "the clock of this machine says {now}, and the backup was taken at {taken}: tokens cannot be raised \
                 above all that were granted; set the clock, or give the highest token that was granted with --after"
            ),
            RestoreError::OutOfTokens => f.write_str(
                "there is no token left above those that may have been granted; look at the clock of this machine \
                 and at --after",
            ),
            RestoreError::Differs(found) => write!(
                f,
                "what was restored is not sound: {found}; look at the disk and the kernel's log, and restore to \
                 another one"
            ),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<BackupError> for RestoreError {
    fn from(error: BackupError) -> RestoreError {
        RestoreError::Backup(error)
    }
}

impl<E: Into<EngineError>> From<E> for RestoreError {
    fn from(error: E) -> RestoreError {
        RestoreError::Engine(error.into())
    }
}

/// Refuses a directory in which a restore was cut short.
pub(super) fn refuse_unfinished(dir: &Path) -> Result<(), EngineError> {
    let path = dir.join(RESTORING);
    if exists(&path)? {
        return Err(EngineError::Unfinished { path });
    }
    Ok(())
}

/// Finds out whether a backup is whole and a directory fit for a restore, which may not exist yet. Writes nothing.
///
/// # Errors
/// As [`restore`].
pub fn check(backup: &Path, dir: &Path) -> Result<(), RestoreError> {
    refuse_used(dir)?;
    crate::store::verify_backup(backup)?;
    Ok(())
}

/// Makes a store of a backup, in a directory that the caller holds and that is empty, or holds what a restore left
/// that was cut short. Tokens go on above those that are known, above the wall clock in microseconds, and above
/// `after`.
///
/// # Errors
/// [`RestoreError`]: the directory is as it was. Killed at any moment it leaves a directory that no server starts
/// on, and that a restore can be repeated in.
pub fn restore(
    backup: &Path,
    dir: &Path,
    options: &Options,
    after: Option<Token>,
) -> Result<Restored, RestoreError> {
    check(backup, dir)?;
    let backup = Backup::open(backup)?;
    let next_token = next_token(backup.head(), options, after)?;
    let note = dir.join(RESTORING);
    fs::File::create(&note)
        .and_then(|file| file.sync_all())
        .map_err(|source| directory("write", &note, source))?;
    sync_dir(dir)?;
    let made = make(backup, dir, options, next_token);
    if made.is_err() {
        // What is left, if this fails too, is refused by the note.
        let _ = clear(dir).map(|()| fs::remove_file(&note));
        let _ = sync_dir(dir);
    }
    made
}

/// Whether anything in the directory would be lost, or mixed with what is restored.
fn refuse_used(dir: &Path) -> Result<(), RestoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(directory("look into", dir, source).into()),
    };
    let unfinished = exists(&dir.join(RESTORING))?;
    for entry in entries {
        let name = entry
            .map_err(|source| directory("look into", dir, source))?
            .file_name();
        // A creation or restore that was cut leaves some of these, and nothing that anybody was told of.
        let leftover = [LOCK, FRESH, MARKER_FRESH];
        let of_restore = [RESTORING, DATA, MARKER];
        let is = |names: &[&str]| names.iter().any(|known| name == *known);
        if !(is(&leftover) || (unfinished && is(&of_restore))) {
            return Err(RestoreError::NotEmpty {
                path: dir.join(name),
            });
        }
    }
    Ok(())
}

/// The first token that the new store grants.
fn next_token(head: &Head, options: &Options, after: Option<Token>) -> Result<Token, RestoreError> {
    let now = options.clock.wall_micros();
    let taken = position_from_bytes(&head.mark).map(|position| position.reading.wall);
    if after.is_none()
        && let Some(taken) = taken
        && now / 1000 < taken
    {
        return Err(RestoreError::ClockBehind {
            taken: Timestamp::from_millis(taken),
            now: Timestamp::from_millis(now / 1000),
        });
    }
    let after = after.map_or(0, |after| after.get().saturating_add(1));
    let next = head.next_token.get().max(now).max(after);
    // The last one is never granted.
    Token::new(next)
        .filter(|next| *next < Token::MAX)
        .ok_or(RestoreError::OutOfTokens)
}

/// Removes what a restore made, but for the note.
fn clear(dir: &Path) -> Result<(), EngineError> {
    for name in [FRESH, DATA] {
        let path = dir.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(directory("remove the unfinished", &path, error));
            }
            _ => {}
        }
    }
    for name in [MARKER, MARKER_FRESH] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(directory("remove the unfinished", &path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn make(
    mut backup: Backup,
    dir: &Path,
    options: &Options,
    next_token: Token,
) -> Result<Restored, RestoreError> {
    clear(dir)?;
    let id = random_id(dir)?;
    let head = backup.head().clone();
    let position = position_from_bytes(&head.mark);
    let fresh = dir.join(FRESH);
    let journal = fresh.join(JOURNAL);
    fs::create_dir(&fresh).map_err(|source| directory("create", &fresh, source))?;
    fs::create_dir(&journal).map_err(|source| directory("create", &journal, source))?;
    let first = Lsn((head.lsn.0 / LSN_GAP)
        .saturating_add(1)
        .saturating_mul(LSN_GAP));
    let mut filling = Filling {
        store: Store::create(fresh.join(STORE), id, options.store)?,
        id,
        lsn: Lsn(first.0.saturating_sub(1)),
        next_token,
        mark: head.mark,
        policies: Vec::new(),
        records: Memtable::new(KeyHasher::new(&id)),
        at: position.map_or(Timestamp::default(), |position| position.time),
        in_doubt: 0,
    };
    while let Some(item) = backup.next_item()? {
        filling.take(item)?;
    }
    let in_doubt = filling.in_doubt;
    let contents = backup.contents();
    let stored = filling.end()?;
    if stored != contents.records {
        let (there, stored) = (contents.records, stored);
        let reason = format!("{there} records were in the backup, and {stored} are in the store");
        return Err(RestoreError::Differs(reason));
    }
    drop(journal::create::create(
        journal_disk(&fresh)?,
        id,
        first,
        options.journal.clone(),
    )?);
    sync_dir(&fresh)?;
    let data = dir.join(DATA);
    fs::rename(&fresh, &data)
        .map_err(|source| directory("move the new store to", &data, source))?;
    write_marker(dir, &id)?;
    let note = dir.join(RESTORING);
    prove(dir, &note, options)?;
    let (now, _) = options.clock.read();
    Ok(Restored {
        from: hex(&head.store_id),
        store: hex(&id),
        lsn: head.lsn,
        taken: position.map(|position| Timestamp::from_millis(position.reading.wall)),
        restored: Timestamp::from_millis(now.wall),
        contents,
        in_doubt,
        next_token,
    })
}

/// Looks at the whole directory once more, as `check` does, and takes the note away.
fn prove(dir: &Path, note: &Path, options: &Options) -> Result<(), RestoreError> {
    let found = inspect_unfinished(dir, options)?;
    if let Some(finding) = found.findings.first() {
        let (file, reason) = (finding.file.display(), &finding.reason);
        return Err(RestoreError::Differs(format!("{file}: {reason}")));
    }
    fs::remove_file(note).map_err(|source| directory("remove", note, source))?;
    Ok(sync_dir(dir)?)
}

/// A store that is being filled.
struct Filling {
    store: Store,
    id: StoreId,
    lsn: Lsn,
    next_token: Token,
    mark: Vec<u8>,
    policies: Vec<(Box<str>, Option<Policy>)>,
    records: Memtable,
    /// Engine time at the recovery point.
    at: Timestamp,
    in_doubt: u64,
}

impl Filling {
    fn take(&mut self, item: Item) -> Result<(), RestoreError> {
        match item {
            Item::Policy(namespace, policy) => self.policies.push((namespace, Some(policy))),
            Item::Record(key, mut record) => {
                let pending = record.state == State::Pending;
                record.doubt(self.at);
                self.in_doubt = self.in_doubt.saturating_add(pending.into());
                let put = self.records.put_record(self.lsn, &key, Some(&record));
                put.map_err(|error| {
                    let key = key.joined().escape_ascii();
                    RestoreError::Differs(format!("key {key}: {error}"))
                })?;
                if self.records.bytes() >= BATCH {
                    self.checkpoint()?;
                }
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), StoreError> {
        let fresh = Memtable::new(KeyHasher::new(&self.id));
        self.store.checkpoint(Checkpoint {
            lsn: self.lsn,
            next_token: self.next_token,
            mark: self.mark.clone(),
            policies: std::mem::take(&mut self.policies),
            changes: Arc::new(std::mem::replace(&mut self.records, fresh)),
        })?;
        Ok(())
    }

    /// How many records there are.
    fn end(mut self) -> Result<u64, StoreError> {
        self.checkpoint()?;
        let records = self.store.records();
        self.store.close()?;
        Ok(records)
    }
}
