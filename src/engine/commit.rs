//! The journal thread: group commit. While one frame is on its way to the disk, the next one gathers.

use crate::journal::Mark;
use crate::journal::frame::Frame;
use crate::journal::writer::Writer;
use crate::model::record::Lsn;

use super::clock::{Position, Timer};
use super::core::Phase;
use super::{EngineError, Inner};

/// What the journal thread has for itself.
pub(super) struct Committer {
    /// Gone once it is closed.
    writer: Option<Writer>,
    /// Taken from those who wait, and not written yet.
    flight: Option<Frame>,
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
        }
    }

    /// Runs until the engine stops and everything gathered is durable, or the journal fails.
    pub(super) fn run(mut self, inner: &Inner) {
        loop {
            match self.step(inner) {
                Next::Step => {}
                Next::Idle => until_gathered(inner),
                Next::Over => return,
            }
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
        inner.metrics.committed(entries, timer.elapsed());
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
