//! Drops what an inspection named. The store has to have everything up to [`Plan::top`] by then: what was kept
//! redone, and the rest given up.

use super::Mark;
use super::disk::{Disk, DiskFile};
use super::error::JournalError;
use super::highest::Highest;
use super::recovery::{list, start};
use super::segment::{StoreId, file_name, is_unfinished, spare_number_of};
use super::shared::{End, Shared};
use super::writer::Options;
use crate::model::record::Lsn;
use crate::model::time::Timestamp;
use std::sync::Arc;

/// What repair does to a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Where the journal ends; it goes on in a fresh segment. `None`: its end is sound.
    pub(super) cut: Option<Cut>,
    /// Segments up to this one go.
    pub(super) audit_through: u64,
    /// The highest segment number that is recorded; 0 where that cannot be read.
    pub(super) recorded: u64,
    /// It has to be recorded anew.
    pub(super) highest: bool,
    /// A start would not pass a fault in what the checkpoint covers.
    pub(super) rebuilds: bool,
    /// Entries after the checkpoint may be lost by it.
    pub(super) loses: bool,
    /// The last LSN that is kept.
    pub(super) kept: Lsn,
    /// The last LSN that was seen at all.
    pub(super) top: Lsn,
    /// The latest clocks that were seen at all.
    pub(super) mark: Mark,
}

/// Where a journal is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The last segment that is kept, and up to which offset; `None` where none is.
    pub(super) keep: Option<(u64, u64)>,
}

impl Plan {
    /// Nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cut.is_none() && self.audit_through == 0 && !self.highest
    }

    /// Whether the store has to redo what is kept first, and the journal goes on in a fresh segment.
    #[must_use]
    pub fn cuts(&self) -> bool {
        self.cut.is_some()
    }

    /// Whether entries that somebody was told of may be lost.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.loses
    }

    /// The last LSN that is kept.
    #[must_use]
    pub fn kept(&self) -> Lsn {
        self.kept
    }

    /// The last LSN that was seen anywhere, or the checkpoint's: none up to it is given again.
    #[must_use]
    pub fn top(&self) -> Lsn {
        self.top
    }

    /// The latest clocks that were seen anywhere: time does not go back behind them (SPEC 9). `None` where there
    /// were none.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        Some(self.mark).filter(|mark| *mark != Mark::default())
    }

    pub(super) fn meet(&mut self, mark: Mark) {
        if mark.time >= self.mark.time && mark.time > Timestamp::default() {
            self.mark = mark;
        }
    }
}

/// Does what the plan says. Killed at any moment it leaves a journal that is refused or sound, never one that
/// has lost more.
///
/// # Errors
/// `Full` where a fresh segment finds no space: free some, and repair again. `Io`.
pub fn repair(
    disk: Arc<dyn Disk>,
    store_id: &StoreId,
    plan: &Plan,
    options: Options,
) -> Result<(), JournalError> {
    let numbers = list(&*disk)?;
    let newest = numbers.last().copied().unwrap_or(0);
    let Some(cut) = &plan.cut else {
        drop_trail(&*disk, &numbers, plan)?;
        if plan.highest {
            Highest::replace(&*disk, store_id, newest)?;
        }
        return Ok(());
    };
    let keep = cut.keep.map_or(0, |(number, _)| number);
    // The newest first: what is left is then always the journal up to some point.
    for number in numbers.iter().rev().filter(|number| **number > keep) {
        remove(&*disk, *number)?;
    }
    if let Some((number, offset)) = cut.keep
        && number > plan.audit_through
    {
        clear(&*disk, number, offset)?;
    }
    drop_trail(&*disk, &numbers, plan)?;
    // A number may be used again here, so nothing may be left that was written under it.
    drop_spares(&*disk)?;
    let base = if cut.keep.is_some() {
        keep
    } else {
        newest.max(plan.recorded)
    };
    Highest::replace(&*disk, store_id, base)?;
    let highest = Highest::open(&*disk, Some(store_id), true)?;
    let end = End {
        last_lsn: plan.kept.min(plan.top),
        mark: plan.mark,
    };
    let next = Lsn(plan.top.0.saturating_add(1));
    let shared = Shared::new(disk, *store_id, options, [].into(), plan.top);
    let (writer, _, _) = start(Arc::new(shared), highest, next, end)?;
    writer.close()
}

fn drop_trail(disk: &dyn Disk, numbers: &[u64], plan: &Plan) -> Result<(), JournalError> {
    let keep = plan
        .cut
        .as_ref()
        .map(|cut| cut.keep.map_or(0, |(number, _)| number));
    let gone = |number: u64| keep.is_some_and(|keep| number > keep);
    for number in numbers
        .iter()
        .filter(|number| **number <= plan.audit_through)
    {
        if !gone(*number) {
            remove(disk, *number)?;
        }
    }
    Ok(())
}

fn drop_spares(disk: &dyn Disk) -> Result<(), JournalError> {
    let io = |error| {
        JournalError::io(
            "remove the spare segments in",
            disk.path().to_path_buf(),
            error,
        )
    };
    for name in disk.list().map_err(io)? {
        if spare_number_of(&name).is_some() || is_unfinished(&name) {
            disk.remove(&name).map_err(io)?;
        }
    }
    disk.sync_dir().map_err(io)
}

fn remove(disk: &dyn Disk, number: u64) -> Result<(), JournalError> {
    let name = file_name(number);
    disk.remove(&name)
        .and_then(|()| disk.sync_dir())
        .map_err(|error| JournalError::io("remove segment", disk.path().join(&name), error))
}

/// Overwrites a segment from an offset on with zeros, where it is not zero already.
fn clear(disk: &dyn Disk, number: u64, offset: u64) -> Result<(), JournalError> {
    let name = file_name(number);
    let io = |error| JournalError::io("clear the end of segment", disk.path().join(&name), error);
    let file: Arc<dyn DiskFile> = disk.open_to_write(&name).map_err(io)?;
    let len = file.len().map_err(io)?;
    let mut at = offset;
    let mut chunk = Vec::new();
    while at < len {
        let step = (len - at).min(1 << 16);
        chunk.resize(usize::try_from(step).unwrap_or(0), 0);
        file.read_at(at, &mut chunk).map_err(io)?;
        if chunk.iter().any(|byte| *byte != 0) {
            chunk.fill(0);
            file.write_at(at, &chunk).map_err(io)?;
        }
        at += step;
    }
    file.sync_data().map_err(io)
}
