//! The contract, as an auditor reads it: from what a key holds, what was asked and what was answered, whether
//! that is right and what the key holds now. Written from SPEC 2 to 4 and 7, apart from the model.

use std::sync::Arc;

use bytes::Bytes;

use super::audit::{Broken, Held};
use crate::model::body::{Body, Content, sha256};
use crate::model::command::{Claim, Command, Expiry, Mode, SetWhen, StringVerb, Verb};
use crate::model::outcome::{Conflict, Outcome, Reason, StringReply, Verdict};
use crate::model::policy::{FingerprintKind, Policy};
use crate::model::record::{
    Fingerprint, KeptResult, Kind, OnLeaseEnd, Record, Retention, State, Token, Window,
};
use crate::model::shown::LEASE_ENDED;
use crate::model::time::{Now, Span, Timestamp};

/// How a record shows at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Running,
    Orphan,
    InDoubt,
    Dead,
    Retry,
    Done,
}

fn max_attempts(policy: &Policy, record: &Record) -> u32 {
    record.max_attempts.unwrap_or(policy.max_attempts)
}

fn used_up(policy: &Policy, record: &Record) -> bool {
    let most = max_attempts(policy, record);
    most > 0 && record.attempt >= most
}

/// Its holder may still say what happened.
fn leased(record: &Record) -> bool {
    record.state == State::Pending || record.by_lease_end
}

fn shows(policy: &Policy, record: &Record, now: Now) -> Shows {
    if leased(record) {
        return if now.boot < record.lease_end {
            Shows::Running
        } else if record.effect_announced || record.on_lease_end == OnLeaseEnd::Hold {
            Shows::InDoubt
        } else if used_up(policy, record) {
            Shows::Dead
        } else {
            Shows::Orphan
        };
    }
    match record.state {
        State::Pending => Shows::Running,
        State::Retry => Shows::Retry,
        State::Done => Shows::Done,
        State::InDoubt => Shows::InDoubt,
        State::Dead => Shows::Dead,
    }
}

/// What the key holds, retention considered.
fn visible(held: &Held, now: Now) -> Option<&Held> {
    let end = match held {
        Held::Nothing => return None,
        Held::Record(record) if record.state != State::Done => None,
        Held::Record(record) => record.expires_at,
        Held::Text { expires_at, .. } => *expires_at,
    };
    end.is_none_or(|end| end > now.time).then_some(held)
}

/// A claim's record among what is visible.
fn claimed(visible: Option<&Held>) -> Option<&Arc<Record>> {
    match visible {
        Some(Held::Record(record)) if record.kind == Kind::Claim => Some(record),
        _ => None,
    }
}

/// A string among what is visible: value and end.
fn string(visible: Option<&Held>) -> Option<(Content, Option<Timestamp>)> {
    match visible? {
        Held::Text { value, expires_at } => Some((value.clone(), *expires_at)),
        Held::Record(record) if record.kind == Kind::String => Some((
            record.result.as_ref()?.body.content.clone(),
            record.expires_at,
        )),
        _ => None,
    }
}

fn same_body(a: &Body, b: &Body) -> bool {
    a.content_type == b.content_type && a.content == b.content
}

fn same_result(a: &Option<KeptResult>, b: &Option<KeptResult>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.status == b.status && same_body(&a.body, &b.body),
        _ => false,
    }
}

fn wrong(what: &str) -> Broken {
    format!("{what} is wrong")
}

fn ensure(holds: bool, what: &str) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(wrong(what)) }
}

/// The answer shows what the key holds, neither more nor less.
fn shows_held(policy: &Policy, held: Option<&Held>, outcome: &Outcome) -> Result<(), Broken> {
    let now = outcome.now;
    let shown = match (held, &outcome.record) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return Err("it shows a record, and there is none".into()),
        (Some(_), None) => return Err("it shows no record, and there is one".into()),
        (Some(_), Some(shown)) => shown,
    };
    let record = &shown.record;
    if let Some((value, end)) = string(held) {
        let content = record.result.as_ref().map(|kept| &kept.body.content);
        ensure(record.kind == Kind::String, "the kind")?;
        ensure(content == Some(&value), "the value")?;
        return ensure(record.expires_at == end, "the end of the string");
    }
    let Some(Held::Record(known)) = held else {
        return Err("a string is shown as something else".into());
    };
    same_facts(known, record)?;
    let expected = shows(policy, known, now);
    let state = match shown.state {
        State::Pending if shown.orphaned => Shows::Orphan,
        State::Pending => Shows::Running,
        State::Retry => Shows::Retry,
        State::Done => Shows::Done,
        State::InDoubt => Shows::InDoubt,
        State::Dead => Shows::Dead,
    };
    ensure(state == expected, "the state")?;
    let ended = leased(known) && now.boot >= known.lease_end;
    let error = match ended && !known.by_lease_end {
        true => Some(LEASE_ENDED),
        false => known.last_error.as_deref(),
    };
    // An end of the lease that was only shown: a restart may be before it.
    let shown_alone = known.by_lease_end && !ended;
    ensure(
        shown_alone || record.last_error.as_deref() == error,
        "the last error",
    )?;
    ensure(
        shown.max_attempts == max_attempts(policy, known),
        "the limit of attempts",
    )
}

/// Everything that does not follow from the clock.
fn same_facts(known: &Record, record: &Record) -> Result<(), Broken> {
    let same: [(&str, bool); 19] = [
        ("the kind", known.kind == record.kind),
        ("once", known.once == record.once),
        ("the token", known.token == record.token),
        ("the attempt", known.attempt == record.attempt),
        ("the generation", known.generation == record.generation),
        ("the fingerprint", known.fingerprint == record.fingerprint),
        ("the claim id", known.claim_id == record.claim_id),
        ("the owner", known.owner == record.owner),
        ("when it was claimed", known.claimed_at == record.claimed_at),
        ("the lease", known.lease == record.lease),
        ("the end of the lease", known.lease_end == record.lease_end),
        ("the retention", known.retention == record.retention),
        ("the window", known.window == record.window),
        (
            "the effect",
            known.effect_announced == record.effect_announced,
        ),
        ("not before", known.not_before == record.not_before),
        (
            "when it was done",
            known.completed_at == record.completed_at,
        ),
        (
            "the end of retention",
            known.expires_at == record.expires_at,
        ),
        ("the result", same_result(&known.result, &record.result)),
        (
            "the payload",
            match (&known.payload, &record.payload) {
                (None, None) => true,
                (Some(a), Some(b)) => same_body(a, b),
                _ => false,
            },
        ),
    ];
    match same.iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(wrong(what)),
        None => Ok(()),
    }
}

/// Bytes that an answer shows are those that belong to their digest, and where the verb shows bodies, they
/// are there.
pub(super) fn bodies_are_whole(command: &Command, outcome: &Outcome) -> Result<(), Broken> {
    let Some(shown) = &outcome.record else {
        return Ok(());
    };
    let shows = match &command.verb {
        Verb::String(StringVerb::Set(set)) => set.get,
        Verb::String(verb) => !matches!(verb, StringVerb::Add(_)),
        verb => matches!(verb, Verb::Claim(_) | Verb::Get),
    };
    let record = &shown.record;
    let results = [&record.result, &record.earlier_result];
    let results = results.into_iter().flatten().map(|kept| &kept.body);
    for body in record.payload.iter().chain(results) {
        let Content::Large(large) = &body.content else {
            continue;
        };
        match &large.bytes {
            Some(bytes) => ensure(
                bytes.len() == large.size as usize && sha256(bytes) == large.digest,
                "a large body",
            )?,
            None => ensure(!(shows && command.with_bodies), "a body that is not shown")?,
        }
    }
    Ok(())
}

/// What the key holds after an answer, where the answer alone says it.
pub(super) fn after(command: &Command, outcome: &Outcome, wrote: bool) -> Option<Held> {
    if outcome.removed {
        return Some(Held::Nothing);
    }
    match (&command.verb, &outcome.verdict) {
        (_, Verdict::BadInput(_) | Verdict::OutOfTokens) => None,
        // Written by a string command: the answer shows what was before.
        (Verb::String(_), _) if wrote => None,
        // Past its retention, perhaps: a restart may be before that.
        _ => {
            let shown = outcome.record.as_ref();
            shown.map(|shown| Held::Record(shown.record.clone()))
        }
    }
}

/// Judges an answer about a key of which everything is known.
pub(super) fn judge(
    policy: &Policy,
    held: &Held,
    command: &Command,
    outcome: &Outcome,
    wrote: bool,
) -> Result<Held, Broken> {
    let now = outcome.now;
    let visible = visible(held, now);
    let asked = Asked {
        policy,
        held,
        visible,
        outcome,
        wrote,
    };
    match &command.verb {
        Verb::Claim(claim) => asked.claim(claim),
        Verb::Renew { token, lease } => asked.renew(*token, *lease),
        Verb::Effect { token } => asked.effect(*token),
        Verb::Complete { token, result } => asked.complete(*token, result),
        Verb::Fail {
            token,
            error,
            retry_in,
            bury,
        } => asked.fail(*token, error.as_deref(), *retry_in, *bury),
        Verb::Release { token } => asked.release(*token),
        Verb::Get => asked.unchanged(match visible {
            Some(_) => Verdict::Found,
            None => Verdict::NotFound,
        }),
        Verb::Replay { generation, force } => asked.replay(*generation, *force),
        Verb::Forget { force } => asked.forget(*force),
        Verb::String(verb) => asked.string(verb),
        Verb::Import(_) => Err("the simulation imports nothing".to_owned()),
    }
}

struct Asked<'a> {
    policy: &'a Policy,
    held: &'a Held,
    visible: Option<&'a Held>,
    outcome: &'a Outcome,
    wrote: bool,
}

impl Asked<'_> {
    fn verdict(&self, expected: &Verdict) -> Result<(), Broken> {
        if self.outcome.verdict == *expected {
            return Ok(());
        }
        Err(format!("the answer is wrong: it had to be {expected:?}"))
    }

    /// A refusal, or an answer already given: it shows what there is and writes nothing.
    fn unchanged(&self, expected: Verdict) -> Result<Held, Broken> {
        self.verdict(&expected)?;
        ensure(!self.wrote, "that it wrote")?;
        shows_held(self.policy, self.visible, self.outcome)?;
        Ok(self.held.clone())
    }

    /// The record that the answer shows as written.
    fn changed(&self, expected: Verdict) -> Result<&Arc<Record>, Broken> {
        self.verdict(&expected)?;
        ensure(self.wrote, "that it did not write")?;
        let shown = self.outcome.record.as_ref();
        Ok(&shown.ok_or_else(|| wrong("a missing record"))?.record)
    }

    fn removed(&self, expected: Verdict) -> Result<Held, Broken> {
        self.verdict(&expected)?;
        ensure(self.wrote && self.outcome.removed, "that it did not remove")?;
        shows_held(self.policy, self.visible, self.outcome)?;
        Ok(Held::Nothing)
    }

    /// The record, and how it shows.
    fn shows(&self, record: &Record) -> Shows {
        shows(self.policy, record, self.outcome.now)
    }

    fn claim(&self, claim: &Claim) -> Result<Held, Broken> {
        let now = self.outcome.now;
        if self.visible.is_none() {
            return self.granted(claim, Reason::New, None);
        }
        let Some(record) = claimed(self.visible) else {
            // A string has no fingerprint, no claim id, and is done.
            return self.unchanged(Verdict::Done);
        };
        if mismatch(record, claim) {
            return self.unchanged(Verdict::Mismatch);
        }
        let same = claim.claim_id.is_some() && claim.claim_id == record.claim_id;
        match self.shows(record) {
            Shows::Running if same && !record.effect_announced => {
                self.verdict(&Verdict::Acquired(Reason::Resumed))?;
                let end = now.boot.after(record.lease).max(record.lease_end);
                let mut expected = Record::clone(record);
                ensure(self.wrote == (end > record.lease_end), "that it wrote")?;
                expected.lease_end = end;
                let expected = Held::Record(expected.into());
                shows_held(self.policy, Some(&expected), self.outcome)?;
                Ok(expected)
            }
            Shows::Running => self.unchanged(Verdict::Busy),
            Shows::Orphan => self.granted(claim, Reason::Takeover, Some(record)),
            Shows::InDoubt => self.unchanged(Verdict::InDoubt),
            Shows::Dead => self.unchanged(Verdict::Dead),
            Shows::Retry if now.boot < record.not_before => self.unchanged(Verdict::Backoff),
            Shows::Retry if used_up(self.policy, record) => self.unchanged(Verdict::Dead),
            Shows::Retry => {
                let replayed = record.attempt == 0 && record.generation > 1;
                let reason = if replayed {
                    Reason::Replay
                } else {
                    Reason::Retry
                };
                self.granted(claim, reason, Some(record))
            }
            Shows::Done if same && record.once && matches!(claim.mode, Mode::Once { .. }) => {
                self.unchanged(Verdict::Acquired(Reason::Resumed))
            }
            Shows::Done => self.duplicate(record),
        }
    }

    /// Done: the result is the one kept, and only a sliding window moves anything.
    fn duplicate(&self, record: &Arc<Record>) -> Result<Held, Broken> {
        let (Window::Sliding, Retention::For(span), true) =
            (record.window, record.retention, self.wrote)
        else {
            return self.unchanged(Verdict::Done);
        };
        self.verdict(&Verdict::Done)?;
        let mut expected = Record::clone(record);
        expected.expires_at = Some(self.outcome.now.time.after(span));
        let expected = Held::Record(expected.into());
        shows_held(self.policy, Some(&expected), self.outcome)?;
        Ok(expected)
    }

    /// A grant counts an attempt when it is handed out, and carries what the claim asked for.
    fn granted(
        &self,
        claim: &Claim,
        reason: Reason,
        before: Option<&Arc<Record>>,
    ) -> Result<Held, Broken> {
        let record = self.changed(Verdict::Acquired(reason))?;
        let now = self.outcome.now;
        let attempt = before.map_or(0, |before| before.attempt) + 1;
        ensure(record.attempt == attempt, "the attempt")?;
        let generation = before.map_or(1, |before| before.generation);
        ensure(record.generation == generation, "the generation")?;
        ensure(
            before.is_none_or(|before| before.token < record.token),
            "a token that is not above the one before",
        )?;
        ensure(record.claim_id == claim.claim_id, "the claim id")?;
        ensure(record.owner == claim.owner, "the owner")?;
        ensure(!record.effect_announced, "an effect announced already")?;
        let lease = claim.lease.unwrap_or(self.policy.lease);
        ensure(record.lease_end == now.boot.after(lease), "the lease")?;
        if let Some(before) = before {
            ensure(
                before.fingerprint.is_none() || before.fingerprint == record.fingerprint,
                "the fingerprint",
            )?;
        }
        let kept = match (
            before.and_then(|before| before.payload.as_ref()),
            &claim.payload,
        ) {
            (Some(kept), _) => Some(kept),
            (None, Some(own)) if claim.store => Some(&own.body),
            _ => None,
        };
        let same = match (kept, &record.payload) {
            (None, None) => true,
            (Some(a), Some(b)) => same_body(a, b),
            _ => false,
        };
        ensure(same, "the payload")?;
        match &claim.mode {
            Mode::Lease => ensure(record.state == State::Pending, "the state")?,
            Mode::Once { result } => {
                ensure(record.state == State::Done && record.once, "the state")?;
                ensure(same_result(&record.result, result), "the result")?;
                self.retained(record, claim.retention.unwrap_or(self.policy.retention))?;
            }
        }
        Ok(Held::Record(record.clone()))
    }

    fn retained(&self, record: &Record, retention: Retention) -> Result<(), Broken> {
        let now = self.outcome.now.time;
        let end = match retention {
            Retention::For(span) => Some(now.after(span)),
            Retention::Forever => None,
        };
        ensure(
            record.completed_at == Some(now) && record.expires_at == end,
            "retention",
        )
    }

    /// The record, where the token is its holder's.
    fn holder(&self, token: Token) -> Option<&Arc<Record>> {
        claimed(self.visible).filter(|record| record.token == token && leased(record))
    }

    /// A token that has ended. Only a complete writes: that it came late.
    fn stale(&self, may_write: bool) -> Result<Held, Broken> {
        self.verdict(&Verdict::Stale)?;
        ensure(!self.wrote || may_write, "that it wrote")?;
        shows_held(self.policy, self.visible, self.outcome)?;
        Ok(self.held.clone())
    }

    fn renew(&self, token: Token, lease: Option<Span>) -> Result<Held, Broken> {
        let Some(before) = self.holder(token) else {
            return self.stale(false);
        };
        let record = self.changed(Verdict::Renewed)?;
        let lease = lease.unwrap_or(before.lease);
        let end = self.outcome.now.boot.after(lease);
        ensure(record.lease_end == end, "the lease")?;
        ensure(record.token == token, "the token")?;
        ensure(record.attempt == before.attempt, "the attempt")?;
        ensure(record.state == State::Pending, "the state")?;
        Ok(Held::Record(record.clone()))
    }

    fn effect(&self, token: Token) -> Result<Held, Broken> {
        let Some(before) = self.holder(token) else {
            return self.stale(false);
        };
        if before.effect_announced {
            return self.unchanged(Verdict::Announced);
        }
        let record = self.changed(Verdict::Announced)?;
        ensure(record.effect_announced, "the effect")?;
        ensure(record.token == token, "the token")?;
        Ok(Held::Record(record.clone()))
    }

    fn complete(&self, token: Option<Token>, result: &KeptResult) -> Result<Held, Broken> {
        let record = match self.visible {
            Some(Held::Record(record)) => record,
            Some(_) => {
                // A string's token is not known here.
                let known = matches!(
                    self.outcome.verdict,
                    Verdict::Stale | Verdict::Completed | Verdict::Conflict(Conflict::OtherResult)
                );
                ensure(known, "the answer")?;
                return Ok(self.held.clone());
            }
            None if token.is_none() => return self.unchanged(Verdict::NotFound),
            None => return self.stale(true),
        };
        let shows = self.shows(record);
        let done = shows == Shows::Done && token.is_none_or(|token| token == record.token);
        let may = match token {
            Some(token) => self.holder(token).is_some(),
            None => matches!(shows, Shows::InDoubt | Shows::Dead | Shows::Retry),
        };
        if done {
            let empty = result.body.content.is_empty() && result.status.is_none();
            let same = match &record.result {
                Some(kept) => kept.status == result.status && same_body(&kept.body, &result.body),
                None => empty,
            };
            return self.unchanged(match same {
                true => Verdict::Completed,
                false => Verdict::Conflict(Conflict::OtherResult),
            });
        }
        if !may {
            return match (token, shows) {
                (Some(_), _) => self.stale(true),
                (None, Shows::Running) => self.unchanged(Verdict::Busy),
                (None, _) => self.unchanged(Verdict::Conflict(Conflict::Claimable)),
            };
        }
        let now = self.changed(Verdict::Completed)?;
        ensure(now.state == State::Done, "the state")?;
        ensure(now.token == record.token, "the token")?;
        ensure(
            same_result(&now.result, &Some(result.clone())),
            "the result",
        )?;
        self.retained(now, record.retention)?;
        Ok(Held::Record(now.clone()))
    }

    fn fail(
        &self,
        token: Option<Token>,
        error: Option<&str>,
        retry_in: Option<Span>,
        bury: bool,
    ) -> Result<Held, Broken> {
        let record = match self.visible {
            Some(Held::Record(record)) => record,
            Some(_) if token.is_some() => return self.stale(false),
            Some(_) => return self.unchanged(Verdict::Conflict(Conflict::AlreadyDone)),
            None if token.is_some() => return self.stale(false),
            None => return self.unchanged(Verdict::NotFound),
        };
        let shows = self.shows(record);
        let may = match token {
            Some(token) => self.holder(token).is_some(),
            None => matches!(shows, Shows::InDoubt | Shows::Dead | Shows::Retry),
        };
        if !may {
            let ended = token == Some(record.token)
                && matches!(record.state, State::Retry | State::Dead)
                && self.outcome.verdict == Verdict::Failed;
            return match (token, shows) {
                (Some(_), _) if ended => self.unchanged(Verdict::Failed),
                (Some(_), _) => self.stale(false),
                (None, Shows::Running) => self.unchanged(Verdict::Busy),
                (None, Shows::Done) => self.unchanged(Verdict::Conflict(Conflict::AlreadyDone)),
                (None, _) => self.unchanged(Verdict::Conflict(Conflict::Claimable)),
            };
        }
        let now = self.changed(Verdict::Failed)?;
        let dead = bury || used_up(self.policy, record);
        let state = if dead { State::Dead } else { State::Retry };
        ensure(now.state == state && !now.by_lease_end, "the state")?;
        ensure(now.last_error.as_deref() == error, "the error")?;
        ensure(now.attempt == record.attempt, "the attempt")?;
        if let (Some(span), false) = (retry_in, dead) {
            let at = self.outcome.now.boot.after(span);
            ensure(now.not_before == at, "when it is due")?;
        }
        Ok(Held::Record(now.clone()))
    }

    fn release(&self, token: Token) -> Result<Held, Broken> {
        let Some(record) = self.holder(token) else {
            return self.stale(false);
        };
        if record.effect_announced {
            return self.unchanged(Verdict::Conflict(Conflict::EffectAnnounced));
        }
        if record.attempt == 1 && record.generation == 1 {
            return self.removed(Verdict::Released);
        }
        let now = self.changed(Verdict::Released)?;
        ensure(now.state == State::Retry, "the state")?;
        ensure(now.attempt == record.attempt - 1, "the attempt")?;
        ensure(now.not_before <= self.outcome.now.boot, "when it is due")?;
        Ok(Held::Record(now.clone()))
    }

    fn replay(&self, generation: Option<u32>, force: bool) -> Result<Held, Broken> {
        let Some(Held::Record(record)) = self.visible else {
            return match self.visible {
                None => self.unchanged(Verdict::NotFound),
                Some(_) if generation.is_some_and(|asked| asked != 1) => {
                    self.unchanged(Verdict::Conflict(Conflict::OtherGeneration))
                }
                Some(_) => self.unchanged(Verdict::Conflict(Conflict::StringRecord)),
            };
        };
        let (own, shows) = (record.generation, self.shows(record));
        let repeated = shows == Shows::Retry && record.attempt == 0 && own > 1;
        if repeated && generation.is_none_or(|asked| asked == own || asked + 1 == own) {
            return self.unchanged(Verdict::Replayed);
        }
        if generation.is_some_and(|asked| asked != own) {
            return self.unchanged(Verdict::Conflict(Conflict::OtherGeneration));
        }
        match shows {
            Shows::Running => return self.unchanged(Verdict::Busy),
            _ if record.kind == Kind::String => {
                return self.unchanged(Verdict::Conflict(Conflict::StringRecord));
            }
            Shows::Done if !force => return self.unchanged(Verdict::Done),
            _ => {}
        }
        let now = self.changed(Verdict::Replayed)?;
        ensure(now.state == State::Retry, "the state")?;
        ensure(now.generation == own + 1, "the generation")?;
        ensure(now.attempt == 0, "the attempt")?;
        ensure(now.fingerprint == record.fingerprint, "the fingerprint")?;
        if record.result.is_some() {
            ensure(
                same_result(&now.earlier_result, &record.result),
                "the earlier result",
            )?;
        }
        Ok(Held::Record(now.clone()))
    }

    fn forget(&self, force: bool) -> Result<Held, Broken> {
        match self.visible {
            None => self.unchanged(Verdict::NotFound),
            Some(Held::Record(record)) if self.shows(record) == Shows::Running && !force => {
                self.unchanged(Verdict::Busy)
            }
            Some(_) => self.removed(Verdict::Forgotten),
        }
    }

    fn reply(&self, reply: StringReply) -> Result<Held, Broken> {
        self.unchanged(Verdict::String(reply))
    }

    fn wrote_text(&self, reply: StringReply, held: Held) -> Result<Held, Broken> {
        self.verdict(&Verdict::String(reply))?;
        ensure(self.wrote, "that it did not write")?;
        shows_held(self.policy, self.visible, self.outcome)?;
        Ok(held)
    }

    fn string(&self, verb: &StringVerb) -> Result<Held, Broken> {
        let now = self.outcome.now.time;
        let claim = claimed(self.visible).is_some();
        let (value, end) = match string(self.visible) {
            Some((value, end)) => (Some(value), end),
            None => (None, None),
        };
        match verb {
            StringVerb::Read => self.reply(StringReply::Read),
            StringVerb::Digest => Err(wrong("no client asks for a digest")),
            StringVerb::Set(set) => {
                let absent = matches!(set.when, Some(SetWhen::Absent));
                if claim && !absent {
                    return self.reply(StringReply::WrongType);
                }
                let holds = match set.when {
                    Some(SetWhen::Absent) => self.visible.is_none(),
                    Some(SetWhen::Present) => self.visible.is_some(),
                    _ => true,
                };
                if !holds {
                    return self.reply(StringReply::Set { written: false });
                }
                let expires_at = match set.expiry {
                    Expiry::Keep => end,
                    Expiry::In(span) => Some(now.after(span)),
                    _ => None,
                };
                let value = Content::new(set.value.clone());
                let held = Held::Text { value, expires_at };
                self.wrote_text(StringReply::Set { written: true }, held)
            }
            _ if claim => self.reply(StringReply::WrongType),
            StringVerb::Delete { .. } if self.visible.is_none() => {
                self.reply(StringReply::Deleted(false))
            }
            StringVerb::Delete { .. } => self.removed(Verdict::String(StringReply::Deleted(true))),
            StringVerb::Expire { to, .. } => match (value, to) {
                (Some(value), Expiry::In(span)) => {
                    let expires_at = Some(now.after(*span));
                    let held = Held::Text { value, expires_at };
                    self.wrote_text(StringReply::Expired(true), held)
                }
                _ => self.reply(StringReply::Expired(false)),
            },
            StringVerb::Add(number) => {
                let present = match &value {
                    None => Some(0),
                    Some(value) => value.bytes().and_then(integer),
                };
                let Some(sum) = present.map(|present| present + number) else {
                    return self.reply(StringReply::NotAnInteger);
                };
                let held = Held::Text {
                    value: Content::new(sum.to_string().into()),
                    expires_at: end,
                };
                self.wrote_text(StringReply::Number(sum), held)
            }
        }
    }
}

fn integer(bytes: &Bytes) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn mismatch(record: &Record, claim: &Claim) -> bool {
    match (&record.fingerprint, &claim.fingerprint, &claim.payload) {
        (None, _, _) | (_, None, None) => false,
        (Some(Fingerprint::Given(kept)), Some(given), _) => kept != given,
        (Some(_), Some(_), _) | (Some(Fingerprint::Given(_)), None, Some(_)) => true,
        (Some(kept), None, Some(payload)) => {
            payload.fingerprint(FingerprintKind::Raw).as_ref() != Ok(kept)
        }
    }
}

/// An answer that changed nothing, about a key whose last change nobody heard of: that change is there
/// whole, because the journal reached it.
pub(super) fn explain(
    before: Option<&Held>,
    last: &Command,
    at: Timestamp,
    outcome: &Outcome,
) -> Result<(), Broken> {
    if matches!(outcome.verdict, Verdict::BadInput(_)) {
        return Ok(());
    }
    let shown = outcome.record.as_ref().map(|shown| &*shown.record);
    // It may have passed its retention since.
    let passed = outcome.now.time.since(at);
    let over = |retention: Retention| match retention {
        Retention::For(span) => span <= passed,
        Retention::Forever => false,
    };
    let token_of = |record: Option<&Record>, token: &Token| {
        record.is_some_and(|record| record.token == *token)
    };
    let text = |value: &Bytes| {
        shown.is_some_and(|record| {
            let content = record.result.as_ref().map(|kept| &kept.body.content);
            record.kind == Kind::String && content == Some(&Content::new(value.clone()))
        })
    };
    let kept = match before {
        Some(Held::Record(record)) => Some(record.retention),
        _ => None,
    };
    let whole = match &last.verb {
        Verb::Claim(claim) => match shown {
            Some(record) => {
                // Resumed, or a window slid: the token is the one before.
                let before_it = match before {
                    Some(Held::Record(known)) => known.token == record.token,
                    before => before.is_none(),
                };
                let asked = record.claim_id == claim.claim_id && record.owner == claim.owner;
                let done = match &claim.mode {
                    Mode::Lease => true,
                    Mode::Once { result } => {
                        record.state != State::Done || same_result(&record.result, result)
                    }
                };
                before_it || (asked && done)
            }
            None => match &claim.mode {
                // Also where its window slid.
                Mode::Once { .. } => {
                    claim.retention.is_none_or(over) || before.is_none() || kept.is_some_and(over)
                }
                Mode::Lease => kept.is_none_or(over),
            },
        },
        Verb::Renew { token, .. } | Verb::Effect { token } => token_of(shown, token),
        Verb::Complete { result, .. } => match shown {
            Some(record) if record.state == State::Done => {
                same_result(&record.result, &Some(result.clone())) || before_is(before, record)
            }
            Some(record) => before_is(before, record),
            None => {
                kept.is_none_or(over)
                    || before.is_some_and(|before| visible(before, outcome.now).is_none())
            }
        },
        Verb::Fail { error, .. } => shown.is_some_and(|record| {
            matches!(record.state, State::Retry | State::Dead) && record.last_error == *error
        }),
        Verb::Release { .. } => shown.is_none_or(|record| record.state == State::Retry),
        Verb::Replay { .. } => {
            shown.is_some_and(|record| record.state == State::Retry && record.attempt == 0)
        }
        Verb::Forget { .. } => shown.is_none(),
        Verb::String(StringVerb::Set(set)) => {
            text(&set.value) || shown.is_none() && !matches!(set.expiry, Expiry::Never)
        }
        Verb::String(StringVerb::Delete { .. }) => shown.is_none(),
        Verb::String(StringVerb::Expire { .. } | StringVerb::Add(_)) => {
            shown.is_none_or(|record| record.kind == Kind::String)
        }
        Verb::Get | Verb::String(StringVerb::Read | StringVerb::Digest) | Verb::Import(_) => false,
    };
    if whole {
        return Ok(());
    }
    Err(format!("what nobody heard of is not there whole: {last:?}"))
}

/// A complete that came late leaves the record as it was.
fn before_is(before: Option<&Held>, record: &Record) -> bool {
    match before {
        Some(Held::Record(known)) => same_facts(known, record).is_ok(),
        Some(_) => record.kind == Kind::String,
        None => true,
    }
}
