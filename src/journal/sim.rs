//! A disk in memory that crashes, fails and fills up, for tests.
//!
//! Until it is synced, what was written is in doubt: a crash keeps it, loses it, or tears it into sectors of
//! 512 bytes of which any are kept. Names that were not synced are kept up to some operation, in order, as
//! journaling file systems do. All of that follows from the seed given to the crash.

use super::disk::{Disk, DiskFile, Space};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Small and good enough: splitmix64.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 where that is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

/// The seed of a random test: `SEED` if that is set, else one of the moment's addresses, printed.
pub(super) fn seed() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse().expect("SEED is a number"),
        Err(_) => {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(0)
        }
    };
    println!("SEED={seed}");
    seed
}

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Create,
    Write,
    Sync,
    Rename,
    Remove,
    SyncDir,
}

#[derive(Clone, Default)]
struct SimFile {
    durable: Vec<u8>,
    live: Vec<u8>,
    /// Written since the last sync.
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone)]
enum NameOp {
    Add(String, usize),
    Rename(String, String),
    Remove(String),
}

fn apply(names: &mut BTreeMap<String, usize>, op: &NameOp) {
    match op {
        NameOp::Add(name, id) => {
            names.insert(name.clone(), *id);
        }
        NameOp::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
        NameOp::Remove(name) => {
            names.remove(name);
        }
    }
}

#[derive(Clone)]
struct State {
    files: Vec<SimFile>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameOp>,
    total: u64,
    /// Handles from before a crash are dead.
    epoch: u64,
    /// Operations that succeed before all fail.
    left: Option<u64>,
    fail_once: Option<Op>,
}

impl State {
    fn used(&self) -> u64 {
        self.names
            .values()
            .map(|id| self.files[*id].live.len() as u64)
            .sum()
    }

    fn begin(&mut self, op: Op) -> io::Result<()> {
        if self.fail_once == Some(op) {
            self.fail_once = None;
            return Err(io::Error::other("made to fail"));
        }
        match &mut self.left {
            Some(0) => Err(io::Error::other("the power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn name_op(&mut self, op: NameOp) {
        apply(&mut self.names, &op);
        self.pending_names.push(op);
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The disk. Clones are handles of the same one.
#[derive(Clone)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    /// A disk of so many bytes.
    pub(super) fn new(total: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            total,
            epoch: 0,
            left: None,
            fail_once: None,
        })))
    }

    /// Another disk with the same content.
    pub(super) fn fork(&self) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(self.0.lock().clone())))
    }

    /// After so many more operations that change something, every one fails until the crash.
    pub(super) fn fail_after(&self, ops: u64) {
        self.0.lock().left = Some(ops);
    }

    /// The next operation of that kind fails.
    pub(super) fn fail_once(&self, op: Op) {
        self.0.lock().fail_once = Some(op);
    }

    /// Sets the size of the disk to what is used and `free` more.
    pub(super) fn set_free(&self, free: u64) {
        let mut state = self.0.lock();
        state.total = state.used() + free;
    }

    /// The power goes and comes back.
    pub(super) fn crash(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        let mut state = self.0.lock();
        for file in &mut state.files {
            for (offset, bytes) in std::mem::take(&mut file.pending) {
                let fate = rng.below(3);
                let mut at = 0;
                while at < bytes.len() {
                    let sector = 512 - (offset + at) % 512;
                    let end = bytes.len().min(at + sector);
                    if fate == 0 || fate == 1 && rng.below(2) == 0 {
                        file.durable[offset + at..offset + end].copy_from_slice(&bytes[at..end]);
                    }
                    at = end;
                }
            }
            file.live = file.durable.clone();
        }
        let pending = std::mem::take(&mut state.pending_names);
        let kept = rng.below(pending.len() as u64 + 1) as usize;
        for op in &pending[..kept] {
            apply(&mut state.durable_names, op);
        }
        state.names = state.durable_names.clone();
        state.epoch += 1;
        state.left = None;
        state.fail_once = None;
    }

    /// The process dies, the machine does not: handles are dead, nothing is lost.
    pub(super) fn kill(&self) {
        let mut state = self.0.lock();
        state.epoch += 1;
        state.left = None;
        state.fail_once = None;
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.0.lock();
        state.files[state.id(name).unwrap()].live.clone()
    }

    /// Everything on it, by name.
    pub(super) fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.0.lock();
        state
            .names
            .iter()
            .map(|(name, id)| (name.clone(), state.files[*id].live.clone()))
            .collect()
    }

    pub(super) fn flip(&self, name: &str, offset: usize, bit: u8) {
        self.edit(name, |bytes| bytes[offset] ^= 1 << bit);
    }

    pub(super) fn truncate(&self, name: &str, len: usize) {
        self.edit(name, |bytes| bytes.truncate(len));
    }

    /// Puts `bytes` on the disk under this name, as if they had always been there.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        if self.0.lock().id(name).is_err() {
            let mut state = self.0.lock();
            let id = state.files.len();
            state.files.push(SimFile::default());
            state.names.insert(name.into(), id);
            state.durable_names.insert(name.into(), id);
        }
        self.edit(name, |live| *live = bytes.to_vec());
    }

    pub(super) fn delete(&self, name: &str) {
        let mut state = self.0.lock();
        state.id(name).unwrap();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        let id = state.id(name).unwrap();
        let file = &mut state.files[id];
        change(&mut file.live);
        file.durable = file.live.clone();
        file.pending.clear();
    }

    fn handle(&self, id: usize) -> Arc<dyn DiskFile> {
        let epoch = self.0.lock().epoch;
        Arc::new(Handle {
            disk: self.clone(),
            id,
            epoch,
        })
    }
}

impl Disk for SimDisk {
    fn path(&self) -> &Path {
        Path::new("/sim")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let id = {
            let mut state = self.0.lock();
            state.begin(Op::Create)?;
            if state.id(name).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let free = state.total.saturating_sub(state.used());
            let zeros = vec![0; len.min(free) as usize];
            let id = state.files.len();
            state.files.push(SimFile {
                durable: zeros.clone(),
                live: zeros,
                ..SimFile::default()
            });
            state.name_op(NameOp::Add(name.into(), id));
            if free < len {
                return Err(io::ErrorKind::StorageFull.into());
            }
            id
        };
        Ok(self.handle(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.0.lock().id(name)?;
        Ok(self.handle(id))
    }

    fn open_to_write(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.begin(Op::Rename)?;
        state.id(from)?;
        state.name_op(NameOp::Rename(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.begin(Op::Remove)?;
        state.id(name)?;
        state.name_op(NameOp::Remove(name.into()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.begin(Op::SyncDir)?;
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }

    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let state = self.0.lock();
        Ok(Space {
            free: state.total.saturating_sub(state.used()),
            total: state.total,
        })
    }
}

struct Handle {
    disk: SimDisk,
    id: usize,
    epoch: u64,
}

impl Handle {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.0.lock();
        if state.epoch != self.epoch {
            return Err(io::Error::other("a handle from before the crash"));
        }
        act(&mut state)
    }
}

impl DiskFile for Handle {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.with(|state| {
            let from = offset as usize;
            let live = state.files[self.id].live.get(from..from + bytes.len());
            bytes.copy_from_slice(live.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    /// A write that fails may still reach the disk, whole or in part, by the crash.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|state| {
            let begun = state.begin(Op::Write);
            let from = offset as usize;
            let file = &mut state.files[self.id];
            let live = file.live.get_mut(from..from + bytes.len());
            live.expect("the journal writes inside of what is allocated")
                .copy_from_slice(bytes);
            file.pending.push((from, bytes.to_vec()));
            begun
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state| {
            state.begin(Op::Sync)?;
            let file = &mut state.files[self.id];
            file.durable = file.live.clone();
            file.pending.clear();
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.files[self.id].live.len() as u64))
    }
}
