//! Between the model and the rows of `codec`: what a record, entry or policy becomes on disk, what every
//! row must obey, and how it becomes a record again.

use bytes::Bytes;
use std::sync::Arc;

use super::codec::{
    ALL_FLAGS, BY_LEASE_END, BodyRow, ChangeRow, CodecError, ContentRow, DecisionRow, EFFECT,
    EntryRow, FactRow, Facts, HOLD, ONCE, Part, PolicyRow, PrintRow, RecordRow, ResultRow, SLIDING,
};
use super::entry::{Change, Decision, Entry, OUTCOMES, VERBS};
use crate::model::body::{Body, Content, INLINE_LIMIT, LargeContent, sha256};
use crate::model::command::{MAX_CONTENT_TYPE, MAX_ERROR, MAX_NAME, STATUS_RANGE};
use crate::model::key::{RecordKey, check_namespace};
use crate::model::outcome::Reason;
use crate::model::policy::{self, FingerprintKind, Policy};
use crate::model::record::{
    Event, Fingerprint, HistoryEntry, KeptResult, Kind, Lsn, OnLeaseEnd, Record, Retention, State,
    Token, Window,
};
use crate::model::time::{BootTime, Span, Timestamp};

/// Names of operators may be longer than a client's, which SPEC 10 bounds.
const MAX_BY: usize = 1024;

type Decoded<T> = Result<T, CodecError>;

impl<'a> RecordRow<'a> {
    /// The row of a record: in a table, or in the entry of that LSN, which carries the bytes that are new
    /// with it.
    pub(super) fn of(record: &'a Record, entry: Option<Lsn>) -> Decoded<RecordRow<'a>> {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut history = Facts::default();
        for fact in &record.history {
            let place = history.facts.get_mut(history.len);
            *place.ok_or(CodecError::Rule("a history of more than 8 facts"))? = FactRow {
                at: fact.at.as_millis(),
                event: event_code(fact.event),
                token: fact.token.get(),
                attempt: fact.attempt,
                by: fact.by.as_deref(),
            };
            history.len += 1;
        }
        let result = |kept: &'a Option<KeptResult>| {
            let row = |kept: &'a KeptResult| {
                BodyRow::of(&kept.body, entry).map(|body| ResultRow {
                    status: kept.status,
                    body,
                })
            };
            kept.as_ref().map(row).transpose()
        };
        Ok(RecordRow {
            kind: match record.kind {
                Kind::Claim => 0,
                Kind::String => 1,
            },
            state: state_code(record.state),
            flags: flag(record.by_lease_end, BY_LEASE_END)
                | flag(record.once, ONCE)
                | flag(record.effect_announced, EFFECT)
                | flag(record.window == Window::Sliding, SLIDING)
                | flag(record.on_lease_end == OnLeaseEnd::Hold, HOLD),
            token: record.token.get(),
            attempt: record.attempt,
            generation: record.generation,
            fingerprint: match &record.fingerprint {
                None => PrintRow::None,
                Some(Fingerprint::Given(text)) => PrintRow::Given(text),
                Some(Fingerprint::Raw(digest)) => PrintRow::Raw(*digest),
                Some(Fingerprint::Json(digest)) => PrintRow::Json(*digest),
            },
            claim_id: record.claim_id.as_deref(),
            owner: record.owner.as_deref(),
            claimed_at: record.claimed_at.as_millis(),
            lease: record.lease.as_millis(),
            lease_end: record.lease_end.as_millis(),
            retention: retention_row(record.retention),
            max_attempts: record.max_attempts,
            not_before: record.not_before.as_millis(),
            changed_at: record.changed_at.as_millis(),
            completed_at: record.completed_at.map(Timestamp::as_millis),
            expires_at: record.expires_at.map(Timestamp::as_millis),
            last_error: record.last_error.as_deref(),
            payload: record
                .payload
                .as_ref()
                .map(|body| BodyRow::of(body, entry))
                .transpose()?,
            result: result(&record.result)?,
            earlier_result: result(&record.earlier_result)?,
            history,
        })
    }

    /// What holds of every record that a store writes: checked on write and again on read.
    pub(super) fn check(&self) -> Decoded<()> {
        let rule = |holds: bool, broken: &'static str| {
            if holds {
                Ok(())
            } else {
                Err(CodecError::Rule(broken))
            }
        };
        let done = self.state == 2;
        let name =
            |text: Option<&str>| text.is_none_or(|text| (1..=MAX_NAME).contains(&text.len()));
        rule(self.kind <= 1, "a kind that is neither claim nor string")?;
        rule(self.state <= 4, "a state that does not exist")?;
        rule(self.flags & !ALL_FLAGS == 0, "a flag that does not exist")?;
        rule(self.kind == 0 || done, "a string record that is not done")?;
        rule(
            done == self.completed_at.is_some(),
            "done without a time of completion, or the reverse",
        )?;
        rule(
            done || self.expires_at.is_none(),
            "an open record that expires",
        )?;
        rule(
            done || self.result.is_none(),
            "an open record with a result",
        )?;
        let by_lease_end = self.flags & BY_LEASE_END != 0;
        rule(
            !by_lease_end || self.state >= 3,
            "a lease end that led to neither in_doubt nor dead",
        )?;
        rule(Token::new(self.token).is_some(), "a token that is none")?;
        rule(self.generation >= 1, "generation 0")?;
        rule(
            self.max_attempts.is_none_or(|n| n <= policy::MAX_ATTEMPTS),
            "too many attempts",
        )?;
        rule(
            name(self.claim_id) && name(self.owner),
            "a name that is empty or too long",
        )?;
        if let PrintRow::Given(text) = self.fingerprint {
            rule(name(Some(text)), "a fingerprint that is empty or too long")?;
        }
        rule(
            self.last_error.is_none_or(|text| text.len() <= MAX_ERROR),
            "too long an error text",
        )?;
        let results = [&self.result, &self.earlier_result];
        for kept in results.into_iter().flatten() {
            rule(
                kept.status.is_none_or(|n| STATUS_RANGE.contains(&n)),
                "a status that is none",
            )?;
        }
        for (_, body) in self.bodies() {
            rule(
                body.content_type.len() <= MAX_CONTENT_TYPE,
                "too long a content type",
            )?;
            rule(
                body.content.has_right_size(),
                "a body kept the wrong way for its size",
            )?;
        }
        for fact in self.history.iter() {
            rule(
                Event::ALL.get(usize::from(fact.event)).is_some(),
                "an event that does not exist",
            )?;
            rule(Token::new(fact.token).is_some(), "a token that is none")?;
            rule(
                fact.by.is_none_or(|by| by.len() <= MAX_BY),
                "too long a name in the history",
            )?;
        }
        Ok(())
    }

    /// Its bodies, each with the part it is.
    pub(super) fn bodies(&self) -> impl Iterator<Item = (Part, &BodyRow<'a>)> {
        let payload = self.payload.iter().map(|body| (Part::Payload, body));
        let results = [&self.result, &self.earlier_result].into_iter().flatten();
        payload.chain(results.map(|kept| (Part::Result, &kept.body)))
    }

    /// The record of a checked row; bodies that are new are new with that entry.
    pub(super) fn build(&self, entry: Lsn) -> Decoded<Record> {
        let has = |bit: u8| self.flags & bit != 0;
        let result = |kept: &Option<ResultRow<'_>>| {
            kept.as_ref().map(|kept| KeptResult {
                status: kept.status,
                body: kept.body.build(entry),
            })
        };
        Ok(Record {
            kind: if self.kind == 0 {
                Kind::Claim
            } else {
                Kind::String
            },
            state: *STATES
                .get(usize::from(self.state))
                .ok_or(CodecError::Malformed)?,
            by_lease_end: has(BY_LEASE_END),
            once: has(ONCE),
            token: Token::new(self.token).ok_or(CodecError::Malformed)?,
            attempt: self.attempt,
            generation: self.generation,
            fingerprint: match self.fingerprint {
                PrintRow::None => None,
                PrintRow::Given(text) => Some(Fingerprint::Given(text.into())),
                PrintRow::Raw(digest) => Some(Fingerprint::Raw(digest)),
                PrintRow::Json(digest) => Some(Fingerprint::Json(digest)),
            },
            claim_id: self.claim_id.map(Into::into),
            owner: self.owner.map(Into::into),
            claimed_at: Timestamp::from_millis(self.claimed_at),
            lease: Span::from_millis(self.lease),
            lease_end: BootTime::from_millis(self.lease_end),
            retention: retention_of(self.retention),
            window: if has(SLIDING) {
                Window::Sliding
            } else {
                Window::Fixed
            },
            on_lease_end: if has(HOLD) {
                OnLeaseEnd::Hold
            } else {
                OnLeaseEnd::Retry
            },
            max_attempts: self.max_attempts,
            effect_announced: has(EFFECT),
            not_before: BootTime::from_millis(self.not_before),
            changed_at: Timestamp::from_millis(self.changed_at),
            completed_at: self.completed_at.map(Timestamp::from_millis),
            expires_at: self.expires_at.map(Timestamp::from_millis),
            last_error: self.last_error.map(Into::into),
            payload: self.payload.as_ref().map(|body| body.build(entry)),
            result: result(&self.result),
            earlier_result: result(&self.earlier_result),
            history: self
                .history
                .iter()
                .map(FactRow::build)
                .collect::<Decoded<_>>()?,
        })
    }
}

impl FactRow<'_> {
    fn build(&self) -> Decoded<HistoryEntry> {
        Ok(HistoryEntry {
            at: Timestamp::from_millis(self.at),
            event: *Event::ALL
                .get(usize::from(self.event))
                .ok_or(CodecError::Malformed)?,
            token: Token::new(self.token).ok_or(CodecError::Malformed)?,
            attempt: self.attempt,
            by: self.by.map(Into::into),
        })
    }
}

impl<'a> BodyRow<'a> {
    fn of(body: &'a Body, entry: Option<Lsn>) -> Decoded<BodyRow<'a>> {
        let content = match (&body.content, entry) {
            (Content::Inline(bytes), _) => ContentRow::Inline(bytes),
            (Content::Large(large), Some(entry)) if large.lsn.is_none_or(|lsn| lsn == entry) => {
                let bytes = large.bytes.as_ref();
                let bytes = bytes.ok_or(CodecError::Rule("a new body without its bytes"))?;
                ContentRow::New {
                    digest: large.digest,
                    bytes,
                }
            }
            (Content::Large(large), _) => ContentRow::Large {
                size: large.size,
                digest: large.digest,
                lsn: large
                    .lsn
                    .ok_or(CodecError::Rule("a body that was never journaled"))?
                    .0,
            },
        };
        Ok(BodyRow {
            content_type: &body.content_type,
            content,
        })
    }

    fn build(&self, entry: Lsn) -> Body {
        let content = match self.content {
            ContentRow::Inline(bytes) => Content::Inline(Bytes::copy_from_slice(bytes)),
            ContentRow::Large { size, digest, lsn } => Content::Large(LargeContent {
                size,
                digest,
                lsn: Some(Lsn(lsn)),
                bytes: None,
            }),
            ContentRow::New { digest, bytes } => Content::Large(LargeContent {
                // Checked with the row to fit.
                size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                digest,
                lsn: Some(entry),
                bytes: Some(Bytes::copy_from_slice(bytes)),
            }),
        };
        Body {
            content_type: self.content_type.into(),
            content,
        }
    }
}

impl ContentRow<'_> {
    /// A body's length decides how it is kept.
    fn has_right_size(&self) -> bool {
        match self {
            ContentRow::Inline(bytes) => bytes.len() <= INLINE_LIMIT,
            ContentRow::Large { size, .. } => *size as usize > INLINE_LIMIT,
            ContentRow::New { bytes, .. } => {
                bytes.len() > INLINE_LIMIT && u32::try_from(bytes.len()).is_ok()
            }
        }
    }
}

const STATES: [State; 5] = State::ALL;

fn state_code(state: State) -> u8 {
    match state {
        State::Pending => 0,
        State::Retry => 1,
        State::Done => 2,
        State::InDoubt => 3,
        State::Dead => 4,
    }
}

/// The place in [`Event::ALL`], spelt out so that a change of that order cannot go unnoticed.
fn event_code(event: Event) -> u8 {
    match event {
        Event::Acquired => 0,
        Event::TakenOver => 1,
        Event::Retried => 2,
        Event::AcquiredByReplay => 3,
        Event::LeaseEnded => 4,
        Event::EffectAnnounced => 5,
        Event::Completed => 6,
        Event::Failed => 7,
        Event::Buried => 8,
        Event::Released => 9,
        Event::Replayed => 10,
        Event::CompletedByHand => 11,
        Event::FailedByHand => 12,
        Event::LateCompletion => 13,
        Event::Restored => 14,
        Event::BuriedByHand => 15,
    }
}

fn retention_row(retention: Retention) -> Option<u64> {
    match retention {
        Retention::For(span) => Some(span.as_millis()),
        Retention::Forever => None,
    }
}

fn retention_of(row: Option<u64>) -> Retention {
    row.map_or(Retention::Forever, |millis| {
        Retention::For(Span::from_millis(millis))
    })
}

impl<'a> EntryRow<'a> {
    pub(super) fn of(entry: &'a Entry) -> Decoded<EntryRow<'a>> {
        let decision = &entry.decision;
        let code = |names: &[&str], name: &str| {
            names
                .iter()
                .position(|known| *known == name)
                .and_then(|code| u8::try_from(code).ok())
        };
        Ok(EntryRow {
            lsn: entry.lsn.0,
            change: match &entry.change {
                Change::None(key) => ChangeRow::None(key.joined()),
                Change::Tally(namespace) => ChangeRow::Tally(namespace),
                Change::Put(key, record) => {
                    ChangeRow::Put(key.joined(), RecordRow::of(record, Some(entry.lsn))?)
                }
                Change::Remove(key) => ChangeRow::Remove(key.joined()),
                Change::Policy(namespace, policy) => {
                    ChangeRow::Policy(namespace, policy.as_ref().map(PolicyRow::of))
                }
            },
            decision: DecisionRow {
                at: decision.at.as_millis(),
                verb: code(&VERBS, decision.verb).ok_or(CodecError::Rule("an unknown verb"))?,
                outcome: code(&OUTCOMES, decision.outcome)
                    .ok_or(CodecError::Rule("an unknown outcome"))?,
                reason: decision.reason.map(reason_code),
                event: decision.event.map(event_code),
                token: decision.token.map(Token::get),
                attempt: decision.attempt,
                generation: decision.generation,
                by: decision.by.as_deref(),
                count: decision.count,
            },
        })
    }

    /// What holds of every entry.
    pub(super) fn check(&self) -> Decoded<()> {
        match &self.change {
            ChangeRow::Put(_, record) => record.check()?,
            ChangeRow::Tally(namespace) | ChangeRow::Policy(namespace, _) => {
                check_namespace(namespace)
                    .map_err(|_| CodecError::Rule("a namespace that is none"))?;
            }
            ChangeRow::None(_) | ChangeRow::Remove(_) => {}
        }
        match self.decision.by {
            Some(by) if by.len() > MAX_BY => Err(CodecError::Rule("too long a name")),
            _ => Ok(()),
        }
    }

    pub(super) fn build(&self) -> Decoded<Entry> {
        let lsn = Lsn(self.lsn);
        let key = |joined: &[u8]| {
            RecordKey::from_joined(Bytes::copy_from_slice(joined))
                .ok_or(CodecError::Rule("a key that is none"))
        };
        let change = match &self.change {
            ChangeRow::None(joined) => Change::None(key(joined)?),
            ChangeRow::Tally(namespace) => Change::Tally((*namespace).into()),
            ChangeRow::Put(joined, record) => {
                record.check_new_bodies()?;
                Change::Put(key(joined)?, Arc::new(record.build(lsn)?))
            }
            ChangeRow::Remove(joined) => Change::Remove(key(joined)?),
            ChangeRow::Policy(namespace, policy) => Change::Policy(
                (*namespace).into(),
                policy.as_ref().map(PolicyRow::build).transpose()?,
            ),
        };
        Ok(Entry {
            lsn,
            change,
            decision: self.decision.build()?,
        })
    }
}

impl RecordRow<'_> {
    /// A frame's checksum covers the bytes; this covers whoever wrote the frame.
    fn check_new_bodies(&self) -> Decoded<()> {
        for (_, body) in self.bodies() {
            if let ContentRow::New { digest, bytes } = body.content
                && sha256(bytes) != digest
            {
                return Err(CodecError::Rule("a new body with another digest"));
            }
        }
        Ok(())
    }
}

impl DecisionRow<'_> {
    fn build(&self) -> Decoded<Decision> {
        let name = |names: &[&'static str], code: u8| names.get(usize::from(code)).copied();
        let token = |number| Token::new(number).ok_or(CodecError::Rule("a token that is none"));
        Ok(Decision {
            at: Timestamp::from_millis(self.at),
            verb: name(&VERBS, self.verb).ok_or(CodecError::Rule("an unknown verb"))?,
            outcome: name(&OUTCOMES, self.outcome).ok_or(CodecError::Rule("an unknown outcome"))?,
            reason: self.reason.map(reason_of).transpose()?,
            event: self.event.map(event_of).transpose()?,
            token: self.token.map(token).transpose()?,
            attempt: self.attempt,
            generation: self.generation,
            by: self.by.map(Into::into),
            count: self.count,
        })
    }
}

impl PolicyRow {
    pub(super) fn of(policy: &Policy) -> PolicyRow {
        PolicyRow {
            lease: policy.lease.as_millis(),
            retention: retention_row(policy.retention),
            sliding: policy.window == Window::Sliding,
            max_attempts: policy.max_attempts,
            hold: policy.on_lease_end == OnLeaseEnd::Hold,
            backoff: policy.backoff.as_millis(),
            backoff_max: policy.backoff_max.as_millis(),
            json: policy.fingerprint == FingerprintKind::Json,
            forget_open_after: retention_row(policy.forget_open_after),
        }
    }

    /// The policy, its ranges checked (SPEC 5).
    pub(super) fn build(&self) -> Decoded<Policy> {
        let range = |_| CodecError::Rule("a policy outside its range");
        let delay = |millis| policy::check_delay(Span::from_millis(millis)).map_err(range);
        Ok(Policy {
            lease: policy::check_lease(Span::from_millis(self.lease)).map_err(range)?,
            retention: policy::check_retention(retention_of(self.retention)).map_err(range)?,
            window: if self.sliding {
                Window::Sliding
            } else {
                Window::Fixed
            },
            max_attempts: policy::check_attempts(self.max_attempts).map_err(range)?,
            on_lease_end: if self.hold {
                OnLeaseEnd::Hold
            } else {
                OnLeaseEnd::Retry
            },
            backoff: delay(self.backoff)?,
            backoff_max: delay(self.backoff_max)?,
            fingerprint: if self.json {
                FingerprintKind::Json
            } else {
                FingerprintKind::Raw
            },
            forget_open_after: retention_of(self.forget_open_after),
        })
    }
}

const REASONS: [Reason; 5] = [
    Reason::New,
    Reason::Resumed,
    Reason::Takeover,
    Reason::Retry,
    Reason::Replay,
];

fn reason_code(reason: Reason) -> u8 {
    match reason {
        Reason::New => 0,
        Reason::Resumed => 1,
        Reason::Takeover => 2,
        Reason::Retry => 3,
        Reason::Replay => 4,
    }
}

fn reason_of(code: u8) -> Decoded<Reason> {
    REASONS
        .get(usize::from(code))
        .copied()
        .ok_or(CodecError::Rule("a reason that does not exist"))
}

fn event_of(code: u8) -> Decoded<Event> {
    Event::ALL
        .get(usize::from(code))
        .copied()
        .ok_or(CodecError::Rule("an event that does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_the_lists_they_index_agree() {
        for event in Event::ALL {
            assert_eq!(event_of(event_code(event)), Ok(event));
        }
        for reason in REASONS {
            assert_eq!(reason_of(reason_code(reason)), Ok(reason));
        }
        for state in State::ALL {
            assert_eq!(STATES.get(usize::from(state_code(state))), Some(&state));
        }
    }
}
