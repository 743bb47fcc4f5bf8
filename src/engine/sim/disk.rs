//! The disk of the simulated machine: the journal's folder, the store's file and the reserve on one device.
//!
//! What was written and not synced is in doubt: when the power goes, each write is kept, lost, or torn into
//! sectors of 512 bytes of which any are kept; names are kept up to some operation. All of that follows from
//! the seed given to the crash. Writes and syncs can be made to fail, space can run out, and the power can
//! go at any one operation.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::dice::Dice;
use crate::journal::disk::{Disk, DiskFile, Space};
use crate::store::{Source, StorageBackend};

const BLOCK: u64 = 4096;
const SECTOR: usize = 512;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Write,
    Sync,
    /// Of names and lengths: create, rename, remove, sync of a folder, change of a length.
    Other,
}

#[derive(Clone, Debug)]
enum Pending {
    Write(usize, Vec<u8>),
    Len(usize),
}

/// A file: as it reads, as the next crash finds it for sure, and what lies between.
#[derive(Clone, Debug, Default)]
struct File {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Blocks that have their space.
    allocated: Vec<bool>,
}

impl File {
    fn blocks(&self) -> u64 {
        self.allocated.iter().filter(|block| **block).count() as u64
    }

    fn resize(&mut self, len: usize) {
        self.live.resize(len, 0);
        self.allocated.resize(len.div_ceil(BLOCK as usize), false);
    }

    fn sync(&mut self) {
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Write(at, bytes) => put(&mut self.durable, at, &bytes),
                Pending::Len(len) => self.durable.resize(len, 0),
            }
        }
    }

    fn crash(&mut self, dice: &mut Dice) {
        for pending in std::mem::take(&mut self.pending) {
            let fate = dice.below(3);
            match pending {
                Pending::Len(len) if fate > 0 => self.durable.resize(len, 0),
                Pending::Len(_) => {}
                Pending::Write(at, bytes) => {
                    let mut from = 0;
                    while from < bytes.len() {
                        let to = bytes.len().min(from + SECTOR - (at + from) % SECTOR);
                        if fate == 0 || (fate == 1 && dice.one_in(2)) {
                            put(&mut self.durable, at + from, &bytes[from..to]);
                        }
                        from = to;
                    }
                }
            }
        }
        self.live.clone_from(&self.durable);
        self.resize(self.durable.len());
    }
}

/// Writes as far as the file goes: what lies behind its end was lost with its length.
fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    let to = file.len().min(at + bytes.len());
    if at < to {
        file[at..to].copy_from_slice(&bytes[..to - at]);
    }
}

#[derive(Clone, Debug)]
enum NameOp {
    Add(String, usize),
    Rename(String, String),
    Remove(String),
}

fn apply(names: &mut BTreeMap<String, usize>, op: &NameOp) {
    match op {
        NameOp::Add(name, id) => drop(names.insert(name.clone(), *id)),
        NameOp::Remove(name) => drop(names.remove(name)),
        NameOp::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameOp>,
    /// Blocks of the device that others do not use.
    blocks: u64,
    /// Handles from before a crash are dead.
    epoch: u64,
    /// Operations that go well before the power does.
    left: Option<u64>,
    off: bool,
    /// So many syncs go well before the power goes instead of one: what was written is there or not.
    syncs_left: Option<u64>,
    /// So many operations of that kind go well before one fails.
    fail: Option<(Op, u64)>,
    failed: bool,
    /// Segments of the journal that were begun.
    segments: u64,
    ops: u64,
    trace: u64,
}

impl State {
    /// An operation that changes something. An error says that it does not happen; whether it half happens is
    /// the caller's.
    fn begin(&mut self, op: Op, what: u64) -> io::Result<()> {
        if self.off {
            return Err(io::Error::other("the power is off"));
        }
        let last_sync = op == Op::Sync && self.syncs_left == Some(0);
        if op == Op::Sync {
            self.syncs_left = self.syncs_left.map(|left| left.saturating_sub(1));
        }
        if self.left == Some(0) || last_sync {
            self.off = true;
            return Err(io::Error::other("the power goes"));
        }
        self.left = self.left.map(|left| left - 1);
        self.ops += 1;
        self.note(op as u64);
        self.note(what);
        if let Some((kind, left)) = &mut self.fail
            && *kind == op
        {
            if *left == 0 {
                self.fail = None;
                self.failed = true;
                return Err(io::Error::other("made to fail"));
            }
            *left -= 1;
        }
        Ok(())
    }

    fn note(&mut self, value: u64) {
        self.trace = (self.trace ^ value).wrapping_mul(0x0100_0000_01b3);
    }

    fn free(&self) -> u64 {
        let used: u64 = self.names.values().map(|id| self.files[*id].blocks()).sum();
        self.blocks.saturating_sub(used)
    }

    /// Space for what is written there, if there is as much.
    fn allocate(&mut self, id: usize, at: usize, len: usize) -> io::Result<()> {
        let range = at / BLOCK as usize..(at + len).div_ceil(BLOCK as usize);
        let file = &self.files[id];
        let needed = file.allocated[range.clone()].iter().filter(|has| !**has);
        if needed.count() as u64 > self.free() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.files[id].allocated[range].fill(true);
        Ok(())
    }

    fn name_op(&mut self, op: NameOp) {
        apply(&mut self.names, &op);
        self.pending_names.push(op);
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        let id = self.names.get(name).copied();
        id.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The device. Clones are handles of the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Device(Arc<Mutex<State>>);

impl Device {
    pub(super) fn new(bytes: u64) -> Device {
        let device = Device::default();
        device.0.lock().blocks = bytes / BLOCK;
        device
    }

    /// Another device with the same content.
    pub(super) fn fork(&self) -> Device {
        Device(Arc::new(Mutex::new(self.0.lock().clone())))
    }

    /// The power goes after so many more operations.
    pub(super) fn cut_after(&self, ops: u64) {
        self.0.lock().left = Some(ops);
    }

    /// The power goes at a sync, after so many more of them.
    pub(super) fn cut_at_sync(&self, syncs: u64) {
        self.0.lock().syncs_left = Some(syncs);
    }

    /// It stays.
    pub(super) fn cut_never(&self) {
        let mut state = self.0.lock();
        (state.left, state.syncs_left) = (None, None);
    }

    /// Segments of the journal that were begun so far.
    pub(super) fn segments(&self) -> u64 {
        self.0.lock().segments
    }

    /// One operation of that kind fails, after so many that do not.
    pub(super) fn fail_after(&self, op: Op, ops: u64) {
        self.0.lock().fail = Some((op, ops));
    }

    /// Others leave this much of it.
    pub(super) fn set_free(&self, bytes: u64) {
        let mut state = self.0.lock();
        let used = state.blocks - state.free();
        state.blocks = used + bytes / BLOCK;
    }

    pub(super) fn is_off(&self) -> bool {
        self.0.lock().off
    }

    /// Whether an operation was made to fail since the last start.
    pub(super) fn has_failed(&self) -> bool {
        self.0.lock().failed
    }

    /// Operations that changed something, so far.
    pub(super) fn ops(&self) -> u64 {
        self.0.lock().ops
    }

    /// What was done to it, in one number.
    pub(super) fn trace(&self) -> u64 {
        self.0.lock().trace
    }

    /// The process dies: its handles are dead, and the machine keeps what it wrote.
    pub(super) fn kill(&self) {
        let mut state = self.0.lock();
        state.epoch += 1;
        (state.left, state.syncs_left, state.off) = (None, None, false);
        (state.fail, state.failed) = (None, false);
    }

    /// The power goes and comes back.
    pub(super) fn crash(&self, dice: &mut Dice) {
        self.kill();
        let mut state = self.0.lock();
        for file in &mut state.files {
            file.crash(dice);
        }
        let pending = std::mem::take(&mut state.pending_names);
        let kept = dice.below(pending.len() as u64 + 1) as usize;
        for op in &pending[..kept] {
            apply(&mut state.durable_names, op);
        }
        state.names = state.durable_names.clone();
    }

    /// A folder on it.
    pub(super) fn folder(&self, name: &'static str) -> Arc<dyn Disk> {
        Arc::new(Folder {
            device: self.clone(),
            prefix: format!("{name}/"),
            epoch: self.0.lock().epoch,
        })
    }

    /// A file for redb, made if it is not there.
    pub(super) fn source(&self, name: &'static str) -> Source {
        let device = self.clone();
        let epoch = self.0.lock().epoch;
        Arc::new(move || {
            let mut state = device.0.lock();
            if state.epoch != epoch {
                return Err(dead());
            }
            let id = match state.id(name) {
                Ok(id) => id,
                Err(_) => {
                    let id = state.files.len();
                    state.files.push(File::default());
                    state.names.insert(name.into(), id);
                    state.durable_names.insert(name.into(), id);
                    id
                }
            };
            drop(state);
            let device = device.clone();
            Ok(Box::new(Handle { device, id, epoch }) as Box<dyn StorageBackend>)
        })
    }
}

fn dead() -> io::Error {
    io::Error::other("a handle from before the crash")
}

struct Folder {
    device: Device,
    prefix: String,
    epoch: u64,
}

impl Folder {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.device.0.lock();
        if state.epoch != self.epoch {
            return Err(dead());
        }
        act(&mut state)
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Disk for Folder {
    fn path(&self) -> &Path {
        Path::new(&self.prefix)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.with(|state| {
            let names = state.names.keys();
            Ok(names
                .filter_map(|name| name.strip_prefix(&self.prefix))
                .map(Into::into)
                .collect())
        })
    }

    fn create(&self, name: &str, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let name = self.full(name);
        self.with(|state| {
            state.begin(Op::Other, 1)?;
            if state.id(&name).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let blocks = len.div_ceil(BLOCK).min(state.free());
            let there = len.min(blocks * BLOCK) as usize;
            let id = state.files.len();
            state.files.push(File {
                live: vec![0; there],
                durable: vec![0; there],
                pending: Vec::new(),
                allocated: vec![true; blocks as usize],
            });
            state.name_op(NameOp::Add(name, id));
            if (there as u64) < len {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(id)
        })
        .map(|id| self.handle(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.with(|state| state.id(&self.full(name)))?;
        Ok(self.handle(id))
    }

    fn open_to_write(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.full(from), self.full(to));
        self.with(|state| {
            state.begin(Op::Other, 2)?;
            state.id(&from)?;
            state.segments += u64::from(to.ends_with(".seg"));
            state.name_op(NameOp::Rename(from, to));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let name = self.full(name);
        self.with(|state| {
            state.id(&name)?;
            state.begin(Op::Other, 3)?;
            state.name_op(NameOp::Remove(name));
            Ok(())
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.with(|state| {
            state.begin(Op::Other, 4)?;
            state.durable_names = state.names.clone();
            state.pending_names.clear();
            Ok(())
        })
    }

    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.with(|state| {
            Ok(Space {
                free: state.free() * BLOCK,
                total: state.blocks * BLOCK,
            })
        })
    }
}

impl Folder {
    fn handle(&self, id: usize) -> Arc<dyn DiskFile> {
        Arc::new(Handle {
            device: self.device.clone(),
            id,
            epoch: self.epoch,
        })
    }
}

#[derive(Debug)]
struct Handle {
    device: Device,
    id: usize,
    epoch: u64,
}

impl Handle {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.device.0.lock();
        if state.epoch != self.epoch {
            return Err(dead());
        }
        act(&mut state)
    }

    fn get(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|state| {
            if state.off {
                return Err(io::Error::other("the power is off"));
            }
            let from = offset as usize;
            let live = state.files[self.id].live.get(from..from + out.len());
            out.copy_from_slice(live.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    /// A write that fails may still reach the disk, whole or in part, by the crash.
    fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|state| {
            let at = offset as usize;
            if at + bytes.len() > state.files[self.id].live.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let was_off = state.off;
            let begun = state.begin(Op::Write, offset ^ u64::from(crc32fast::hash(bytes)) << 32);
            if !was_off {
                state.allocate(self.id, at, bytes.len())?;
                let file = &mut state.files[self.id];
                file.live[at..at + bytes.len()].copy_from_slice(bytes);
                file.pending.push(Pending::Write(at, bytes.to_vec()));
            }
            begun
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| {
            state.begin(Op::Sync, self.id as u64)?;
            state.files[self.id].sync();
            Ok(())
        })
    }

    fn length(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.files[self.id].live.len() as u64))
    }
}

impl DiskFile for Handle {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.get(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.put(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.length()
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        self.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.get(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|state| {
            state.begin(Op::Other, len)?;
            let file = &mut state.files[self.id];
            file.resize(len as usize);
            file.pending.push(Pending::Len(len as usize));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.put(offset, data)
    }
}
