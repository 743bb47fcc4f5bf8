//! The store thread: copies recent records to the store, sweeps what is past its retention, and keeps
//! segments ready for the journal. It is the only writer of the store.

use parking_lot::MutexGuard;

use super::clock::{Jump, Stopwatch};
use super::core::{Core, Phase};
use super::reserve::Reserve;
use super::{EngineError, Inner};
use crate::journal::prepare::Preparer;
use crate::model::record::Lsn;
use crate::store::{Store, StoreError};

/// Ticks after which recent records go to the store even if they are few.
const CHECKPOINT_TICKS: u32 = 5;
/// Ticks without a frame after which the clocks are written down alone, so that engine time does not go back
/// by more at a restart of the machine whose wall clock went back.
const MARK_TICKS: u32 = 60;
/// Ticks between two sweeps.
const SWEEP_TICKS: u32 = 10;

/// Room for a frame without entries, and to spare.
const MARK_ROOM: u64 = 4096;

/// What the store thread has for itself.
pub(super) struct Keeper {
    pub(super) store: Store,
    pub(super) preparer: Preparer,
    pub(super) reserve: Reserve,
    /// How many records the store had when the disk got full; `None` while it is not.
    pub(super) records_when_full: Option<u64>,
}

impl Keeper {
    /// Runs until the engine stops and everything is in the store, or storage fails.
    pub(super) fn run(mut self, inner: &Inner) {
        if let Err(error) = self.work(inner) {
            inner.fail(error);
        }
        inner.core.lock().store_ended = true;
        inner.gathered.notify_all();
    }

    fn work(&mut self, inner: &Inner) -> Result<(), EngineError> {
        // Before anybody has to wait for one.
        self.prepare(inner)?;
        // Measured, not counted by waits that time out: a busy store never waits that long.
        let every = |ticks: u32| inner.limits.tick.saturating_mul(ticks);
        let (mut since_checkpoint, mut since_sweep) = (Stopwatch::start(), Stopwatch::start());
        let (mut since_frame, mut frames) = (Stopwatch::start(), 0);
        loop {
            let stopping = {
                let mut core = inner.core.lock();
                let idle = core.recent.active_bytes() < inner.limits.freeze_at && !core.wants_room;
                if core.phase == Phase::Running && idle {
                    let _ = inner.wake_store.wait_for(&mut core, inner.limits.tick);
                }
                watch_clock(&mut core);
                if core.gather.frames() != frames {
                    frames = core.gather.frames();
                    since_frame = Stopwatch::start();
                }
                let quiet = since_frame.elapsed() >= every(MARK_TICKS);
                if quiet && inner.room.available() > MARK_ROOM {
                    core.gather.push_mark();
                    inner.gathered.notify_one();
                }
                match core.phase {
                    Phase::Failed => return Ok(()),
                    Phase::Stopping => true,
                    Phase::Running => false,
                }
            };
            self.refill(inner)?;
            self.prepare(inner)?;
            let due = {
                let core = inner.core.lock();
                let much = core.recent.active_bytes() >= inner.limits.freeze_at;
                let lacking = core.full || inner.room.spares() == 0;
                let due = much
                    || stopping
                    || lacking
                    || since_checkpoint.elapsed() >= every(CHECKPOINT_TICKS);
                due && !core.recent.is_empty()
            };
            if due {
                since_checkpoint = Stopwatch::start();
                if let Some(lsn) = self.checkpoint(inner)? {
                    self.preparer.release(lsn);
                    self.refill(inner)?;
                    self.prepare(inner)?;
                    self.prepare_from_reserve(inner)?;
                } else if stopping {
                    // A full disk: what memory holds is in the journal, and the next start finds it there.
                    return Ok(());
                } else {
                    let mut core = inner.core.lock();
                    let _ = inner.wake_store.wait_for(&mut core, inner.limits.tick);
                }
            } else if stopping {
                return Ok(());
            } else {
                self.prepare_from_reserve(inner)?;
            }
            if since_sweep.elapsed() >= every(SWEEP_TICKS) {
                since_sweep = Stopwatch::start();
                self.sweep(inner)?;
            }
        }
    }

    /// Takes the reserve again where there is space: that ends the state of a full disk. So does a store that
    /// has an eighth fewer records than when it began, because what they took is free inside of it.
    fn refill(&mut self, inner: &Inner) -> Result<(), EngineError> {
        let Some(then) = self.records_when_full else {
            return Ok(());
        };
        if self.reserve.refill()? || self.store.records() < then - then / 8 {
            self.records_when_full = None;
            let mut core = inner.core.lock();
            (core.full, core.exhausted) = (false, false);
            drop(core);
            tracing::info!("the disk has room again");
        }
        Ok(())
    }

    /// The disk is full from here on. Whether giving up the reserve made room.
    fn fall_back(&mut self, inner: &Inner) -> Result<bool, EngineError> {
        if self.records_when_full.is_none() {
            self.records_when_full = Some(self.store.records());
            warn_full();
        }
        let freed = self.reserve.free()?;
        let mut core = inner.core.lock();
        (core.full, core.exhausted) = (true, !freed);
        drop(core);
        if !freed {
            // Whoever waits for room is answered now.
            inner.room_made.notify_waiters();
        }
        Ok(freed)
    }

    /// Keeps spare segments allocated; a full disk is a state, not a failure. What is free of the reserve is
    /// for checkpoints: segments then come out of those that are in the store already.
    fn prepare(&mut self, inner: &Inner) -> Result<(), EngineError> {
        let mut none = false;
        while inner.room.wants_spares() && !none {
            if !self.reserve.is_held() {
                none = !self.preparer.recycle()?;
                continue;
            }
            match self.preparer.prepare() {
                Ok(()) => {}
                Err(error) if error.is_full() => none = true,
                Err(error) => return Err(error.into()),
            }
        }
        let waited = std::mem::take(&mut inner.core.lock().wants_room);
        if waited {
            inner.room_made.notify_waiters();
        }
        Ok(())
    }

    /// Where even after a checkpoint there is no segment to go on in, the reserve is for that too.
    fn prepare_from_reserve(&mut self, inner: &Inner) -> Result<(), EngineError> {
        while inner.room.spares() == 0 && !inner.room.is_over() {
            match self.preparer.prepare() {
                Ok(()) => {}
                Err(error) if error.is_full() => {
                    if !self.fall_back(inner)? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Copies everything decided so far to the store. `None`: the disk is full, nothing is lost, try again.
    fn checkpoint(&mut self, inner: &Inner) -> Result<Option<Lsn>, EngineError> {
        let mut core = inner.core.lock();
        let frozen = core.freeze();
        let Some(core) = until_durable(inner, core, frozen.lsn) else {
            return Ok(None);
        };
        let mark = super::open::mark_bytes(core.clock.position());
        drop(core);
        loop {
            match self.store.checkpoint(frozen.checkpoint(mark.clone())) {
                Ok(_) => break,
                Err(StoreError::Full { .. }) => {
                    if !self.make_space(inner)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut core = inner.core.lock();
        core.exhausted = false;
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

    /// After a commit that found no space: opens the store anew and gives up what can be given up, the audit
    /// trail before the reserve. `false`: there is nothing left.
    fn make_space(&mut self, inner: &Inner) -> Result<bool, EngineError> {
        // Segments are not taken from the journal: they are all it has on a full disk.
        let spare = !inner.room.wants_spares() && self.preparer.make_space()? > 0;
        let freed = spare || self.fall_back(inner)?;
        match self.store.reopen() {
            Err(StoreError::Full { .. }) if self.fall_back(inner)? => self.store.reopen()?,
            other => other?,
        }
        Ok(freed)
    }

    /// Drops what is past its retention, a table at a time. Not what memory may have moved since it was frozen:
    /// so the instant is that of the last freeze, or now where memory holds nothing.
    fn sweep(&mut self, inner: &Inner) -> Result<(), EngineError> {
        let (at, now) = {
            let mut core = inner.core.lock();
            let now = core.clock.now().time;
            // A full disk keeps records in memory, and room may come from what is past its retention. Without
            // bodies in the store these records need nothing of it.
            let stored = self.store.checkpoint_lsn();
            let needs_none = || -> Result<bool, EngineError> {
                let needs = core.recent.needs_stored_bodies(stored);
                needs
                    .map(|needs| !needs)
                    .map_err(|error| EngineError::Entry {
                        lsn: stored.0,
                        reason: error.to_string(),
                    })
            };
            let free = core.recent.is_empty() || (core.exhausted && needs_none()?);
            let at = if free { now } else { core.frozen_at };
            (at, now)
        };
        loop {
            match self.store.sweep(at) {
                Ok(_) => break,
                Err(StoreError::Full { .. }) => {
                    if !self.make_space(inner)? {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.preparer.prune(now)?;
        Ok(())
    }
}

/// The state begins; its end is told as well.
pub(super) fn warn_full() {
    tracing::error!(
        "the disk of the data directory is full: new records are refused until space is freed"
    );
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
        let _ = inner.landed.wait_for(&mut core, inner.limits.tick);
    }
    Some(core)
}
