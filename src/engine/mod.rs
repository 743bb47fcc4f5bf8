//! The engine: decides commands in one order and answers once what the answers rest on is durable.
//!
//! A batch of commands is decided under one lock at one instant. What it changes goes into memory and into
//! the next frame of the journal; the journal thread makes frames durable, one write and one sync each; the
//! store thread copies what is durable to the store and frees the journal. An answer leaves only through
//! [`Engine::submit`], which holds it until everything it rests on is durable: its own entries, and those of
//! others that it saw.
//!
//! Deliberately absent: any knowledge of protocols, and any decision outside [`crate::model`].

mod ahead;
pub mod backup;
mod bulk;
mod checkpoint;
pub mod clock;
mod commit;
mod core;
mod cost;
mod decide;
mod error;
mod fetch;
mod gather;
pub mod inspect;
mod late;
mod listing;
mod metrics;
mod namespaces;
mod open;
mod options;
pub mod program;
pub mod random;
mod recent;
pub mod repair;
mod reserve;
pub mod restore;
#[cfg(test)]
mod sim;
mod stats;
#[cfg(test)]
mod tests;
mod trail;
mod transfer;
mod unchanged;
mod unit;
mod waiters;
mod written;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};

pub use self::bulk::Replays;
use self::clock::Timer;
use self::commit::Committer;
use self::core::{Core, Phase};
use self::decide::{Came, Flush, Hold, first_part};
pub use self::error::EngineError;
pub use self::fetch::MAX_READ;
use self::metrics::Metrics;
pub use self::metrics::{Counted, Face, MAX_TOLD_APART, OTHERS};
pub use self::namespaces::{Namespace, Origin, States};
pub use self::open::Report;
use self::options::Limits;
pub use self::options::{Options, frame_for};
pub use self::reserve::reserve_size;
pub use self::stats::{Family, Kind, Sample, Value as Figure};
use self::trail::Trails;
pub use self::trail::{Event, Events, Filter, MAX_READERS, TrailError};
pub use self::transfer::Exported;
pub use self::unit::{Page, Submitted, Unavailable, Unit};
use self::waiters::wait_of;
pub use self::waiters::{MAX_WAITERS, MAX_WAITING_BYTES};
use crate::journal::room::Room;
use crate::model::outcome::Outcome;
use crate::model::time::Now;
use crate::store::Reader;

/// How long a batch waits for memory or a segment before it is refused.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often what was read from the store may be overtaken by a checkpoint before the next one waits.
const REDOS: u32 = 2;

/// How many namespaces may come into being (SPEC 5).
pub const MAX_NAMESPACES: usize = 10_000;

/// The engine's handle. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    /// Through which commands come.
    face: Face,
    /// Of the handles alone: the threads have the inside, and end when this does.
    _life: Arc<Life>,
}

/// Stops the threads when the last handle goes. What was decided is in the journal; [`Engine::close`] waits
/// for the rest.
struct Life(Arc<Inner>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.stop();
    }
}

struct Inner {
    core: Mutex<Core>,
    reader: Reader,
    room: Arc<Room>,
    trails: Trails,
    metrics: Metrics,
    limits: Limits,
    in_flight: Arc<Semaphore>,
    committer: Mutex<Committer>,
    /// A thread that decided is writing to the journal.
    leads: AtomicBool,
    /// The journal thread waits here for a frame.
    gathered: Condvar,
    /// The store thread waits here for something to do.
    wake_store: Condvar,
    /// The store thread waits here for a frame to become durable.
    landed: Condvar,
    /// The thread that keeps the time of claims that wait sleeps here.
    timekeeper: Condvar,
    /// Batches wait here for memory or a segment.
    room_made: Notify,
    /// Backups wait here for the checkpoint that they begin with.
    stored: Notify,
    /// A backup is on its way.
    backing_up: AtomicBool,
    /// The folder of the store, and how many bytes its file system has to have free for a backup to go on.
    space: OnceLock<(PathBuf, u64)>,
    failure: OnceLock<Arc<EngineError>>,
    failed: Notify,
    threads: Mutex<Vec<JoinHandle<()>>>,
    #[cfg(test)]
    folder: Mutex<Option<tempfile::TempDir>>,
    #[cfg(test)]
    tap: sim::Tap,
}

impl Inner {
    fn new(
        core: Core,
        reader: Reader,
        room: Arc<Room>,
        trails: Trails,
        limits: Limits,
        in_flight: Arc<Semaphore>,
        committer: Committer,
    ) -> Inner {
        Inner {
            core: Mutex::new(core),
            reader,
            room,
            trails,
            metrics: Metrics::new(),
            limits,
            in_flight,
            committer: Mutex::new(committer),
            leads: AtomicBool::new(false),
            gathered: Condvar::new(),
            wake_store: Condvar::new(),
            landed: Condvar::new(),
            timekeeper: Condvar::new(),
            room_made: Notify::new(),
            stored: Notify::new(),
            backing_up: AtomicBool::new(false),
            space: OnceLock::new(),
            failure: OnceLock::new(),
            failed: Notify::new(),
            threads: Mutex::new(Vec::new()),
            #[cfg(test)]
            folder: Mutex::new(None),
            #[cfg(test)]
            tap: sim::Tap::default(),
        }
    }

    /// No new commands; the threads bring what was decided to the disk and end.
    fn stop(&self) {
        let mut core = self.core.lock();
        if core.phase == Phase::Running {
            core.phase = Phase::Stopping;
        }
        core.waiters.close();
        self.unlock(core);
        self.gathered.notify_all();
        self.wake_store.notify_all();
        self.timekeeper.notify_all();
        self.room_made.notify_waiters();
        self.trails.end();
    }

    /// Gives the lock back, and rings for those whose turn has come meanwhile: whoever they are, they want the
    /// lock next.
    fn unlock(&self, mut core: MutexGuard<'_, Core>) {
        let (rung, sooner) = core.waiters.take_rung();
        drop(core);
        if sooner {
            self.timekeeper.notify_one();
        }
        for bell in rung {
            // A client that is gone gives its place up by itself.
            let _ = bell.send(());
        }
    }

    /// Storage failed: from here on nobody is told that anything succeeded.
    fn fail(&self, error: EngineError) {
        let mut core = self.core.lock();
        core.phase = Phase::Failed;
        core.gather.abandon();
        core.waiters.close();
        self.unlock(core);
        let _ = self.failure.set(Arc::new(error));
        self.gathered.notify_all();
        self.wake_store.notify_all();
        self.timekeeper.notify_all();
        self.landed.notify_all();
        self.room_made.notify_waiters();
        self.failed.notify_waiters();
        self.trails.end();
    }
}

impl Engine {
    /// The first handle of an engine.
    fn of(inner: Arc<Inner>) -> Engine {
        let _life = Arc::new(Life(inner.clone()));
        Engine {
            inner,
            face: Face::default(),
            _life,
        }
    }

    /// Starts an engine on a directory that exists and that no other process uses: recovers what a crash
    /// left, or creates a store in an empty directory.
    ///
    /// # Errors
    /// [`EngineError`]; then nothing was changed that a later start could not read.
    pub fn open(dir: &Path, options: Options) -> Result<(Engine, Report), EngineError> {
        open::open(dir, options)
    }

    /// Decides all commands in order and answers each once what its answer rests on is durable. Answers come in
    /// the order of the commands, those of a [`Unit::All`] one by one.
    ///
    /// A claim that is submitted alone and may wait is held where it would be answered `busy` or `backoff`
    /// (SPEC 3); dropping the future gives its place up. Among others it does not wait.
    pub async fn submit(&self, units: Vec<Unit>) -> Vec<Result<Outcome, Unavailable>> {
        if let [unit @ Unit::One(command)] = &units[..]
            && let Some(wait) = wait_of(command)
        {
            let timer = Timer::start();
            let answers = vec![self.decide_in_time(unit, wait).await];
            self.counted(&units, &answers, &timer);
            return answers;
        }
        let mut answers = Vec::with_capacity(units.len());
        let mut rest = units.as_slice();
        while !rest.is_empty() {
            let timer = Timer::start();
            let some = self.submit_part(rest).await;
            self.counted(rest, &some.answers, &timer);
            rest = rest.get(some.units..).unwrap_or_default();
            answers.extend(some.answers);
        }
        answers
    }

    /// As [`Engine::submit`], at one instant, for the first of the units: at least one, and as many as may be
    /// decided together for the memory that they, their records and their answers take. For those who can
    /// pass answers on before they ask for more.
    pub async fn submit_some(&self, units: &[Unit]) -> Submitted {
        let timer = Timer::start();
        let some = match units {
            [unit @ Unit::One(command)] if let Some(wait) = wait_of(command) => Submitted {
                units: 1,
                answers: vec![self.decide_in_time(unit, wait).await],
            },
            units => self.submit_part(units).await,
        };
        self.counted(units, &some.answers, &timer);
        some
    }

    /// Counts the answers of the first of the units.
    fn counted(&self, units: &[Unit], answers: &[Result<Outcome, Unavailable>], timer: &Timer) {
        let commands = units.iter().flat_map(Unit::commands);
        let metrics = &self.inner.metrics;
        metrics.answered(self.face, commands, answers, timer.elapsed());
    }

    async fn submit_part(&self, units: &[Unit]) -> Submitted {
        if units.is_empty() {
            return Submitted::default();
        }
        let limits = &self.inner.limits;
        // No more than one unit may write: so whatever is too large is alone.
        let most = (limits.recent_bytes as u64 / 8).min(limits.unit());
        let mut part = first_part(units, usize::try_from(most).unwrap_or(usize::MAX));
        let refused = |part: &[Unit], why| {
            let commands = part.iter().map(|unit| unit.commands().len()).sum();
            Submitted {
                units: part.len(),
                answers: std::iter::repeat_n(Err(why), commands).collect(),
            }
        };
        loop {
            let (decided, count) = match self.decide(part, None).await {
                Ok(Came::Decided(decided, count)) => (decided, count),
                Ok(Came::Held(_) | Came::TooMany) => {
                    part = part.get(..part.len() / 2).unwrap_or(part);
                    continue;
                }
                // It is the first unit alone that reads or writes too much.
                Err(why @ (Unavailable::Reads | Unavailable::TooLarge)) => {
                    return refused(part.get(..1).unwrap_or(part), why);
                }
                Err(why) => return refused(part, why),
            };
            part = part.get(..count).unwrap_or(part);
            #[cfg(feature = "canary")]
            if crate::canary::has(crate::canary::Fault::ReplyBeforeSync) {
                return Submitted {
                    units: count,
                    answers: decided.answers,
                };
            }
            // Before more is decided: who is told that a frame is durable has to tell the others, so nobody holds a
            // wake-up that he does not look at.
            if let Some(durable) = decided.durable
                && durable.await.is_err()
            {
                // The journal failed: what was decided may or may not be on the disk.
                return refused(part, Unavailable::Stopping);
            }
            return Submitted {
                units: count,
                answers: decided.answers,
            };
        }
    }

    /// The instant, on the engine's clock.
    #[must_use]
    pub fn now(&self) -> Now {
        self.inner.core.lock().clock.now()
    }

    /// Whether a thread that decides is writing to the journal at this moment, so that it does nothing else.
    #[must_use]
    pub fn waits_for_disk(&self) -> bool {
        self.inner.leads.load(Ordering::Relaxed)
    }

    /// Resolves when storage failed: then the process has to end, and this says why.
    pub async fn failed(&self) -> Arc<EngineError> {
        loop {
            let notified = self.inner.failed.notified();
            if let Some(error) = self.inner.failure.get() {
                return error.clone();
            }
            notified.await;
        }
    }

    /// Refuses new commands, makes what was decided durable, brings it to the store, and stops the threads.
    /// Blocks until that is done.
    ///
    /// # Errors
    /// What made the engine fail.
    pub fn close(&self) -> Result<(), Arc<EngineError>> {
        self.inner.stop();
        for thread in std::mem::take(&mut *self.inner.threads.lock()) {
            // A thread that panicked has ended the process (release) or said so on standard error.
            let _ = thread.join();
        }
        self.inner
            .failure
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The lock, if the engine decides at all.
    fn running(&self) -> Result<MutexGuard<'_, Core>, Unavailable> {
        let core = self.inner.core.lock();
        if core.phase == Phase::Running {
            Ok(core)
        } else {
            Err(Unavailable::Stopping)
        }
    }
}

#[cfg(test)]
impl Engine {
    /// An engine for a unit test, in a folder that goes with it.
    pub(crate) fn volatile(mut options: Options) -> Engine {
        let dir = tempfile::tempdir().unwrap();
        options.journal.segment_size = 16 << 20;
        let engine = Engine::open(dir.path(), options).unwrap().0;
        *engine.inner.folder.lock() = Some(dir);
        engine
    }
}
