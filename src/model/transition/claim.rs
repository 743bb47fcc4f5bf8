//! The claim: the atomic check-and-set (SPEC 3).

use super::{Context, Step};
use crate::model::command::{BadInput, Claim, Mode, Payload};
use crate::model::outcome::{Reason, Shown, Verdict};
use crate::model::policy::FingerprintKind;
use crate::model::record::{
    Event, Fingerprint, KeptResult, Kind, Record, Retention, State, Token, Window,
};
use crate::model::shown::used_up;
use crate::model::time::{BootTime, Span, Timestamp};

/// Decides a claim, in SPEC 3's order: bad input, (retention over: absent, decided by the caller), mismatch,
/// resumed, then by state.
pub(super) fn decide(
    context: Context<'_>,
    shown: Option<Shown>,
    claim: &Claim,
    by: Option<Box<str>>,
) -> Step {
    if let Err(bad) = check_json(context, claim) {
        return context.refuse(Verdict::BadInput(bad), None);
    }
    let Some(shown) = shown else {
        return grant(context, None, claim, Reason::New, by);
    };
    if mismatch(&shown.record, claim) {
        return context.refuse(Verdict::Mismatch, Some(shown));
    }
    if same_claim(&shown, claim) {
        return resume(context, shown);
    }
    match shown.state {
        State::Pending if shown.orphaned => {
            grant(context, Some(&shown), claim, Reason::Takeover, by)
        }
        State::Pending => context.refuse(Verdict::Busy, Some(shown)),
        State::Retry if context.now.boot < shown.record.not_before => {
            context.refuse(Verdict::Backoff, Some(shown))
        }
        State::Retry if used_up(shown.record.attempt, shown.max_attempts) => {
            context.refuse(Verdict::Dead, Some(shown))
        }
        State::Retry => {
            let first = shown.record.attempt == 0 && shown.record.generation > 1;
            let reason = if first { Reason::Replay } else { Reason::Retry };
            grant(context, Some(&shown), claim, reason, by)
        }
        State::Done => duplicate(context, shown),
        State::InDoubt => context.refuse(Verdict::InDoubt, Some(shown)),
        State::Dead => context.refuse(Verdict::Dead, Some(shown)),
    }
}

/// A body that has to be compared as JSON has to be JSON, whatever the record says (SPEC 5).
fn check_json(context: Context<'_>, claim: &Claim) -> Result<(), BadInput> {
    match &claim.payload {
        Some(payload)
            if claim.fingerprint.is_none()
                && context.policy.fingerprint == FingerprintKind::Json =>
        {
            payload
                .fingerprint(FingerprintKind::Json)
                .map(|_| ())
                .map_err(BadInput::Json)
        }
        _ => Ok(()),
    }
}

/// Both have a fingerprint and they differ. A given one and a computed one never match; a payload is compared
/// by the record's kind, and one that cannot be read by that kind differs.
fn mismatch(record: &Record, claim: &Claim) -> bool {
    let by_kind = |payload: &Payload, kind| payload.fingerprint(kind).ok();
    match (&record.fingerprint, &claim.fingerprint, &claim.payload) {
        (None, _, _) | (Some(_), None, None) => false,
        (Some(Fingerprint::Given(kept)), Some(given), _) => kept != given,
        (Some(_), Some(_), _) | (Some(Fingerprint::Given(_)), None, Some(_)) => true,
        (kept @ Some(Fingerprint::Raw(_)), None, Some(payload)) => {
            *kept != by_kind(payload, FingerprintKind::Raw)
        }
        (kept @ Some(Fingerprint::Json(_)), None, Some(payload)) => {
            *kept != by_kind(payload, FingerprintKind::Json)
        }
    }
}

/// The same claim again, by its id: its answer was lost.
fn same_claim(shown: &Shown, claim: &Claim) -> bool {
    let record = &shown.record;
    let same_id = claim.claim_id.is_some() && claim.claim_id == record.claim_id;
    let held = shown.state == State::Pending && !shown.orphaned && !record.effect_announced;
    let once = shown.state == State::Done && record.once && matches!(claim.mode, Mode::Once { .. });
    same_id && (held || once)
}

/// Same token, same attempt; the lease granted runs from now and never gets shorter.
fn resume(context: Context<'_>, shown: Shown) -> Step {
    let lease_end = context.now.end_of(shown.record.lease);
    if shown.state == State::Done || lease_end <= shown.record.lease_end {
        return context.refuse(Verdict::Acquired(Reason::Resumed), Some(shown));
    }
    let mut record = Record::clone(&shown.record);
    record.lease_end = lease_end;
    context.put(Verdict::Acquired(Reason::Resumed), record)
}

/// Done already. In a sliding window a duplicate restarts retention, in steps of an eighth of it, so that a
/// storm of duplicates does not become a storm of writes.
fn duplicate(context: Context<'_>, shown: Shown) -> Step {
    let record = &shown.record;
    if let (true, Window::Sliding, Retention::For(retention), Some(end)) = (
        context.slide,
        record.window,
        record.retention,
        record.expires_at,
    ) {
        let restarted = context.now.time.after(retention);
        if restarted.since(end).as_millis() >= retention.as_millis() / 8 && restarted > end {
            let mut record = Record::clone(record);
            record.expires_at = Some(restarted);
            return context.put(Verdict::Done, record);
        }
    }
    context.refuse(Verdict::Done, Some(shown))
}

/// Hands the work out: a new token, one attempt more.
fn grant(
    context: Context<'_>,
    shown: Option<&Shown>,
    claim: &Claim,
    reason: Reason,
    by: Option<Box<str>>,
) -> Step {
    let Some(token) = context.token else {
        return context.refuse(Verdict::OutOfTokens, shown.cloned());
    };
    let now = context.now;
    let mut record = match shown {
        Some(shown) => Record::clone(&shown.record),
        None => Record::blank(Kind::Claim, token),
    };
    record.state = State::Pending;
    record.by_lease_end = false;
    record.once = false;
    record.token = token;
    record.attempt = record.attempt.saturating_add(1);
    record.fingerprint = record.fingerprint.or_else(|| identity(context, claim));
    record.claim_id.clone_from(&claim.claim_id);
    record.owner.clone_from(&claim.owner);
    record.claimed_at = now.time;
    record.lease = claim.lease.unwrap_or(context.policy.lease);
    record.lease_end = now.end_of(record.lease);
    record.retention = claim.retention.unwrap_or(context.policy.retention);
    record.window = context.policy.window;
    record.on_lease_end = claim.on_lease_end.unwrap_or(context.policy.on_lease_end);
    record.max_attempts = claim.max_attempts.or(record.max_attempts);
    record.effect_announced = false;
    record.not_before = BootTime::default();
    if let (None, true, Some(payload)) = (&record.payload, claim.store, &claim.payload) {
        record.payload = Some(payload.body.clone());
    }
    let event = match reason {
        Reason::New | Reason::Resumed => Event::Acquired,
        Reason::Takeover => Event::TakenOver,
        Reason::Retry => Event::Retried,
        Reason::Replay => Event::AcquiredByReplay,
    };
    let by = by.or_else(|| record.owner.clone());
    record.note(event, now.time, by.clone());
    if let Mode::Once { result } = &claim.mode {
        record.once = true;
        record.finish(now.time, result.clone());
        record.note(Event::Completed, now.time, by);
    }
    let mut step = context.put(Verdict::Acquired(reason), record);
    step.granted = true;
    step
}

/// The fingerprint this claim brings: the given one, else its payload's own by the policy's kind.
fn identity(context: Context<'_>, claim: &Claim) -> Option<Fingerprint> {
    match (&claim.fingerprint, &claim.payload) {
        (Some(given), _) => Some(Fingerprint::Given(given.clone())),
        // Checked to be readable before the decision.
        (None, Some(payload)) => payload.fingerprint(context.policy.fingerprint).ok(),
        (None, None) => None,
    }
}

impl Record {
    /// A record of which nothing is known yet but its token.
    pub(super) fn blank(kind: Kind, token: Token) -> Record {
        Record {
            kind,
            state: State::Pending,
            by_lease_end: false,
            once: false,
            token,
            attempt: 0,
            generation: 1,
            fingerprint: None,
            claim_id: None,
            owner: None,
            claimed_at: Timestamp::default(),
            lease: Span::ZERO,
            lease_end: BootTime::default(),
            retention: Retention::Forever,
            window: Window::Fixed,
            on_lease_end: crate::model::record::OnLeaseEnd::Retry,
            max_attempts: None,
            effect_announced: false,
            not_before: BootTime::default(),
            changed_at: Timestamp::default(),
            completed_at: None,
            expires_at: None,
            last_error: None,
            payload: None,
            result: None,
            earlier_result: None,
            history: Vec::new(),
        }
    }

    /// `done` from now on, for the retention resolved when it was acquired.
    pub(super) fn finish(&mut self, now: Timestamp, result: Option<KeptResult>) {
        self.state = State::Done;
        self.by_lease_end = false;
        self.completed_at = Some(now);
        self.expires_at = match self.retention {
            Retention::For(span) => Some(now.after(span)),
            Retention::Forever => None,
        };
        self.result = result;
    }
}
