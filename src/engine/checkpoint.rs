//! The store thread: copies recent records to the store, sweeps what is past its retention, and keeps
//! segments ready for the journal. It is the only writer of the store.

use std::sync::Arc;

use super::clock::{Jump, Pace, Stopwatch, Timer};
use super::core::{Core, Phase};
use super::recent::Frozen;
use super::reserve::Reserve;
use super::{EngineError, Inner};
use crate::journal::prepare::Preparer;
use crate::model::record::Lsn;
use crate::store::{CodecError, Store, StoreError};

/// Ticks after which recent records go to the store even if they are few.
const CHECKPOINT_TICKS: u32 = 5;
/// Ticks without a frame after which the clocks are written down alone, so that engine time does not go back
/// by more at a restart of the machine whose wall clock went back.
const MARK_TICKS: u32 = 60;
/// Ticks between two sweeps.
const SWEEP_TICKS: u32 = 10;

/// By how much the store thread gives way to those that answer: a third of their share.
const NICENESS: i32 = 5;

/// Room for a frame without entries, and to spare.
const MARK_ROOM: u64 = 4096;

/// What the store thread has for itself.
pub(super) struct Keeper {
    pub(super) store: Store,
    preparer: Preparer,
    pub(super) reserve: Reserve,
    /// The disk is full; and when it was last looked whether there is room in the store's own file.
    full: Option<Looked>,
    /// Up to there removals went from the store ahead of their checkpoint.
    pub(super) removed: Lsn,
    task: Task,
    /// Measured, not counted by waits that time out: a busy store never waits that long.
    pace: Pace,
    since_checkpoint: Stopwatch,
    since_sweep: Stopwatch,
    since_frame: Stopwatch,
    since_unchanged: Stopwatch,
    /// The frames there had been by then.
    frames: u64,
}

/// When the store was measured on a full disk; `None`: not yet.
type Looked = Option<Stopwatch>;

/// What the next step does.
enum Task {
    /// Makes the first spares, before anybody has to wait for one.
    Begin,
    /// Finds out what is due.
    Look,
    /// Brings a map to the store, once the journal has all of it.
    Store(Frozen),
    /// Drops a map that the store has.
    Drop(Frozen),
}

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next one.
    Step,
    /// Nothing is due, until a tick has passed or somebody asks for something.
    Idle,
    /// The disk is full: another try in a tick.
    Tick,
    /// The journal does not have that yet.
    Journal(Lsn),
    /// Readers were overtaken twice and have not decided.
    Holds,
    /// The engine stopped and everything is in the store that fits, or it failed.
    Over,
}

impl Keeper {
    pub(super) fn new(store: Store, preparer: Preparer, reserve: Reserve, pace: Pace) -> Keeper {
        Keeper {
            store,
            preparer,
            reserve,
            full: None,
            removed: Lsn(0),
            task: Task::Begin,
            since_checkpoint: pace.start(),
            since_sweep: pace.start(),
            since_frame: pace.start(),
            since_unchanged: pace.start(),
            pace,
            frames: 0,
        }
    }

    /// The disk is full already at the start.
    pub(super) fn begin_full(&mut self) {
        self.full = Some(None);
    }

    /// From here on nothing past its retention is dropped: no answer depends on that.
    #[cfg(test)]
    pub(super) fn never_sweep(&mut self) {
        self.since_sweep = Pace::Manual(super::clock::ManualClock::new(0, 0)).start();
    }

    /// Runs until the engine stops and everything is in the store, or storage fails.
    pub(super) fn run(mut self, inner: &Inner) {
        // Answers come first where processors are short; while commands wait for room there is nobody to give way
        // to. A refusal changes nothing but that.
        let _ = rustix::process::nice(NICENESS);
        loop {
            match self.step(inner) {
                Next::Step => {}
                Next::Over => return,
                pause => wait(inner, pause),
            }
        }
    }

    /// Does what is next.
    pub(super) fn step(&mut self, inner: &Inner) -> Next {
        let stepped = match std::mem::replace(&mut self.task, Task::Look) {
            Task::Begin => self.prepare(inner).map(|()| Next::Idle),
            Task::Look => self.look(inner),
            Task::Store(frozen) => self.checkpoint(inner, frozen),
            Task::Drop(frozen) => self.drop_frozen(inner, frozen),
        };
        let next = stepped.unwrap_or_else(|error| {
            inner.fail(error);
            Next::Over
        });
        if next == Next::Over {
            inner.core.lock().store_ended = true;
            inner.gathered.notify_all();
        }
        next
    }

    /// Finds out what is due.
    fn look(&mut self, inner: &Inner) -> Result<Next, EngineError> {
        let every = |ticks: u32| inner.limits.tick.saturating_mul(ticks);
        let stopping = {
            let mut core = inner.core.lock();
            watch_clock(&mut core);
            if core.gather.frames() != self.frames {
                self.frames = core.gather.frames();
                self.since_frame = self.pace.start();
            }
            if self.since_unchanged.elapsed() >= every(1) || core.phase == Phase::Stopping {
                self.since_unchanged = self.pace.start();
                if core.write_unchanged(inner.room.available().saturating_sub(MARK_ROOM)) {
                    inner.gathered.notify_one();
                }
            }
            let quiet = self.since_frame.elapsed() >= every(MARK_TICKS);
            if quiet && inner.room.available() > MARK_ROOM {
                core.gather.push_mark();
                inner.gathered.notify_one();
            }
            match core.phase {
                Phase::Failed => return Ok(Next::Over),
                Phase::Stopping => true,
                Phase::Running => false,
            }
        };
        self.refill(inner)?;
        self.prepare(inner)?;
        let mut core = inner.core.lock();
        let much = core.recent.active_bytes() >= inner.limits.freeze_at;
        let lacking = core.full || inner.room.spares() == 0;
        let asked = core.wanted_in_store > core.in_store;
        let due = much
            || stopping
            || lacking
            || asked
            || self.since_checkpoint.elapsed() >= every(CHECKPOINT_TICKS);
        // Decisions that changed nothing take up segments as well, and a clean end leaves nothing to redo.
        let behind = core.next_lsn.0.saturating_sub(1) > self.store.checkpoint_lsn().0;
        if due && (!core.recent.is_empty() || ((lacking || stopping || asked) && behind)) {
            self.since_checkpoint = self.pace.start();
            let frozen = core.freeze();
            let lsn = frozen.lsn;
            self.task = Task::Store(frozen);
            return Ok(Next::Journal(lsn));
        }
        drop(core);
        if stopping {
            return Ok(Next::Over);
        }
        self.prepare_from_reserve(inner)?;
        self.sweep_if_due(inner)?;
        Ok(Next::Idle)
    }

    /// Takes the reserve again where there is space: that ends the state of a full disk. So does room for two of them
    /// inside the store, whose file does not shrink: what was dropped or expired left it there.
    fn refill(&mut self, inner: &Inner) -> Result<(), EngineError> {
        let refilled = self.reserve.refill()?;
        if self.full.is_some() && (refilled || self.has_room_inside(inner)?) {
            self.full = None;
            let mut core = inner.core.lock();
            (core.full, core.exhausted) = (false, false);
            drop(core);
            tracing::info!("the disk has room again");
        }
        Ok(())
    }

    fn has_room_inside(&mut self, inner: &Inner) -> Result<bool, EngineError> {
        // The more there is to read the longer is waited: a tick for every hundred thousand records, a minute at most.
        let ticks = (self.store.records() / 100_000).clamp(1, 60);
        let every = inner.limits.tick.saturating_mul(ticks as u32);
        let early = |looked: &Looked| looked.as_ref().is_some_and(|at| at.elapsed() < every);
        // Whatever waits for the store needs it first.
        if self.full.as_ref().is_none_or(early) || inner.core.lock().recent.has_frozen() {
            return Ok(false);
        }
        self.full = Some(Some(self.pace.start()));
        match self.store.free_inside() {
            Ok(bytes) => Ok(bytes >= self.reserve.size().saturating_mul(2)),
            Err(StoreError::Full { .. }) => {
                self.make_space(inner)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The disk is full from here on. Whether giving up the reserve made room.
    fn fall_back(&mut self, inner: &Inner) -> Result<bool, EngineError> {
        if self.full.is_none() {
            self.full = Some(Some(self.pace.start()));
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

    /// Copies a map to the store. On a full disk nothing is lost, and it is tried again.
    fn checkpoint(&mut self, inner: &Inner, frozen: Frozen) -> Result<Next, EngineError> {
        let mut core = inner.core.lock();
        if core.phase == Phase::Failed {
            return Ok(Next::Over);
        }
        // A checkpoint covers only what is durable.
        if core.gather.durable() < frozen.lsn {
            let lsn = frozen.lsn;
            self.task = Task::Store(frozen);
            return Ok(Next::Journal(lsn));
        }
        let mut past = None;
        if core.full {
            let now = core.clock.now().time;
            past = Some(unreadable(
                core.recent.may_forget(&frozen, now),
                frozen.lsn,
            )?);
        }
        let mark = super::open::mark_bytes(core.clock.position());
        drop(core);
        let timer = Timer::start();
        loop {
            let checkpoint = frozen.checkpoint(mark.clone());
            match self.store.checkpoint_without(checkpoint, past) {
                Ok(_) => break,
                Err(StoreError::Full { .. }) => {
                    if !self.make_space(inner)? && !self.remove_ahead(inner)? {
                        return self.without_space(inner);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        inner.metrics.checkpointed(timer.elapsed());
        inner.core.lock().exhausted = false;
        self.task = Task::Drop(frozen);
        Ok(Next::Step)
    }

    /// A checkpoint did not fit: what memory holds is in the journal, and a later try or the next start finds
    /// it there.
    fn without_space(&mut self, inner: &Inner) -> Result<Next, EngineError> {
        if inner.core.lock().phase != Phase::Running {
            return Ok(Next::Over);
        }
        let smaller = inner.core.lock().refreeze();
        if let Some(frozen) = smaller {
            let lsn = frozen.lsn;
            self.task = Task::Store(frozen);
            return Ok(Next::Journal(lsn));
        }
        self.sweep_if_due(inner)?;
        Ok(Next::Tick)
    }

    /// Drops a map that the store has, and what the journal has of it.
    fn drop_frozen(&mut self, inner: &Inner, frozen: Frozen) -> Result<Next, EngineError> {
        let stored = inner.reader.counts();
        let mut core = inner.core.lock();
        if core.holds > 0 && core.phase != Phase::Failed {
            self.task = Task::Drop(frozen);
            return Ok(Next::Holds);
        }
        let dropped = core.thaw(stored);
        core.frozen_at = frozen.at;
        core.in_store = frozen.lsn;
        drop(core);
        inner.room_made.notify_waiters();
        inner.stored.notify_waiters();
        let lsn = frozen.lsn;
        drop(dropped);
        reuse(inner, frozen);
        self.preparer.release(lsn);
        self.refill(inner)?;
        self.prepare(inner)?;
        self.prepare_from_reserve(inner)?;
        self.store.cover_one()?;
        self.sweep_if_due(inner)?;
        Ok(Next::Idle)
    }

    /// After a commit that found no space: opens the store anew and gives up what can be given up, the audit
    /// trail before the reserve. `false`: there is nothing left.
    pub(super) fn make_space(&mut self, inner: &Inner) -> Result<bool, EngineError> {
        // Segments are not taken from the journal: they are all it has on a full disk.
        let spare = !inner.room.wants_spares() && self.preparer.make_space()? > 0;
        let freed = spare || self.fall_back(inner)?;
        match self.store.reopen() {
            Err(StoreError::Full { .. }) if self.fall_back(inner)? => self.store.reopen()?,
            other => other?,
        }
        Ok(freed)
    }

    fn sweep_if_due(&mut self, inner: &Inner) -> Result<(), EngineError> {
        if self.since_sweep.elapsed() < inner.limits.tick.saturating_mul(SWEEP_TICKS) {
            return Ok(());
        }
        self.since_sweep = self.pace.start();
        self.sweep(inner)
    }

    /// Drops what is past its retention, a table at a time. Not what memory may have moved since it was frozen:
    /// so the instant is that of the last freeze, or now where memory holds nothing.
    fn sweep(&mut self, inner: &Inner) -> Result<(), EngineError> {
        let (at, now, mark) = {
            let mut core = inner.core.lock();
            let now = core.clock.now().time;
            let mark = super::open::mark_bytes(core.clock.position());
            // A full disk keeps records in memory, and room may come from what is past its retention. Without
            // bodies in the store these records need nothing of it.
            let stored = self.store.checkpoint_lsn();
            let needs = || unreadable(core.recent.needs_stored_bodies(stored), stored);
            let free = core.recent.is_empty() || (core.exhausted && !needs()?);
            let at = if free { now } else { core.frozen_at };
            (at, now, mark)
        };
        loop {
            match self.store.sweep(at, &mark) {
                Ok(swept) => {
                    inner.metrics.swept(swept.records);
                    break;
                }
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

/// Memory does not hold what was put there.
fn unreadable<T>(found: Result<T, CodecError>, lsn: Lsn) -> Result<T, EngineError> {
    found.map_err(|error| EngineError::Entry {
        lsn: lsn.0,
        reason: error.to_string(),
    })
}

/// Keeps the memory of a map for the next one, if there is much to do. Clearing and freeing megabytes takes
/// a while: both outside the lock.
fn reuse(inner: &Inner, frozen: Frozen) {
    let busy = inner.core.lock().recent.active_bytes() >= inner.limits.freeze_at / 2;
    let mut spare = Arc::into_inner(frozen.rows).filter(|_| busy);
    if let Some(spare) = &mut spare {
        spare.clear();
    }
    let not_needed = inner.core.lock().recent.reuse(spare);
    drop(not_needed);
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

/// Waits for what the next step needs, if it is not there already.
fn wait(inner: &Inner, pause: Next) {
    let (core, tick) = (&mut inner.core.lock(), inner.limits.tick);
    match pause {
        Next::Idle => {
            let asked = core.wants_room || core.wanted_in_store > core.in_store;
            let idle = core.recent.active_bytes() < inner.limits.freeze_at && !asked;
            if core.phase == Phase::Running && idle {
                let _ = inner.wake_store.wait_for(core, tick);
            }
        }
        Next::Tick => drop(inner.wake_store.wait_for(core, tick)),
        Next::Journal(lsn) => {
            if core.gather.durable() < lsn && core.phase != Phase::Failed {
                let _ = inner.landed.wait_for(core, tick);
            }
        }
        Next::Holds => {
            if core.holds > 0 && core.phase != Phase::Failed {
                inner.wake_store.wait(core);
            }
        }
        Next::Step | Next::Over => {}
    }
}
