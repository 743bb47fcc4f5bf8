//! The engine: decides commands in one order and answers once what the answers rest on is durable.
//!
//! A batch of commands is decided under one lock at one instant. What it changes goes into memory and into
//! the next frame of the journal; the journal thread makes frames durable, one write and one sync each; the
//! store thread copies what is durable to the store and frees the journal. An answer leaves only through
//! [`Engine::submit`], which holds it until everything it rests on is durable: its own entries, and those of
//! others that it saw.
//!
//! Deliberately absent: any knowledge of protocols, and any decision outside [`crate::model`].

pub mod backup;
mod bulk;
mod checkpoint;
pub mod clock;
mod commit;
mod core;
mod cost;
mod error;
mod fetch;
mod gather;
pub mod inspect;
mod late;
mod listing;
mod metrics;
mod namespaces;
mod open;
pub mod program;
mod recent;
pub mod repair;
mod reserve;
pub mod restore;
#[cfg(test)]
mod sim;
mod stats;
mod trail;
mod unchanged;
mod waiters;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};

pub use self::bulk::Replays;
use self::clock::{Source, Timer};
use self::core::{Asked, Core, Fetched, Phase};
use self::cost::Cost;
pub use self::error::EngineError;
use self::fetch::Fetch;
pub use self::fetch::MAX_READ;
use self::metrics::Metrics;
pub use self::metrics::{Counted, Face, MAX_TOLD_APART, OTHERS};
pub use self::namespaces::{Namespace, Origin, States};
pub use self::open::Report;
pub use self::reserve::reserve_size;
pub use self::stats::{Family, Kind, Sample, Value as Figure};
use self::trail::Trails;
pub use self::trail::{Event, Events, Filter, MAX_READERS, TrailError};
use self::waiters::{Bell, Decision, Patience, wait_of};
pub use self::waiters::{MAX_WAITERS, MAX_WAITING_BYTES};
use crate::journal::frame::max_frame;
use crate::journal::room::Room;
use crate::journal::writer;
use crate::model::command::{Command, Payload};
use crate::model::key::RecordKey;
use crate::model::outcome::Outcome;
use crate::model::policy::{FingerprintKind, Policy};
use crate::model::time::Now;
use crate::store::{self, Reader};

/// How long a batch waits for memory or a segment before it is refused.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest that a write waits for those before it where memory for recent ones runs short.
const SLOWEST: Duration = Duration::from_millis(20);
/// The file system a journal is laid out for where nobody looked: defaults as on any large one.
const DISK: u64 = 64 << 30;
/// How often what was read from the store may be overtaken by a checkpoint before the next one waits.
const REDOS: u32 = 2;

/// How many namespaces may come into being (SPEC 5).
pub const MAX_NAMESPACES: usize = 10_000;

/// What is decided together.
#[derive(Clone, Debug)]
pub enum Unit {
    /// One command.
    One(Command),
    /// Several, in order: if one of them does not hold ([`Outcome::holds`]), nothing of them is stored.
    All(Vec<Command>),
}

/// Why a command was not decided. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The store has no room for what creates records or hands out work (SPEC 9).
    Full,
    /// Recent writes wait for the disk, and did so for too long.
    Overloaded,
    /// More than one unit may write (SPEC 10).
    TooLarge,
    /// More payloads and results than one unit may read.
    Reads,
    /// Payloads and results wait for those that others have not taken yet, and did so for too long (SPEC 10).
    Crowded,
    /// There are [`MAX_NAMESPACES`] namespaces already, and this would be one more.
    Namespaces,
    /// There are [`MAX_WAITERS`] claims waiting already, or [`MAX_WAITING_BYTES`] of them.
    Waiters,
    /// The configuration speaks for this namespace's policy.
    Configured,
    /// A bound of programs.
    Program(program::Bound),
    /// A rule of the engine's own was broken; the log says which.
    Defect,
    /// The engine is stopping. What was asked may have been stored: nobody was told.
    Stopping,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unavailable::Program(bound) => return bound.fmt(f),
            Unavailable::Full => {
                "the disk of the data directory is full; free space, it goes on by itself"
            }
            Unavailable::Overloaded => {
                "the disk is slower than the writes that wait for it; try again"
            }
            Unavailable::TooLarge => "more than may be written in one step; send less at once",
            Unavailable::Reads => {
                "these records have more payloads and results than may be read in one step; ask for fewer at once"
            }
            Unavailable::Crowded => {
                "answers that others have not read yet use up the memory for bytes in flight; try again"
            }
            Unavailable::Namespaces => {
                "there are 10000 namespaces already; use one of them, with what tells jobs apart in the key"
            }
            Unavailable::Waiters => {
                "as many claims wait already as may, or as many bytes of them; ask again without waiting"
            }
            Unavailable::Configured => {
                "the configuration file sets the policy of this namespace, and speaks last at every start; change it there"
            }
            Unavailable::Defect => {
                "a defect of the server: nothing was stored; report it with the server's log"
            }
            Unavailable::Stopping => "the server is stopping; try again",
        })
    }
}

impl std::error::Error for Unavailable {}

/// A page of a listing: records in key order, as `get` answers them but without large bodies.
#[derive(Clone, Debug)]
pub struct Page {
    /// The records.
    pub records: Vec<(RecordKey, Outcome)>,
    /// Where the next page begins (its `after`), if there may be more.
    pub next: Option<Bytes>,
}

/// What became of the first units of several.
#[derive(Debug, Default)]
pub struct Submitted {
    /// How many units.
    pub units: usize,
    /// The answers of their commands, in order.
    pub answers: Vec<Result<Outcome, Unavailable>>,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where time comes from.
    pub clock: Source,
    /// Policies by namespace, from the configuration.
    pub policies: BTreeMap<String, Policy>,
    /// Memory for recent writes, in bytes (SPEC 10).
    pub recent_bytes: usize,
    /// The largest payload and the largest result, in bytes each (SPEC 10).
    pub body_limit: usize,
    /// Bytes of disk to keep for finishing work when it is full (SPEC 9): see [`reserve_size`]. 0: none.
    pub reserve: u64,
    /// How often the store thread looks around when nobody wakes it. Recent records go to the store after 5
    /// such ticks at the latest; what is past its retention is swept every 10.
    pub tick: Duration,
    /// A permit for each byte in flight (SPEC 10): large bodies that are read from the store take theirs.
    pub in_flight: Arc<Semaphore>,
    /// Of the journal.
    pub journal: writer::Options,
    /// Of the store.
    pub store: store::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Source::system(),
            policies: BTreeMap::new(),
            recent_bytes: 32 << 20,
            body_limit: 1 << 20,
            reserve: reserve_size(DISK),
            tick: Duration::from_secs(1),
            in_flight: Arc::new(Semaphore::new(256 << 20)),
            journal: writer::Options::for_file_system(DISK),
            store: store::Options::default(),
        }
    }
}

/// Limits, resolved and checked against each other.
#[derive(Clone, Copy, Debug)]
struct Limits {
    recent_bytes: usize,
    /// A checkpoint begins here.
    freeze_at: usize,
    /// The largest frame, so the largest unit.
    max_frame: u64,
    /// The most bytes that one unit reads.
    reads: usize,
    tick: Duration,
}

impl Limits {
    /// The most bytes that are written in one step.
    fn unit(&self) -> u64 {
        self.max_frame.min(self.recent_bytes as u64 / 4)
    }

    /// How long a write waits while recent writes take so many bytes: not at all up to three quarters of what they
    /// may take.
    fn delay(&self, recent: usize) -> Duration {
        let free = self.recent_bytes / 4 * 3;
        let over = recent.saturating_sub(free).min(self.recent_bytes / 4);
        let share = (over as u64).saturating_mul(SLOWEST.as_micros() as u64)
            / (self.recent_bytes as u64 / 4).max(1);
        // The clock of the timers has milliseconds.
        Duration::from_millis(share.div_ceil(1000))
    }

    fn resolve(options: &Options) -> Result<Limits, EngineError> {
        let max_frame = max_frame(options.journal.segment_size);
        let bodies = options.body_limit.saturating_mul(2);
        if options.recent_bytes < bodies.saturating_mul(4) {
            return Err(EngineError::Limits(format!(
                "memory for recent writes is {} bytes, and has to be at least 4 times payload and \
                 result limit together ({}); raise it, or lower the limit of bodies",
                options.recent_bytes,
                bodies.saturating_mul(4)
            )));
        }
        if max_frame < bodies.saturating_add(64 << 10) as u64 {
            return Err(EngineError::Limits(format!(
                "a frame of the journal holds {max_frame} bytes, too few for a payload and a result \
                 of {} each; lower the limit of bodies, or use a larger file system",
                options.body_limit
            )));
        }
        Ok(Limits {
            recent_bytes: options.recent_bytes,
            freeze_at: options.recent_bytes / 4,
            max_frame,
            reads: fetch::most_read(options.body_limit, &options.in_flight),
            tick: options.tick.max(Duration::from_millis(1)),
        })
    }
}

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
    ) -> Inner {
        Inner {
            core: Mutex::new(core),
            reader,
            room,
            trails,
            metrics: Metrics::new(),
            limits,
            in_flight,
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

/// What a batch has to do before it can be decided.
enum Next<'a> {
    Done(core::Decided, Option<Flush<'a>>),
    Held(Bell),
    Hash(Vec<(&'a Payload, FingerprintKind)>),
    Read(Vec<(RecordKey, bool)>, u64),
    Split,
    Wait,
}

/// What came of a batch.
enum Came {
    /// So many units of it.
    Decided(core::Decided, usize),
    /// A claim waits.
    Held(Bell),
    /// Together with the records that they are about, these are too many for one decision.
    TooMany,
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
        let Some(mut part) = parts(units, self.inner.limits.recent_bytes / 8).next() else {
            return Submitted::default();
        };
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
                // It is the first unit alone that reads too much.
                Err(why @ Unavailable::Reads) => {
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

    /// Completes that came with an ended token since the start: possible double executions (SPEC 4).
    #[must_use]
    pub fn late_completions(&self) -> u64 {
        self.inner.core.lock().late.count()
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

    /// Decides the first of the units, and says how many. With `patience` they are one claim, which may be held.
    async fn decide(
        &self,
        units: &[Unit],
        mut patience: Option<&mut Patience<'_>>,
    ) -> Result<Came, Unavailable> {
        let limit = self.inner.limits.unit();
        if units.iter().any(|unit| unit.cost() as u64 > limit) {
            return Err(Unavailable::TooLarge);
        }
        let mut asked = Asked::new(units, self.inner.reader.hasher());
        let mut fetch = Fetch::new(self);
        self.slow_down(units).await;
        loop {
            // Asked for before the look, so that no wake-up in between is lost.
            let room_made = self.inner.room_made.notified();
            match self.next(&asked, fetch.fetched(), patience.as_deref_mut())? {
                Next::Done(decided, flush) => {
                    if flush.is_some() {
                        // Whoever is ready as well joins the frame: one sync for all.
                        tokio::task::yield_now().await;
                    }
                    return Ok(Came::Decided(decided, asked.units.len()));
                }
                Next::Held(bell) => return Ok(Came::Held(bell)),
                Next::Split => return Ok(Came::TooMany),
                Next::Wait => {
                    fetch.let_go();
                    if tokio::time::timeout(PATIENCE, room_made).await.is_err() {
                        let full = self.running()?.full;
                        return Err(if full {
                            Unavailable::Full
                        } else {
                            Unavailable::Overloaded
                        });
                    }
                }
                Next::Hash(payloads) => {
                    for (payload, kind) in payloads {
                        // What cannot be read as that kind is decided, like everything, by the model.
                        let _ = payload.fingerprint(kind);
                    }
                }
                Next::Read(missing, checkpoint) => {
                    fetch.read_for(&mut asked, missing, checkpoint).await?;
                }
            }
        }
    }

    /// Where writes come faster than the store takes them, each waits a little, the longer the less memory is
    /// left: many short waits in place of one that lasts a whole checkpoint.
    async fn slow_down(&self, units: &[Unit]) {
        let mut writes = units.iter().flat_map(Unit::commands);
        if !writes.any(|command| cost::writes(&command.verb)) {
            return;
        }
        let room_made = self.inner.room_made.notified();
        let delay = {
            let core = self.inner.core.lock();
            if core.full {
                return;
            }
            self.inner.limits.delay(core.recent.bytes())
        };
        if delay > Duration::ZERO {
            // Either way it is tried now.
            let _ = tokio::time::timeout(delay, room_made).await;
        }
    }

    /// Looks under the lock whether the batch can be decided, and decides it.
    fn next<'a>(
        &'a self,
        asked: &Asked<'a>,
        fetched: &Fetched,
        patience: Option<&mut Patience<'_>>,
    ) -> Result<Next<'a>, Unavailable> {
        let mut core = self.running()?;
        let missing = core.missing(asked, fetched, |hashes, possible| {
            self.inner.reader.mark_possible(hashes, possible);
        })?;
        if !missing.is_empty() {
            return Ok(Next::Read(missing, core.checkpoints));
        }
        let unhashed = core.unhashed(asked, fetched)?;
        if !unhashed.is_empty() {
            return Ok(Next::Hash(unhashed));
        }
        let cost = core.cost(asked, fetched);
        if cost.journal as u64 > self.inner.limits.unit() {
            if asked.units.len() > 1 {
                return Ok(Next::Split);
            }
            return Err(Unavailable::TooLarge);
        }
        let room = cost.memory == 0 || self.has_room(&mut core, cost);
        if !room && !core.exhausted {
            return Ok(Next::Wait);
        }
        let was_empty = core.gather.is_empty();
        let decided = match patience {
            None => core.decide(asked, fetched, room),
            Some(patience) => match core.decide_or_hold(asked, fetched, room, patience)? {
                Decision::Decided(decided) => decided,
                Decision::Held(bell) => {
                    self.inner.unlock(core);
                    return Ok(Next::Held(bell));
                }
            },
        };
        #[cfg(test)]
        self.inner.tap.decided();
        let wake_journal = was_empty && !core.gather.is_empty();
        let wake_store = core.recent.active_bytes() >= self.inner.limits.freeze_at;
        self.inner.unlock(core);
        if wake_store {
            self.inner.wake_store.notify_one();
        }
        Ok(Next::Done(
            decided,
            wake_journal.then(|| Flush(&self.inner)),
        ))
    }

    /// Room in memory and in allocated segments, so that a decision never meets a full disk.
    fn has_room(&self, core: &mut Core, cost: Cost) -> bool {
        let limits = &self.inner.limits;
        let memory = core.recent.bytes().saturating_add(cost.memory) <= limits.recent_bytes
            // A batch larger than all of memory is let in alone.
            || core.recent.is_empty();
        let needed = core.gather.queued().saturating_add(cost.journal as u64);
        let segments = needed <= self.inner.room.available();
        if !(memory && segments) {
            core.wants_room = !segments && !core.exhausted;
            self.inner.wake_store.notify_one();
        }
        memory && segments
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

/// Cuts a batch where it would take more memory than there may be at once; units stay whole.
fn parts(units: &[Unit], most: usize) -> impl Iterator<Item = &[Unit]> {
    let mut rest = units;
    std::iter::from_fn(move || {
        let mut cost = 0_usize;
        let fits = rest.iter().take_while(|unit| {
            cost = cost.saturating_add(unit.cost());
            cost <= most
        });
        let count = fits.count().max(1).min(rest.len());
        let (part, tail) = rest.split_at(count);
        rest = tail;
        (!part.is_empty()).then_some(part)
    })
}

/// Wakes the journal thread when it goes, also with a client that is gone.
struct Flush<'a>(&'a Inner);

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.0.gathered.notify_one();
    }
}

/// While it lives, no checkpoint drops its frozen map.
struct Hold<'a>(&'a Inner);

impl Hold<'_> {
    fn new(inner: &Inner) -> Hold<'_> {
        inner.core.lock().holds += 1;
        Hold(inner)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.core.lock().holds -= 1;
        self.0.wake_store.notify_one();
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

#[cfg(test)]
mod tests {
    use super::core::Found;
    use super::*;
    use crate::model::body::{Body, Content};
    use crate::model::command::{Claim, Mode, Verb};
    use crate::model::outcome::{Reason, Verdict};
    use crate::model::record::{KeptResult, Token};

    fn command(key: &str, verb: Verb) -> Unit {
        Unit::One(Command::new(
            RecordKey::new("default", key.as_bytes()).unwrap(),
            verb,
        ))
    }

    fn claim() -> Verb {
        Verb::Claim(Box::default())
    }

    fn result(bytes: Vec<u8>) -> KeptResult {
        let content = Content::new(bytes.into());
        KeptResult {
            body: Body {
                content_type: "a/b".into(),
                content,
            },
            status: None,
        }
    }

    async fn one(engine: &Engine, unit: Unit) -> Outcome {
        engine.submit(vec![unit]).await.remove(0).unwrap()
    }

    fn options() -> Options {
        let mut options = Options::default();
        options.journal.segment_size = 16 << 20;
        options
    }

    #[tokio::test]
    async fn what_was_answered_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, report) = Engine::open(dir.path(), options()).unwrap();
        assert!(report.created);
        let got = one(&engine, command("a", claim())).await;
        assert_eq!(got.verdict, Verdict::Acquired(Reason::New));
        assert_eq!(
            one(&engine, command("a", claim())).await.verdict,
            Verdict::Busy
        );
        let token = Token::FIRST;
        let large = vec![7; 100_000];
        let complete = Verb::Complete {
            token: Some(token),
            result: result(large.clone()),
        };
        assert_eq!(
            one(&engine, command("a", complete)).await.verdict,
            Verdict::Completed
        );
        let payload = Payload::new(vec![9; 50_000].into(), "a/b".into());
        let keep = Claim {
            payload: Some(payload),
            store: true,
            ..Claim::default()
        };
        let got = one(&engine, command("b", Verb::Claim(Box::new(keep)))).await;
        assert_eq!(got.verdict, Verdict::Acquired(Reason::New));
        engine.close().unwrap();
        for _ in 0..2 {
            let (engine, report) = Engine::open(dir.path(), options()).unwrap();
            assert_eq!((report.created, report.redone), (false, 0));
            let got = one(&engine, command("a", claim())).await;
            assert_eq!(got.verdict, Verdict::Done);
            let content = got.string_value().unwrap().unwrap();
            assert_eq!(
                content.bytes().map(|bytes| bytes.to_vec()),
                Some(large.clone())
            );
            let got = one(&engine, command("b", Verb::Get)).await;
            let payload = got.record.unwrap().record.payload.clone().unwrap();
            assert_eq!(payload.content.bytes().map(Bytes::len), Some(50_000));
            engine.close().unwrap();
        }
    }

    #[tokio::test]
    async fn decisions_that_change_nothing_are_in_the_journal_with_their_count() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = Engine::open(dir.path(), options()).unwrap();
        for key in ["a", "a", "b", "a", "a"] {
            one(&engine, command(key, claim())).await;
            one(&engine, command(key, Verb::Get)).await;
        }
        engine.close().unwrap();
        let data = dir.path().join(open::DATA);
        let (store, opened) = store::Store::open(data.join(open::STORE), options().store).unwrap();
        drop(store);
        let mut told = Vec::new();
        let mut visit = |_, _, bytes: &[u8]| {
            let entry = store::decode_entry(bytes).unwrap();
            let kind = match &entry.change {
                store::Change::None(key) => ("none", key.key().to_vec()),
                store::Change::Put(key, _) => ("put", key.key().to_vec()),
                other => panic!("{other:?}"),
            };
            told.push((kind, entry.decision.outcome, entry.decision.count));
            Ok(())
        };
        let disk = open::journal_disk(&data).unwrap();
        crate::journal::inspect::inspect(&*disk, &opened.store_id, None, &mut visit).unwrap();
        told.sort();
        assert_eq!(
            told,
            [
                (("none", b"a".to_vec()), "busy", 3),
                (("put", b"a".to_vec()), "acquired", 1),
                (("put", b"b".to_vec()), "acquired", 1),
            ]
        );
        let (engine, report) = Engine::open(dir.path(), options()).unwrap();
        assert_eq!(report.redone, 0, "a clean end leaves nothing to redo");
        engine.close().unwrap();
    }

    #[tokio::test]
    async fn what_was_read_before_a_checkpoint_decides_nothing_after_it() {
        let engine = Engine::volatile(Options::default());
        let held = one(&engine, command("a", claim())).await.record.unwrap();
        let key = RecordKey::new("default", b"b").unwrap();
        let decide = |overtaken: u64| {
            let mut core = engine.inner.core.lock();
            let found = Found {
                record: Some(held.record.clone()),
                bodies: Vec::new(),
            };
            let fetched = Fetched {
                checkpoints: core.checkpoints + overtaken,
                found: [(key.clone(), found)].into(),
            };
            let units = [command("b", claim())];
            let asked = Asked::new(&units, engine.inner.reader.hasher());
            let mut decided = core.decide(&asked, &fetched, true);
            decided.answers.remove(0).unwrap().verdict
        };
        assert_eq!(decide(0), Verdict::Busy, "it was read and holds");
        assert_eq!(decide(1), Verdict::Acquired(Reason::New), "it is void");
    }

    #[test]
    fn writes_wait_the_longer_the_less_memory_is_left() {
        let limits = Limits::resolve(&Options::default()).unwrap();
        let quarter = limits.recent_bytes / 4;
        for (bytes, millis) in [
            (0, 0),
            (quarter * 3, 0),
            (quarter * 3 + quarter / 40, 1),
            (quarter * 3 + quarter / 2, 10),
            (quarter * 4, 20),
            (usize::MAX, 20),
        ] {
            let delay = limits.delay(bytes);
            assert_eq!(delay, Duration::from_millis(millis), "{bytes} bytes");
        }
    }

    #[tokio::test]
    async fn ten_thousand_namespaces_come_into_being_and_no_more() {
        let engine = Engine::volatile(Options::default());
        let claim_in = |namespace: &str| {
            let key = RecordKey::new(namespace, b"k").unwrap();
            Unit::One(Command::new(key, claim()))
        };
        let names: Vec<String> = (0..MAX_NAMESPACES).map(|at| format!("n{at}")).collect();
        for some in names.chunks(1000) {
            let units = some.iter().map(|name| claim_in(name)).collect();
            assert!(engine.submit(units).await.iter().all(Result::is_ok));
        }
        let one_more = engine.submit(vec![claim_in("one-more")]).await.remove(0);
        assert_eq!(one_more.map(|_| ()), Err(Unavailable::Namespaces));
        let known = engine.submit(vec![claim_in("n0")]).await.remove(0);
        assert_eq!(known.map(|known| known.verdict), Ok(Verdict::Busy));
    }

    #[tokio::test]
    async fn a_unit_is_stored_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = Engine::open(dir.path(), options()).unwrap();
        one(&engine, command("taken", claim())).await;
        let once = || {
            Verb::Claim(Box::new(Claim {
                mode: Mode::Once { result: None },
                ..Claim::default()
            }))
        };
        let all = |keys: &[&str]| {
            let one = |key: &&str| {
                Command::new(RecordKey::new("default", key.as_bytes()).unwrap(), once())
            };
            Unit::All(keys.iter().map(one).collect())
        };
        let got = engine.submit(vec![all(&["x", "taken", "y"])]).await;
        assert_eq!(got.len(), 3);
        for key in ["x", "y"] {
            assert_eq!(
                one(&engine, command(key, Verb::Get)).await.verdict,
                Verdict::NotFound
            );
        }
        let got = engine.submit(vec![all(&["x", "y"])]).await;
        assert!(
            got.iter()
                .all(|outcome| outcome.as_ref().is_ok_and(Outcome::holds))
        );
        engine.close().unwrap();
    }

    #[tokio::test]
    async fn a_pipeline_that_is_decided_in_parts_is_answered_and_so_are_those_beside_it() {
        let mut options = options();
        options.recent_bytes = 8 << 20;
        options.body_limit = 64 << 10;
        let engine = Engine::volatile(options);
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    for round in 0..5 {
                        let units = (0..3000).map(|at| command(&format!("{client}-{at}"), claim()));
                        let answers = engine.submit(units.collect()).await;
                        assert_eq!(answers.len(), 3000);
                        assert!(answers.iter().all(Result::is_ok), "round {round}");
                        one(&engine, command(&format!("beside-{client}"), claim())).await;
                    }
                })
            })
            .collect();
        let all = async {
            for client in clients {
                client.await.unwrap();
            }
        };
        let all = tokio::time::timeout(Duration::from_secs(60), all).await;
        assert!(all.is_ok(), "somebody was never told");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sixty_four_clients_claim_one_key_and_one_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = Engine::open(dir.path(), options()).unwrap();
        for round in 0..50 {
            let key = format!("k{round}");
            let clients: Vec<_> = (0..64)
                .map(|_| {
                    let (engine, unit) = (engine.clone(), command(&key, claim()));
                    tokio::spawn(async move { one(&engine, unit).await.verdict })
                })
                .collect();
            let mut acquired = 0;
            for client in clients {
                acquired += usize::from(matches!(client.await.unwrap(), Verdict::Acquired(_)));
            }
            assert_eq!(acquired, 1);
        }
        engine.close().unwrap();
    }
}
