//! The other verbs of claims (SPEC 4).
//!
//! A token is accepted while it is the record's and the record is `pending`, or shows as `in_doubt` or `dead`
//! by the end of the lease: until somebody took over, its holder may still say what happened.

use super::{Context, Effect, Step};
use crate::model::key::RecordKey;
use crate::model::outcome::{Conflict, Shown, Verdict};
use crate::model::record::{Event, HistoryEntry, KeptResult, Kind, Record, State, Token};
use crate::model::shown::used_up;
use crate::model::time::{BootTime, Span};

/// What a fail says.
pub(super) struct Failure {
    pub(super) error: Option<Box<str>>,
    pub(super) retry_in: Option<Span>,
    pub(super) bury: bool,
    /// Who says so, where that is known.
    pub(super) by: Option<Box<str>>,
}

/// The lease runs from now; a lease given replaces the record's.
pub(super) fn renew(
    context: Context<'_>,
    shown: Option<Shown>,
    token: Token,
    lease: Option<Span>,
) -> Step {
    let Some(shown) = held(shown.as_ref(), token) else {
        return context.refuse(Verdict::Stale, shown);
    };
    let mut record = Record::clone(&shown.record);
    record.state = State::Pending;
    record.by_lease_end = false;
    record.lease = lease.unwrap_or(record.lease);
    record.lease_end = context.now.end_of(record.lease);
    context.put(Verdict::Renewed, record)
}

/// From here the end of the lease means `in_doubt`, never a takeover.
pub(super) fn effect(
    context: Context<'_>,
    shown: Option<Shown>,
    token: Token,
    by: Option<Box<str>>,
) -> Step {
    let Some(held) = held(shown.as_ref(), token) else {
        return context.refuse(Verdict::Stale, shown);
    };
    if held.record.effect_announced {
        return context.refuse(Verdict::Announced, shown);
    }
    let mut record = Record::clone(&held.record);
    record.effect_announced = true;
    let by = by.or_else(|| record.owner.clone());
    record.note(Event::EffectAnnounced, context.now.time, by);
    context.put(Verdict::Announced, record)
}

/// Done. Repeated with the same result: the same answer; with another: the first one stays. With an ended
/// token: stale, and counted as a late completion.
pub(super) fn complete(
    context: Context<'_>,
    shown: Option<Shown>,
    token: Token,
    result: &KeptResult,
    by: Option<Box<str>>,
) -> Step {
    if let Some(held) = held(shown.as_ref(), token) {
        let by = by.or_else(|| held.record.owner.clone());
        return finish(context, &held.record, result, Event::Completed, by);
    }
    match shown {
        Some(shown) if shown.state == State::Done && shown.record.token == token => {
            repeated(context, shown, result)
        }
        shown => late(context, shown, token),
    }
}

/// Done, said by an operator about a record that nobody holds.
pub(super) fn complete_by_hand(
    context: Context<'_>,
    shown: Option<Shown>,
    result: &KeptResult,
    by: Option<Box<str>>,
) -> Step {
    let Some(shown) = shown else {
        return context.refuse(Verdict::NotFound, None);
    };
    match shown.state {
        State::InDoubt | State::Dead | State::Retry => {
            finish(context, &shown.record, result, Event::CompletedByHand, by)
        }
        State::Done => repeated(context, shown, result),
        State::Pending => context.refuse(in_work(&shown), Some(shown)),
    }
}

/// The attempt failed: another one after a delay, or `dead`. Repeated: the same answer whatever its options.
pub(super) fn fail(
    context: Context<'_>,
    key: &RecordKey,
    shown: Option<Shown>,
    token: Token,
    failure: Failure,
) -> Step {
    if let Some(held) = held(shown.as_ref(), token) {
        let event = if failure.bury {
            Event::Buried
        } else {
            Event::Failed
        };
        let owner = || held.record.owner.clone();
        let failure = Failure {
            by: failure.by.or_else(owner),
            ..failure
        };
        return put_aside(context, key, held, failure, event);
    }
    match shown {
        Some(shown) if failed_by(&shown.record, token) => {
            context.refuse(Verdict::Failed, Some(shown))
        }
        shown => context.refuse(Verdict::Stale, shown),
    }
}

/// Failed, said by an operator about a record that nobody holds.
pub(super) fn fail_by_hand(
    context: Context<'_>,
    key: &RecordKey,
    shown: Option<Shown>,
    failure: Failure,
) -> Step {
    let Some(shown) = shown else {
        return context.refuse(Verdict::NotFound, None);
    };
    match shown.state {
        State::InDoubt | State::Dead | State::Retry => {
            let event = if failure.bury {
                Event::BuriedByHand
            } else {
                Event::FailedByHand
            };
            put_aside(context, key, &shown, failure, event)
        }
        State::Done => context.refuse(Verdict::Conflict(Conflict::AlreadyDone), Some(shown)),
        State::Pending => context.refuse(in_work(&shown), Some(shown)),
    }
}

/// Nothing happened: absent if this was the only attempt of generation 1, else the attempt is given back.
pub(super) fn release(
    context: Context<'_>,
    shown: Option<Shown>,
    token: Token,
    by: Option<Box<str>>,
) -> Step {
    let Some(held) = held(shown.as_ref(), token) else {
        return context.refuse(Verdict::Stale, shown);
    };
    if held.record.effect_announced {
        return context.refuse(Verdict::Conflict(Conflict::EffectAnnounced), shown);
    }
    if held.record.attempt == 1 && held.record.generation == 1 {
        return context.remove(Verdict::Released, held.clone());
    }
    let mut record = Record::clone(&held.record);
    let by = by.or_else(|| record.owner.clone());
    record.note(Event::Released, context.now.time, by);
    record.attempt = record.attempt.saturating_sub(1);
    record.retry_at(context.now.boot);
    context.put(Verdict::Released, record)
}

/// Another round, in this order: repeated, another generation, lease running, string record, done without
/// force.
pub(super) fn replay(
    context: Context<'_>,
    shown: Option<Shown>,
    generation: Option<u32>,
    force: bool,
    by: Option<Box<str>>,
) -> Step {
    let Some(shown) = shown else {
        return context.refuse(Verdict::NotFound, None);
    };
    let record = &shown.record;
    let own = record.generation;
    let not_claimed_yet = shown.state == State::Retry && record.attempt == 0 && own > 1;
    if not_claimed_yet && generation.is_none_or(|asked| asked == own || asked == own - 1) {
        return context.refuse(Verdict::Replayed, Some(shown));
    }
    if generation.is_some_and(|asked| asked != own) {
        return context.refuse(Verdict::Conflict(Conflict::OtherGeneration), Some(shown));
    }
    if shown.state == State::Pending && !shown.orphaned {
        return context.refuse(Verdict::Busy, Some(shown));
    }
    if record.kind == Kind::String {
        return context.refuse(Verdict::Conflict(Conflict::StringRecord), Some(shown));
    }
    if shown.state == State::Done && !force {
        return context.refuse(Verdict::Done, Some(shown));
    }
    let mut record = Record::clone(record);
    record.note(Event::Replayed, context.now.time, by);
    record.generation = record.generation.saturating_add(1);
    record.attempt = 0;
    record.effect_announced = false;
    record.once = false;
    record.completed_at = None;
    record.expires_at = None;
    if let Some(result) = record.result.take() {
        record.earlier_result = Some(result);
    }
    record.retry_at(context.now.boot);
    context.put(Verdict::Replayed, record)
}

/// Removes the record; while a lease runs only by force.
pub(super) fn forget(context: Context<'_>, shown: Option<Shown>, force: bool) -> Step {
    match shown {
        None => context.refuse(Verdict::NotFound, None),
        Some(shown) if shown.state == State::Pending && !shown.orphaned && !force => {
            context.refuse(Verdict::Busy, Some(shown))
        }
        Some(shown) => context.remove(Verdict::Forgotten, shown),
    }
}

/// The record, where the token is its holder's.
fn held(shown: Option<&Shown>, token: Token) -> Option<&Shown> {
    shown.filter(|shown| {
        let record = &shown.record;
        #[cfg(feature = "canary")]
        let token = match crate::canary::has(crate::canary::Fault::StaleTokenAccepted) {
            true => record.token,
            false => token,
        };
        record.token == token && (record.state == State::Pending || record.by_lease_end)
    })
}

/// Why an operator keeps his hands off a pending record.
fn in_work(shown: &Shown) -> Verdict {
    if shown.orphaned {
        Verdict::Conflict(Conflict::Claimable)
    } else {
        Verdict::Busy
    }
}

fn finish(
    context: Context<'_>,
    record: &Record,
    result: &KeptResult,
    event: Event,
    by: Option<Box<str>>,
) -> Step {
    let mut record = record.clone();
    record.finish(context.now.time, Some(result.clone()));
    record.not_before = BootTime::default();
    record.note(event, context.now.time, by);
    context.put(Verdict::Completed, record)
}

/// A complete of a done record: the result kept stays; one that never had a result equals an empty one.
fn repeated(context: Context<'_>, shown: Shown, result: &KeptResult) -> Step {
    let same = match &shown.record.result {
        Some(kept) => kept == result,
        None => result.body.content.is_empty() && result.status.is_none(),
    };
    let verdict = if same {
        Verdict::Completed
    } else {
        Verdict::Conflict(Conflict::OtherResult)
    };
    context.refuse(verdict, Some(shown))
}

/// A complete with an ended token: a possible double execution. Where the history still knows the grant, it
/// keeps the fact, and so counts it once; else (the record was forgotten or released since, or its history is
/// long) whoever counts has to tell tokens apart.
fn late(context: Context<'_>, shown: Option<Shown>, token: Token) -> Step {
    let granted_once = context.token.is_none_or(|next| token < next);
    let of_token = |entry: &&HistoryEntry| entry.token == token;
    let history = shown
        .as_ref()
        .map_or(&[][..], |shown| &shown.record.history);
    let grant = history
        .iter()
        .filter(of_token)
        .find(|entry| entry.event.grants())
        .cloned();
    let counted = history
        .iter()
        .filter(of_token)
        .any(|entry| entry.event == Event::LateCompletion);
    let record = shown.as_ref().map(|shown| shown.record.clone());
    let mut step = context.refuse(Verdict::Stale, shown);
    if counted || !granted_once {
        return step;
    }
    if let (Some(record), Some(grant)) = (record, grant) {
        let mut record = Record::clone(&record);
        let (at, event) = (context.now.time, Event::LateCompletion);
        record.remember(HistoryEntry { at, event, ..grant });
        step.effect = Effect::Put(record.into());
    }
    step.late = Some(token);
    step
}

/// Whether a fail by the token's holder is what ended it, and nothing was granted or replayed since.
fn failed_by(record: &Record, token: Token) -> bool {
    let last = record.history.iter().rev().find(|entry| {
        !matches!(
            entry.event,
            Event::LateCompletion | Event::FailedByHand | Event::BuriedByHand
        )
    });
    record.token == token
        && matches!(record.state, State::Retry | State::Dead)
        && last.is_some_and(|entry| matches!(entry.event, Event::Failed | Event::Buried))
}

fn put_aside(
    context: Context<'_>,
    key: &RecordKey,
    shown: &Shown,
    failure: Failure,
    event: Event,
) -> Step {
    let mut record = Record::clone(&shown.record);
    record.last_error = failure.error;
    record.note(event, context.now.time, failure.by);
    if failure.bury || used_up(record.attempt, shown.max_attempts) {
        record.state = State::Dead;
        record.by_lease_end = false;
    } else {
        let delay = failure
            .retry_in
            .unwrap_or_else(|| backoff(context, key, record.attempt));
        record.retry_at(context.now.end_of(delay));
    }
    context.put(Verdict::Failed, record)
}

impl Record {
    /// `retry` from that instant on.
    fn retry_at(&mut self, instant: BootTime) {
        self.state = State::Retry;
        self.by_lease_end = false;
        self.not_before = instant;
    }
}

/// The policy's delay, doubled after each attempt up to its limit, and spread by up to 20 % either way. The
/// spread comes from key and attempt, not from chance, so that a repeated decision is the same decision.
fn backoff(context: Context<'_>, key: &RecordKey, attempt: u32) -> Span {
    let most = context.policy.backoff_max.as_millis();
    let doublings = attempt.saturating_sub(1);
    let base = context.policy.backoff.as_millis();
    let delay = if doublings < 63 {
        base.saturating_mul(1 << doublings)
    } else {
        u64::MAX
    };
    let delay = if base == 0 { 0 } else { delay.min(most) };
    // FNV-1a, 64 bit: stable over versions and machines.
    let hash = key
        .joined()
        .iter()
        .copied()
        .chain(attempt.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    // 800 to 1200 thousandths.
    let factor = u128::from(800 + (hash >> 32) % 401);
    let spread = u128::from(delay) * factor / 1000;
    Span::from_millis(u64::try_from(spread).unwrap_or(u64::MAX).min(most))
}
