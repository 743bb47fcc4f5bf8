//! Between the model and the rows of `codec`: what a record, entry or policy becomes on disk, what every
//! row must obey, and how it becomes a record again.

use bytes::Bytes;

use super::codec::{
    ALL_FLAGS, BY_LEASE_END, BodyRow, ByRow, CodecError, ContentRow, EFFECT, FactRow, Facts, HOLD,
    ONCE, Part, PrintRow, RecordRow, ResultRow, SLIDING,
};
use crate::model::body::{Body, Content, DEFAULT_CONTENT_TYPE, INLINE_LIMIT, LargeContent};
use crate::model::command::{MAX_CONTENT_TYPE, MAX_ERROR, MAX_NAME, STATUS_RANGE};
use crate::model::policy::{self};
use crate::model::record::{
    Event, Fingerprint, HistoryEntry, KeptResult, Kind, Lsn, OnLeaseEnd, Record, Retention, State,
    Token, Window,
};
use crate::model::time::{BootTime, Span, Timestamp};

/// Names of operators may be longer than a client's, which SPEC 10 bounds.
pub(super) const MAX_BY: usize = 1024;

type Decoded<T> = Result<T, CodecError>;

impl<'a> RecordRow<'a> {
    /// The row of a record: in a table, or in the entry of that LSN, which carries the bytes that are new
    /// with it.
    pub(super) fn of(record: &'a Record, entry: Option<Lsn>) -> Decoded<RecordRow<'a>> {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut history = Facts::default();
        let mut before = record.claimed_at.as_millis();
        for fact in &record.history {
            history.push(FactRow {
                after: difference(fact.at.as_millis(), before),
                event: event_code(fact.event),
                token: difference(fact.token.get(), record.token.get()),
                attempt: fact.attempt,
                by: match fact.by.as_deref() {
                    None => ByRow::Nobody,
                    by if by == record.owner.as_deref() => ByRow::Owner,
                    Some(name) => ByRow::Name(name),
                },
            })?;
            before = fact.at.as_millis();
        }
        let changed = record.changed_at.as_millis();
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
            changed: difference(changed, record.claimed_at.as_millis()),
            completed: record
                .completed_at
                .map(|at| difference(at.as_millis(), changed)),
            expires: record.expires_at.map(|at| {
                let kept = retention_row(record.retention).unwrap_or(0);
                difference(at.as_millis(), changed.wrapping_add(kept))
            }),
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
            done == self.completed.is_some(),
            "done without a time of completion, or the reverse",
        )?;
        rule(
            done || self.expires.is_none(),
            "an open record that expires",
        )?;
        rule(
            done || self.result.is_none(),
            "an open record with a result",
        )?;
        let by_lease_end = self.flags & BY_LEASE_END != 0;
        rule(
            !by_lease_end || self.state == 0 || self.state >= 3,
            "a lease end that led to neither an orphan nor in_doubt nor dead",
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
                body.content_type
                    .is_none_or(|text| text.len() <= MAX_CONTENT_TYPE),
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
            rule(fact.token(self.token).is_some(), "a token that is none")?;
            match fact.by {
                ByRow::Nobody => {}
                ByRow::Owner => rule(self.owner.is_some(), "an owner that is nobody")?,
                ByRow::Name(by) => rule(by.len() <= MAX_BY, "too long a name in the history")?,
            }
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
            changed_at: Timestamp::from_millis(self.changed_at()),
            completed_at: self
                .completed
                .map(|after| Timestamp::from_millis(self.changed_at().wrapping_add_signed(after))),
            expires_at: self.expires_at().map(Timestamp::from_millis),
            last_error: self.last_error.map(Into::into),
            payload: self.payload.as_ref().map(|body| body.build(entry)),
            result: result(&self.result),
            earlier_result: result(&self.earlier_result),
            history: self.build_history()?,
        })
    }

    fn build_history(&self) -> Decoded<Vec<HistoryEntry>> {
        let mut at = self.claimed_at;
        let build = |fact: &FactRow<'_>| {
            at = at.wrapping_add_signed(fact.after);
            Ok(HistoryEntry {
                at: Timestamp::from_millis(at),
                event: event_of(fact.event)?,
                token: fact.token(self.token).ok_or(CodecError::Malformed)?,
                attempt: fact.attempt,
                by: match fact.by {
                    ByRow::Nobody => None,
                    ByRow::Owner => self.owner.map(Into::into),
                    ByRow::Name(name) => Some(name.into()),
                },
            })
        };
        self.history.iter().map(build).collect()
    }

    pub(super) fn changed_at(&self) -> u64 {
        self.claimed_at.wrapping_add_signed(self.changed)
    }

    /// When retention is over, in milliseconds.
    pub(super) fn expires_at(&self) -> Option<u64> {
        let kept = self.changed_at().wrapping_add(self.retention.unwrap_or(0));
        self.expires.map(|after| kept.wrapping_add_signed(after))
    }
}

impl FactRow<'_> {
    fn token(&self, record: u64) -> Option<Token> {
        Token::new(record.wrapping_add_signed(self.token))
    }
}

/// What [`u64::wrapping_add_signed`] takes from `base` back to `number`.
const fn difference(number: u64, base: u64) -> i64 {
    number.wrapping_sub(base).cast_signed()
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
        let content_type = Some(&*body.content_type).filter(|text| *text != DEFAULT_CONTENT_TYPE);
        Ok(BodyRow {
            content_type,
            content,
        })
    }

    fn build(&self, entry: Lsn) -> Body {
        let content = match self.content {
            ContentRow::Inline(bytes) => Content::Inline(Bytes::copy_from_slice(bytes)),
            ContentRow::Large { size, digest, lsn } => Content::Large(Box::new(LargeContent {
                size,
                digest,
                lsn: Some(Lsn(lsn)),
                bytes: None,
            })),
            ContentRow::New { digest, bytes } => Content::Large(Box::new(LargeContent {
                // Checked with the row to fit.
                size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                digest,
                lsn: Some(entry),
                bytes: Some(Bytes::copy_from_slice(bytes)),
            })),
        };
        Body {
            content_type: self.content_type.unwrap_or(DEFAULT_CONTENT_TYPE).into(),
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
pub(super) fn event_code(event: Event) -> u8 {
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

pub(super) fn retention_row(retention: Retention) -> Option<u64> {
    match retention {
        Retention::For(span) => Some(span.as_millis()),
        Retention::Forever => None,
    }
}

pub(super) fn retention_of(row: Option<u64>) -> Retention {
    row.map_or(Retention::Forever, |millis| {
        Retention::For(Span::from_millis(millis))
    })
}

pub(super) fn event_of(code: u8) -> Decoded<Event> {
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
        for state in State::ALL {
            assert_eq!(STATES.get(usize::from(state_code(state))), Some(&state));
        }
    }
}
