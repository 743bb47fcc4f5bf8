//! String commands (SPEC 7): options in, one question for each key out.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use super::{Call, Next, Refusal, string_command};
use crate::engine::Unit;
use crate::model::body::Content;
use crate::model::command::{
    Command, Comparand, Compare, ExpireWhen, Expiry, Set, SetWhen, StringVerb,
};
use crate::model::key::RecordKey;
use crate::model::time::{Span, Timestamp};
use crate::resp::NxWithoutExpiry;
use crate::resp::frame::integer;
use crate::resp::render::Answer;

pub(super) fn get(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    call.one(key, StringVerb::Read);
    Ok(Next::Decide(Answer::Value))
}

pub(super) fn strlen(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    call.look(key);
    Ok(Next::Decide(Answer::Length))
}

pub(super) fn mget(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let reads = super::keys::each(call, |key| string_command(key, StringVerb::Read))?;
    let count = reads.len();
    call.units.push(Unit::All(reads));
    Ok(Next::Decide(Answer::Values(count)))
}

pub(super) fn set(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    let value = call.value(2)?;
    let options = SetOptions::parse(call.args.get(3..).unwrap_or_default(), Form::Set)?;
    let expiry = match (options.expiry(call.name)?, options.keep) {
        (Some(expiry), _) => expiry,
        // A set-once that keeps an end has none to keep.
        (None, _) if options.nx => without_expiry(call)?,
        (None, true) => Expiry::Keep,
        (None, false) => Expiry::Never,
    };
    let answer = match options.get {
        true => Answer::OldValue,
        false => Answer::Written,
    };
    let set = Set {
        value,
        when: options.when(),
        get: options.get,
        expiry,
    };
    call.one(key, StringVerb::Set(set.into()));
    Ok(Next::Decide(answer))
}

pub(super) fn setnx(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    let set = Set {
        value: call.value(2)?,
        when: Some(SetWhen::Absent),
        get: false,
        expiry: without_expiry(call)?,
    };
    call.one(key, StringVerb::Set(set.into()));
    Ok(Next::Decide(Answer::WrittenAll(1)))
}

pub(super) fn setex(call: &mut Call<'_>) -> Result<Next, Refusal> {
    set_with_expiry(call, TimeUnit::Seconds)
}

pub(super) fn psetex(call: &mut Call<'_>) -> Result<Next, Refusal> {
    set_with_expiry(call, TimeUnit::Millis)
}

fn set_with_expiry(call: &mut Call<'_>, unit: TimeUnit) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    let number = call.int(2)?;
    let set = plain(
        call.value(3)?,
        positive(number, unit, false).ok_or_else(|| Refusal::expiry(call.name))?,
    );
    call.one(key, set);
    Ok(Next::Decide(Answer::Written))
}

pub(super) fn getset(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    let set = Set {
        value: call.value(2)?,
        when: None,
        get: true,
        expiry: Expiry::Never,
    };
    call.one(key, StringVerb::Set(set.into()));
    Ok(Next::Decide(Answer::OldValue))
}

pub(super) fn getdel(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    call.one(key, StringVerb::Delete { when: None });
    Ok(Next::Decide(Answer::OldValue))
}

/// As in Redis an end that cannot be is an error only where there is a value.
pub(super) fn getex(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    let options = SetOptions::parse(call.args.get(2..).unwrap_or_default(), Form::Get)?;
    let (verb, answer) = match options.expiry(call.name) {
        Err(refusal) => (StringVerb::Read, Answer::RefusedValue(refusal)),
        Ok(None) if !options.persist => (StringVerb::Read, Answer::Value),
        Ok(to) => {
            let to = to.unwrap_or(Expiry::Never);
            let when = ExpireWhen::default();
            (StringVerb::Expire { to, when }, Answer::OldValue)
        }
    };
    call.one(key, verb);
    Ok(Next::Decide(answer))
}

pub(super) fn mset(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let commands = pairs(call, 1..call.args.len(), |value| {
        plain(value, Expiry::Never)
    })?;
    let count = commands.len();
    call.units.push(Unit::All(commands));
    Ok(Next::Decide(Answer::Stored(count)))
}

pub(super) fn msetnx(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let expiry = without_expiry(call)?;
    let commands = pairs(call, 1..call.args.len(), |value| {
        let when = Some(SetWhen::Absent);
        let set = Set {
            value,
            when,
            get: false,
            expiry,
        };
        StringVerb::Set(set.into())
    })?;
    let count = commands.len();
    call.units.push(Unit::All(commands));
    Ok(Next::Decide(Answer::WrittenAll(count)))
}

/// `MSETEX numkeys key value .. [NX|XX] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]`, of Redis 8.4.
pub(super) fn msetex(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let count = integer(call.arg(1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(Refusal::new("ERR invalid numkeys value"))?;
    let end = count.saturating_mul(2).saturating_add(2);
    let options = call
        .args
        .get(end..)
        .ok_or(Refusal::new("ERR wrong number of key-value pairs"))?;
    let options = SetOptions::parse(options, Form::SetMany)?;
    let expiry = match (options.expiry(call.name)?, options.keep) {
        (Some(expiry), _) => expiry,
        (None, _) if options.nx => without_expiry(call)?,
        (None, true) => Expiry::Keep,
        (None, false) => Expiry::Never,
    };
    let when = options.when();
    let commands = pairs(call, 2..end, |value| {
        let set = Set {
            value,
            when: when.clone(),
            get: false,
            expiry,
        };
        StringVerb::Set(set.into())
    })?;
    let count = commands.len();
    call.units.push(Unit::All(commands));
    Ok(Next::Decide(Answer::WrittenAll(count)))
}

/// `DELEX key [IFEQ v|IFNE v|IFDEQ digest|IFDNE digest]`, of Redis 8.4.
pub(super) fn delex(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let when = match call.args {
        [_, _] => None,
        [_, _, word, with] => Some(compare(word, with)?.ok_or(Refusal::new(
            "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
        ))?),
        _ => return Err(super::wrong_number(call.name)),
    };
    let answer = match when {
        None => Answer::Deleted(1),
        Some(_) => Answer::DeletedIf(Refusal::new(
            "ERR Key should be of string type if conditions are specified",
        )),
    };
    let key = call.key(1)?;
    call.one(key, StringVerb::Delete { when });
    Ok(Next::Decide(answer))
}

/// `DELIFEQ key value`, of Valkey 9.
pub(super) fn delifeq(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    let value = call.args.get(2).cloned().unwrap_or_default();
    let when = Some(Compare {
        with: Comparand::Value(Content::new(value)),
        equal: true,
    });
    call.one(key, StringVerb::Delete { when });
    Ok(Next::Decide(Answer::Deleted(1)))
}

/// `DIGEST key`, of Redis 8.4.
pub(super) fn digest(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    call.one(key, StringVerb::Digest);
    Ok(Next::Decide(Answer::Digest))
}

/// The condition of that name; `None` if there is no such name.
fn compare(word: &[u8], with: &Bytes) -> Result<Option<Compare>, Refusal> {
    let (digest, equal) = match word.to_ascii_uppercase().as_slice() {
        b"IFEQ" => (false, true),
        b"IFNE" => (false, false),
        b"IFDEQ" => (true, true),
        b"IFDNE" => (true, false),
        _ => return Ok(None),
    };
    let with = match digest {
        false => Comparand::Value(Content::new(with.clone())),
        true => Comparand::Xxh3(xxh3(with)?),
    };
    Ok(Some(Compare { with, equal }))
}

/// A digest as `DIGEST` tells it, in any case. Redis takes any 16 characters, and those that are no number
/// then equal nothing: here they are refused, because the mistake would look like a lost race.
fn xxh3(text: &[u8]) -> Result<u64, Refusal> {
    std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()))
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or(Refusal::new(
            "ERR must be exactly 16 hexadecimal characters",
        ))
}

/// Keys and values in turn. Of a key given twice the last value counts, as in Redis.
fn pairs(
    call: &Call<'_>,
    range: Range<usize>,
    verb: impl Fn(Bytes) -> StringVerb,
) -> Result<Vec<Command>, Refusal> {
    if !range.len().is_multiple_of(2) {
        return Err(super::wrong_number(call.name));
    }
    let mut commands: Vec<Command> = Vec::new();
    let mut places: HashMap<RecordKey, usize> = HashMap::new();
    for at in range.step_by(2) {
        let key = call.key(at)?;
        let command = string_command(key.clone(), verb(call.value(at.saturating_add(1))?));
        let place = *places.entry(key).or_insert(commands.len());
        match commands.get_mut(place) {
            Some(earlier) => *earlier = command,
            None => commands.push(command),
        }
    }
    Ok(commands)
}

pub(super) fn incr(call: &mut Call<'_>) -> Result<Next, Refusal> {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_>) -> Result<Next, Refusal> {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let number = call.int(2)?;
    add(call, number)
}

pub(super) fn decrby(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let number = call.int(2)?.checked_neg();
    let number = number.ok_or(Refusal::new("ERR decrement would overflow"))?;
    add(call, number)
}

fn add(call: &mut Call<'_>, number: i64) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    call.one(key, StringVerb::Add(number));
    Ok(Next::Decide(Answer::Number))
}

fn plain(value: Bytes, expiry: Expiry) -> StringVerb {
    let set = Set {
        value,
        when: None,
        get: false,
        expiry,
    };
    StringVerb::Set(set.into())
}

/// When a set-once without an expiry ends.
fn without_expiry(call: &Call<'_>) -> Result<Expiry, Refusal> {
    match call.face.options.nx_without_expiry {
        NxWithoutExpiry::Retention => Ok(Expiry::Retention),
        NxWithoutExpiry::Forever => Ok(Expiry::Never),
        NxWithoutExpiry::Error => Err(Refusal::new(
            "ERR a set-once without expiry is refused here (nx_without_expiry is error); \
             send SET key value NX with EX or PX",
        )),
    }
}

/// What a number of time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Millis,
}

impl TimeUnit {
    /// So many milliseconds, unless that is beyond Redis's numbers.
    pub(super) fn millis(self, number: i64) -> Option<i64> {
        match self {
            TimeUnit::Seconds => number.checked_mul(1000),
            TimeUnit::Millis => Some(number),
        }
    }
}

/// An end that a `SET` may have: later than now, or than the epoch.
fn positive(number: i64, unit: TimeUnit, absolute: bool) -> Option<Expiry> {
    let millis = unit.millis(number).filter(|millis| *millis > 0)?;
    Some(end(u64::try_from(millis).ok()?, absolute))
}

/// So many milliseconds from now, or from the epoch.
pub(super) fn end(millis: u64, absolute: bool) -> Expiry {
    match absolute {
        true => Expiry::At(Timestamp::from_millis(millis)),
        false => Expiry::In(Span::from_millis(millis)),
    }
}

/// The options of `SET` and `GETEX`.
#[derive(Default)]
struct SetOptions<'a> {
    nx: bool,
    xx: bool,
    /// `IFEQ` and kin.
    compare: Option<Compare>,
    get: bool,
    keep: bool,
    persist: bool,
    /// Name and number of `EX` and kin.
    end: Option<(&'static str, &'a [u8])>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Set,
    SetMany,
    Get,
}

impl<'a> SetOptions<'a> {
    /// In any order and case; which exclude each other is Redis's choice, and so is that one may come twice.
    fn parse(mut args: &'a [Bytes], form: Form) -> Result<SetOptions<'a>, Refusal> {
        let mut options = SetOptions::default();
        while let Some((word, rest)) = args.split_first() {
            args = rest;
            let ends = options.end.map(|(name, _)| name);
            let set = form != Form::Get;
            let compares = options.compare.is_some();
            match word.to_ascii_uppercase().as_slice() {
                b"NX" if set && !options.xx && !compares => options.nx = true,
                b"XX" if set && !options.nx && !compares => options.xx = true,
                b"IFEQ" | b"IFNE" | b"IFDEQ" | b"IFDNE" if form == Form::Set => {
                    let (with, rest) = args.split_first().ok_or(Refusal::SYNTAX)?;
                    if compares || options.nx || options.xx {
                        return Err(Refusal::SYNTAX);
                    }
                    options.compare = compare(word, with)?;
                    args = rest;
                }
                b"GET" if form == Form::Set => options.get = true,
                b"KEEPTTL" if set && ends.is_none() => options.keep = true,
                b"PERSIST" if !set && ends.is_none() => options.persist = true,
                word => {
                    let name = ["EX", "PX", "EXAT", "PXAT"]
                        .into_iter()
                        .find(|name| name.as_bytes() == word)
                        .ok_or(Refusal::SYNTAX)?;
                    let (number, rest) = args.split_first().ok_or(Refusal::SYNTAX)?;
                    if options.keep || options.persist || ends.is_some_and(|end| end != name) {
                        return Err(Refusal::SYNTAX);
                    }
                    options.end = Some((name, number));
                    args = rest;
                }
            }
        }
        Ok(options)
    }

    /// The condition that was asked for.
    fn when(&self) -> Option<SetWhen> {
        match &self.compare {
            Some(compare) => Some(SetWhen::Compare(compare.clone())),
            None if self.nx => Some(SetWhen::Absent),
            None => self.xx.then_some(SetWhen::Present),
        }
    }

    /// The end that was asked for.
    fn expiry(&self, command: &str) -> Result<Option<Expiry>, Refusal> {
        let Some((name, number)) = self.end else {
            return Ok(None);
        };
        let number = integer(number).ok_or(Refusal::NOT_AN_INTEGER)?;
        let unit = match name {
            "EX" | "EXAT" => TimeUnit::Seconds,
            _ => TimeUnit::Millis,
        };
        positive(number, unit, name.ends_with("AT"))
            .map(Some)
            .ok_or_else(|| Refusal::expiry(command))
    }
}
