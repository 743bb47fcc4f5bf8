//! The Redis face in-process, in both versions of its protocol.

use bytes::{Buf, BytesMut};
use std::sync::Arc;

use onced::model::policy::Policy;
use onced::model::time::{Span, Timestamp};
use onced::resp::{Face, Options, Session};

use super::answer::{Answer, Value};
use super::engine::Place;
use super::runner::Driver;
use super::script::Request;
use super::strings::integer;

/// A session over an engine of its own.
pub(super) struct Resp {
    place: Place,
    session: Session,
    version: u8,
}

impl Resp {
    pub(super) fn new(version: u8) -> Resp {
        let face = Arc::new(Face::new(Options::default()));
        let session = Session::new(face, "script".to_owned());
        let mut resp = Resp {
            place: Place::new(),
            session,
            version,
        };
        resp.send(&[b"HELLO".to_vec(), version.to_string().into_bytes()]);
        resp
    }

    fn send(&mut self, words: &[Vec<u8>]) -> Reply {
        let mut input = BytesMut::new();
        input.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            input.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            input.extend_from_slice(word);
            input.extend_from_slice(b"\r\n");
        }
        let mut output = BytesMut::new();
        let engine = self.place.engine();
        self.place
            .wait(self.session.serve(&engine, &mut input, &mut output));
        let reply = Reply::read(&mut output);
        assert!(
            input.is_empty() && output.is_empty(),
            "more than one reply: {output:?}"
        );
        reply
    }

    fn answer(&self, reply: Reply) -> Answer {
        match reply {
            Reply::Error(text) => Answer::bad_input(&text),
            reply => {
                let is_map = matches!(reply, Reply::Map(_));
                assert_eq!(
                    is_map,
                    self.version == 3,
                    "answers are maps in version 3, else arrays"
                );
                let members = map(reply);
                let outcome = members.get("outcome").map(Value::written);
                let outcome =
                    outcome.map_or("ok".to_owned(), |bytes| String::from_utf8(bytes).unwrap());
                Answer { outcome, members }
            }
        }
    }
}

impl Driver for Resp {
    fn set_policy(&mut self, namespace: &str, policy: Policy) {
        self.place.set_policy(namespace, policy);
    }

    fn advance(&mut self, span: Span) {
        self.place.advance(span);
    }

    fn now(&self) -> Timestamp {
        self.place.now()
    }

    fn run(&mut self, request: &Request) -> Answer {
        if !request.redis.is_empty() {
            return string_answer(self.send(&request.redis));
        }
        let reply = self.send(&words(request));
        self.answer(reply)
    }
}

/// A verb of claims in this protocol's words.
fn words(request: &Request) -> Vec<Vec<u8>> {
    let verb = format!("ONCE.{}", request.verb.to_ascii_uppercase());
    let mut words = vec![verb.into_bytes(), request.key.clone()];
    words.extend(
        ["token", "generation"]
            .iter()
            .filter_map(|name| request.options.get(*name))
            .cloned(),
    );
    if request.namespace != "default" {
        words.extend([b"NS".to_vec(), request.namespace.clone().into_bytes()]);
    }
    for (name, value) in &request.options {
        let word = match name.as_str() {
            "max_attempts" => "MAXATTEMPTS",
            "on_lease_end" => "ONLEASEEND",
            "claim_id" => "ID",
            "fingerprint" => "FP",
            "retry_in" => "RETRY",
            "lease" | "retention" | "owner" | "payload" | "type" | "result" | "status"
            | "error" => name,
            "store" | "force" | "bury" => {
                if value == b"true" {
                    words.push(name.to_ascii_uppercase().into_bytes());
                }
                continue;
            }
            "mode" => {
                if value == b"once" {
                    words.push(b"ONCE".to_vec());
                }
                continue;
            }
            "token" | "generation" => continue,
            other => panic!("the Redis protocol has no {other}"),
        };
        let millis = match name.as_str() {
            "lease" | "retention" | "retry_in" => millis(value),
            _ => value.clone(),
        };
        words.extend([word.to_ascii_uppercase().into_bytes(), millis]);
    }
    words
}

/// Durations are whole milliseconds here; what is none stays as it stands.
fn millis(text: &[u8]) -> Vec<u8> {
    let span = std::str::from_utf8(text)
        .ok()
        .and_then(|text| Span::parse(text).ok());
    span.map_or(text.to_vec(), |span| {
        span.as_millis().to_string().into_bytes()
    })
}

/// A reply as it is on the wire.
#[derive(Debug)]
enum Reply {
    Null,
    Status(String),
    Error(String),
    Int(i64),
    Bool(bool),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    fn read(bytes: &mut BytesMut) -> Reply {
        let end = bytes
            .windows(2)
            .position(|pair| pair == b"\r\n")
            .expect("a whole reply");
        let line = String::from_utf8(bytes.split_to(end).to_vec()).unwrap();
        bytes.advance(2);
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        let times = || usize::try_from(count()).unwrap();
        match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(count()),
            "#" => Reply::Bool(rest == "t"),
            "_" => Reply::Null,
            "$" | "*" if count() < 0 => Reply::Null,
            "$" => {
                let bulk = bytes.split_to(times()).to_vec();
                bytes.advance(2);
                Reply::Bulk(bulk)
            }
            "*" => Reply::Array((0..times()).map(|_| Reply::read(bytes)).collect()),
            "%" => Reply::Map(
                (0..times())
                    .map(|_| (Reply::read(bytes), Reply::read(bytes)))
                    .collect(),
            ),
            _ => panic!("not a reply: {line}"),
        }
    }
}

fn string_answer(reply: Reply) -> Answer {
    match reply {
        Reply::Null => Answer::new("nil"),
        Reply::Status(text) => Answer::new(&text),
        Reply::Error(text) => {
            let word = text.split(' ').next().unwrap_or_default();
            Answer::new(word).with("detail", Value::text(&text))
        }
        Reply::Int(number) => integer(number),
        Reply::Bulk(bytes) => Answer::new("value").with("value", Value::Text(bytes)),
        other => panic!("not a reply to a string command: {other:?}"),
    }
}

/// A map, or the flat array that stands for one in version 2.
fn map(reply: Reply) -> Value {
    let pairs = match reply {
        Reply::Map(pairs) => pairs,
        Reply::Array(items) => {
            assert!(items.len() % 2 == 0, "names and values: {items:?}");
            let mut items = items.into_iter();
            std::iter::from_fn(|| items.next().zip(items.next())).collect()
        }
        other => panic!("not a map: {other:?}"),
    };
    let member = |(name, reply): (Reply, Reply)| {
        let Reply::Bulk(name) = name else {
            panic!("not a name: {name:?}")
        };
        let name = String::from_utf8(name).unwrap();
        let value = value(&name, reply);
        (name, value)
    };
    Value::Map(pairs.into_iter().map(member).collect())
}

/// A member's value. Version 2 has no truths and no maps, so the name says what is one.
fn value(name: &str, reply: Reply) -> Value {
    match (name, reply) {
        ("orphaned" | "effect_announced", Reply::Int(number)) => Value::text(number == 1),
        ("history", Reply::Array(items)) => Value::List(items.into_iter().map(map).collect()),
        (_, reply @ (Reply::Map(_) | Reply::Array(_))) => map(reply),
        (_, Reply::Bool(truth)) => Value::text(truth),
        (_, Reply::Int(number)) => Value::text(number),
        (_, Reply::Bulk(bytes)) => Value::Text(bytes),
        (_, other) => panic!("{name} is {other:?}"),
    }
}
