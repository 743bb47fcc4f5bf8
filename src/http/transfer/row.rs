//! A record as one line of an export. All that it is stands in it, instants as milliseconds since the Unix epoch.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::body::{Body, Content, Digest};
use crate::model::imported::Import;
use crate::model::key::RecordKey;
use crate::model::record::{
    Event, Fingerprint, HistoryEntry, KeptResult, Kind, OnLeaseEnd, Record, Retention, State,
    Token, Window,
};
use crate::model::time::{BootTime, Now, Span, Timestamp};

/// The members, in the order in which they are written; what is none is left out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row<'a> {
    namespace: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    kind: Cow<'a, str>,
    state: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_false")]
    lease_ended: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    once: bool,
    token: u64,
    attempt: u32,
    generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<Print>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Cow<'a, str>>,
    claimed_at_ms: u64,
    lease_ms: u64,
    /// Absent: forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    window: Cow<'a, str>,
    on_lease_end: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "is_false")]
    effect_announced: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before_ms: Option<u64>,
    changed_at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completed_at_ms: Option<u64>,
    /// Absent in a record that is done: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Carried<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Carried<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    earlier_result: Option<Carried<'a>>,
    history: Vec<Fact<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Print {
    kind: String,
    value: String,
}

/// A payload or result.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Carried<'a> {
    content_type: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact<'a> {
    at_ms: u64,
    event: Cow<'a, str>,
    token: u64,
    attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Cow<'a, str>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

fn lent(text: &Option<Box<str>>) -> Option<Cow<'_, str>> {
    text.as_deref().map(Cow::Borrowed)
}

fn kept(text: Option<Cow<'_, str>>) -> Option<Box<str>> {
    text.map(|text| text.into_owned().into_boxed_str())
}

impl<'a> Row<'a> {
    /// Of a record with all bytes of its bodies; `None` where some are not at hand.
    pub(super) fn of(key: &'a RecordKey, record: &'a Record, now: Now) -> Option<Row<'a>> {
        let text = std::str::from_utf8(key.key()).ok();
        let result = |kept: &'a Option<KeptResult>| match kept {
            None => Some(None),
            Some(kept) => Carried::of(&kept.body, kept.status).map(Some),
        };
        Some(Row {
            namespace: key.namespace().into(),
            key: text.map(Cow::Borrowed),
            key_base64: text.is_none().then(|| STANDARD.encode(key.key())),
            kind: kind_name(record.kind).into(),
            state: record.state.name().into(),
            lease_ended: record.by_lease_end,
            once: record.once,
            token: record.token.get(),
            attempt: record.attempt,
            generation: record.generation,
            fingerprint: record.fingerprint.as_ref().map(|print| Print {
                kind: print.kind().to_owned(),
                value: print.to_string(),
            }),
            claim_id: lent(&record.claim_id),
            owner: lent(&record.owner),
            claimed_at_ms: record.claimed_at.as_millis(),
            lease_ms: record.lease.as_millis(),
            retention_ms: match record.retention {
                Retention::For(span) => Some(span.as_millis()),
                Retention::Forever => None,
            },
            window: record.window.name().into(),
            on_lease_end: record.on_lease_end.name().into(),
            max_attempts: record.max_attempts,
            effect_announced: record.effect_announced,
            not_before_ms: (record.state == State::Retry)
                .then(|| now.show(record.not_before).as_millis()),
            changed_at_ms: record.changed_at.as_millis(),
            completed_at_ms: record.completed_at.map(Timestamp::as_millis),
            expires_at_ms: record.expires_at.map(Timestamp::as_millis),
            last_error: lent(&record.last_error),
            payload: match &record.payload {
                None => None,
                Some(body) => Some(Carried::of(body, None)?),
            },
            result: result(&record.result)?,
            earlier_result: result(&record.earlier_result)?,
            history: record
                .history
                .iter()
                .map(|fact| Fact {
                    at_ms: fact.at.as_millis(),
                    event: fact.event.name().into(),
                    token: fact.token.get(),
                    attempt: fact.attempt,
                    by: lent(&fact.by),
                })
                .collect(),
        })
    }

    /// The record of a line.
    ///
    /// # Errors
    /// What cannot be understood, and why.
    pub(super) fn import(self, granted: Token) -> Result<(RecordKey, Import), String> {
        let key = bytes_of("key", self.key.as_deref(), self.key_base64.as_deref())?;
        let key = RecordKey::new(&self.namespace, &key).map_err(|error| error.to_string())?;
        let record = Record {
            kind: [Kind::Claim, Kind::String]
                .into_iter()
                .find(|kind| kind_name(*kind) == self.kind)
                .ok_or("kind is claim or string")?,
            state: State::parse(&self.state).ok_or("there is no such state")?,
            by_lease_end: self.lease_ended,
            once: self.once,
            token: token(self.token)?,
            attempt: self.attempt,
            generation: self.generation,
            fingerprint: self.fingerprint.map(Print::read).transpose()?,
            claim_id: kept(self.claim_id),
            owner: kept(self.owner),
            claimed_at: Timestamp::from_millis(self.claimed_at_ms),
            lease: Span::from_millis(self.lease_ms),
            lease_end: BootTime::default(),
            retention: self.retention_ms.map_or(Retention::Forever, |millis| {
                Retention::For(Span::from_millis(millis))
            }),
            window: Window::parse(&self.window).ok_or("window is fixed or sliding")?,
            on_lease_end: OnLeaseEnd::parse(&self.on_lease_end)
                .ok_or("on_lease_end is retry or hold")?,
            max_attempts: self.max_attempts,
            effect_announced: self.effect_announced,
            not_before: BootTime::default(),
            changed_at: Timestamp::from_millis(self.changed_at_ms),
            completed_at: self.completed_at_ms.map(Timestamp::from_millis),
            expires_at: self.expires_at_ms.map(Timestamp::from_millis),
            last_error: kept(self.last_error),
            payload: self.payload.map(Carried::body).transpose()?,
            result: self.result.map(Carried::kept).transpose()?,
            earlier_result: self.earlier_result.map(Carried::kept).transpose()?,
            history: self
                .history
                .into_iter()
                .map(Fact::read)
                .collect::<Result<_, _>>()?,
        };
        let own = record.history.iter().map(|fact| fact.token).max();
        let import = Import {
            not_before: Timestamp::from_millis(self.not_before_ms.unwrap_or(0)),
            granted: granted.max(record.token).max(own.unwrap_or(granted)),
            record,
        };
        Ok((key, import))
    }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Claim => "claim",
        Kind::String => "string",
    }
}

fn token(number: u64) -> Result<Token, &'static str> {
    Token::new(number).ok_or("a token is a positive number below 2^53")
}

/// Text, or bytes that are none.
fn bytes_of(what: &str, text: Option<&str>, base64: Option<&str>) -> Result<Bytes, String> {
    match (text, base64) {
        (Some(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(base64)) => STANDARD
            .decode(base64)
            .map(Bytes::from)
            .map_err(|error| format!("{what}_base64: {error}")),
        _ => Err(format!("give {what} or {what}_base64, one of them")),
    }
}

impl Print {
    fn read(self) -> Result<Fingerprint, String> {
        match self.kind.as_str() {
            "given" => Ok(Fingerprint::Given(self.value.into())),
            "raw" => Ok(Fingerprint::Raw(digest(&self.value)?)),
            "json" => Ok(Fingerprint::Json(digest(&self.value)?)),
            _ => Err("the kind of a fingerprint is given, raw or json".to_owned()),
        }
    }
}

fn digest(hex: &str) -> Result<Digest, &'static str> {
    let bad = "a digest is 64 digits of lower-case hex";
    let mut digest = Digest::default();
    if hex.len() != 2 * digest.len() || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    {
        return Err(bad);
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        let pair = hex.get(2 * at..2 * at + 2).ok_or(bad)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| bad)?;
    }
    Ok(digest)
}

impl<'a> Carried<'a> {
    fn of(body: &'a Body, status: Option<u16>) -> Option<Carried<'a>> {
        let bytes = body.content.bytes()?;
        // Escaped, a control character takes six bytes.
        let plain = |byte: &u8| *byte >= 0x20 || matches!(byte, b'\n' | b'\r' | b'\t');
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|_| bytes.iter().all(plain));
        Some(Carried {
            content_type: (&*body.content_type).into(),
            status,
            body: text.map(Cow::Borrowed),
            body_base64: text.is_none().then(|| STANDARD.encode(bytes)),
        })
    }

    fn body(self) -> Result<Body, String> {
        if self.status.is_some() {
            return Err("a payload has no status".to_owned());
        }
        Ok(self.kept()?.body)
    }

    fn kept(self) -> Result<KeptResult, String> {
        let bytes = bytes_of("body", self.body.as_deref(), self.body_base64.as_deref())?;
        Ok(KeptResult {
            body: Body {
                content_type: self.content_type.into_owned().into(),
                content: Content::new(bytes),
            },
            status: self.status,
        })
    }
}

impl Fact<'_> {
    fn read(self) -> Result<HistoryEntry, &'static str> {
        Ok(HistoryEntry {
            at: Timestamp::from_millis(self.at_ms),
            event: Event::ALL
                .into_iter()
                .find(|event| event.name() == self.event)
                .ok_or("there is no such event")?,
            token: token(self.token)?,
            attempt: self.attempt,
            by: kept(self.by),
        })
    }
}
