//! What is answered: one vocabulary for every face (SPEC 3, 4, 6).

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

use super::body::{Body, Content};
use super::command::BadInput;
use super::record::{HistoryEntry, KeptResult, Record, State};
use super::time::{Now, Span, Timestamp};

/// How a record shows at an instant, by record, policy and clock (SPEC 2).
#[derive(Clone, Debug)]
pub struct Shown {
    /// The record, with the end of a lease written down where it has one.
    pub record: Arc<Record>,
    /// Its state as every answer gives it.
    pub state: State,
    /// `pending`, and the lease is over.
    pub orphaned: bool,
    /// The limit in force; 0 is none.
    pub max_attempts: u32,
}

/// Why a claim acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was no record.
    New,
    /// The same claim again, by its id.
    Resumed,
    /// The lease of another holder had ended.
    Takeover,
    /// An attempt after a failed or released one.
    Retry,
    /// The first attempt after a replay.
    Replay,
}

impl Reason {
    /// Its name on every face.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Reason::New => "new",
            Reason::Resumed => "resumed",
            Reason::Takeover => "takeover",
            Reason::Retry => "retry",
            Reason::Replay => "replay",
        }
    }
}

/// Why a verb met a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another result is kept under this token.
    OtherResult,
    /// The side effect was announced, so "nothing happened" cannot be said any more.
    EffectAnnounced,
    /// The record is in another generation.
    OtherGeneration,
    /// A record of the Redis string commands.
    StringRecord,
    /// Already done, so failing by hand is no longer possible.
    AlreadyDone,
    /// Nobody holds it: a claim gets it, no hand is needed.
    Claimable,
    /// An import met another record under its key.
    OtherRecord,
}

impl Conflict {
    /// What to do next.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Conflict::OtherResult => {
                "this token was completed with another result, and the first one stays; get the record to see it"
            }
            Conflict::EffectAnnounced => {
                "the side effect was announced, so nothing-happened cannot be said any more; complete or fail instead"
            }
            Conflict::OtherGeneration => {
                "the record is in another generation; get it and decide again"
            }
            Conflict::StringRecord => {
                "this record was written by a Redis string command; use DEL or SET on it"
            }
            Conflict::AlreadyDone => {
                "the record is done; replay it with force if it has to run again"
            }
            Conflict::OtherRecord => {
                "another record is here under this key, and it stays; forget it first if the imported one counts"
            }
            Conflict::Claimable => "nobody holds this record; claim it instead",
        }
    }
}

/// What became of a record of another store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// It is here now.
    Stored,
    /// It was here already.
    There,
    /// It is past its retention.
    Expired,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The caller is the one who does this.
    Acquired(Reason),
    /// Done already: the duplicate.
    Done,
    /// Somebody works on it.
    Busy,
    /// The next attempt is not due.
    Backoff,
    /// Nobody knows whether it happened.
    InDoubt,
    /// Attempts used up, or buried.
    Dead,
    /// Another request body under the same key.
    Mismatch,
    /// See [`Conflict`].
    Conflict(Conflict),
    /// The token has ended.
    Stale,
    /// There is no record.
    NotFound,
    /// Success of renew.
    Renewed,
    /// Success of effect.
    Announced,
    /// Success of complete.
    Completed,
    /// Success of fail.
    Failed,
    /// Success of release.
    Released,
    /// Success of replay.
    Replayed,
    /// Success of forget.
    Forgotten,
    /// Success of get: the record.
    Found,
    /// Refused unseen.
    BadInput(BadInput),
    /// Every token below 2^53 was granted. Nothing was stored.
    OutOfTokens,
    /// A string command's answer.
    String(StringReply),
    /// An import's answer.
    Imported(Imported),
}

/// The answer to a string command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringReply {
    /// To a read; the record is beside it, or there is none.
    Read,
    /// To a set.
    Set {
        /// Whether the condition held.
        written: bool,
    },
    /// To a delete: whether there was something and the condition held.
    Deleted(bool),
    /// To an expire: whether there was something and the condition held.
    Expired(bool),
    /// To an increment: the new value.
    Number(i64),
    /// To a digest: the value's XXH3, or there is no value.
    Digest(Option<u64>),
    /// The value is not a number.
    NotAnInteger,
    /// The sum is no 64-bit number.
    Overflow,
    /// The record is one of claims.
    WrongType,
    /// An end beyond representable time.
    InvalidExpiry,
}

/// A decision and what it was made on.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The decision.
    pub verdict: Verdict,
    /// The record: after the change for what succeeded, as it stands for what was refused, the one just
    /// removed for a removal. For string commands: the record *before* the change (its old value).
    pub record: Option<Shown>,
    /// The record in `record` is no longer there.
    pub removed: bool,
    /// When it was decided.
    pub now: Now,
}

/// A member of an answer, the same under the same name on every face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Known to be nothing: JSON `null`; left out of Redis answers.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Int(u64),
    /// A word or a sentence.
    Text(String),
    /// An instant: RFC 3339 text.
    Time(Timestamp),
    /// A payload or result with its facts.
    Body {
        /// The bytes and their type.
        body: Body,
        /// A result's status.
        status: Option<u16>,
    },
    /// In a claim's answer: JSON says whether there is one, Redis answers carry the bytes.
    Handed(Option<Content>),
    /// Members of their own.
    Map(Fields),
    /// Several.
    List(Vec<Field>),
}

/// Named members in order.
pub type Fields = Vec<(&'static str, Field)>;

impl Verdict {
    /// The outcome's name on every face.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::Acquired(_) => "acquired",
            Verdict::Done => "done",
            Verdict::Busy => "busy",
            Verdict::Backoff => "backoff",
            Verdict::InDoubt => "in_doubt",
            Verdict::Dead => "dead",
            Verdict::Mismatch => "mismatch",
            Verdict::Conflict(_) => "conflict",
            Verdict::Stale => "stale",
            Verdict::NotFound => "not_found",
            Verdict::Renewed => "renewed",
            Verdict::Announced => "announced",
            Verdict::Completed => "completed",
            Verdict::Failed => "failed",
            Verdict::Released => "released",
            Verdict::Replayed => "replayed",
            Verdict::Forgotten => "forgotten",
            Verdict::Imported(_) => "imported",
            Verdict::Found | Verdict::String(_) => "ok",
            Verdict::BadInput(_) => "bad_input",
            Verdict::OutOfTokens => "unavailable",
        }
    }

    /// Whether the caller was refused (`done` is an answer, not a refusal).
    #[must_use]
    pub const fn refused(&self) -> bool {
        matches!(
            self,
            Verdict::Busy
                | Verdict::Backoff
                | Verdict::InDoubt
                | Verdict::Dead
                | Verdict::Mismatch
                | Verdict::Conflict(_)
                | Verdict::Stale
                | Verdict::NotFound
                | Verdict::BadInput(_)
                | Verdict::OutOfTokens
        )
    }
}

impl Outcome {
    /// Whether this outcome lets the others of an all-or-nothing unit be stored: a claim that acquired, a
    /// verb that succeeded, a string command whose type and condition held.
    #[must_use]
    pub const fn holds(&self) -> bool {
        match &self.verdict {
            Verdict::Done => false,
            Verdict::String(reply) => matches!(
                reply,
                StringReply::Read
                    | StringReply::Digest(_)
                    | StringReply::Set { written: true }
                    | StringReply::Deleted(_)
                    | StringReply::Expired(_)
                    | StringReply::Number(_)
            ),
            verdict => !verdict.refused(),
        }
    }

    /// How long until asking again makes sense (`busy`, `backoff`).
    #[must_use]
    pub fn retry_after(&self) -> Option<Span> {
        let record = &self.record.as_ref()?.record;
        match self.verdict {
            Verdict::Busy => Some(record.lease_end.since(self.now.boot)),
            Verdict::Backoff => Some(record.not_before.since(self.now.boot)),
            _ => None,
        }
    }

    /// One sentence on what to do next, for a refusal.
    #[must_use]
    pub fn advice(&self) -> String {
        match &self.verdict {
            Verdict::Busy => "another holder works on this key; ask again when its lease may be over, or wait for it".into(),
            Verdict::Backoff => "the last attempt failed and the next is not due; ask again later".into(),
            Verdict::InDoubt => "a holder vanished and the side effect may have happened; find out, then complete or fail it by hand, or replay it".into(),
            Verdict::Dead => "attempts are used up or the record was buried; an operator replays, resolves or forgets it".into(),
            Verdict::Mismatch => "the key was used with another request body; use a new key, or send the body of the first request".into(),
            Verdict::Conflict(conflict) => conflict.advice().into(),
            Verdict::Stale => "the token is no longer current, so nothing was changed; do not repeat the work, get the record to see who has it".into(),
            Verdict::NotFound => "there is no such record; it was never claimed, or it was released, forgotten, or its retention is over".into(),
            Verdict::BadInput(bad) => bad.to_string(),
            Verdict::OutOfTokens => "every token below 2^53 was granted; start a new data directory".into(),
            _ => String::new(),
        }
    }

    /// The members of the answer, in order, without namespace and key (SPEC 6).
    #[must_use]
    pub fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        if self.verdict != Verdict::Found {
            fields.push(("outcome", text(self.verdict.name())));
        }
        match (&self.verdict, &self.record) {
            (Verdict::Acquired(reason), Some(shown)) => {
                fields.push(("reason", text(reason.name())));
                grant_facts(&mut fields, &shown.record);
                if shown.state == State::Done {
                    finish_facts(&mut fields, &shown.record);
                } else {
                    fields.push(("lease_expires_at", self.lease_expires_at(&shown.record)));
                }
                let payload = shown
                    .record
                    .payload
                    .as_ref()
                    .map(|body| body.content.clone());
                fields.push(("payload", Field::Handed(payload)));
            }
            (Verdict::Done, Some(shown)) => {
                grant_facts(&mut fields, &shown.record);
                finish_facts(&mut fields, &shown.record);
                fields.push(("result", result_field(shown.record.result.as_ref())));
            }
            (Verdict::Found, Some(shown)) => self.record_fields(&mut fields, shown),
            (verdict, shown) if verdict.refused() => {
                fields.push(("detail", Field::Text(self.advice())));
                if let Some(shown) = shown {
                    self.public_facts(&mut fields, shown);
                }
                if let Some(span) = self.retry_after() {
                    fields.push(("retry_after_ms", Field::Int(span.as_millis())));
                }
            }
            (_, Some(shown)) => self.success_facts(&mut fields, shown),
            (_, None) => {}
        }
        fields
    }

    /// What a verb that succeeded answers.
    fn success_facts(&self, fields: &mut Fields, shown: &Shown) {
        let record = &shown.record;
        let state = if self.removed {
            "absent"
        } else {
            shown.state.name()
        };
        fields.push(("state", text(state)));
        grant_facts(fields, record);
        if self.removed {
            return;
        }
        match shown.state {
            State::Pending | State::InDoubt if self.verdict != Verdict::Replayed => {
                fields.push(("lease_expires_at", self.lease_expires_at(record)));
            }
            State::Retry => {
                fields.push(("not_before", Field::Time(self.now.show(record.not_before))))
            }
            State::Done => fields.push(("expires_at", time_or_null(record.expires_at))),
            _ => {}
        }
    }

    /// What anybody may know of a record that refused: never the holder's token.
    fn public_facts(&self, fields: &mut Fields, shown: &Shown) {
        let record = &shown.record;
        fields.push(("state", text(shown.state.name())));
        if let Some(owner) = &record.owner {
            fields.push(("owner", text(owner)));
        }
        fields.push(("attempt", Field::Int(record.attempt.into())));
        fields.push(("generation", Field::Int(record.generation.into())));
        if shown.state == State::Pending {
            let left = record.lease_end.since(self.now.boot);
            fields.push(("lease_left_ms", Field::Int(left.as_millis())));
        }
    }

    /// A record as `get` shows it.
    fn record_fields(&self, fields: &mut Fields, shown: &Shown) {
        let record = &shown.record;
        let held = matches!(shown.state, State::Pending) || record.by_lease_end;
        let kind = match record.kind {
            super::record::Kind::Claim => "claim",
            super::record::Kind::String => "string",
        };
        fields.extend([
            ("state", text(shown.state.name())),
            ("kind", text(kind)),
            ("orphaned", Field::Bool(shown.orphaned)),
            ("token", Field::Int(record.token.get())),
            ("attempt", Field::Int(record.attempt.into())),
            ("max_attempts", Field::Int(shown.max_attempts.into())),
            ("generation", Field::Int(record.generation.into())),
            (
                "fingerprint",
                match &record.fingerprint {
                    Some(print) => Field::Map(vec![
                        ("kind", text(print.kind())),
                        ("value", Field::Text(print.to_string())),
                    ]),
                    None => Field::Null,
                },
            ),
            ("claim_id", text_or_null(record.claim_id.as_deref())),
            ("owner", text_or_null(record.owner.as_deref())),
            ("claimed_at", Field::Time(record.claimed_at)),
            ("lease_ms", Field::Int(record.lease.as_millis())),
            (
                "lease_expires_at",
                if held {
                    self.lease_expires_at(record)
                } else {
                    Field::Null
                },
            ),
            (
                "lease_left_ms",
                match shown.state {
                    State::Pending => Field::Int(record.lease_end.since(self.now.boot).as_millis()),
                    _ => Field::Null,
                },
            ),
            ("effect_announced", Field::Bool(record.effect_announced)),
            (
                "not_before",
                match shown.state {
                    State::Retry => Field::Time(self.now.show(record.not_before)),
                    _ => Field::Null,
                },
            ),
            ("completed_at", time_or_null(record.completed_at)),
            ("expires_at", time_or_null(record.expires_at)),
            ("last_error", text_or_null(record.last_error.as_deref())),
            (
                "payload",
                match &record.payload {
                    Some(body) => Field::Body {
                        body: body.clone(),
                        status: None,
                    },
                    None => Field::Null,
                },
            ),
            ("result", result_field(record.result.as_ref())),
        ]);
        if record.earlier_result.is_some() {
            fields.push((
                "earlier_result",
                result_field(record.earlier_result.as_ref()),
            ));
        }
        let history = record.history.iter().map(history_field).collect();
        fields.push(("history", Field::List(history)));
    }

    fn lease_expires_at(&self, record: &Record) -> Field {
        Field::Time(self.now.show(record.lease_end))
    }

    /// The value a string command sees in the record: the result's bytes, empty where a claim was
    /// completed without any. `None` where there is no record; `Err` where it is open.
    ///
    /// # Errors
    /// [`NotAString`] on an open record.
    pub fn string_value(&self) -> Result<Option<Content>, NotAString> {
        match &self.record {
            None => Ok(None),
            Some(shown) if shown.state == State::Done => {
                Ok(Some(shown.record.result.as_ref().map_or_else(
                    || Content::Inline(Bytes::new()),
                    |kept| kept.body.content.clone(),
                )))
            }
            Some(_) => Err(NotAString),
        }
    }
}

/// The record is open: it has no value yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAString;

impl fmt::Display for NotAString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WRONGTYPE Operation against a key holding the wrong kind of value")
    }
}

impl std::error::Error for NotAString {}

fn grant_facts(fields: &mut Fields, record: &Record) {
    fields.push(("token", Field::Int(record.token.get())));
    fields.push(("attempt", Field::Int(record.attempt.into())));
    fields.push(("generation", Field::Int(record.generation.into())));
}

fn finish_facts(fields: &mut Fields, record: &Record) {
    fields.push(("completed_at", time_or_null(record.completed_at)));
    fields.push(("expires_at", time_or_null(record.expires_at)));
}

fn result_field(result: Option<&KeptResult>) -> Field {
    match result {
        Some(kept) => Field::Body {
            body: kept.body.clone(),
            status: kept.status,
        },
        None => Field::Null,
    }
}

fn history_field(entry: &HistoryEntry) -> Field {
    Field::Map(vec![
        ("at", Field::Time(entry.at)),
        ("event", text(entry.event.name())),
        ("token", Field::Int(entry.token.get())),
        ("attempt", Field::Int(entry.attempt.into())),
        ("by", text_or_null(entry.by.as_deref())),
    ])
}

fn text(word: &str) -> Field {
    Field::Text(word.to_owned())
}

fn text_or_null(word: Option<&str>) -> Field {
    word.map_or(Field::Null, text)
}

fn time_or_null(time: Option<Timestamp>) -> Field {
    time.map_or(Field::Null, Field::Time)
}
