//! An engine in memory with a clock that a hand moves, made anew now and then so that it stays small.

use std::path::Path;
use std::sync::Arc;

use onced::engine::clock::{ManualClock, Source};
use onced::engine::{Engine, Options};

/// 2026-01-02T03:04:05.678Z.
pub const START: u64 = 1_767_323_045_678;

pub struct House {
    pub engine: Engine,
    // Not every target moves it.
    #[allow(dead_code)]
    pub clock: Arc<ManualClock>,
    runs: u64,
    _dir: tempfile::TempDir,
}

impl House {
    pub fn new() -> House {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let dir = dir.expect("a folder");
        let clock = ManualClock::new(START, 5_000_000);
        let mut options = Options {
            clock: Source::Manual(clock.clone()),
            recent_bytes: 4 << 20,
            body_limit: 64 << 10,
            reserve: 0,
            ..Options::default()
        };
        options.journal.segment_size = 1 << 20;
        options.journal.audit_bytes = 1 << 20;
        let (engine, _) = Engine::open(dir.path(), options).expect("an engine");
        // The clock stands still while a request is served: nobody would ever have waited long enough.
        engine.stop_waiting();
        House {
            engine,
            clock,
            runs: 0,
            _dir: dir,
        }
    }

    /// One more run; a house that had enough is left.
    pub fn visit(&mut self) {
        self.runs += 1;
        if self.runs > 3000 {
            self.engine.close().expect("a clean end");
            *self = House::new();
        }
    }
}
