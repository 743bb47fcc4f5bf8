//! A claim while it is held, and the thread that keeps the time for all of them.

use std::time::Duration;

use super::super::core::Phase;
use super::super::{Came, Engine, Inner, Unavailable, Unit};
use super::End;
use crate::model::key::RecordKey;
use crate::model::outcome::Outcome;
use crate::model::time::{BootTime, Now, Span};

/// So many timers are served before the lock is given back.
const AT_ONCE: usize = 256;

/// How long a claim waits, and its place. Given up when this is dropped: a client that is gone is skipped, and
/// if it had just been called, the next one is.
pub(in super::super) struct Patience<'a> {
    inner: &'a Inner,
    key: &'a RecordKey,
    wait: Span,
    bytes: usize,
    until: Option<BootTime>,
    pub(super) place: Option<u64>,
}

impl<'a> Patience<'a> {
    pub(super) fn key(&self) -> &'a RecordKey {
        self.key
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When it ends: counted from the first decision.
    pub(super) fn until(&mut self, now: Now) -> BootTime {
        *self.until.get_or_insert(now.end_of(self.wait))
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let mut core = self.inner.core.lock();
            let now = core.clock.now();
            core.waiters.leave(self.key, place, End::Gone, now.boot);
            self.inner.unlock(core);
        }
    }
}

impl Engine {
    /// Decides a claim, as often as there is a reason to, until its answer is final or its time is over. The
    /// unit is that claim alone.
    pub(in super::super) async fn decide_in_time(
        &self,
        unit: &Unit,
        wait: Span,
    ) -> Result<Outcome, Unavailable> {
        let Unit::One(command) = unit else {
            return Err(Unavailable::Defect);
        };
        let mut patience = Patience {
            inner: &self.inner,
            key: &command.key,
            wait,
            bytes: unit.cost(),
            until: None,
            place: None,
        };
        let units = std::slice::from_ref(unit);
        loop {
            let mut decided = match self.decide(units, Some(&mut patience)).await? {
                Came::Decided(decided, _) => decided,
                Came::TooMany => return Err(Unavailable::TooLarge),
                Came::Held(bell) => {
                    // Rung or gone: either way there is something to find out.
                    let _ = bell.await;
                    continue;
                }
            };
            if let Some(durable) = decided.durable
                && durable.await.is_err()
            {
                // The journal failed: what was decided may or may not be on the disk.
                return Err(Unavailable::Stopping);
            }
            return decided.answers.pop().unwrap_or(Err(Unavailable::Defect));
        }
    }

    /// From here on no claim is held: those that are get their answer as of now. To be called before
    /// [`Engine::close`], which answers whoever still waits that it is stopping.
    pub fn stop_waiting(&self) {
        let mut core = self.inner.core.lock();
        core.waiters.close();
        self.inner.unlock(core);
    }
}

/// Rings for what is due by now, on the engine's clock; when to come again.
pub(in super::super) fn ring_due(inner: &Inner) -> Option<Span> {
    loop {
        let mut core = inner.core.lock();
        let now = core.clock.now().boot;
        let more = core.waiters.fire(now, AT_ONCE);
        let next = core.waiters.timers.first_key_value();
        let next = next.map(|((at, _), _)| at.since(now));
        inner.unlock(core);
        if !more {
            return next;
        }
    }
}

/// Runs until the engine stops.
pub(in super::super) fn keep_time(inner: &Inner) {
    loop {
        let _ = ring_due(inner);
        let mut core = inner.core.lock();
        if core.phase != Phase::Running {
            return;
        }
        // Looked at anew under this lock: what came since the bells were rung has told nobody.
        let next = core
            .waiters
            .timers
            .first_key_value()
            .map(|((at, _), _)| *at);
        core.waiters.asleep_until = next;
        match next {
            None => inner.timekeeper.wait(&mut core),
            Some(at) => {
                let left = at.since(core.clock.now().boot);
                // The boot clock counts a suspended machine, waits do not: so none is long.
                let left = Duration::from_millis(left.as_millis()).min(inner.limits.tick);
                inner.timekeeper.wait_for(&mut core, left);
            }
        }
        core.waiters.asleep_until = Some(BootTime::default());
    }
}
