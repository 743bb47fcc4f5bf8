//! A disk in memory that loses what was not synced, and fills up.

use parking_lot::Mutex;
use redb::StorageBackend;
use std::io;
use std::sync::Arc;

use crate::store::Source;

#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Writes until it is full; `None` is never.
    room: Option<u32>,
    /// What a write then fails with.
    error: Option<io::ErrorKind>,
    /// Every sync fails for lack of space.
    sync_fails: bool,
    /// Bytes written so far.
    written: u64,
}

impl Disk {
    pub(super) fn of(bytes: Vec<u8>) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            now: bytes.clone(),
            synced: bytes,
            ..State::default()
        })))
    }

    /// Another disk with the same bytes.
    pub(super) fn copy(&self) -> Disk {
        Disk::of(self.bytes())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().now.clone()
    }

    /// What a power loss leaves, as a disk of its own.
    pub(super) fn crashed(&self) -> Disk {
        Disk::of(self.0.lock().synced.clone())
    }

    /// After so many more writes, every write fails so.
    pub(super) fn fail_after(&self, writes: u32, error: io::ErrorKind) {
        let mut state = self.0.lock();
        (state.room, state.error) = (Some(writes), Some(error));
    }

    pub(super) fn fail_syncs(&self) {
        self.0.lock().sync_fails = true;
    }

    pub(super) fn heal(&self) {
        self.0.lock().room = None;
    }

    pub(super) fn written(&self) -> u64 {
        self.0.lock().written
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(self.clone())
    }

    pub(super) fn source(&self) -> Source {
        let disk = self.clone();
        Arc::new(move || Ok(Box::new(disk.handle()) as Box<dyn StorageBackend>))
    }
}

impl State {
    fn take_room(&mut self) -> io::Result<()> {
        match &mut self.room {
            Some(0) => Err(self.error.map_or(io::ErrorKind::Other, |kind| kind).into()),
            Some(room) => {
                *room -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Handle(Disk);

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.0.lock().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.0.lock();
        let from = offset as usize;
        let bytes = state.now.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.0.0.lock();
        if len > state.now.len() as u64 {
            state.take_room()?;
        }
        state.now.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.0.lock();
        if state.sync_fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.synced = state.now.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.0.lock();
        state.take_room()?;
        state.written += data.len() as u64;
        let from = offset as usize;
        let target = state.now.get_mut(from..from + data.len());
        target
            .ok_or(io::ErrorKind::UnexpectedEof)?
            .copy_from_slice(data);
        Ok(())
    }
}
