//! What all connections of the Redis face share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::Options;
use super::commands::{Positions, Scripts};
use crate::model::access::Access;
use crate::model::time::{BootTime, Span};

/// At most one warning about HTTP on this port in so long.
const WARNING_EVERY: Span = Span::from_secs(60);

/// What all connections share: options, ids, and where scans stand.
#[derive(Debug)]
pub struct Face {
    pub(super) options: Options,
    pub(super) positions: Mutex<Positions>,
    pub(super) scripts: Mutex<Scripts>,
    access: RwLock<Arc<Access>>,
    ids: AtomicU64,
    connected: AtomicU64,
    warnings: Mutex<Warnings>,
}

#[derive(Debug, Default)]
struct Warnings {
    last: Option<BootTime>,
    held_back: u64,
}

impl Face {
    /// A face with these options.
    #[must_use]
    pub fn new(options: Options) -> Face {
        Face {
            access: RwLock::new(Arc::new(options.access.clone())),
            options,
            positions: Mutex::default(),
            scripts: Mutex::default(),
            ids: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            warnings: Mutex::default(),
        }
    }

    /// Who may do what now.
    pub(super) fn access(&self) -> Arc<Access> {
        self.access.read().clone()
    }

    /// From here on these credentials are asked for. Connections keep theirs as far as it is still among them.
    pub fn set_access(&self, access: Arc<Access>) {
        *self.access.write() = access;
    }

    /// How many sessions there are now.
    #[must_use]
    pub fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// The id of a new connection, 1 for the first.
    pub(super) fn enter(&self) -> u64 {
        self.connected.fetch_add(1, Ordering::Relaxed);
        self.ids.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    pub(super) fn leave(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a warning is due; if so, how many were held back since the last one.
    pub(super) fn warning_due(&self, now: BootTime) -> Option<u64> {
        let mut warnings = self.warnings.lock();
        match warnings.last {
            Some(last) if now.since(last) < WARNING_EVERY => {
                warnings.held_back = warnings.held_back.saturating_add(1);
                None
            }
            _ => {
                warnings.last = Some(now);
                Some(std::mem::take(&mut warnings.held_back))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_due_once_a_minute_and_counts_those_held_back() {
        let face = Face::new(Options::default());
        let at = |secs: u64| BootTime::from_millis(secs * 1000);
        for (secs, due) in [
            (5, Some(0)),
            (6, None),
            (64, None),
            (65, Some(2)),
            (66, None),
        ] {
            assert_eq!(face.warning_due(at(secs)), due, "at {secs} s");
        }
    }

    #[test]
    fn ids_are_not_given_twice() {
        let face = Face::new(Options::default());
        assert_eq!((face.enter(), face.enter(), face.connected()), (1, 2, 2));
        face.leave();
        assert_eq!((face.enter(), face.connected()), (3, 2));
    }
}
