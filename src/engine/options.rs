//! How an engine runs, and its limits, which are checked against each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::clock::Source;
use super::{EngineError, fetch, reserve_size};
use crate::journal::frame::max_frame;
use crate::journal::writer;
use crate::model::policy::Policy;
use crate::store;

/// The longest that a write waits for those before it where memory for recent ones runs short.
const SLOWEST: Duration = Duration::from_millis(20);
/// Syncs as quick as this are waited for where commands are decided: about what it costs to wake another thread, have
/// it answered, and decide the next frame in between.
const QUICK: Duration = Duration::from_micros(500);
/// The file system a journal is laid out for where nobody looked: defaults as on any large one.
const DISK: u64 = 64 << 30;

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
    /// While the journal's appends take less, the thread that decides waits for them itself; above, they are the
    /// journal thread's. Zero: always.
    pub lead_below: Duration,
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
            lead_below: QUICK,
            in_flight: Arc::new(Semaphore::new(256 << 20)),
            journal: writer::Options::for_file_system(DISK),
            store: store::Options::default(),
        }
    }
}

/// What a frame of the journal has to hold where bodies have that limit: a payload, a result, and what goes with them.
#[must_use]
pub fn frame_for(body_limit: usize) -> u64 {
    body_limit.saturating_mul(2).saturating_add(64 << 10) as u64
}

/// Limits, resolved and checked against each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) recent_bytes: usize,
    /// A checkpoint begins here.
    pub(super) freeze_at: usize,
    /// The largest frame, so the largest unit.
    pub(super) max_frame: u64,
    /// The most bytes that one unit reads.
    pub(super) reads: usize,
    pub(super) tick: Duration,
    pub(super) lead_below: Duration,
}

impl Limits {
    /// The most bytes that are written in one step.
    pub(super) fn unit(&self) -> u64 {
        self.max_frame.min(self.recent_bytes as u64 / 4)
    }

    /// What of memory and of allocated segments only removals may take, in bytes: on a disk that is full, deleting has
    /// to be possible.
    pub(super) fn kept(&self) -> (usize, u64) {
        (self.recent_bytes / 16, self.max_frame / 4)
    }

    /// How long a write waits while recent writes take so many bytes: not at all up to three quarters of what they
    /// may take.
    pub(super) fn delay(&self, recent: usize) -> Duration {
        let free = self.recent_bytes / 4 * 3;
        let over = recent.saturating_sub(free).min(self.recent_bytes / 4);
        let share = (over as u64).saturating_mul(SLOWEST.as_micros() as u64)
            / (self.recent_bytes as u64 / 4).max(1);
        // The clock of the timers has milliseconds.
        Duration::from_millis(share.div_ceil(1000))
    }

    pub(super) fn resolve(options: &Options) -> Result<Limits, EngineError> {
        let max_frame = max_frame(options.journal.segment_size);
        let bodies = options.body_limit.saturating_mul(2);
        let least = frame_for(options.body_limit);
        if options.recent_bytes < bodies.saturating_mul(4) {
            return Err(EngineError::Limits(format!(
                "memory for recent writes is {} bytes, and has to be at least 4 times payload and \
                 result limit together ({}); raise it, or lower the limit of bodies",
                options.recent_bytes,
                bodies.saturating_mul(4)
            )));
        }
        if max_frame < least {
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
            lead_below: options.lead_below,
        })
    }
}
