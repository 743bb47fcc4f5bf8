//! The journal thread: group commit. While one frame is on its way to the disk, the next one gathers.

use crate::journal::Mark;
use crate::journal::writer::Writer;

use super::clock::Position;
use super::core::Phase;
use super::{EngineError, Inner};

/// Runs until the engine stops and everything gathered is durable, or the journal fails.
pub(super) fn run(inner: &Inner, mut writer: Writer) {
    loop {
        let (mut frame, position) = {
            let mut core = inner.core.lock();
            loop {
                if core.phase == Phase::Failed {
                    return;
                }
                if let Some(frame) = core.gather.take() {
                    break (frame, core.clock.position());
                }
                if core.phase == Phase::Stopping && core.store_ended {
                    drop(core);
                    // A closed journal needs no look for a torn tail.
                    if let Err(error) = writer.close() {
                        inner.fail(EngineError::Journal(error));
                    }
                    return;
                }
                inner.gathered.wait(&mut core);
            }
        };
        frame.set_mark(mark(position));
        let bytes = frame.len() as u64;
        if let Err(error) = writer.append(&mut frame) {
            inner.fail(EngineError::Journal(error));
            return;
        }
        let landed = {
            let mut core = inner.core.lock();
            if core.phase == Phase::Failed {
                return;
            }
            core.gather.landed(bytes)
        };
        landed.tell();
        inner.landed.notify_all();
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
