//! From units to a decision: whatever has to be read, hashed or waited for comes first, outside the lock.

use std::time::Duration;

use super::commit;
use super::core::{self, Asked, Core, Fetched};
use super::cost::{self, Cost};
use super::fetch::Fetch;
use super::waiters::{Bell, Decision, Patience};
use super::{Engine, Inner, PATIENCE, Unavailable, Unit};
use crate::model::command::Payload;
use crate::model::key::RecordKey;
use crate::model::policy::FingerprintKind;

/// What a batch has to do before it can be decided.
enum Next<'a> {
    Done(core::Decided, Option<Flush<'a>>),
    Held(Bell),
    Hash(Vec<(&'a Payload, FingerprintKind)>),
    Read(Vec<(RecordKey, bool)>, u64),
    Split,
    /// Only so many of the units find room.
    Fit(usize),
    Wait,
}

/// What came of a batch.
pub(super) enum Came {
    /// So many units of it.
    Decided(core::Decided, usize),
    /// A claim waits.
    Held(Bell),
    /// Together with the records that they are about, these are too many for one decision.
    TooMany,
}

impl Engine {
    /// Decides the first of the units, and says how many. With `patience` they are one claim, which may be held.
    pub(super) async fn decide(
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
                    if let Some(flush) = flush {
                        flush.run().await;
                    }
                    return Ok(Came::Decided(decided, asked.units.len()));
                }
                Next::Held(bell) => return Ok(Came::Held(bell)),
                Next::Split => return Ok(Came::TooMany),
                Next::Fit(units) => asked.keep(units),
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
        if !room && !cost.adds {
            let fit = self.fitting(&core, cost, asked.units.len());
            if fit > 0 {
                return Ok(Next::Fit(fit));
            }
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
            wake_journal.then(|| Flush::new(&self.inner)),
        ))
    }

    /// How many of some units that cost so much find room, about, though not all do: fewer than these.
    fn fitting(&self, core: &Core, cost: Cost, units: usize) -> usize {
        let share = |free: u64, needed: usize| {
            let fit = free.saturating_mul(units as u64) / (needed as u64).max(1);
            usize::try_from(fit).unwrap_or(usize::MAX)
        };
        let memory = self
            .inner
            .limits
            .recent_bytes
            .saturating_sub(core.recent.bytes());
        let journal = self.inner.room.available();
        let journal = journal.saturating_sub(core.gather.queued());
        share(memory as u64, cost.memory)
            .min(share(journal, cost.journal))
            .min(units.saturating_sub(1))
    }

    /// Room in memory and in allocated segments, so that a decision never meets a full disk. The last of it is for what
    /// makes room.
    pub(super) fn has_room(&self, core: &mut Core, cost: Cost) -> bool {
        let limits = &self.inner.limits;
        let (kept_memory, kept) = if cost.adds { limits.kept() } else { (0, 0) };
        let memory = core.recent.bytes().saturating_add(cost.memory)
            <= limits.recent_bytes.saturating_sub(kept_memory)
            // A batch larger than all of memory is let in alone.
            || core.recent.is_empty();
        let needed = core.gather.queued().saturating_add(cost.journal as u64);
        let segments = needed <= self.inner.room.available().saturating_sub(kept);
        if !(memory && segments) {
            core.wants_room = !segments && !core.exhausted;
            self.inner.wake_store.notify_one();
        }
        memory && segments
    }
}

/// The first of the units: as many as may take so much memory at once, or one.
pub(super) fn first_part(units: &[Unit], most: usize) -> &[Unit] {
    let mut cost = 0_usize;
    let fits = units.iter().take_while(|unit| {
        cost = cost.saturating_add(unit.cost());
        cost <= most
    });
    units.get(..fits.count().max(1)).unwrap_or(units)
}

/// Of the one who began a frame: he sees to it that it becomes durable. Wakes the journal thread when it goes unused,
/// also with a client that is gone.
pub(super) struct Flush<'a>(Option<&'a Inner>);

impl<'a> Flush<'a> {
    pub(super) fn new(inner: &'a Inner) -> Flush<'a> {
        Flush(Some(inner))
    }

    /// Lets whoever is ready as well join the frame, so that there is one sync for all, and makes it durable or has
    /// the journal thread do so.
    pub(super) async fn run(mut self) {
        tokio::task::yield_now().await;
        if let Some(inner) = self.0
            && commit::lead(inner)
        {
            self.0 = None;
        }
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        if let Some(inner) = self.0 {
            inner.gathered.notify_one();
        }
    }
}

/// While it lives, no checkpoint drops its frozen map.
pub(super) struct Hold<'a>(&'a Inner);

impl Hold<'_> {
    pub(super) fn new(inner: &Inner) -> Hold<'_> {
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
