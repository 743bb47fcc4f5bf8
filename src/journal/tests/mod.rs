//! The journal as a whole, on a simulated disk.

mod crash;
mod damage;
mod repair;
mod space;
mod trail;

use super::Mark;
use super::create;
use super::disk::Disk;
use super::error::{Cause, JournalError};
use super::frame::{ENTRY_HEAD_LEN, Frame, HEAD_LEN};
use super::prepare::Preparer;
use super::recovery::{self, Recovery};
use super::room::Room;
use super::segment::{StoreId, file_name};
use super::sim::{Rng, SimDisk};
use super::writer::{Options, Writer};
use crate::model::record::Lsn;
use crate::model::time::{BootTime, Span, Timestamp};
use std::sync::Arc;

const STORE: StoreId = [0xA5; 16];
/// The smallest: rotations come soon.
const SIZE: u64 = 16_384;
/// Frames of this many bytes: exactly three fill a segment.
const THIRD: usize = (SIZE as usize - 4096 - HEAD_LEN) / 3;

fn options() -> Options {
    Options {
        segment_size: SIZE,
        spares: 2,
        audit_age: Span::from_secs(3600),
        audit_bytes: 1 << 30,
    }
}

/// A mark that tells which LSN it was made at.
fn mark(lsn: u64) -> Mark {
    Mark {
        time: Timestamp::from_millis(1000 * lsn),
        boot: BootTime::from_millis(lsn),
        wall_ms: 7,
        boot_clock_ms: 8,
        boot_id: [9; 16],
    }
}

/// An entry that tells its LSN in every byte.
fn entry(lsn: u64, len: usize) -> Vec<u8> {
    lsn.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// A frame of exactly `len` bytes with one entry.
fn frame_of(lsn: u64, len: usize) -> Frame {
    let mut frame = Frame::new(Lsn(lsn));
    frame.push(&entry(lsn, len - HEAD_LEN - ENTRY_HEAD_LEN));
    frame.set_mark(mark(lsn));
    frame
}

/// Entries with their LSNs.
type Log = Vec<(u64, Vec<u8>)>;

/// A journal in use, and what it acknowledged.
struct Rig {
    disk: SimDisk,
    writer: Writer,
    preparer: Preparer,
    room: Arc<Room>,
    log: Log,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(&SimDisk::new(64 << 20), options()).unwrap()
    }

    fn with(disk: &SimDisk, options: Options) -> Result<Rig, JournalError> {
        let (writer, preparer, room) =
            create::create(Arc::new(disk.clone()), STORE, Lsn(1), options)?;
        Ok(Rig {
            disk: disk.clone(),
            writer,
            preparer,
            room,
            log: Vec::new(),
        })
    }

    /// Opens the disk again after it crashed or the process died, reads everything, and goes on.
    fn again(disk: &SimDisk, checkpoint: u64) -> Result<Rig, JournalError> {
        let (log, recovery) = read_all(disk, checkpoint)?;
        let next = Lsn(recovery.last_lsn().0 + 1);
        let (writer, preparer, room) = recovery.into_writer(next, options())?;
        Ok(Rig {
            disk: disk.clone(),
            writer,
            preparer,
            room,
            log,
        })
    }

    fn next(&self) -> u64 {
        self.writer.next_lsn().0
    }

    fn append(&mut self, frame: &mut Frame) -> Result<(), JournalError> {
        self.writer.append(frame)?;
        self.log
            .extend(frame.entries().map(|(lsn, entry)| (lsn.0, entry.to_vec())));
        Ok(())
    }

    /// Appends a frame of exactly `len` bytes with one entry.
    fn append_of(&mut self, len: usize) -> Result<(), JournalError> {
        let mut frame = frame_of(self.next(), len);
        self.append(&mut frame)
    }

    fn fill_spares(&self) -> Result<(), JournalError> {
        while self.room.wants_spares() {
            self.preparer.prepare()?;
        }
        Ok(())
    }

    /// Appends so many thirds of a segment, with spares made as they are wanted.
    fn append_thirds(&mut self, count: usize) {
        for _ in 0..count {
            self.fill_spares().unwrap();
            self.append_of(THIRD).unwrap();
        }
    }

    fn names(&self) -> Vec<String> {
        self.disk.list().unwrap()
    }

    /// The numbers of the segments on disk.
    fn segments(&self) -> Vec<u64> {
        self.names()
            .iter()
            .filter_map(|name| super::segment::number_of(name))
            .collect()
    }
}

fn open(disk: &SimDisk, checkpoint: u64) -> Result<Recovery, JournalError> {
    recovery::open(Arc::new(disk.clone()), STORE, Lsn(checkpoint))
}

/// All entries of the frames that recovery yields, and the recovery at its end.
fn read_all(disk: &SimDisk, checkpoint: u64) -> Result<(Log, Recovery), JournalError> {
    let mut recovery = open(disk, checkpoint)?;
    let mut log = Vec::new();
    while let Some(frame) = recovery.next_frame()? {
        assert_eq!(frame.mark(), mark(frame.first_lsn().0));
        log.extend(frame.entries().map(|(lsn, entry)| (lsn.0, entry.to_vec())));
    }
    Ok((log, recovery))
}

fn refusal(disk: &SimDisk, checkpoint: u64) -> JournalError {
    match read_all(disk, checkpoint) {
        Ok((log, _)) => panic!("{} entries were read and should not have been", log.len()),
        Err(error) => error,
    }
}

/// A frame with one to four entries of random lengths, no longer than `most`.
fn random_frame(rng: &mut Rng, lsn: u64, most: usize) -> Frame {
    let mut frame = Frame::new(Lsn(lsn));
    frame.set_mark(mark(lsn));
    for lsn in lsn..=lsn + rng.below(4) {
        let left = most.saturating_sub(frame.len() + ENTRY_HEAD_LEN);
        if left == 0 {
            break;
        }
        let len = match rng.below(4) {
            0 => left,
            _ => (rng.below(600) as usize).min(left),
        };
        frame.push(&entry(lsn, len));
    }
    frame
}

#[test]
fn every_part_can_be_handed_to_another_thread() {
    fn moved<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    moved::<Writer>();
    moved::<Recovery>();
    moved::<super::read::Reader>();
    shared::<Preparer>();
    shared::<Room>();
    shared::<super::read::Trail>();
    shared::<Arc<dyn Disk>>();
}
