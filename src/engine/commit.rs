//! Group commit. A disk that answers at once is written to by the thread that decides: the sync is over sooner than
//! another thread would be awake, and whoever is ready meanwhile makes the next frame. For any other disk there is
//! the journal thread: while one frame is on its way, the next one gathers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::journal::Mark;
use crate::journal::frame::Frame;
use crate::journal::writer::Writer;
use crate::model::record::Lsn;

use super::clock::{Position, Timer};
use super::core::Phase;
use super::{EngineError, Inner};

/// How slow a journal counts as before its first sync.
const UNKNOWN: Duration = Duration::from_millis(10);
/// A thread that decides takes so many steps at most: two frames, what it decided itself and what was before.
const LEAD_STEPS: u32 = 4;

/// The writing end of the journal. The journal thread has it, or a thread that decided.
pub(super) struct Committer {
    /// Gone once it is closed.
    writer: Option<Writer>,
    /// Taken from those who wait, and not written yet.
    flight: Option<Frame>,
    /// What an append takes: the mean, in which the last one counts for a sixteenth. After one that took a second
    /// it takes some seventy before the disk counts as quick again.
    pace: Duration,
}

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next one.
    Step,
    /// There is no frame.
    Idle,
    /// The engine stopped and everything gathered is durable, or it failed.
    Over,
}

impl Committer {
    pub(super) fn new(writer: Writer) -> Committer {
        Committer {
            writer: Some(writer),
            flight: None,
            pace: UNKNOWN,
        }
    }

    /// Takes a frame, or makes the one it has durable.
    pub(super) fn step(&mut self, inner: &Inner) -> Next {
        let stepped = match self.flight.take() {
            None => self.take(inner),
            Some(frame) => self.write(inner, frame),
        };
        stepped.unwrap_or_else(|error| {
            inner.fail(error);
            Next::Over
        })
    }

    fn take(&mut self, inner: &Inner) -> Result<Next, EngineError> {
        let mut core = inner.core.lock();
        if core.phase == Phase::Failed {
            return Ok(Next::Over);
        }
        if let Some(mut frame) = core.gather.take() {
            frame.set_mark(mark(core.clock.position()));
            self.flight = Some(frame);
            return Ok(Next::Step);
        }
        if core.phase == Phase::Stopping && core.store_ended {
            drop(core);
            // A closed journal needs no look for a torn tail.
            if let Some(writer) = self.writer.take() {
                writer.close()?;
            }
            return Ok(Next::Over);
        }
        Ok(Next::Idle)
    }

    fn write(&mut self, inner: &Inner, mut frame: Frame) -> Result<Next, EngineError> {
        let bytes = frame.len() as u64;
        let Some(writer) = &mut self.writer else {
            return Ok(Next::Over);
        };
        let (timer, first) = (Timer::start(), writer.next_lsn());
        writer.append(&mut frame)?;
        let next = writer.next_lsn();
        let entries = next.0.saturating_sub(first.0);
        let took = timer.elapsed();
        inner.metrics.committed(entries, took);
        self.pace = self.pace - self.pace / 16 + took / 16;
        let durable = Lsn(next.0.saturating_sub(1));
        let landed = {
            let mut core = inner.core.lock();
            if core.phase == Phase::Failed {
                return Ok(Next::Over);
            }
            core.gather.landed(bytes)
        };
        landed.tell();
        inner.trails.landed(durable);
        inner.landed.notify_all();
        Ok(Next::Step)
    }
}

/// The journal thread: runs until the engine stops and everything gathered is durable, or the journal fails.
pub(super) fn run(inner: &Inner) {
    loop {
        let next = inner.committer.lock().step(inner);
        match next {
            Next::Step => {}
            Next::Idle => until_gathered(inner),
            Next::Over => return,
        }
    }
}

/// Makes what is gathered durable here and now, if the journal thread is not at it and the disk is quick. Says
/// whether nothing is left to do.
pub(super) fn lead(inner: &Inner) -> bool {
    let Some(mut committer) = inner.committer.try_lock() else {
        return false;
    };
    if committer.pace >= inner.limits.lead_below {
        return false;
    }
    inner.leads.store(true, Ordering::Relaxed);
    let stays = |_: &u32| committer.step(inner) == Next::Step;
    let done = (0..LEAD_STEPS).take_while(stays).count() < LEAD_STEPS as usize;
    inner.leads.store(false, Ordering::Relaxed);
    done
}

/// Waits until there may be a frame, or an end.
fn until_gathered(inner: &Inner) {
    let mut core = inner.core.lock();
    let ended = core.phase == Phase::Stopping && core.store_ended;
    if core.gather.is_empty() && core.phase != Phase::Failed && !ended {
        inner.gathered.wait(&mut core);
    }
}

/// A position as frames carry it.
pub(super) fn mark(position: Position) -> Mark {
    Mark {
        time: position.time,
        boot: position.boot,
        wall_ms: position.reading.wall,
        boot_clock_ms: position.reading.boot,
        boot_id: position.reading.boot_id,
    }
}
