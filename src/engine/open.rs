//! From a data directory to a running engine: creation, recovery, threads.
//!
//! ```text
//! DIR/onced.id       the store's id; shows that the directory was used
//! DIR/data/          appears in one rename, so a creation that was cut is not there
//!     store.redb     records
//!     reserve        space, see `reserve`
//!     journal/       segments
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoint::Keeper;
use super::clock::{Clock, Pace, Position, Reading};
use super::commit::{self, Committer};
use super::core::{Core, Phase, Policies};
use super::gather::Gather;
use super::late::Late;
use super::program::Watches;
use super::recent::{Recent, end};
use super::reserve::Reserve;
use super::trail::Trails;
use super::unchanged::Unchanged;
use super::waiters::{Waiters, keep_time};
use super::written::Written;
use super::{Engine, EngineError, Inner, Limits, Options, checkpoint};
use crate::journal::disk::{Disk, RealDisk};
use crate::journal::recovery::{self, Recovery};
use crate::journal::{self, Mark};
use crate::model::key::RecordKey;
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Record, Token};
use crate::model::time::{BootTime, Timestamp};
use crate::store::{
    self, Bodies, Change, CodecError, Entry, KeyHasher, Opened, Store, StoreError, Write,
    decode_entry, encode_record,
};

pub(super) type StoreId = [u8; 16];

/// The first entry of a store.
const FIRST: Lsn = Lsn(1);
pub(super) const MARKER: &str = "onced.id";
pub(super) const DATA: &str = "data";
pub(super) const FRESH: &str = "data.new";
pub(super) const STORE: &str = "store.redb";
pub(super) const JOURNAL: &str = "journal";

/// What a start found and did: for the log.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The directory was empty.
    pub created: bool,
    /// Entries of the journal that were not in the store yet.
    pub redone: u64,
    /// What a crash left unfinished at the end of the journal, and was cut.
    pub torn: Option<String>,
    /// Records in the store.
    pub records: u64,
}

/// Starts an engine on a directory that exists and that nobody else uses.
pub(super) fn open(dir: &Path, options: Options) -> Result<(Engine, Report), EngineError> {
    let limits = Limits::resolve(&options)?;
    let mut report = Report::default();
    let data = dir.join(DATA);
    super::restore::refuse_unfinished(dir)?;
    let marker = read_marker(dir)?;
    if !exists(&data)? {
        if let Some(id) = marker {
            return Err(EngineError::Missing {
                path: data,
                store: Some(hex(&id)),
            });
        }
        create(dir, &options)?;
        report.created = true;
    }
    for path in [data.join(STORE), data.join(JOURNAL)] {
        if !exists(&path)? {
            let store = marker.as_ref().map(hex);
            return Err(EngineError::Missing { path, store });
        }
    }
    store::remove_leftover(data.join(STORE))?;
    let reserve = Reserve::open(&data, options.reserve)?;
    let (store, opened) = Store::open(data.join(STORE), options.store)?;
    match marker {
        Some(id) if id != opened.store_id => {
            return Err(EngineError::Mixed {
                path: dir.join(MARKER),
            });
        }
        Some(_) => {}
        // New, cut between the rename and here, or the marker was lost.
        None => write_marker(dir, &opened.store_id)?,
    }
    let parts = Parts {
        store,
        opened,
        journal: journal_disk(&data)?,
        reserve,
        pace: Pace::Machine,
    };
    let reserve = options.reserve;
    let ready = recover(parts, options, limits, &mut report)?;
    // Set here alone: a simulated disk has no file system to ask.
    let _ = ready.inner.space.set((data, reserve));
    Ok((start(ready)?, report))
}

/// What a store is made of, opened.
pub(super) struct Parts {
    pub(super) store: Store,
    pub(super) opened: Opened,
    /// Where the journal is.
    pub(super) journal: Arc<dyn Disk>,
    pub(super) reserve: Reserve,
    /// What the store thread goes by.
    pub(super) pace: Pace,
}

/// An engine whose threads were not started.
pub(super) struct Ready {
    pub(super) inner: Arc<Inner>,
    pub(super) keeper: Keeper,
}

/// Brings what the journal has and the store has not to the store, and makes everything ready to go on.
pub(super) fn recover(
    parts: Parts,
    options: Options,
    limits: Limits,
    report: &mut Report,
) -> Result<Ready, EngineError> {
    let Parts {
        mut store,
        opened,
        journal: disk,
        mut reserve,
        pace,
    } = parts;
    report.records = opened.records;
    let mut recovery = recovery::open(disk.clone(), opened.store_id, opened.checkpoint)?;
    let mut redone = Redone::of(&opened);
    redo(
        &mut recovery,
        &mut Target {
            store: &mut store,
            reserve: Some(&mut reserve),
        },
        &mut redone,
        &limits,
        report,
    )?;
    let policies = Policies {
        put: redone.policies,
        configured: options.policies,
        standard: Policy::default(),
    };
    let clock = Clock::new(options.clock, redone.position);
    let next_lsn = Lsn(redone.lsn.0.saturating_add(1));
    let begun = match recovery.into_writer(next_lsn, options.journal.clone()) {
        // The store has more now: segments that were needed when the journal was opened are spares.
        Err(error) if error.is_full() => {
            let read = || read_to_end(&disk, opened.store_id, store.checkpoint_lsn());
            let mut begun = read()?.into_writer(next_lsn, options.journal.clone());
            if matches!(&begun, Err(error) if error.is_full()) {
                begun = read()?.into_writer_in_place(next_lsn, options.journal.clone());
            }
            match begun {
                Err(error) if error.is_full() && reserve.free()? => {
                    read()?.into_writer(next_lsn, options.journal)?
                }
                other => other?,
            }
        }
        other => other?,
    };
    let (writer, preparer, room) = begun;
    // What the recovery checkpointed is released: the journal knew the checkpoint as it was before.
    preparer.release(store.checkpoint_lsn());
    let reader = store.reader();
    redone.recent.count_against(|key| {
        let found = reader.get(key, Bodies::None)?;
        Ok::<_, StoreError>(found.as_ref().map(end))
    })?;
    let full = redone.stuck || !reserve.refill()?;
    if full {
        checkpoint::warn_full();
    }
    let stored = reader.namespaces().into_iter();
    let with_policy = policies.put.keys().chain(policies.configured.keys());
    let with_policy = with_policy.map(|name| name.as_str().into());
    let recent = redone.recent.rows().filter_map(|row| row.name());
    let recent = recent.map(|key| key.namespace().into());
    let namespaces = stored.chain(with_policy).chain(recent).collect();
    let core = Core {
        clock,
        exhausted: redone.stuck,
        recent: redone.recent,
        gather: Gather::new(redone.lsn, limits.max_frame),
        policies,
        phase: Phase::Running,
        store_ended: false,
        late: Late::default(),
        full,
        wants_room: false,
        stored: reader.counts(),
        checkpoints: 0,
        holds: 0,
        in_store: store.checkpoint_lsn(),
        wanted_in_store: Lsn(0),
        frozen_at: Timestamp::default(),
        namespaces,
        watches: Watches::default(),
        waiters: Waiters::default(),
        written: Written::default(),
        unchanged: Unchanged::default(),
        next_lsn,
        next_token: redone.next_token,
        store_id: opened.store_id,
    };
    let trails = Trails::new(preparer.trail());
    let mut keeper = Keeper::new(store, preparer, reserve, pace);
    if full {
        keeper.begin_full();
    }
    Ok(Ready {
        inner: Arc::new(Inner::new(
            core,
            reader,
            room,
            trails,
            limits,
            options.in_flight,
            Committer::new(writer),
        )),
        keeper,
    })
}

/// What the store and the journal after it come to.
pub(super) struct Redone {
    pub(super) recent: Recent,
    /// The store has no space for it.
    pub(super) stuck: bool,
    pub(super) lsn: Lsn,
    pub(super) next_token: Token,
    pub(super) position: Option<Position>,
    pub(super) policies: BTreeMap<String, Policy>,
}

impl Redone {
    /// What the store alone comes to.
    pub(super) fn of(opened: &Opened) -> Redone {
        let policies = opened.policies.iter();
        Redone {
            recent: Recent::new(KeyHasher::new(&opened.store_id)),
            stuck: false,
            lsn: opened.checkpoint,
            next_token: opened.next_token,
            position: position_from_bytes(&opened.mark),
            policies: policies
                .map(|(name, policy)| (name.to_string(), policy.clone()))
                .collect(),
        }
    }

    /// The clocks stood there. What the store remembers of a sweep may be later than frames before it.
    fn see(&mut self, position: Position) {
        if self
            .position
            .is_none_or(|known| position.time >= known.time)
        {
            self.position = Some(position);
        }
    }
}

/// What a recovery writes to.
pub(super) struct Target<'a> {
    pub(super) store: &'a mut Store,
    /// Without one, a full disk is an error.
    pub(super) reserve: Option<&'a mut Reserve>,
}

/// A journal, read to its end.
fn read_to_end(
    disk: &Arc<dyn Disk>,
    id: StoreId,
    checkpoint: Lsn,
) -> Result<Recovery, EngineError> {
    let mut recovery = recovery::open(disk.clone(), id, checkpoint)?;
    while recovery.next_frame()?.is_some() {}
    Ok(recovery)
}

/// Redoes what the journal has and the store has not, and checkpoints it, so that nobody ever appends to an
/// old tail.
fn redo(
    recovery: &mut Recovery,
    target: &mut Target<'_>,
    redone: &mut Redone,
    limits: &Limits,
    report: &mut Report,
) -> Result<(), EngineError> {
    while let Some(frame) = recovery.next_frame()? {
        for (lsn, bytes) in frame.entries() {
            if lsn > redone.lsn {
                let entry = decode_entry(bytes).map_err(|error| EngineError::Entry {
                    lsn: lsn.0,
                    reason: error.to_string(),
                })?;
                if entry.lsn != lsn {
                    let reason = format!("it says that it is entry {}", entry.lsn.0);
                    return Err(EngineError::Entry { lsn: lsn.0, reason });
                }
                redo_entry(redone, entry)?;
                report.redone += 1;
            }
        }
        redone.see(position(frame.mark()));
        if redone.recent.active_bytes() >= limits.freeze_at && !redone.stuck {
            checkpoint_redone(target, redone)?;
        }
    }
    // A journal that was read to its end knows the last clocks, also where its last frame had no entry.
    if let Some(last) = recovery.last_mark() {
        redone.see(position(last));
    }
    report.torn = recovery.torn_tail().map(|torn| {
        format!(
            "{} bytes at offset {} of {}",
            torn.bytes,
            torn.offset,
            torn.path.display()
        )
    });
    checkpoint_redone(target, redone)
}

pub(super) fn redo_entry(redone: &mut Redone, entry: Entry) -> Result<(), EngineError> {
    redone.lsn = entry.lsn;
    #[cfg(feature = "canary")]
    let entry = without_token(entry);
    if let Some(token) = entry.decision.token {
        redone.next_token = redone.next_token.max(token.next().unwrap_or(Token::MAX));
    }
    let lsn = entry.lsn;
    match entry.change {
        Change::Put(key, record) => {
            redo_put(redone, lsn, &key, record).map_err(|error| EngineError::Entry {
                lsn: lsn.0,
                reason: error.to_string(),
            })?;
        }
        Change::Remove(key) => {
            let change = Write {
                lsn,
                value: None,
                large: false,
                bodies: Vec::new(),
            };
            let hash = redone.recent.hash(&key);
            redone.recent.put(hash, &key, change, None);
        }
        Change::Policy(namespace, policy) => {
            redone.recent.put_policy(&namespace, policy.clone());
            match policy {
                Some(policy) => redone.policies.insert(namespace.into(), policy),
                None => redone.policies.remove(&*namespace),
            };
        }
        Change::None(_) | Change::Tally(_) => {}
    }
    Ok(())
}

#[cfg(feature = "canary")]
fn without_token(mut entry: Entry) -> Entry {
    if crate::canary::has(crate::canary::Fault::TokenResetOnRestart) {
        entry.decision.token = None;
    }
    entry
}

fn redo_put(
    redone: &mut Redone,
    lsn: Lsn,
    key: &RecordKey,
    mut record: Arc<Record>,
) -> Result<(), CodecError> {
    let hash = redone.recent.hash(key);
    let large = record.large_bodies().next().is_some();
    if large
        && let Some(before) = redone.recent.get(hash, key)
        && let Some(before) = before.record()?
    {
        // Large bodies that an earlier entry brought and this one only refers to.
        Arc::make_mut(&mut record).attach_bodies(&before.held_bodies());
    }
    let mut row = Vec::new();
    encode_record(key.joined(), &record, &mut row)?;
    let change = Write {
        lsn,
        value: Some(&row),
        large,
        bodies: record.held_bodies(),
    };
    redone.recent.put(hash, key, change, None);
    Ok(())
}

/// Brings to the store what was redone. On a disk that is full, reserve included, it stays in memory: nothing
/// is lost, and whoever runs then answers from there.
pub(super) fn checkpoint_redone(
    target: &mut Target<'_>,
    redone: &mut Redone,
) -> Result<(), EngineError> {
    let mark = redone.position.map(mark_bytes).unwrap_or_default();
    while !redone.recent.is_empty() {
        let frozen = redone
            .recent
            .freeze(redone.lsn, redone.next_token, Timestamp::default());
        match target.store.checkpoint(frozen.checkpoint(mark.clone())) {
            Ok(_) => drop(redone.recent.thaw()),
            Err(error @ StoreError::Full { .. }) => {
                let reserve = target.reserve.as_mut().ok_or(error)?;
                redone.stuck = !reserve.free()?;
                target.store.reopen()?;
                if redone.stuck {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    redone.stuck = false;
    Ok(())
}

fn start(ready: Ready) -> Result<Engine, EngineError> {
    let Ready { inner, keeper } = ready;
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .map_err(EngineError::Thread)
    };
    let journal = {
        let inner = inner.clone();
        spawn("onced-journal", Box::new(move || commit::run(&inner)))?
    };
    let keeper = {
        let inner = inner.clone();
        spawn("onced-store", Box::new(move || keeper.run(&inner)))?
    };
    let timekeeper = {
        let inner = inner.clone();
        spawn("onced-waiters", Box::new(move || keep_time(&inner)))?
    };
    inner.threads.lock().extend([journal, keeper, timekeeper]);
    Ok(Engine::of(inner))
}

/// Makes an empty store beside where it will be, and moves it there in one step.
fn create(dir: &Path, options: &Options) -> Result<(), EngineError> {
    let fresh = dir.join(FRESH);
    match fs::remove_dir_all(&fresh) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(directory("remove the unfinished", &fresh, source)),
    }
    let id = random_id(dir)?;
    let journal = fresh.join(JOURNAL);
    fs::create_dir(&fresh).map_err(|source| directory("create", &fresh, source))?;
    fs::create_dir(&journal).map_err(|source| directory("create", &journal, source))?;
    let (store, journal) = (
        Store::create(fresh.join(STORE), id, options.store)?,
        journal::create::create(journal_disk(&fresh)?, id, FIRST, options.journal.clone())?,
    );
    drop(journal);
    store.close()?;
    sync_dir(&fresh)?;
    let data = dir.join(DATA);
    fs::rename(&fresh, &data)
        .map_err(|source| directory("move the new store to", &data, source))?;
    sync_dir(dir)
}

pub(super) fn journal_disk(data: &Path) -> Result<Arc<dyn Disk>, EngineError> {
    let path = data.join(JOURNAL);
    match RealDisk::open(&path) {
        Ok(disk) => Ok(Arc::new(disk)),
        Err(source) => Err(directory("open", &path, source)),
    }
}

pub(super) fn exists(path: &Path) -> Result<bool, EngineError> {
    path.try_exists()
        .map_err(|source| directory("look for", path, source))
}

pub(super) fn random_id(dir: &Path) -> Result<StoreId, EngineError> {
    let mut id = [0; 16];
    super::random::fill(&mut id)
        .map_err(|error| directory("take random bytes for the id of", dir, error))?;
    Ok(id)
}

pub(super) fn read_marker(dir: &Path) -> Result<Option<StoreId>, EngineError> {
    let path = dir.join(MARKER);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let id = text
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("onced store "));
            let id = id.and_then(unhex);
            id.map(Some).ok_or(EngineError::Marker { path })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(EngineError::Marker { path })
        }
        Err(source) => Err(directory("read", &path, source)),
    }
}

pub(super) fn write_marker(dir: &Path, id: &StoreId) -> Result<(), EngineError> {
    let (path, fresh) = (dir.join(MARKER), dir.join("onced.id.new"));
    let write = || {
        let mut file = fs::File::create(&fresh)?;
        writeln!(file, "onced store {}", hex(id))?;
        file.sync_all()?;
        fs::rename(&fresh, &path)
    };
    write().map_err(|source| directory("write", &path, source))?;
    sync_dir(dir)
}

pub(super) fn sync_dir(dir: &Path) -> Result<(), EngineError> {
    fs::File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(|source| directory("sync", dir, source))
}

pub(super) fn directory(operation: &'static str, path: &Path, source: io::Error) -> EngineError {
    EngineError::Directory {
        operation,
        path: PathBuf::from(path),
        source,
    }
}

pub(super) fn hex(id: &StoreId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<StoreId> {
    let bytes = text.as_bytes();
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    let digits = pairs.iter().map(|pair| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        u8::try_from(high? * 16 + low?).ok()
    });
    digits.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

pub(super) fn position(mark: Mark) -> Position {
    Position {
        time: mark.time,
        boot: mark.boot,
        reading: Reading {
            wall: mark.wall_ms,
            boot: mark.boot_clock_ms,
            boot_id: mark.boot_id,
        },
    }
}

/// A position as the store keeps it: four numbers, little endian, and the boot id.
pub(super) fn mark_bytes(position: Position) -> Vec<u8> {
    let reading = position.reading;
    let numbers = [
        position.time.as_millis(),
        position.boot.as_millis(),
        reading.wall,
        reading.boot,
    ];
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .chain(reading.boot_id)
        .collect()
}

pub(super) fn position_from_bytes(bytes: &[u8]) -> Option<Position> {
    let (numbers, boot_id) = bytes.split_at_checked(32)?;
    let (numbers, []) = numbers.as_chunks::<8>() else {
        return None;
    };
    let [time, boot, wall, boot_clock] = <[[u8; 8]; 4]>::try_from(numbers)
        .ok()?
        .map(u64::from_le_bytes);
    Some(Position {
        time: Timestamp::from_millis(time),
        boot: BootTime::from_millis(boot),
        reading: Reading {
            wall,
            boot: boot_clock,
            boot_id: boot_id.try_into().ok()?,
        },
    })
}
