//! The store thread: copies recent records to the store, sweeps what is past its retention, and keeps
//! segments ready for the journal. It is the only writer of the store.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::clock::Jump;
use super::core::{Core, Phase};
use super::recent::Frozen;
use super::{EngineError, Inner};
use crate::journal::prepare::Preparer;
use crate::model::key::RecordKey;
use crate::model::record::{Lsn, Record};
use crate::store::{Checkpoint, Store, StoreError};

/// How often the thread looks around when nobody wakes it.
const TICK: Duration = Duration::from_secs(1);
/// Ticks after which recent records go to the store even if they are few.
const CHECKPOINT_TICKS: u32 = 5;
/// Ticks without a frame after which the clocks are written down alone, so that engine time does not go back
/// by more at a restart of the machine whose wall clock went back.
const MARK_TICKS: u32 = 60;
/// Ticks between two sweeps.
const SWEEP_TICKS: u32 = 10;

/// Room for a frame without entries, and to spare.
const MARK_ROOM: u64 = 4096;

/// Runs until the engine stops and everything is in the store, or storage fails.
pub(super) fn run(inner: &Inner, mut store: Store, preparer: Preparer) {
    if let Err(error) = work(inner, &mut store, &preparer) {
        inner.fail(error);
    }
    inner.core.lock().store_ended = true;
    inner.gathered.notify_all();
}

fn work(inner: &Inner, store: &mut Store, preparer: &Preparer) -> Result<(), EngineError> {
    let (mut since_checkpoint, mut since_sweep) = (0, 0);
    let (mut since_frame, mut frames) = (0, 0);
    loop {
        let stopping = {
            let mut core = inner.core.lock();
            let idle = core.recent.active_bytes() < inner.limits.freeze_at && !core.wants_room;
            if core.phase == Phase::Running && idle {
                let waited = inner.wake_store.wait_for(&mut core, TICK);
                if waited.timed_out() {
                    since_checkpoint += 1;
                    since_sweep += 1;
                    watch_clock(&mut core);
                    since_frame = if core.gather.frames() == frames {
                        since_frame + 1
                    } else {
                        0
                    };
                    frames = core.gather.frames();
                    if since_frame >= MARK_TICKS && inner.room.available() > MARK_ROOM {
                        core.gather.push_mark();
                        inner.gathered.notify_one();
                    }
                }
            }
            match core.phase {
                Phase::Failed => return Ok(()),
                Phase::Stopping => true,
                Phase::Running => false,
            }
        };
        prepare(inner, preparer)?;
        let due = {
            let core = inner.core.lock();
            let much = core.recent.active_bytes() >= inner.limits.freeze_at;
            let due = much || stopping || core.full || since_checkpoint >= CHECKPOINT_TICKS;
            due && !core.recent.is_empty()
        };
        if due {
            since_checkpoint = 0;
            if let Some(lsn) = checkpoint(inner, store)? {
                preparer.release(lsn);
                prepare(inner, preparer)?;
            } else if stopping {
                // A full disk: what memory holds is in the journal, and the next start finds it there.
                return Ok(());
            } else {
                let mut core = inner.core.lock();
                let _ = inner.wake_store.wait_for(&mut core, TICK);
            }
        } else if stopping {
            return Ok(());
        }
        if since_sweep >= SWEEP_TICKS {
            since_sweep = 0;
            sweep(inner, store, preparer)?;
        }
    }
}

/// Looks at the clock when nobody else does, so that a jump is seen and logged soon.
fn watch_clock(core: &mut Core) {
    let _ = core.clock.now();
    match core.clock.take_jump() {
        Some(Jump::Forward(span)) => tracing::warn!(
            "the wall clock is {span} ahead; retention follows once that has held for an hour"
        ),
        Some(Jump::Backward(span)) => {
            tracing::warn!("the wall clock is {span} behind; retention goes on without it");
        }
        Some(Jump::Adopted(span)) => {
            tracing::warn!(
                "the wall clock stayed {span} ahead for an hour; retention follows it now"
            );
        }
        Some(Jump::Over) => tracing::info!("the wall clock is back"),
        None => {}
    }
}

/// Keeps spare segments allocated; a full disk is a state, not a failure.
fn prepare(inner: &Inner, preparer: &Preparer) -> Result<(), EngineError> {
    let mut full = false;
    while inner.room.wants_spares() && !full {
        match preparer.prepare() {
            Ok(()) => {}
            Err(error) if error.is_full() => full = true,
            Err(error) => return Err(error.into()),
        }
    }
    let mut core = inner.core.lock();
    let waited = std::mem::take(&mut core.wants_room);
    // With a spare left there is room still: only the lack of any is the state.
    core.no_segments = full && inner.room.spares() == 0;
    core.full = core.no_segments || core.no_pages;
    drop(core);
    if waited {
        inner.room_made.notify_waiters();
    }
    Ok(())
}

/// Copies everything decided so far to the store. `None`: the disk is full, nothing is lost, try again.
fn checkpoint(inner: &Inner, store: &mut Store) -> Result<Option<Lsn>, EngineError> {
    let mut core = inner.core.lock();
    let frozen = core.freeze();
    let Some(core) = until_durable(inner, core, frozen.lsn) else {
        return Ok(None);
    };
    let position = core.clock.position();
    drop(core);
    let committed = store.checkpoint(Checkpoint {
        lsn: frozen.lsn,
        next_token: frozen.next_token,
        mark: super::open::mark_bytes(position),
        policies: Vec::new(),
        changes: changes(&frozen),
    });
    let full = match committed {
        Ok(_) => false,
        Err(StoreError::Full { .. }) => {
            store.reopen()?;
            true
        }
        Err(error) => return Err(error.into()),
    };
    let mut core = inner.core.lock();
    if core.no_pages != full {
        core.no_pages = full;
        core.full = core.no_segments || core.no_pages;
        if full {
            tracing::error!(
                "the disk of the data directory is full: new records are refused until space is freed"
            );
        } else {
            tracing::info!("the disk has room again");
        }
    }
    if full {
        return Ok(None);
    }
    while core.holds > 0 && core.phase != Phase::Failed {
        inner.wake_store.wait(&mut core);
    }
    let dropped = core.thaw();
    core.frozen_at = frozen.at;
    drop(core);
    inner.room_made.notify_waiters();
    // Two maps of tens of megabytes take a while to free: outside the lock.
    drop(dropped);
    Ok(Some(frozen.lsn))
}

/// A checkpoint covers only what is durable. `None`: the engine failed meanwhile.
fn until_durable<'a>(
    inner: &'a Inner,
    mut core: MutexGuard<'a, Core>,
    lsn: Lsn,
) -> Option<MutexGuard<'a, Core>> {
    while core.gather.durable() < lsn {
        if core.phase == Phase::Failed {
            return None;
        }
        let _ = inner.landed.wait_for(&mut core, TICK);
    }
    Some(core)
}

/// The frozen records as the store takes them.
pub(super) fn changes(frozen: &Frozen) -> Vec<(RecordKey, Option<Arc<Record>>)> {
    let slots = frozen.slots.iter();
    slots
        .map(|(key, slot)| (key.clone(), slot.record.clone()))
        .collect()
}

/// Drops what is past its retention, a table at a time. Not what memory may have moved since it was frozen:
/// so the instant is that of the last freeze, or now where memory holds nothing.
fn sweep(inner: &Inner, store: &mut Store, preparer: &Preparer) -> Result<(), EngineError> {
    let (at, now) = {
        let mut core = inner.core.lock();
        let now = core.clock.now().time;
        (
            if core.recent.is_empty() {
                now
            } else {
                core.frozen_at
            },
            now,
        )
    };
    match store.sweep(at) {
        Ok(_) => {}
        Err(StoreError::Full { .. }) => store.reopen()?,
        Err(error) => return Err(error.into()),
    }
    preparer.prune(now)?;
    Ok(())
}
