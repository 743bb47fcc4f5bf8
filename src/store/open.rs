//! Creating, opening and reopening a store.

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableError};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::backend::{self, Failure, Peek, Source, Watched};
use super::codec::{
    CodecError, StoreState, TableCounts, decode_policy, decode_state, encode_counts, encode_state,
};
use super::error::{StoreError, io_error};
use super::filter::KeyHasher;
use super::filters::Covers;
use super::layout::{Bounds, META, Place};
use super::read::Reader;
use super::scan::{Scanned, scan};
use super::shared::{Fault, Shared, Tables, bytewise, damage, explain, open_database};
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Token};

/// The format this version writes, and the highest it reads. Raised when the meaning of tables or rows
/// changes; the new version then reads the old format, or rewrites it in one transaction when it opens it.
pub const FORMAT: u32 = 1;

/// Bytes of redb's page cache where every page is read once, in order: none is asked for again, and a small cache stays
/// in the processor's.
const ONCE_THROUGH: usize = 1 << 20;

/// Marks a redb file as ours.
const MAGIC: &[u8] = b"onced store\0";

pub(super) const FORMAT_KEY: &[u8] = b"format";
pub(super) const STATE_KEY: &[u8] = b"state";
/// Before the name of a table: its counts.
pub(super) const TABLE_KEYS: &[u8] = b"table/";
/// Before the name of a namespace: its policy.
pub(super) const POLICY_KEYS: &[u8] = b"policy/";

/// What a store is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of redb's page cache. 32 MiB by default.
    pub cache: usize,
    /// A part of a table is closed at about that many rows. 131 072 by default: a batch of random keys touches
    /// nearly every page of the part it goes to, so smaller parts are merged into at twice the rate of parts
    /// of a million (232 000 against 117 000 keys a second), for more tables that a look-up has to ask the
    /// filters of.
    pub part_rows: u64,
    /// About so many tables of records, at most; each costs a little memory and time per look-up. 1024 by
    /// default.
    pub tables: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache: 32 << 20,
            part_rows: 131_072,
            tables: 1024,
        }
    }
}

/// Policies by namespace.
pub(super) type Policies = Vec<(Box<str>, Policy)>;

/// What a store held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Everything up to this LSN is in it.
    pub checkpoint: Lsn,
    /// No token from this one on was granted before that LSN.
    pub next_token: Token,
    /// Chosen at creation.
    pub store_id: [u8; 16],
    /// What the last checkpoint or sweep put there; not understood here.
    pub mark: Vec<u8>,
    /// The policies that were set, by namespace.
    pub policies: Vec<(Box<str>, Policy)>,
    /// Records.
    pub records: u64,
    /// Tables of records.
    pub tables: usize,
}

/// The single writer. Dropping it closes the store; so does [`Store::close`], which tells of errors.
pub struct Store {
    pub(super) shared: Arc<Shared>,
    pub(super) state: StoreState,
    pub(super) tables: Tables,
    pub(super) covers: Covers,
    pub(super) bounds: Bounds,
}

impl Store {
    /// Creates a store in a file that does not exist yet. It appears whole or not at all: it is made
    /// under another name, `<path>.new`, and renamed.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if there is a file, else what the system says.
    pub fn create(
        path: impl AsRef<Path>,
        store_id: [u8; 16],
        options: Options,
    ) -> Result<Store, StoreError> {
        let path = path.as_ref();
        let failed = |error| io_error("create the store", path, error);
        if path.try_exists().map_err(failed)? {
            return Err(StoreError::Exists {
                path: path.to_owned(),
            });
        }
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        // What lies there is a creation that was cut short.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)
            .map_err(failed)?;
        initialize(&backend::file(&new), &new, store_id, options)?;
        fs::rename(&new, path).map_err(failed)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))
            .and_then(|f| f.sync_all())
            .map_err(failed)?;
        Store::open(path, options).map(|(store, _)| store)
    }

    /// Opens a store: verifies every page and every record of it, and builds the filters.
    ///
    /// # Errors
    /// [`StoreError::Newer`] and [`StoreError::NotAStore`] leave the file as it was, byte for byte;
    /// [`StoreError::Damage`] where it does not hold what was written to it.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<(Store, Opened), StoreError> {
        let path = path.as_ref();
        open(backend::file(path), path.to_owned(), options)
    }

    /// As [`Store::create`], in the storage of an empty backend.
    ///
    /// # Errors
    /// As there.
    pub fn create_with_backend(
        source: Source,
        store_id: [u8; 16],
        options: Options,
    ) -> Result<Store, StoreError> {
        let path = simulated();
        let failed = |error| io_error("create the store", &path, error);
        let backend = source().map_err(failed)?;
        let len = backend.len().map_err(failed)?;
        backend.close().map_err(failed)?;
        if len > 0 {
            return Err(StoreError::Exists { path });
        }
        initialize(&source, &path, store_id, options)?;
        Store::open_with_backend(source, options).map(|(store, _)| store)
    }

    /// As [`Store::open`], from the storage of a backend.
    ///
    /// # Errors
    /// As there.
    pub fn open_with_backend(
        source: Source,
        options: Options,
    ) -> Result<(Store, Opened), StoreError> {
        open(source, simulated(), options)
    }

    /// Another reader.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.shared.clone())
    }

    /// Everything up to this LSN is in the store.
    #[must_use]
    pub const fn checkpoint_lsn(&self) -> Lsn {
        self.state.checkpoint
    }

    /// How many records it has.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.tables.values().map(|live| live.counts.rows).sum()
    }

    /// Opens the database anew after [`StoreError::Full`]: redb refuses every call after a failed commit.
    /// Nothing committed is lost, also while the disk is still full. Readers that met the latched database
    /// wait for this, so it should follow at once.
    ///
    /// # Errors
    /// [`StoreError::Full`]: try again later. Anything else is final.
    pub fn reopen(&mut self) -> Result<(), StoreError> {
        let (known, hasher) = (&self.state, &self.shared.hasher);
        let (state, scanned) = self.shared.reopen("reopen the store", |database| {
            let (state, _) = read_meta(database)?;
            if state.store_id != known.store_id {
                return Err(damage(META, Some(STATE_KEY), "this is another store"));
            }
            // The commit that failed may have reached the disk all the same.
            let changed = state.commits != known.commits;
            let scanned = if changed {
                Some(scan(database, hasher)?)
            } else {
                None
            };
            Ok((state, scanned))
        })?;
        self.state = state;
        if let Some(scanned) = scanned {
            self.adopt(scanned);
        }
        Ok(())
    }

    /// Closes the store. Readers answer [`StoreError::Closed`] from then on.
    ///
    /// # Errors
    /// What the system says. What was committed is durable all the same.
    pub fn close(self) -> Result<(), StoreError> {
        self.shared.close()
    }

    fn adopt(&mut self, scanned: Scanned) {
        self.tables = scanned.tables;
        self.covers = Covers::default();
        *self.shared.namespaces.lock() = Arc::new(scanned.namespaces);
        self.shared.publish(&self.tables, &self.covers, true);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // `close` is there for who wants to know.
        let _ = self.shared.close();
    }
}

fn simulated() -> PathBuf {
    PathBuf::from("the backend")
}

fn open(source: Source, path: PathBuf, options: Options) -> Result<(Store, Opened), StoreError> {
    const OPERATION: &str = "open the store";
    // Everything is looked at before anything is written: a refused file stays as it was.
    let (database, failure) = peek(&source, &path, ONCE_THROUGH, OPERATION)?;
    let read = || {
        let (state, policies) = read_meta(&database)?;
        let scanned = scan(&database, &KeyHasher::new(&state.store_id))?;
        Ok((state, policies, scanned))
    };
    let (state, policies, scanned) =
        read().map_err(|fault| explain(OPERATION, &path, &failure, fault))?;
    drop(database);
    let (database, failure) = open_database(&source, &path, options.cache, OPERATION)?;
    let again = read_meta(&database).and_then(|(again, _)| match again == state {
        true => Ok(()),
        false => Err(damage(
            META,
            Some(STATE_KEY),
            "it changed while it was read",
        )),
    });
    again.map_err(|fault| explain(OPERATION, &path, &failure, fault))?;
    let opened = Opened {
        checkpoint: state.checkpoint,
        next_token: state.next_token,
        store_id: state.store_id,
        mark: state.mark.clone(),
        policies,
        records: scanned.tables.values().map(|live| live.counts.rows).sum(),
        tables: scanned.tables.len(),
    };
    let shared = Shared::new(
        path,
        source,
        options.cache,
        &state.store_id,
        (database, failure),
    );
    let bounds = Bounds::of(options);
    let mut store = Store {
        shared: Arc::new(shared),
        state,
        tables: Tables::new(),
        covers: Covers::default(),
        bounds,
    };
    store.adopt(scanned);
    Ok((store, opened))
}

/// Verifies every page, then opens the database over a layer that keeps writes in memory, if it is one
/// this version can read. (redb itself trusts the pages it reads, and may panic over damaged ones.)
pub(super) fn peek(
    source: &Source,
    path: &Path,
    cache: usize,
    operation: &'static str,
) -> Result<(Database, Arc<Failure>), StoreError> {
    let failed = |error| io_error(operation, path, error);
    let not_a_store = |reason: &str| StoreError::NotAStore {
        path: path.to_owned(),
        reason: reason.into(),
    };
    let backend = source().map_err(failed)?;
    let len = backend.len().map_err(failed)?;
    let mut start = [0; 4];
    if len < 4096 || backend.read(0, &mut start).is_err() || start != *b"redb" {
        backend.close().map_err(failed)?;
        return Err(not_a_store("it does not begin as one"));
    }
    backend.close().map_err(failed)?;
    verify_pages(source, path, operation)?;
    let failure = Arc::new(Failure::default());
    let watched = Watched::new(source().map_err(failed)?, failure.clone());
    let database = Database::builder()
        .set_cache_size(cache)
        .create_with_backend(Peek::new(Box::new(watched)).map_err(failed)?)
        .map_err(|error| explain(operation, path, &failure, error.into()))?;
    let format =
        read_format(&database).map_err(|fault| explain(operation, path, &failure, fault))?;
    let found = format
        .as_deref()
        .and_then(|format| format.strip_prefix(MAGIC));
    let found = found
        .and_then(|version| version.try_into().ok())
        .map(u32::from_le_bytes);
    match found {
        None => Err(not_a_store("it is a redb database of something else")),
        Some(found) if found > FORMAT => Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known: FORMAT,
        }),
        Some(_) => Ok((database, failure)),
    }
}

/// Runs the first pass of redb's integrity check, which reads every page once and compares its checksum.
/// The passes after it rebuild what only a repair needs, so they are cut short.
fn verify_pages(source: &Source, path: &Path, operation: &'static str) -> Result<(), StoreError> {
    let failed = |error| io_error(operation, path, error);
    let failure = Arc::new(Failure::default());
    let watched = Watched::new(source().map_err(failed)?, failure.clone());
    let verified = Arc::new(AtomicBool::new(false));
    let passed = verified.clone();
    let opened = Database::builder()
        .set_cache_size(ONCE_THROUGH)
        .set_check_integrity_on_open(true)
        .set_repair_callback(move |session| {
            // 0.0 before the first pass, 0.3 where it failed and an older commit would be tried, 0.6
            // after it.
            if session.progress() > 0.0 {
                passed.store(session.progress() > 0.5, Ordering::Relaxed);
                session.abort();
            }
        })
        .create_with_backend(Peek::new(Box::new(watched)).map_err(failed)?);
    match opened {
        Ok(_) => Ok(()),
        Err(DatabaseError::RepairAborted) if verified.load(Ordering::Relaxed) => Ok(()),
        Err(error) => Err(explain(operation, path, &failure, error.into())),
    }
}

fn read_format(database: &Database) -> Result<Option<Vec<u8>>, Fault> {
    match database.begin_read()?.open_table(bytewise(META)) {
        Ok(meta) => Ok(meta.get(FORMAT_KEY)?.map(|value| value.value().to_vec())),
        Err(TableError::Storage(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Makes an empty database a store.
fn initialize(
    source: &Source,
    path: &Path,
    store_id: [u8; 16],
    options: Options,
) -> Result<(), StoreError> {
    let operation = "create the store";
    let (database, failure) = open_database(source, path, options.cache, operation)?;
    write_first(&database, store_id)
        .and_then(|()| Ok(database.close()?))
        .map_err(|fault| explain(operation, path, &failure, fault))
}

fn write_first(database: &Database, store_id: [u8; 16]) -> Result<(), Fault> {
    let state = StoreState {
        store_id,
        commits: 0,
        checkpoint: Lsn(0),
        next_token: Token::FIRST,
        mark: Vec::new(),
    };
    let mut format = MAGIC.to_vec();
    format.extend_from_slice(&FORMAT.to_le_bytes());
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        let mut meta = transaction.open_table(bytewise(META))?;
        meta.insert(FORMAT_KEY, format.as_slice())?;
        meta.insert(
            STATE_KEY,
            encode_state(STATE_KEY, &state)
                .map_err(unwritable)?
                .as_slice(),
        )?;
        let counts_key = counts_key(Place::Open);
        let counts = encode_counts(&counts_key, &TableCounts::default()).map_err(unwritable)?;
        meta.insert(counts_key.as_slice(), counts.as_slice())?;
        transaction.open_table(bytewise(&Place::Open.name()))?;
    }
    Ok(transaction.commit()?)
}

/// The key of a table's counts in `meta`.
pub(super) fn counts_key(place: Place) -> Vec<u8> {
    [TABLE_KEYS, place.name().as_bytes()].concat()
}

/// The key of a namespace's policy in `meta`.
pub(super) fn policy_key(namespace: &str) -> Vec<u8> {
    [POLICY_KEYS, namespace.as_bytes()].concat()
}

/// A value that no store may hold came from the caller.
pub(super) fn unwritable(error: CodecError) -> Fault {
    let reason = error.to_string().into();
    Fault::Store(StoreError::Invalid {
        operation: "write to the store",
        reason,
    })
}

/// The state of the store.
pub(super) fn read_state(
    meta: &impl ReadableTable<&'static [u8], &'static [u8]>,
) -> Result<StoreState, Fault> {
    let state = meta.get(STATE_KEY)?;
    let state = state.ok_or_else(|| damage(META, Some(STATE_KEY), "there is none"))?;
    decode_state(STATE_KEY, state.value()).map_err(|error| damage(META, Some(STATE_KEY), error))
}

/// The state of the store, and its policies.
pub(super) fn read_meta(database: &Database) -> Result<(StoreState, Policies), Fault> {
    let meta = database.begin_read()?.open_table(bytewise(META))?;
    let state = read_state(&meta)?;
    let mut policies = Vec::new();
    for row in meta.range(POLICY_KEYS..)? {
        let (key, value) = row?;
        let key = key.value();
        let Some(namespace) = key.strip_prefix(POLICY_KEYS) else {
            break;
        };
        let namespace =
            std::str::from_utf8(namespace).map_err(|error| damage(META, Some(key), error))?;
        let policy =
            decode_policy(key, value.value()).map_err(|error| damage(META, Some(key), error))?;
        policies.push((namespace.into(), policy));
    }
    Ok((state, policies))
}
