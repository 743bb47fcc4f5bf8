//! What one script may take. It runs under the engine's lock, so every other request waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mlua::{HookTriggers, Lua, VmState};
use parking_lot::Mutex;

use crate::engine::clock::Work;

/// Instructions between two looks at the budget, and between two where texts are large: one instruction can then
/// copy or compare megabytes.
const EVERY: (u32, u32) = (20, 1);
/// From so many bytes of memory on, texts are large.
const LARGE: usize = 2 << 20;

/// What a script may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) struct Limits {
    /// Instructions of Lua's machine.
    pub instructions: u64,
    /// Time of the processor.
    pub time: Duration,
    /// Bytes of memory, beside four times what the script is given.
    pub memory: usize,
    /// Steps of what the library does within one instruction, as they are estimated: about a nanosecond each.
    pub steps: u64,
}

impl Limits {
    /// Of every script. Lock scripts take some 50 instructions and 20 microseconds.
    pub(in crate::resp) const SCRIPT: Limits = Limits {
        instructions: 200_000,
        time: Duration::from_millis(5),
        memory: 4 << 20,
        steps: 5_000_000,
    };
}

/// What a script has taken.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    memory: usize,
    instructions: AtomicU64,
    steps: AtomicU64,
    over: AtomicBool,
    began: Mutex<Option<Work>>,
}

impl Budget {
    /// A budget for a script that is given so many bytes.
    pub(super) fn new(limits: Limits, given: usize) -> Budget {
        Budget {
            limits,
            memory: given.saturating_mul(4).saturating_add(limits.memory),
            instructions: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            over: AtomicBool::new(false),
            began: Mutex::new(None),
        }
    }

    /// Bytes that its state may have.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Counts from here.
    pub(super) fn begin(self: &Arc<Budget>, lua: &Lua) -> mlua::Result<()> {
        *self.began.lock() = Some(Work::start());
        let every = match lua.used_memory() < LARGE {
            true => EVERY.0,
            false => EVERY.1,
        };
        self.look_every(every, lua)
    }

    fn look_every(self: &Arc<Budget>, every: u32, lua: &Lua) -> mlua::Result<()> {
        let budget = self.clone();
        let triggers = HookTriggers::new().every_nth_instruction(every);
        lua.set_hook(triggers, move |lua, _| {
            budget
                .instructions
                .fetch_add(every.into(), Ordering::Relaxed);
            if budget.look().is_ok() {
                if every > EVERY.1 && lua.used_memory() >= LARGE {
                    budget.look_every(EVERY.1, lua)?;
                }
                return Ok(VmState::Continue);
            }
            // From here on at every instruction: no pcall gets any further.
            let every = HookTriggers::new().every_nth_instruction(1);
            lua.set_hook(every, |_, _| Err(mlua::Error::runtime(OVER)))?;
            Err(mlua::Error::runtime(OVER))
        })
    }

    /// Looks at the clock and at the count, and ends the script where either is over.
    pub(super) fn look(&self) -> mlua::Result<()> {
        let late = || {
            let began = self.began.lock();
            began
                .as_ref()
                .is_some_and(|work| work.spent() > self.limits.time)
        };
        if self.instructions.load(Ordering::Relaxed) > self.limits.instructions || late() {
            self.over.store(true, Ordering::Relaxed);
        }
        self.check()
    }

    /// Whether it goes on at all; the error goes through every `pcall`.
    pub(super) fn check(&self) -> mlua::Result<()> {
        match self.over.load(Ordering::Relaxed) {
            true => Err(mlua::Error::runtime(OVER)),
            false => Ok(()),
        }
    }

    /// Takes so many steps; whether there were as many.
    pub(super) fn take(&self, steps: u64) -> bool {
        let taken = self.steps.fetch_add(steps, Ordering::Relaxed);
        taken.saturating_add(steps) <= self.limits.steps
    }

    /// Takes steps for work on so many bytes, before it is done.
    pub(super) fn weigh(&self, bytes: usize, steps_each: u64) -> mlua::Result<()> {
        match self.take((bytes as u64).saturating_mul(steps_each)) {
            true => Ok(()),
            false => Err(mlua::Error::runtime(TOO_LONG)),
        }
    }

    /// The error of a script that took too long.
    pub(super) fn over(&self) -> Option<Vec<u8>> {
        self.over.load(Ordering::Relaxed).then(|| {
            format!(
                "ERR {OVER}: at most {} instructions and {} ms of the processor; nothing of it was stored",
                self.limits.instructions,
                self.limits.time.as_millis()
            )
            .into_bytes()
        })
    }

    /// The error for what Lua itself gave up.
    pub(super) fn refusal(&self, why: &str) -> Vec<u8> {
        if why.contains("not enough memory") {
            let most = self.memory;
            return format!(
                "ERR the script needs too much memory: it has {most} bytes; nothing of it was stored"
            )
            .into_bytes();
        }
        format!("ERR {why}").into_bytes()
    }
}

/// What did not run because it could take longer than its instructions tell.
pub(super) const TOO_LONG: &str = "patterns, repetitions, hashes and JSON over texts this long take too much time here; \
                                   work on shorter texts, or find plain text";
const OVER: &str = "the script takes too long";
