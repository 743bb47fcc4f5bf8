//! The record of the highest segment ever begun, so that a lost one is noticed.
//!
//! The file `highest` has two slots of 4096 bytes, little endian:
//!
//! ```text
//! 0 magic 8 | 8 version u32 | 12 zero u32 | 16 store id 16 | 32 number u64 | 40 crc32 of all before
//! ```

use super::disk::{Disk, DiskFile};
use super::error::{Cause, JournalError};
use super::frame::{self, u64_at};
use super::segment::{StoreId, Undecodable, VERSION, check};
use std::sync::Arc;

/// The highest segment number ever begun, durable in a file of two slots that are written in turn, in place: it
/// never needs space, and a slot torn by a crash leaves the other.
pub(super) struct Highest {
    file: Arc<dyn DiskFile>,
    pub(super) number: u64,
    /// The slot that holds it; the other one is written next.
    slot: u64,
}

/// The name of that file.
pub(super) const HIGHEST: &str = "highest";
const HIGHEST_UNFINISHED: &str = "highest.tmp";
const SLOT_MAGIC: [u8; 8] = *b"ONCEDTOP";
const SLOT_LEN: usize = 4096;
const SLOT_CRC_AT: usize = 40;

impl Highest {
    /// Makes the file of a new store, with the number 0, and its name durable.
    pub(super) fn create(disk: &dyn Disk, store_id: &StoreId) -> Result<Highest, JournalError> {
        Highest::put(disk, store_id, 0)
    }

    /// Puts a file with that number in the place of the one there is, which may be damaged, or say a higher
    /// number: for repair alone.
    pub(super) fn replace(
        disk: &dyn Disk,
        store_id: &StoreId,
        number: u64,
    ) -> Result<(), JournalError> {
        // What a crash in an earlier attempt left.
        match disk.remove(HIGHEST_UNFINISHED) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let path = disk.path().join(HIGHEST_UNFINISHED);
                return Err(JournalError::io("remove", path, error));
            }
            _ => {}
        }
        Highest::put(disk, store_id, number).map(|_| ())
    }

    fn put(disk: &dyn Disk, store_id: &StoreId, number: u64) -> Result<Highest, JournalError> {
        let path = disk.path().join(HIGHEST);
        let io = |error| JournalError::io("make", path.clone(), error);
        let file = disk
            .create(HIGHEST_UNFINISHED, 2 * SLOT_LEN as u64)
            .map_err(io)?;
        let mut highest = Highest {
            file,
            number: 0,
            slot: 1,
        };
        highest.write(number, store_id).map_err(io)?;
        disk.rename(HIGHEST_UNFINISHED, HIGHEST).map_err(io)?;
        disk.sync_dir().map_err(io)?;
        Ok(highest)
    }

    /// Reads the file; with `to_write`, [`Highest::record`] can go on from there. `store_id` of `None` takes any
    /// store's.
    pub(super) fn open(
        disk: &dyn Disk,
        store_id: Option<&StoreId>,
        to_write: bool,
    ) -> Result<Highest, JournalError> {
        const OPERATION: &str = "read the highest segment number from";
        let path = disk.path().join(HIGHEST);
        let failed = |cause| JournalError::new(OPERATION, path.clone(), cause);
        let file = if to_write {
            disk.open_to_write(HIGHEST)
        } else {
            disk.open(HIGHEST)
        };
        let drops = || "no entry: it would record the highest segment it finds".to_string();
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed(Cause::Missing { drops: drops() }),
            _ => JournalError::io(OPERATION, path.clone(), error),
        })?;
        let damaged = |reason: &str| {
            failed(Cause::Damage {
                offset: 0,
                reason: reason.into(),
                drops: drops(),
            })
        };
        let len = file
            .len()
            .map_err(|error| JournalError::io(OPERATION, path.clone(), error))?;
        if len < 2 * SLOT_LEN as u64 {
            return Err(damaged("it is too short"));
        }
        let mut best: Option<(u64, u64)> = None;
        for slot in 0..2 {
            let mut bytes = vec![0; SLOT_LEN];
            file.read_at(slot * SLOT_LEN as u64, &mut bytes)
                .map_err(|error| JournalError::io(OPERATION, path.clone(), error))?;
            match check(&bytes, &SLOT_MAGIC, SLOT_CRC_AT) {
                Ok(()) => {}
                Err(Undecodable::Newer(version)) => return Err(failed(Cause::Newer { version })),
                // Torn by a crash, or never written.
                Err(Undecodable::Broken(_)) => continue,
            }
            if store_id.is_some_and(|store_id| bytes.get(16..32) != Some(store_id)) {
                return Err(failed(Cause::Foreign));
            }
            let number = u64_at(&bytes, 32).unwrap_or_default();
            if best.is_none_or(|(highest, _)| number > highest) {
                best = Some((number, slot));
            }
        }
        let (number, slot) = best.ok_or_else(|| damaged("neither of its slots verifies"))?;
        Ok(Highest { file, number, slot })
    }

    /// Records a number durably.
    pub(super) fn record(
        &mut self,
        disk: &dyn Disk,
        store_id: &StoreId,
        number: u64,
    ) -> Result<(), JournalError> {
        self.write(number, store_id).map_err(|error| {
            JournalError::new(
                "record the highest segment number in",
                disk.path().join(HIGHEST),
                Cause::Io(error),
            )
        })
    }

    fn write(&mut self, number: u64, store_id: &StoreId) -> std::io::Result<()> {
        let mut bytes = vec![0; SLOT_CRC_AT + 4];
        let fields: [&[u8]; 5] = [
            &SLOT_MAGIC,
            &VERSION.to_le_bytes(),
            &[0; 4],
            store_id,
            &number.to_le_bytes(),
        ];
        frame::put(&mut bytes, 0, &fields);
        let crc = crc32fast::hash(bytes.get(..SLOT_CRC_AT).unwrap_or_default());
        frame::put(&mut bytes, SLOT_CRC_AT, &[&crc.to_le_bytes()]);
        let slot = 1 - self.slot;
        self.file.write_at(slot * SLOT_LEN as u64, &bytes)?;
        self.file.sync_data()?;
        self.slot = slot;
        self.number = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::sim::SimDisk;

    const STORE: StoreId = [7; 16];

    #[test]
    fn the_highest_number_survives_a_crash_in_any_write_of_it() {
        for seed in 0..64 {
            let disk = SimDisk::new(1 << 20);
            let mut highest = Highest::create(&disk, &STORE).unwrap();
            highest.record(&disk, &STORE, 1).unwrap();
            highest.record(&disk, &STORE, 2).unwrap();
            disk.fail_after(1);
            highest.record(&disk, &STORE, 3).unwrap_err();
            disk.crash(seed);
            let mut highest = Highest::open(&disk, Some(&STORE), true).unwrap();
            assert!(
                [2, 3].contains(&highest.number),
                "seed {seed}: {}",
                highest.number
            );
            highest.record(&disk, &STORE, 4).unwrap();
            disk.crash(seed);
            assert_eq!(Highest::open(&disk, Some(&STORE), false).unwrap().number, 4);
        }
    }

    #[test]
    fn a_slot_that_is_damaged_leaves_the_one_before_it() {
        let disk = SimDisk::new(1 << 20);
        let mut highest = Highest::create(&disk, &STORE).unwrap();
        for number in 1..5 {
            highest.record(&disk, &STORE, number).unwrap();
            let disk = disk.fork();
            disk.flip(HIGHEST, highest.slot as usize * SLOT_LEN + 33, 1);
            assert_eq!(
                Highest::open(&disk, Some(&STORE), false).unwrap().number,
                number - 1
            );
        }
    }

    #[test]
    fn a_highest_file_that_is_not_ours_or_not_whole_is_refused() {
        let disk = SimDisk::new(1 << 20);
        let open = |disk: &SimDisk| Highest::open(disk, Some(&STORE), false).err().unwrap();
        assert!(matches!(open(&disk).cause(), Cause::Missing { .. }));
        Highest::create(&disk, &STORE).unwrap();
        let foreign = Highest::open(&disk, Some(&[8; 16]), false).err().unwrap();
        assert!(matches!(foreign.cause(), Cause::Foreign));
        disk.flip(HIGHEST, 33, 0);
        assert!(matches!(open(&disk).cause(), Cause::Damage { .. }));
        disk.truncate(HIGHEST, 4096);
        assert!(matches!(open(&disk).cause(), Cause::Damage { .. }));
    }
}
