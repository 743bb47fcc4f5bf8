//! What the writer and its readers share: the database, which may be reopened under them, and what is
//! known in memory of its tables.
//!
//! Invariant: at every moment each filter in the catalog covers all keys its table has in the last
//! committed state. The writer therefore inserts before it commits. It takes something away (a filter made
//! anew, a table dropped) only by a new catalog of another epoch, made from what is committed. A reader
//! that finds the same epoch before it began its transaction and after has filters that cover it.

use parking_lot::{Condvar, Mutex, RwLock};
use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::backend::{Failure, Source, Watched};
use super::codec::TableCounts;
use super::error::{StoreError, io_error};
use super::filter::{Filter, FilterCounters, KeyHasher};
use super::filters::{Covers, Filters};
use super::layout::Place;

/// The table of that name: bytes to bytes, as all of ours are.
pub(super) const fn bytewise(
    name: &str,
) -> redb::TableDefinition<'_, &'static [u8], &'static [u8]> {
    redb::TableDefinition::new(name)
}

/// A table as the writer knows it.
pub(super) struct Live {
    /// As of the last commit.
    pub(super) counts: TableCounts,
    /// Shares its links with the catalog.
    pub(super) filter: Filter,
}

/// All tables of records.
pub(super) type Tables = BTreeMap<Place, Live>;

/// Records per namespace and table.
pub(super) type Namespaces = BTreeMap<Box<str>, BTreeMap<Place, u64>>;

/// The filters as readers see them.
pub(super) struct Catalog {
    epoch: u64,
    pub(super) filters: Filters,
}

pub(super) struct Shared {
    pub(super) path: PathBuf,
    source: Source,
    cache: usize,
    pub(super) hasher: KeyHasher,
    slot: RwLock<Slot>,
    turn: Mutex<Turn>,
    turned: Condvar,
    catalog: RwLock<Arc<Catalog>>,
    pub(super) counters: FilterCounters,
    pub(super) namespaces: Mutex<Arc<Namespaces>>,
    #[cfg(feature = "canary")]
    late: Mutex<Filters>,
}

struct Slot {
    database: Option<Database>,
    failure: Arc<Failure>,
    generation: u64,
}

/// Tells readers that met a latched database when to go on.
struct Turn {
    generation: u64,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
enum Ended {
    Failed,
    Closed,
}

/// What work inside a transaction meets; [`Shared::failed`] and [`explain`] say where.
pub(super) enum Fault {
    Redb(redb::Error),
    /// Something that should not be in a table, or should.
    Damage {
        table: Box<str>,
        key: Option<Box<str>>,
        reason: Box<str>,
    },
    Store(StoreError),
}

/// A [`Fault::Damage`].
pub(super) fn damage(table: &str, key: Option<&[u8]>, reason: impl ToString) -> Fault {
    Fault::Damage {
        table: table.into(),
        key: key.map(|key| key.escape_ascii().to_string().into()),
        reason: reason.to_string().into(),
    }
}

macro_rules! faults {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Fault {
                Fault::Redb(error.into())
            }
        })*
    };
}

faults!(
    redb::StorageError,
    redb::TableError,
    redb::TransactionError,
    redb::CommitError,
    redb::DatabaseError
);

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Store(error)
    }
}

impl Shared {
    pub(super) fn new(
        path: PathBuf,
        source: Source,
        cache: usize,
        store_id: &[u8; 16],
        opened: (Database, Arc<Failure>),
    ) -> Shared {
        let (database, failure) = opened;
        Shared {
            path,
            source,
            cache,
            hasher: KeyHasher::new(store_id),
            slot: RwLock::new(Slot {
                database: Some(database),
                failure,
                generation: 0,
            }),
            turn: Mutex::new(Turn {
                generation: 0,
                ended: None,
            }),
            turned: Condvar::new(),
            catalog: RwLock::new(Arc::new(Catalog {
                epoch: 0,
                filters: Filters::default(),
            })),
            counters: FilterCounters::default(),
            namespaces: Mutex::default(),
            #[cfg(feature = "canary")]
            late: Mutex::default(),
        }
    }

    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().clone()
    }

    /// Whether any table may hold a key of that hash.
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let catalog = self.catalog.read();
        let found = catalog.filters.places(hash).next();
        found.is_some()
    }

    /// Marks which of some keys any table may hold, by their hashes: on the path of every command.
    pub(super) fn mark_possible(&self, hashes: &[u64], possible: &mut [bool]) {
        let catalog = self.catalog.read();
        catalog.filters.mark_possible(hashes, possible);
    }

    /// Shows readers the writer's filters. `less` says that something was taken away.
    pub(super) fn publish(&self, tables: &Tables, covers: &Covers, less: bool) {
        let filters = Filters::new(tables, covers);
        #[cfg(feature = "canary")]
        let filters = if crate::canary::has(crate::canary::Fault::FilterUpdatedLate) {
            std::mem::replace(&mut *self.late.lock(), filters)
        } else {
            filters
        };
        let mut catalog = self.catalog.write();
        let epoch = catalog.epoch + u64::from(less);
        *catalog = Arc::new(Catalog { epoch, filters });
    }

    /// Begins the one write transaction.
    pub(super) fn begin_write(&self) -> Result<WriteTransaction, Fault> {
        let slot = self.slot.read();
        let database = slot
            .database
            .as_ref()
            .ok_or(Fault::Redb(redb::Error::DatabaseClosed))?;
        let mut transaction = database.begin_write()?;
        // A crash is then repaired in a millisecond, and no repair ever rolls a commit back.
        transaction.set_quick_repair(true);
        Ok(transaction)
    }

    /// What a failed call means; a failed read or write ends the store, a lack of space does not.
    pub(super) fn failed(&self, operation: &'static str, fault: impl Into<Fault>) -> StoreError {
        let failure = self.slot.read().failure.clone();
        let error = explain(operation, &self.path, &failure, fault.into());
        if matches!(error, StoreError::Io { .. }) {
            self.end(Ended::Failed);
        }
        error
    }

    /// Runs `read` in a transaction of its own, with filters that cover it. Where the database was latched
    /// by a full disk it waits until the writer has reopened it, and starts over.
    pub(super) fn read<T>(
        &self,
        operation: &'static str,
        mut read: impl FnMut(&ReadTransaction, &Catalog) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        loop {
            let epoch = self.catalog.read().epoch;
            let (generation, failure, begun) = {
                let slot = self.slot.read();
                let begun = slot.database.as_ref().map(ReadableDatabase::begin_read);
                (slot.generation, slot.failure.clone(), begun)
            };
            let result = match begun {
                None => Err(Fault::Redb(redb::Error::DatabaseClosed)),
                Some(Err(error)) => Err(error.into()),
                Some(Ok(transaction)) => {
                    let catalog = self.catalog();
                    if catalog.epoch != epoch {
                        continue;
                    }
                    read(&transaction, &catalog)
                }
            };
            match result {
                Ok(value) => return Ok(value),
                Err(Fault::Redb(redb::Error::PreviousIo | redb::Error::DatabaseClosed)) => {
                    self.wait_for_turn(operation, generation, &failure)?;
                }
                Err(fault) => {
                    let error = explain(operation, &self.path, &failure, fault);
                    if matches!(error, StoreError::Io { .. }) {
                        self.end(Ended::Failed);
                    }
                    return Err(error);
                }
            }
        }
    }

    fn wait_for_turn(
        &self,
        operation: &'static str,
        seen: u64,
        failure: &Failure,
    ) -> Result<(), StoreError> {
        let failed = || match failure.first() {
            Some(error) => io_error(operation, &self.path, error),
            None => StoreError::Closed,
        };
        if failure.first().is_some() && !failure.is_full() {
            return Err(failed());
        }
        let mut turn = self.turn.lock();
        loop {
            if turn.generation > seen {
                return Ok(());
            }
            match turn.ended {
                Some(Ended::Failed) => return Err(failed()),
                Some(Ended::Closed) => return Err(StoreError::Closed),
                None => self.turned.wait(&mut turn),
            }
        }
    }

    fn end(&self, ended: Ended) {
        self.turn.lock().ended.get_or_insert(ended);
        self.turned.notify_all();
    }

    /// Closes the database, opens it anew and lets `check` look at it before any reader does.
    pub(super) fn reopen<T>(
        &self,
        operation: &'static str,
        check: impl FnOnce(&Database) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let mut slot = self.slot.write();
        // A latched database writes nothing more when it closes; its error is the one already known.
        drop(slot.database.take());
        let reopened = open_database(&self.source, &self.path, self.cache, operation).and_then(
            |(database, failure)| match check(&database) {
                Ok(value) => Ok((database, failure, value)),
                Err(fault) => Err(explain(operation, &self.path, &failure, fault)),
            },
        );
        let (database, failure, value) = match reopened {
            Ok(reopened) => reopened,
            Err(error) => {
                drop(slot);
                if !matches!(error, StoreError::Full { .. }) {
                    self.end(Ended::Failed);
                }
                return Err(error);
            }
        };
        let generation = slot.generation + 1;
        *slot = Slot {
            database: Some(database),
            failure,
            generation,
        };
        drop(slot);
        self.turn.lock().generation = generation;
        self.turned.notify_all();
        Ok(value)
    }

    /// Closes the database for good; readers are told so.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        let database = self.slot.write().database.take();
        self.end(Ended::Closed);
        match database {
            Some(database) => database
                .close()
                .map_err(|error| self.failed("close the store", error)),
            None => Ok(()),
        }
    }
}

/// Opens the database of a source, watched.
pub(super) fn open_database(
    source: &Source,
    path: &Path,
    cache: usize,
    operation: &'static str,
) -> Result<(Database, Arc<Failure>), StoreError> {
    let failure = Arc::new(Failure::default());
    let backend = source().map_err(|error| io_error(operation, path, error))?;
    let database = Database::builder()
        .set_cache_size(cache)
        .create_with_backend(Watched::new(backend, failure.clone()))
        .map_err(|error| explain(operation, path, &failure, error.into()))?;
    Ok((database, failure))
}

/// What went wrong, for people.
pub(super) fn explain(
    operation: &'static str,
    path: &Path,
    failure: &Failure,
    fault: Fault,
) -> StoreError {
    use redb::Error;
    let path = path.to_owned();
    let error = match fault {
        Fault::Store(error) => return error,
        Fault::Damage { table, key, reason } => {
            return StoreError::Damage {
                operation,
                path,
                table: Some(table),
                key,
                reason,
            };
        }
        Fault::Redb(error) => error,
    };
    match error {
        Error::Io(error) => io_error(operation, &path, error),
        Error::PreviousIo | Error::DatabaseClosed => match failure.first() {
            Some(error) => io_error(operation, &path, error),
            None => StoreError::Closed,
        },
        Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => StoreError::InUse { path },
        Error::ValueTooLarge(_) | Error::TableAlreadyOpen(..) | Error::TransactionPoisoned => {
            StoreError::Invalid {
                operation,
                reason: error.to_string().into(),
            }
        }
        other => {
            let reason = other.to_string().into();
            StoreError::Damage {
                operation,
                path,
                table: None,
                key: None,
                reason,
            }
        }
    }
}
