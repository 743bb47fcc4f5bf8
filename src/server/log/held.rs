//! What holds lines back: a client that sends garbage, or a disk that fails at every turn, fills no log.
//!
//! Lines are counted by kind: the place in the program that they come from. So many of a kind are written in a
//! window of time; of the others their number is told when it is over.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Level;
use tracing::callsite::Identifier;

use crate::engine::clock::Timer;

/// Lines of one kind that are written in one window.
pub(super) const ALLOWED: u64 = 20;
/// How long a window is.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The open windows. There are as many kinds as places in the program that log.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<Identifier, Kind>>);

#[derive(Debug)]
struct Kind {
    window: Timer,
    lines: u64,
    level: Level,
    /// The last one that was held back.
    text: String,
}

/// Lines that were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct More {
    pub(super) count: u64,
    pub(super) level: Level,
    /// The last of them.
    pub(super) text: String,
}

impl Held {
    /// Whether a line of that kind is to be written. `text` is asked for where it is not.
    pub(super) fn admits(
        &self,
        kind: Identifier,
        level: Level,
        text: impl FnOnce() -> String,
    ) -> bool {
        let mut kinds = self.0.lock();
        let kind = kinds.entry(kind).or_insert_with(|| Kind {
            window: Timer::start(),
            lines: 0,
            level,
            text: String::new(),
        });
        kind.lines = kind.lines.saturating_add(1);
        if kind.lines > ALLOWED {
            kind.text = text();
        }
        kind.lines <= ALLOWED
    }

    /// Whether no window is open.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Closes the windows that have been open for so long: what was held back in them.
    pub(super) fn close(&self, after: Duration) -> Vec<More> {
        let mut more = Vec::new();
        self.0.lock().retain(|_, kind| {
            if kind.window.elapsed() < after {
                return true;
            }
            if kind.lines > ALLOWED {
                more.push(More {
                    count: kind.lines - ALLOWED,
                    level: kind.level,
                    text: std::mem::take(&mut kind.text),
                });
            }
            false
        });
        more
    }
}
