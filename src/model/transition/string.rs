//! Redis string commands on one record (SPEC 7). They change `string` records only, so that a cache flush
//! cannot free payments; what they read of claims is `done` results.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::{Context, Effect, Step};
use crate::model::body::{Body, Content, DEFAULT_CONTENT_TYPE};
use crate::model::command::{Comparand, Compare, ExpireWhen, Expiry, Set, SetWhen, StringVerb};
use crate::model::outcome::{Shown, StringReply, Verdict};
use crate::model::record::{Event, KeptResult, Kind, Record, Retention, State};
use crate::model::time::Timestamp;

/// The last instant a string may end at: what fits Redis's signed milliseconds.
const LAST: u64 = i64::MAX as u64;

pub(super) fn decide(
    context: Context<'_>,
    shown: Option<Shown>,
    verb: &StringVerb,
    by: Option<Box<str>>,
) -> Step {
    match verb {
        StringVerb::Read => context.reply(StringReply::Read, shown),
        StringVerb::Set(set) => decide_set(context, shown, set, by),
        StringVerb::Delete { when } => delete(context, shown, when.as_ref()),
        StringVerb::Expire { to, when } => expire(context, shown, *to, *when),
        StringVerb::Add(number) => add(context, shown, *number, by),
        StringVerb::Digest => digest(context, shown),
    }
}

/// Where a string ends, resolved.
#[derive(Clone, Copy)]
enum End {
    At(Option<Timestamp>),
    Past,
}

/// In this order: an end beyond time, a claim's record, the condition.
fn decide_set(context: Context<'_>, shown: Option<Shown>, set: &Set, by: Option<Box<str>>) -> Step {
    let kept = shown.as_ref().and_then(|shown| shown.record.expires_at);
    let Some(end) = end(context, set.expiry, kept) else {
        return context.reply(StringReply::InvalidExpiry, None);
    };
    let claimed = shown
        .as_ref()
        .is_some_and(|shown| shown.record.kind == Kind::Claim);
    if claimed && (set.get || !matches!(set.when, Some(SetWhen::Absent))) {
        return context.reply(StringReply::WrongType, shown);
    }
    let holds = match &set.when {
        None => true,
        Some(SetWhen::Absent) => shown.is_none(),
        Some(SetWhen::Present) => shown.is_some(),
        Some(SetWhen::Compare(compare)) => match &shown {
            Some(shown) => compare.holds(shown),
            // There is no value, so it cannot be equal, and it does differ.
            None => !compare.equal,
        },
    };
    if !holds {
        return context.reply(StringReply::Set { written: false }, shown);
    }
    write(
        context,
        shown,
        (&set.value, by),
        end,
        StringReply::Set { written: true },
    )
}

fn delete(context: Context<'_>, shown: Option<Shown>, when: Option<&Compare>) -> Step {
    match shown {
        None => context.reply(StringReply::Deleted(false), None),
        Some(shown) if shown.record.kind == Kind::Claim => {
            context.reply(StringReply::WrongType, Some(shown))
        }
        Some(shown) if when.is_some_and(|compare| !compare.holds(&shown)) => {
            context.reply(StringReply::Deleted(false), Some(shown))
        }
        Some(shown) => context.remove(Verdict::String(StringReply::Deleted(true)), shown),
    }
}

fn expire(context: Context<'_>, shown: Option<Shown>, to: Expiry, when: ExpireWhen) -> Step {
    let Some(shown) = shown else {
        return context.reply(StringReply::Expired(false), None);
    };
    if shown.record.kind == Kind::Claim {
        return context.reply(StringReply::WrongType, Some(shown));
    }
    let present = shown.record.expires_at;
    let Some(end) = end(context, to, present) else {
        return context.reply(StringReply::InvalidExpiry, Some(shown));
    };
    let asked = match end {
        End::At(end) => end,
        End::Past => Some(context.now.time),
    };
    let refused = (when.without_end && present.is_some())
        || (when.with_end && present.is_none())
        || (when.later && !later(asked, present))
        || (when.earlier && !later(present, asked))
        || (to == Expiry::Never && present.is_none());
    if refused {
        return context.reply(StringReply::Expired(false), Some(shown));
    }
    let reply = Verdict::String(StringReply::Expired(true));
    let End::At(end) = end else {
        return context.remove(reply, shown);
    };
    let mut record = Record::clone(&shown.record);
    record.set_end(context.now.time, end);
    let mut step = context.put(reply, record);
    step.outcome.record = Some(shown);
    step
}

/// An increment keeps the end and makes a fresh record otherwise, as a write does.
fn add(context: Context<'_>, shown: Option<Shown>, number: i64, by: Option<Box<str>>) -> Step {
    if shown
        .as_ref()
        .is_some_and(|shown| shown.record.kind == Kind::Claim)
    {
        return context.reply(StringReply::WrongType, shown);
    }
    let present = match &shown {
        None => Some(0),
        Some(shown) => value(shown).and_then(|bytes| parse_integer(&bytes)),
    };
    let Some(present) = present else {
        return context.reply(StringReply::NotAnInteger, shown);
    };
    let Some(sum) = present.checked_add(number) else {
        return context.reply(StringReply::Overflow, shown);
    };
    let end = End::At(shown.as_ref().and_then(|shown| shown.record.expires_at));
    write(
        context,
        shown,
        (&Bytes::from(sum.to_string()), by),
        end,
        StringReply::Number(sum),
    )
}

/// Of an open record there is no value that could be named.
fn digest(context: Context<'_>, shown: Option<Shown>) -> Step {
    match &shown {
        Some(shown) if shown.state != State::Done => {
            context.reply(StringReply::WrongType, Some(shown.clone()))
        }
        _ => {
            let digest = shown
                .as_ref()
                .map(|shown| xxh3_64(&value(shown).unwrap_or_default()));
            context.reply(StringReply::Digest(digest), shown)
        }
    }
}

/// Writes a fresh record with that value, by whom it may be known; the answer shows the one before.
fn write(
    context: Context<'_>,
    shown: Option<Shown>,
    (value, by): (&Bytes, Option<Box<str>>),
    end: End,
    reply: StringReply,
) -> Step {
    let End::At(end) = end else {
        // Redis: an absolute end in the past is an OK, and the key is gone.
        let mut step = context.reply(reply, shown);
        if step.outcome.record.is_some() {
            step.effect = Effect::Remove;
        }
        return step;
    };
    let Some(token) = context.token else {
        return context.refuse(Verdict::OutOfTokens, shown);
    };
    let now = context.now.time;
    let mut record = Record::blank(Kind::String, token);
    record.once = true;
    record.attempt = 1;
    record.claimed_at = now;
    let body = Body {
        content_type: DEFAULT_CONTENT_TYPE.into(),
        content: Content::new(value.clone()),
    };
    record.finish(now, Some(KeptResult { body, status: None }));
    record.set_end(now, end);
    record.note(Event::Acquired, now, by.clone());
    record.note(Event::Completed, now, by);
    let mut step = context.put(Verdict::String(reply), record);
    step.outcome.record = shown;
    step.granted = true;
    step
}

/// `None`: beyond representable time.
fn end(context: Context<'_>, expiry: Expiry, kept: Option<Timestamp>) -> Option<End> {
    let now = context.now.time;
    let at = match expiry {
        Expiry::Never => return Some(End::At(None)),
        Expiry::Keep => return Some(End::At(kept)),
        Expiry::Retention => match context.policy.retention {
            Retention::For(span) => now.after(span),
            Retention::Forever => return Some(End::At(None)),
        },
        Expiry::In(span) => now.after(span),
        Expiry::At(wall) => context.now.from_wall(wall),
    };
    match at {
        at if at.as_millis() > LAST => None,
        at if at <= now => Some(End::Past),
        at => Some(End::At(Some(at))),
    }
}

/// Whether `a` ends after `b`; no end is the latest.
fn later(a: Option<Timestamp>, b: Option<Timestamp>) -> bool {
    match (a, b) {
        (None, None) | (Some(_), None) => false,
        (None, Some(_)) => true,
        (Some(a), Some(b)) => a > b,
    }
}

fn value(shown: &Shown) -> Option<Bytes> {
    shown.record.result.as_ref()?.body.content.bytes().cloned()
}

/// A number as Redis reads one: no sign but minus, no blanks, no leading zeros.
fn parse_integer(bytes: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == bytes).then_some(number)
}

impl Compare {
    fn holds(&self, shown: &Shown) -> bool {
        let kept = shown.record.result.as_ref().map(|kept| &kept.body.content);
        let same = match &self.with {
            Comparand::Value(value) => kept == Some(value),
            Comparand::Xxh3(digest) => value(shown).is_some_and(|bytes| xxh3_64(&bytes) == *digest),
        };
        same == self.equal
    }
}

impl Record {
    fn set_end(&mut self, now: Timestamp, end: Option<Timestamp>) {
        self.expires_at = end;
        self.retention = end.map_or(Retention::Forever, |end| Retention::For(end.since(now)));
    }
}

impl Context<'_> {
    fn reply(self, reply: StringReply, shown: Option<Shown>) -> Step {
        self.refuse(Verdict::String(reply), shown)
    }
}
