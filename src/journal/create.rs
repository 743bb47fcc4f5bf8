//! Makes the journal of a new store, never over one that was used.

use super::Mark;
use super::cursor::Step;
use super::disk::Disk;
use super::error::{Cause, JournalError};
use super::highest::{HIGHEST, Highest};
use super::prepare::Preparer;
use super::recovery::{cursor, list, misuse, start};
use super::room::Room;
use super::segment::{self, StoreId, number_of};
use super::shared::{End, Shared};
use super::writer::{Options, Writer};
use crate::model::record::Lsn;
use std::sync::Arc;

/// Makes the journal of a new store, whose first entry will have the LSN `first_lsn`. What a crash in an earlier
/// attempt left is cleared away, as long as it holds no entries.
///
/// # Errors
/// `Exists` where there is a journal that was used, of whatever store; `Full`; `Misuse` for unusable options;
/// `Io`, after which it may be tried again.
pub fn create(
    disk: Arc<dyn Disk>,
    store_id: StoreId,
    first_lsn: Lsn,
    options: Options,
) -> Result<(Writer, Preparer, Arc<Room>), JournalError> {
    if let Some(fault) = options.fault() {
        return Err(misuse(&*disk, fault));
    }
    let Some(before) = first_lsn.0.checked_sub(1).map(Lsn) else {
        return Err(misuse(&*disk, "an entry of LSN 0".into()));
    };
    clear_unused(&*disk)?;
    let highest = Highest::create(&*disk, &store_id)?;
    let shared = Arc::new(Shared::new(disk, store_id, options, [].into(), before));
    start(
        shared,
        highest,
        first_lsn,
        End {
            last_lsn: before,
            mark: Mark::default(),
        },
    )
}

/// Clears away what a crash in [`create`] left. Anything that could be a used journal is refused.
fn clear_unused(disk: &dyn Disk) -> Result<(), JournalError> {
    const OPERATION: &str = "make a journal in";
    let exists = || JournalError::new(OPERATION, disk.path().to_path_buf(), Cause::Exists);
    let io = |error| JournalError::io(OPERATION, disk.path().to_path_buf(), error);
    let names = disk.list().map_err(io)?;
    let numbers = list(disk)?;
    let first = match numbers.as_slice() {
        [] => None,
        [1] => Some(segment::open(disk, 1, None)?),
        _ => return Err(exists()),
    };
    // `create` records 0, and 1 once the first segment is there: more than that was used.
    if names.iter().any(|name| name == HIGHEST)
        && Highest::open(disk, None, false)?.number > numbers.len() as u64
    {
        return Err(exists());
    }
    if let Some((header, file)) = first {
        let mut cursor = cursor(file, &header);
        let used = match cursor.step().map_err(io)? {
            // A damaged first frame does not make it unused.
            Step::Bad => cursor.later_frame(header.first_lsn).map_err(io)?.is_some(),
            Step::Frame(_) | Step::End(_) => true,
        };
        if used {
            return Err(exists());
        }
    }
    // The record first: without it a crash in between leaves what is known as unused.
    let ours = |name: &&String| {
        segment::spare_number_of(name).is_some()
            || segment::is_unfinished(name)
            || name.starts_with(HIGHEST)
            || number_of(name).is_some()
    };
    let mut leftover: Vec<&String> = names.iter().filter(ours).collect();
    leftover.sort_by_key(|name| !name.starts_with(HIGHEST));
    for name in leftover {
        disk.remove(name)
            .and_then(|()| disk.sync_dir())
            .map_err(io)?;
    }
    Ok(())
}
