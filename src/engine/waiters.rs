//! Claims that wait (SPEC 3): held until their key settles or can be acquired.
//!
//! Everything here happens under the engine's lock, in the step that decides: a claim takes its place in the
//! same step in which it was found busy, so nothing can happen in between that it would not be told of.
//! Of those that wait for a key only the first is called, and only where there may be something for it: it is
//! decided anew, and whether it is answered, goes back to its place or is gone by then, the next one's turn
//! comes in that same step. So one event wakes one claim, whatever number waits, and none is forgotten.
//!
//! Invariant of a queue after every step: it was called, and somebody will be back under the lock for that; or
//! there is nothing to come for yet, and a timer stands for when there will be.
//!
//! Deliberately absent: what is decided (the model does that again each time), and any order between keys.

mod held;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;

#[cfg(test)]
pub(super) use self::held::ring_due;
pub(super) use self::held::{Patience, keep_time};
use super::Unavailable;
use super::core::{Asked, Core, Decided, Fetched};
use super::recent::end;
use crate::model::command::{Command, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::Verdict;
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Record, Retention, State};
use crate::model::time::{BootTime, Now, Span};
use crate::model::transition::Effect;

/// The most claims that wait at once, over all keys.
pub const MAX_WAITERS: usize = 10_000;
/// Bytes of keys and bodies that may wait at once: a body is kept for as long as its claim waits.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// Rings when the claim that holds it is to be decided anew; a bell that is gone says the same.
pub(super) type Bell = oneshot::Receiver<()>;

/// All claims that wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queues: HashMap<RecordKey, Queue>,
    /// When to look at a queue, or that a claim has waited long enough: by instant and number.
    timers: BTreeMap<(BootTime, u64), RecordKey>,
    /// Numbers queues and claims, in the order in which they came.
    next: u64,
    count: usize,
    bytes: usize,
    /// How many waits ended so, by [`End`].
    ended: [u64; End::NAMES.len()],
    /// Nobody is held any more: the engine is about to stop.
    closed: bool,
    /// To be rung once the lock is given back.
    rung: Vec<oneshot::Sender<()>>,
    /// What the thread that keeps the time sleeps towards.
    asleep_until: Option<BootTime>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The claim acquired.
    Acquired,
    /// It was answered otherwise: done, in doubt, dead.
    Settled,
    /// Its time was over.
    InVain,
    /// The server stops.
    Stopped,
    /// Its client has gone.
    Gone,
}

impl End {
    /// What each is called in figures.
    pub(super) const NAMES: [&str; 5] = ["acquired", "settled", "in_vain", "stopped", "gone"];
}

/// Those that wait for one key.
#[derive(Debug)]
struct Queue {
    number: u64,
    /// Before that instant nobody gets anything but `busy` or `backoff`.
    due: BootTime,
    /// There is a timer for `due`.
    armed: Option<BootTime>,
    /// Was called and was not back yet.
    called: Option<u64>,
    waiting: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// Gone once it was rung.
    bell: Option<oneshot::Sender<()>>,
    until: BootTime,
    bytes: usize,
}

impl Waiters {
    /// How many wait now.
    pub(super) fn held(&self) -> u64 {
        self.count as u64
    }

    /// How many waits ended how, in the order of [`End::NAMES`].
    pub(super) fn ended(&self) -> [u64; End::NAMES.len()] {
        self.ended
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The record of a key was written or removed; `due` is when somebody may get it.
    fn changed(&mut self, key: &RecordKey, due: BootTime, now: BootTime) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.due = due;
            self.call(key, now);
        }
    }

    /// Takes a place behind all others, or goes back to the one it has.
    fn hold(
        &mut self,
        patience: &mut Patience<'_>,
        until: BootTime,
        due: BootTime,
        now: BootTime,
    ) -> Result<Bell, Unavailable> {
        let (key, bytes) = (patience.key(), patience.bytes());
        let number = match patience.place {
            Some(number) => number,
            None => {
                if self.count >= MAX_WAITERS || self.bytes.saturating_add(bytes) > MAX_WAITING_BYTES
                {
                    return Err(Unavailable::Waiters);
                }
                self.count += 1;
                self.bytes += bytes;
                let number = self.number();
                self.timers.insert((until, number), key.clone());
                number
            }
        };
        let (bell, rings) = oneshot::channel();
        let bell = Some(bell);
        let waiter = Waiter { bell, until, bytes };
        let own = match self.queues.contains_key(key) {
            true => 0,
            false => self.number(),
        };
        let queue = self.queues.entry(key.clone()).or_insert_with(|| Queue {
            number: own,
            due,
            armed: None,
            called: None,
            waiting: BTreeMap::new(),
        });
        queue.due = due;
        queue.waiting.insert(number, waiter);
        if queue.called == Some(number) {
            queue.called = None;
        }
        patience.place = Some(number);
        self.call(key, now);
        Ok(rings)
    }

    /// Gives a place up: answered, or gone. Whoever is next is called in its stead.
    fn leave(&mut self, key: &RecordKey, number: u64, end: End, now: BootTime) {
        let Some(queue) = self.queues.get_mut(key) else {
            return;
        };
        if let Some(waiter) = queue.waiting.remove(&number) {
            self.timers.remove(&(waiter.until, number));
            self.count = self.count.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(waiter.bytes);
            if let Some(ended) = self.ended.get_mut(end as usize) {
                *ended = ended.saturating_add(1);
            }
        }
        if queue.called == Some(number) {
            queue.called = None;
        }
        self.call(key, now);
    }

    /// Calls the first of a queue if there may be something for it, or sets the timer for when there is.
    fn call(&mut self, key: &RecordKey, now: BootTime) {
        let Some(queue) = self.queues.get_mut(key) else {
            return;
        };
        if let Some(armed) = queue.armed.take() {
            self.timers.remove(&(armed, queue.number));
        }
        let Some(mut first) = queue.waiting.first_entry() else {
            self.queues.remove(key);
            return;
        };
        if queue.called.is_some() {
            return;
        }
        if queue.due > now {
            queue.armed = Some(queue.due);
            self.timers.insert((queue.due, queue.number), key.clone());
            return;
        }
        queue.called = Some(*first.key());
        // Without one it was rung because it has waited long enough, and will be back just so.
        self.rung.extend(first.get_mut().bell.take());
    }

    /// Whether somebody came before, and waits still.
    fn is_behind(&self, key: &RecordKey, place: Option<u64>) -> bool {
        let first = self.queues.get(key).and_then(|queue| {
            let first = queue.waiting.first_key_value();
            first.map(|(number, _)| *number)
        });
        first.is_some_and(|first| place.is_none_or(|place| first < place))
    }

    /// Does what is due, so many at most; whether there is more.
    fn fire(&mut self, now: BootTime, most: usize) -> bool {
        for _ in 0..most {
            let due = self.timers.first_entry();
            let Some(timer) = due.filter(|timer| timer.key().0 <= now) else {
                return false;
            };
            let ((_, number), key) = timer.remove_entry();
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            if queue.number == number {
                queue.armed = None;
                self.call(&key, now);
            } else if let Some(waiter) = queue.waiting.get_mut(&number) {
                self.rung.extend(waiter.bell.take());
            }
        }
        true
    }

    /// Nobody is held from here on, and whoever is gets an answer.
    pub(super) fn close(&mut self) {
        self.closed = true;
        let waiting = self.queues.values_mut().flat_map(|it| &mut it.waiting);
        let bells = waiting.filter_map(|(_, waiter)| waiter.bell.take());
        self.rung.extend(bells);
    }

    /// Those whose turn it is, and whether the thread that keeps the time has to look sooner than it would.
    pub(super) fn take_rung(&mut self) -> (Vec<oneshot::Sender<()>>, bool) {
        let first = self.timers.first_key_value().map(|((at, _), _)| *at);
        let sooner = first.is_some_and(|at| self.asleep_until.is_none_or(|until| at < until));
        (std::mem::take(&mut self.rung), sooner)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// What came of a claim that may wait.
pub(super) enum Decision {
    Decided(Decided),
    Held(Bell),
}

impl Core {
    /// Decides a claim, or keeps it waiting; nothing is stored then, and nothing counted. Asked by one command.
    pub(super) fn decide_or_hold(
        &mut self,
        asked: &Asked<'_>,
        fetched: &Fetched,
        write: bool,
        patience: &mut Patience<'_>,
    ) -> Result<Decision, Unavailable> {
        let (command, hash) = asked.commands().next().ok_or(Unavailable::Defect)?;
        let now = self.clock.now();
        let (first, mut rest) = (self.next_lsn, Lsn(0));
        let record = self.record(command, hash, fetched)?;
        let replaced = record.as_deref().map(end);
        let grants = (self.next_token, true);
        let step = self.step(command, hash, fetched, now, grants, record, &mut rest)?;
        let until = patience.until(now);
        if !self.waiters.closed && now.boot < until {
            let policy = self.policies.get(command.key.namespace());
            let due = match (&step.outcome.verdict, &step.outcome.record) {
                (Verdict::Busy | Verdict::Backoff, Some(shown)) => {
                    Some(due(policy, Some(&shown.record), now))
                }
                // Whoever came before goes first; it was called and has not looked yet.
                _ if step.granted && self.waiters.is_behind(&command.key, patience.place) => {
                    Some(now.boot)
                }
                _ => None,
            };
            if let Some(due) = due {
                let held = self.waiters.hold(patience, until, due, now.boot);
                return held.map(Decision::Held);
            }
        }
        let end = match step.outcome.verdict {
            Verdict::Acquired(_) => End::Acquired,
            Verdict::Busy | Verdict::Backoff if self.waiters.closed => End::Stopped,
            Verdict::Busy | Verdict::Backoff => End::InVain,
            _ => End::Settled,
        };
        let answer = self.keep_one(command, hash, step, replaced, now, write)?;
        if let Some(number) = patience.place.take() {
            self.waiters.leave(&command.key, number, end, now.boot);
        }
        Ok(Decision::Decided(self.resting(
            vec![Ok(answer)],
            first,
            rest,
        )))
    }

    /// Tells those who wait for a key what became of its record.
    pub(super) fn tell_waiters(&mut self, key: &RecordKey, effect: &Effect, now: Now) {
        if self.waiters.is_empty() {
            return;
        }
        let policy = self.policies.get(key.namespace());
        let due = match effect {
            Effect::None => return,
            Effect::Put(record) => due(policy, Some(record), now),
            Effect::Remove => due(policy, None, now),
        };
        self.waiters.changed(key, due, now.boot);
    }
}

/// Before which instant a claim gets nothing but `busy` or `backoff`. The end of a record by its age is on engine
/// time, which may differ a little: whoever comes too early is told to come again.
fn due(policy: &Policy, record: Option<&Record>, now: Now) -> BootTime {
    match record {
        Some(record) if record.state == State::Pending => record.lease_end,
        Some(record) if record.state == State::Retry => match policy.forget_open_after {
            Retention::For(age) => {
                let left = record.changed_at.after(age).since(now.time);
                record.not_before.min(now.boot.after(left))
            }
            Retention::Forever => record.not_before,
        },
        _ => now.boot,
    }
}

/// How long a command may be held.
pub(super) fn wait_of(command: &Command) -> Option<Span> {
    match &command.verb {
        Verb::Claim(claim) if claim.wait > Span::ZERO => Some(claim.wait),
        _ => None,
    }
}
