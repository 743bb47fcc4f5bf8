//! How a record shows at an instant (SPEC 2): the end of a lease, of retention and of age follow from record,
//! policy and clock, so that every answer computes them the same way and the sweeper changes none.

use std::sync::Arc;

use super::outcome::Shown;
use super::policy::Policy;
use super::record::{Event, HISTORY, HistoryEntry, OnLeaseEnd, Record, Retention, State};
use super::time::{Now, Timestamp};

/// The error text of an attempt whose holder said nothing until its lease was over.
pub const LEASE_ENDED: &str = "lease ended";

/// How `record` shows, or `None` where it counts as absent: `done` past its retention, or open past the
/// namespace's `forget_open_after`.
#[must_use]
pub fn show(record: &Arc<Record>, policy: &Policy, now: Now) -> Option<Shown> {
    let max_attempts = record.max_attempts.unwrap_or(policy.max_attempts);
    let leased = record.state == State::Pending || record.by_lease_end;
    let shown = if leased && now.boot >= record.lease_end {
        let state = lease_end_state(record, max_attempts);
        let record = noted(record, state, now);
        Shown {
            record,
            state,
            orphaned: state == State::Pending,
            max_attempts,
        }
    } else {
        Shown {
            record: record.clone(),
            state: record.state,
            orphaned: false,
            max_attempts,
        }
    };
    (!over(&shown, policy, now)).then_some(shown)
}

/// The record as it would be written down now: the end of a lease noted, nothing else changed. Deciding on
/// it gives the same answers as deciding on the record itself.
#[must_use]
pub fn settle(record: &Arc<Record>, policy: &Policy, now: Now) -> Arc<Record> {
    show(record, policy, now).map_or_else(|| record.clone(), |shown| shown.record)
}

/// Whether the attempts of this generation are used up; a limit of 0 is none.
#[must_use]
pub const fn used_up(attempt: u32, max_attempts: u32) -> bool {
    max_attempts != 0 && attempt >= max_attempts
}

/// `in_doubt` goes before `dead`: what may be out there weighs more than how often it was tried.
fn lease_end_state(record: &Record, max_attempts: u32) -> State {
    if record.effect_announced || record.on_lease_end == OnLeaseEnd::Hold {
        State::InDoubt
    } else if used_up(record.attempt, max_attempts) {
        State::Dead
    } else {
        State::Pending
    }
}

/// The record with the end of its lease as a fact of its history, once.
fn noted(record: &Arc<Record>, state: State, now: Now) -> Arc<Record> {
    if record.by_lease_end && record.state == state {
        return record.clone();
    }
    let mut record = Record::clone(record);
    record.state = state;
    if !record.by_lease_end {
        record.by_lease_end = true;
        record.last_error = Some(LEASE_ENDED.into());
        let owner = record.owner.clone();
        record.note(Event::LeaseEnded, now.show(record.lease_end), owner);
    }
    Arc::new(record)
}

fn over(shown: &Shown, policy: &Policy, now: Now) -> bool {
    let record = &shown.record;
    #[cfg(feature = "canary")]
    if crate::canary::has(crate::canary::Fault::ExpiryBySweeper) {
        return false;
    }
    match shown.state {
        State::Done => record.expires_at.is_some_and(|end| end <= now.time),
        State::InDoubt => false,
        State::Pending if !shown.orphaned => false,
        State::Pending | State::Retry | State::Dead => match policy.forget_open_after {
            Retention::For(age) => record.changed_at.after(age) <= now.time,
            Retention::Forever => false,
        },
    }
}

impl Record {
    /// Adds a fact about the present token and attempt; the oldest makes room.
    pub(super) fn note(&mut self, event: Event, at: Timestamp, by: Option<Box<str>>) {
        let (token, attempt) = (self.token, self.attempt);
        self.remember(HistoryEntry {
            at,
            event,
            token,
            attempt,
            by,
        });
    }

    /// Adds a fact; the oldest makes room.
    pub(super) fn remember(&mut self, entry: HistoryEntry) {
        if self.history.len() >= HISTORY {
            self.history.remove(0);
        }
        // One by one: most records have one or two facts, and there are many records.
        self.history.reserve_exact(1);
        self.history.push(entry);
    }
}
