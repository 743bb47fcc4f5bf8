//! Outcomes as replies: those of Redis's string commands, and the members of SPEC 6 and 7.

use crate::engine::Unavailable;
use crate::model::body::{Body, Content};
use crate::model::command::Expiry;
use crate::model::key::RecordKey;
use crate::model::outcome::{Field, Fields, NotAString, Outcome, StringReply, Verdict};
use crate::model::time::Now;
use crate::resp::commands::Refusal;
use crate::resp::reply::Writer;

/// What one command was answered by the engine.
pub(super) type Decision = Result<Outcome, Unavailable>;

/// How the outcomes of one request become its reply.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The members of the answer, for this record.
    Members(RecordKey),
    /// The value, or null.
    Value,
    /// The value, or null; where there is one, this refusal instead.
    RefusedValue(Refusal),
    /// So many values, each possibly null.
    Values(usize),
    /// The length of the value.
    Length,
    /// The type.
    Kind,
    /// How many of so many are there.
    Present(usize),
    /// When it ends.
    Ends(Ends),
    /// OK, or null where the condition did not hold.
    Written,
    /// The value before the change, or null.
    OldValue,
    /// 1 if so many were written, else 0.
    WrittenAll(usize),
    /// OK: so many were written.
    Stored(usize),
    /// How many of so many were removed.
    Deleted(usize),
    /// The same of one; this refusal where it is not a string.
    DeletedIf(Refusal),
    /// The value's XXH3, or null.
    Digest,
    /// 1 if there was something and the condition held, else 0.
    Expired(Expiry),
    /// The new value.
    Number,
}

/// How an end is told: `TTL` and kin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// In seconds, rounded as Redis does; else in milliseconds.
    pub(super) seconds: bool,
    /// As an instant of the wall clock; else counted from now.
    pub(super) absolute: bool,
}

/// The error for a command that has no outcome. The first word decides what clients do by themselves:
/// `TRYAGAIN` is repeated by go-redis, and nothing was stored. `MISCONF`, Redis's word for a disk that takes no
/// writes, is repeated by none: it is left to people. A stopping engine gets that word too, and not `LOADING`,
/// which ioredis, lettuce, redis-py and go-redis repeat: what was asked may have been stored, and a `SET .. NX`
/// sent again by itself would then tell its winner that somebody else has the key.
pub(super) fn unavailable(error: Unavailable) -> Vec<u8> {
    let text = match error {
        Unavailable::Full => format!("MISCONF {error}"),
        Unavailable::Overloaded | Unavailable::Crowded | Unavailable::Waiters => {
            format!("TRYAGAIN {error}")
        }
        Unavailable::TooLarge
        | Unavailable::Reads
        | Unavailable::Namespaces
        | Unavailable::Configured
        | Unavailable::Program(_)
        | Unavailable::Defect => {
            format!("ERR {error}")
        }
        Unavailable::Stopping => {
            "MISCONF the server is stopping, and what was asked may have been \
                                  stored; look before sending it again"
                .to_owned()
        }
    };
    text.into_bytes()
}

/// No value of a decision may be missing, but a body in memory no longer is a defect that should be told.
const NOT_AT_HAND: &str =
    "ERR the bytes of this value were not read; this is a defect of onced, please report it";

impl Answer {
    /// How many decisions it takes.
    pub(super) fn width(&self) -> usize {
        match self {
            Answer::Values(count)
            | Answer::Present(count)
            | Answer::WrittenAll(count)
            | Answer::Stored(count)
            | Answer::Deleted(count) => *count,
            _ => 1,
        }
    }

    /// Writes the reply. `command` is its name for texts.
    pub(super) fn write(&self, decisions: &[Decision], command: &str, reply: &mut Writer<'_>) {
        if let Some(error) = decisions.iter().find_map(|d| refusal(d, command)) {
            return match self {
                Answer::DeletedIf(refusal) if is_wrong_type(decisions) => {
                    reply.error(refusal.text())
                }
                _ => reply.error(&error),
            };
        }
        let outcomes = || decisions.iter().flatten();
        let Some(first) = outcomes().next() else {
            return reply.error(
                b"ERR the command was not decided; this is a defect of onced, please report it",
            );
        };
        match self {
            Answer::Members(key) => members(first, key, reply),
            Answer::Value | Answer::OldValue => value(first, reply),
            Answer::RefusedValue(refusal) => match first.string_value() {
                Ok(Some(_)) => reply.error(refusal.text()),
                _ => value(first, reply),
            },
            Answer::Values(count) => {
                reply.array(*count);
                for outcome in outcomes() {
                    match outcome.string_value() {
                        Ok(Some(content)) => bytes(&content, reply),
                        Ok(None) | Err(NotAString) => reply.null(),
                    }
                }
            }
            Answer::Length => match first.string_value() {
                Ok(content) => reply.uint(content.map_or(0, |content| content.len() as u64)),
                Err(error) => reply.error(error.to_string().as_bytes()),
            },
            Answer::Kind if first.record.is_some() => reply.status("string"),
            Answer::Kind => reply.status("none"),
            Answer::Present(_) => {
                reply.uint(
                    outcomes()
                        .filter(|outcome| outcome.record.is_some())
                        .count() as u64,
                );
            }
            Answer::Ends(ends) => reply.int(ends.of(first)),
            Answer::Written if written(first) => reply.status("OK"),
            Answer::Written => reply.null(),
            Answer::WrittenAll(_) => reply.uint(outcomes().all(written).into()),
            Answer::Stored(_) => reply.status("OK"),
            Answer::Digest => match first.verdict {
                Verdict::String(StringReply::Digest(Some(digest))) => {
                    reply.bulk(format!("{digest:016x}").as_bytes());
                }
                _ => reply.null(),
            },
            Answer::Deleted(_) | Answer::DeletedIf(_) => {
                let removed = Verdict::String(StringReply::Deleted(true));
                let count = outcomes().filter(|outcome| outcome.verdict == removed);
                reply.uint(count.count() as u64);
            }
            // Redis looks at the number before it looks for the key.
            Answer::Expired(to) if first.record.is_none() && beyond(*to, first.now) => {
                reply.error(invalid_expiry(command).as_bytes());
            }
            Answer::Expired(_) => {
                reply.uint((first.verdict == Verdict::String(StringReply::Expired(true))).into());
            }
            Answer::Number => match first.verdict {
                Verdict::String(StringReply::Number(number)) => reply.int(number),
                _ => reply.null(),
            },
        }
    }
}

impl Ends {
    /// -2: no record. -1: no end, or an open record, whose end nobody knows.
    fn of(self, outcome: &Outcome) -> i64 {
        let Some(shown) = &outcome.record else {
            return -2;
        };
        let Some(end) = shown.record.expires_at else {
            return -1;
        };
        let now = outcome.now;
        let millis = match self.absolute {
            true => now.to_wall(end).as_millis(),
            false => end.since(now.time).as_millis(),
        };
        let number = match self.seconds {
            true => millis.saturating_add(500) / 1000,
            false => millis,
        };
        i64::try_from(number).unwrap_or(i64::MAX)
    }
}

/// Whether an end lies beyond Redis's numbers.
fn beyond(end: Expiry, now: Now) -> bool {
    let most = i64::MAX.unsigned_abs();
    match end {
        Expiry::In(span) => now.to_wall(now.time).after(span).as_millis() > most,
        Expiry::At(time) => time.as_millis() > most,
        Expiry::Never | Expiry::Keep | Expiry::Retention => false,
    }
}

fn invalid_expiry(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

/// What makes the whole reply an error.
fn refusal(decision: &Decision, command: &str) -> Option<Vec<u8>> {
    let outcome = match decision {
        Ok(outcome) => outcome,
        Err(error) => return Some(unavailable(*error)),
    };
    let text = match &outcome.verdict {
        Verdict::BadInput(bad) => format!("ERR {bad}"),
        Verdict::OutOfTokens => format!("MISCONF {}", outcome.advice()),
        Verdict::String(StringReply::WrongType) => NotAString.to_string(),
        Verdict::String(StringReply::NotAnInteger) => Refusal::NOT_AN_INTEGER.to_string(),
        Verdict::String(StringReply::Overflow) => {
            "ERR increment or decrement would overflow".to_owned()
        }
        Verdict::String(StringReply::InvalidExpiry) => invalid_expiry(command),
        _ => return None,
    };
    Some(text.into_bytes())
}

fn is_wrong_type(decisions: &[Decision]) -> bool {
    let wrong = Verdict::String(StringReply::WrongType);
    decisions
        .iter()
        .flatten()
        .any(|outcome| outcome.verdict == wrong)
}

fn written(outcome: &Outcome) -> bool {
    outcome.verdict == Verdict::String(StringReply::Set { written: true })
}

fn value(outcome: &Outcome, reply: &mut Writer<'_>) {
    match outcome.string_value() {
        Ok(Some(content)) => bytes(&content, reply),
        Ok(None) => reply.null(),
        Err(error) => reply.error(error.to_string().as_bytes()),
    }
}

fn bytes(content: &Content, reply: &mut Writer<'_>) {
    match content.bytes() {
        Some(bytes) => reply.bulk(bytes),
        None => reply.error(NOT_AT_HAND.as_bytes()),
    }
}

/// The members of an answer: outcome and reason first where there are any, then whose they are.
fn members(outcome: &Outcome, key: &RecordKey, reply: &mut Writer<'_>) {
    let fields = outcome.fields();
    let leads = |name: &str| matches!(name, "outcome" | "reason");
    let (head, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(name, _)| leads(name));
    reply.map(shown(&fields).count().saturating_add(2));
    for (name, field) in head {
        member(name, field, reply);
    }
    reply.bulk(b"namespace");
    reply.bulk(key.namespace().as_bytes());
    reply.bulk(b"key");
    reply.bulk(key.key());
    for (name, field) in rest.into_iter().filter(|(_, field)| !absent(field)) {
        member(name, field, reply);
    }
}

fn member(name: &str, field: &Field, reply: &mut Writer<'_>) {
    reply.bulk(name.as_bytes());
    self::field(field, reply);
}

fn field(field: &Field, reply: &mut Writer<'_>) {
    match field {
        Field::Null | Field::Handed(None) => reply.null(),
        Field::Bool(value) => reply.bool(*value),
        Field::Int(number) => reply.uint(*number),
        Field::Text(text) => reply.bulk(text.as_bytes()),
        Field::Time(time) => reply.bulk(time.to_string().as_bytes()),
        Field::Body { body, status } => self::body(body, *status, reply),
        Field::Handed(Some(content)) => bytes(content, reply),
        Field::Map(fields) => {
            reply.map(shown(fields).count());
            for (name, field) in shown(fields) {
                member(name, field, reply);
            }
        }
        Field::List(fields) => {
            reply.array(fields.len());
            for field in fields {
                self::field(field, reply);
            }
        }
    }
}

/// A payload or result with its facts; without its bytes where they are not at hand.
fn body(body: &Body, status: Option<u16>, reply: &mut Writer<'_>) {
    let content = &body.content;
    let members = [status.is_some(), content.bytes().is_some()];
    let optional = members.iter().filter(|there| **there).count();
    reply.map(optional.saturating_add(2));
    reply.bulk(b"content_type");
    reply.bulk(body.content_type.as_bytes());
    if let Some(status) = status {
        reply.bulk(b"status");
        reply.uint(status.into());
    }
    reply.bulk(b"size");
    reply.uint(content.len() as u64);
    if let Some(bytes) = content.bytes() {
        reply.bulk(b"body");
        reply.bulk(bytes);
    }
}

/// What a Redis answer leaves out.
fn absent(field: &Field) -> bool {
    matches!(field, Field::Null | Field::Handed(None))
}

fn shown(fields: &Fields) -> impl Iterator<Item = &(&'static str, Field)> {
    fields.iter().filter(|(_, field)| !absent(field))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::model::body::LargeContent;
    use crate::resp::reply::Protocol;

    fn written(answer: &Answer, decisions: &[Decision]) -> String {
        let mut out = BytesMut::new();
        answer.write(
            decisions,
            "set",
            &mut Writer::new(&mut out, Protocol::Resp2),
        );
        out.escape_ascii().to_string()
    }

    fn outcome(verdict: Verdict) -> Outcome {
        Outcome {
            verdict,
            record: None,
            removed: false,
            now: Now::default(),
        }
    }

    #[test]
    fn what_was_not_decided_is_an_error_with_a_word_clients_know() {
        for (error, word) in [
            (Unavailable::Full, "-MISCONF the disk"),
            (Unavailable::Overloaded, "-TRYAGAIN the disk"),
            (Unavailable::Waiters, "-TRYAGAIN as many claims wait"),
            (Unavailable::TooLarge, "-ERR more than"),
            (Unavailable::Stopping, "-MISCONF the server"),
        ] {
            for answer in [Answer::Value, Answer::Stored(2), Answer::Deleted(2)] {
                let fine = outcome(Verdict::String(StringReply::Deleted(true)));
                let text = written(&answer, &[Ok(fine), Err(error)]);
                assert!(text.starts_with(word), "{text}");
            }
        }
        let text = written(&Answer::Written, &[Ok(outcome(Verdict::OutOfTokens))]);
        assert!(text.starts_with("-MISCONF every token"), "{text}");
        assert!(written(&Answer::Value, &[]).starts_with("-ERR "));
    }

    #[test]
    fn a_body_that_is_not_at_hand_is_told_and_not_made_up() {
        let content = Content::Large(Box::new(LargeContent {
            size: 5000,
            digest: [0; 32],
            lsn: None,
            bytes: None,
        }));
        let mut out = BytesMut::new();
        let mut reply = Writer::new(&mut out, Protocol::Resp2);
        bytes(&content, &mut reply);
        let content_type = "text/plain".into();
        body(
            &Body {
                content_type,
                content,
            },
            None,
            &mut reply,
        );
        let text = out.escape_ascii().to_string();
        assert!(
            text.starts_with("-ERR the bytes of this value were not read"),
            "{text}"
        );
        assert!(text.ends_with(
            r"*4\r\n$12\r\ncontent_type\r\n$10\r\ntext/plain\r\n$4\r\nsize\r\n:5000\r\n"
        ));
    }
}
