//! Redis string commands on one key, for drivers that do not speak Redis: one key space on every face.

use bytes::Bytes;

use onced::model::body::Content;
use onced::model::command::{
    Command, Comparand, Compare, ExpireWhen, Expiry, Set, SetWhen, StringVerb, Verb,
};
use onced::model::key::RecordKey;
use onced::model::outcome::{Outcome, StringReply, Verdict};
use onced::model::time::Span;

use super::answer::{Answer, Value};
use super::script::Request;

/// The command, by its words.
pub(super) fn command(request: &Request) -> Command {
    let key = RecordKey::new(&request.namespace, &request.key).unwrap();
    let words: Vec<&str> = request
        .redis
        .iter()
        .map(|word| std::str::from_utf8(word).unwrap())
        .collect();
    let verb = match words.as_slice() {
        ["SET", _, _, options @ ..] => StringVerb::Set(Box::new(set(&request.redis[2], options))),
        ["DEL", _] => StringVerb::Delete { when: None },
        ["DELEX", _, word, _] => StringVerb::Delete {
            when: Some(compare(word, &request.redis[3])),
        },
        ["DELIFEQ", _, _] => StringVerb::Delete {
            when: Some(compare("IFEQ", &request.redis[2])),
        },
        ["DIGEST", _] => StringVerb::Digest,
        ["INCR", _] => StringVerb::Add(1),
        ["PEXPIRE", _, span] => StringVerb::Expire {
            to: Expiry::In(Span::parse(span).unwrap()),
            when: ExpireWhen::default(),
        },
        ["PERSIST", _] => StringVerb::Expire {
            to: Expiry::Never,
            when: ExpireWhen::default(),
        },
        ["GET" | "EXISTS" | "PTTL" | "TYPE", _] => StringVerb::Read,
        other => panic!("not a command of scripts: {other:?}"),
    };
    Command::new(key, Verb::String(verb))
}

fn compare(word: &str, with: &[u8]) -> Compare {
    let digest = || u64::from_str_radix(std::str::from_utf8(with).unwrap(), 16).unwrap();
    let with = match word {
        "IFEQ" | "IFNE" => Comparand::Value(Content::new(Bytes::copy_from_slice(with))),
        "IFDEQ" | "IFDNE" => Comparand::Xxh3(digest()),
        other => panic!("not a condition of scripts: {other}"),
    };
    Compare {
        with,
        equal: word.ends_with("EQ"),
    }
}

fn set(value: &[u8], options: &[&str]) -> Set {
    let mut set = Set {
        value: Bytes::copy_from_slice(value),
        when: None,
        get: false,
        expiry: Expiry::Never,
    };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let mut span = || Span::parse(options.next().unwrap()).unwrap();
        match *option {
            "NX" => set.when = Some(SetWhen::Absent),
            "XX" => set.when = Some(SetWhen::Present),
            "GET" => set.get = true,
            "KEEPTTL" => set.expiry = Expiry::Keep,
            word @ ("IFEQ" | "IFNE" | "IFDEQ" | "IFDNE") => {
                let with = options.next().unwrap();
                set.when = Some(SetWhen::Compare(compare(word, with.as_bytes())));
            }
            "PX" => set.expiry = Expiry::In(span()),
            other => panic!("not an option of scripts: {other}"),
        }
    }
    if matches!(set.when, Some(SetWhen::Absent)) && set.expiry == Expiry::Never {
        set.expiry = Expiry::Retention;
    }
    set
}

/// The reply as Redis words it.
pub(super) fn answer(request: &Request, outcome: &Outcome) -> Answer {
    let Verdict::String(reply) = &outcome.verdict else {
        return Answer::new(outcome.verdict.name());
    };
    let verb = request.verb.as_str();
    let asked_old = request.redis.iter().any(|word| word == b"GET");
    match reply {
        StringReply::WrongType => Answer::new("WRONGTYPE"),
        StringReply::NotAnInteger | StringReply::Overflow | StringReply::InvalidExpiry => {
            Answer::new("ERR")
        }
        StringReply::Deleted(yes) | StringReply::Expired(yes) => integer(i64::from(*yes)),
        StringReply::Number(number) => integer(*number),
        StringReply::Digest(None) => Answer::new("nil"),
        StringReply::Digest(Some(digest)) => {
            Answer::new("value").with("value", Value::text(format!("{digest:016x}")))
        }
        StringReply::Set { .. } if asked_old => old_value(outcome),
        StringReply::Set { written: true } => Answer::new("OK"),
        StringReply::Set { written: false } => Answer::new("nil"),
        StringReply::Read => match verb {
            "GET" => old_value(outcome),
            "EXISTS" => integer(i64::from(outcome.record.is_some())),
            "TYPE" => Answer::new(if outcome.record.is_some() {
                "string"
            } else {
                "none"
            }),
            _ => integer(ttl(outcome)),
        },
    }
}

fn ttl(outcome: &Outcome) -> i64 {
    match &outcome.record {
        None => -2,
        Some(shown) => shown.record.expires_at.map_or(-1, |end| {
            i64::try_from(end.since(outcome.now.time).as_millis()).unwrap()
        }),
    }
}

fn old_value(outcome: &Outcome) -> Answer {
    match outcome.string_value() {
        Err(_) => Answer::new("WRONGTYPE"),
        Ok(None) => Answer::new("nil"),
        Ok(Some(content)) => {
            let bytes = content
                .bytes()
                .map(|bytes| bytes.to_vec())
                .unwrap_or_default();
            Answer::new("value").with("value", Value::Text(bytes))
        }
    }
}

pub(super) fn integer(number: i64) -> Answer {
    Answer::new("integer").with("value", Value::text(number))
}
