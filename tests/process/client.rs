//! One client of the load: keys of its own, what it was told of each, and what an unanswered request may have
//! made of it.

use super::line::{Line, Silence, Told};
use super::together::Tokens;
use crate::support::Random;
use crate::support::redis::Reply;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// A string, or a counter.
    Text(Vec<u8>),
    /// Claimed; the token of an unanswered claim is not known.
    Held(Option<u64>),
    Retry,
    /// Completed, with this result.
    Done(Vec<u8>),
}

/// A key: what it held when it was last answered for, and what it holds if the request after that counted.
#[derive(Debug)]
struct Key {
    name: String,
    claimed: bool,
    certain: State,
    maybe: Option<State>,
}

const STRINGS: u64 = 30;
const CLAIMS: u64 = 30;

/// A client. It runs one request after the other, so each key has at most one whose answer is missing.
pub struct Client {
    number: u64,
    keys: Vec<Key>,
    random: Random,
    by_http: bool,
    /// Answers it was given.
    pub answers: u64,
}

impl Client {
    pub fn new(number: u64, random: Random) -> Client {
        let key = |kind: &str, claimed: bool, at: u64| Key {
            name: format!("{kind}-{number}-{at}"),
            claimed,
            certain: State::Absent,
            maybe: None,
        };
        let strings = (0..STRINGS).map(|at| key("s", false, at));
        let claims = (0..CLAIMS).map(|at| key("c", true, at));
        Client {
            number,
            keys: strings.chain(claims).collect(),
            random,
            by_http: number.is_multiple_of(2),
            answers: 0,
        }
    }

    /// One request, or one pipeline.
    pub fn step(&mut self, line: &mut Line, tokens: &Tokens) -> Result<(), Silence> {
        match self.random.below(10) {
            0 => self.pipeline(line),
            1..=4 => self.string(line),
            5 => tokens.race(line, self.number, &mut self.random).map(|()| {
                self.answers += 1;
            }),
            _ => self.claim(line, tokens),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let size = [1, 40, 3000][self.random.below(3) as usize];
        let letter = b'a' + self.random.below(26) as u8;
        let mut value = vec![letter; size];
        value.extend(self.random.next().to_string().into_bytes());
        value
    }

    fn string(&mut self, line: &mut Line) -> Result<(), Silence> {
        let at = self.random.below(STRINGS) as usize;
        let value = self.value();
        let choice = self.random.below(5);
        let key = &mut self.keys[at];
        let name = key.name.clone().into_bytes();
        let text = |value: &[u8]| Reply::Bytes(value.to_vec());
        let ok = Reply::Status("OK".into());
        let (words, after, expected): (Vec<&[u8]>, State, Reply) = match (choice, &key.certain) {
            (0, State::Absent) => (vec![b"GET", &name], State::Absent, Reply::Null),
            (0, State::Text(now)) => (vec![b"GET", &name], State::Text(now.clone()), text(now)),
            (1, State::Absent) => (vec![b"DEL", &name], State::Absent, Reply::Integer(0)),
            (1, _) => (vec![b"DEL", &name], State::Absent, Reply::Integer(1)),
            (2, State::Absent) => {
                let words: Vec<&[u8]> = vec![b"SET", &name, &value, b"NX", b"EX", b"7200"];
                (words, State::Text(value.clone()), ok)
            }
            (2, now) => {
                let words: Vec<&[u8]> = vec![b"SET", &name, &value, b"NX", b"EX", b"7200"];
                (words, now.clone(), Reply::Null)
            }
            (3, State::Absent) => (
                vec![b"INCR", &name],
                State::Text(b"1".to_vec()),
                Reply::Integer(1),
            ),
            _ => {
                let words: Vec<&[u8]> = vec![b"SET", &name, &value, b"EX", b"7200"];
                (words, State::Text(value.clone()), ok)
            }
        };
        key.maybe = Some(after.clone());
        let reply = line.command(&words)?;
        assert_eq!(
            reply,
            expected,
            "{}: {:?}",
            key.name,
            words[0].escape_ascii().to_string()
        );
        (key.certain, key.maybe) = (after, None);
        self.answers += 1;
        Ok(())
    }

    /// Writes many keys at once: each reply counts for its own.
    fn pipeline(&mut self, line: &mut Line) -> Result<(), Silence> {
        let first = self.random.below(STRINGS - 10) as usize;
        let values: Vec<Vec<u8>> = (0..10).map(|_| self.value()).collect();
        let keys = &mut self.keys[first..first + 10];
        let names: Vec<Vec<u8>> = keys
            .iter()
            .map(|key| key.name.clone().into_bytes())
            .collect();
        for (key, value) in keys.iter_mut().zip(&values) {
            key.maybe = Some(State::Text(value.clone()));
        }
        let command = |(name, value): (&'_ Vec<u8>, &'_ Vec<u8>)| (name.clone(), value.clone());
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = names.iter().zip(&values).map(command).collect();
        let commands: Vec<Vec<&[u8]>> = pairs
            .iter()
            .map(|(name, value)| vec![&b"SET"[..], name, value, b"EX", b"7200"])
            .collect();
        let mut silence = None;
        for (key, reply) in keys.iter_mut().zip(line.pipeline(&commands)) {
            match reply {
                Ok(reply) => {
                    assert_eq!(reply, Reply::Status("OK".into()));
                    key.certain = key.maybe.take().unwrap();
                    self.answers += 1;
                }
                Err(why) => silence = Some(why),
            }
        }
        silence.map_or(Ok(()), Err)
    }

    fn claim(&mut self, line: &mut Line, tokens: &Tokens) -> Result<(), Silence> {
        let at = (STRINGS + self.random.below(CLAIMS)) as usize;
        let result = self.value();
        let choice = self.random.below(6);
        let by_http = self.by_http;
        let key = &mut self.keys[at];
        let name = key.name.clone();
        // The verb, its token and body, what it makes of the record, what it is answered.
        let (verb, token, body, after, expected) = match (&key.certain, choice) {
            (State::Absent | State::Retry, _) => {
                ("claim", None, &[][..], State::Held(None), "acquired")
            }
            (State::Done(now), 0) => ("forget", None, &[][..], State::Absent, {
                let _ = now;
                "forgotten"
            }),
            (State::Done(now), _) => ("claim", None, &[][..], State::Done(now.clone()), "done"),
            (State::Held(token), 0) => ("fail", *token, &[][..], State::Retry, "failed"),
            (State::Held(token), 1) => ("renew", *token, &[][..], State::Held(*token), "renewed"),
            (State::Held(token), 2) => ("claim", None, &[][..], State::Held(*token), "busy"),
            (State::Held(token), _) => {
                let after = State::Done(result.clone());
                ("complete", *token, &result[..], after, "completed")
            }
            (State::Text(_), _) => panic!("{name} is a string"),
        };
        key.maybe = Some(after.clone());
        let before = tokens.highest();
        let Told { outcome, token } = line.verb(by_http, &name, verb, token, body)?;
        assert_eq!(outcome, expected, "{name}: {verb} on {:?}", key.certain);
        key.maybe = None;
        key.certain = after;
        if outcome == "acquired" {
            let token = token.unwrap();
            tokens.granted(&name, token, before);
            key.certain = State::Held(Some(token));
        }
        self.answers += 1;
        Ok(())
    }

    /// Looks at every key after a new start: it holds what was answered, or what the one unanswered request
    /// makes of it, and nothing else. Goes on from there.
    pub fn settle(&mut self, line: &mut Line) {
        for key in &mut self.keys {
            let name = key.name.clone();
            let found = if key.claimed {
                let record = line.record(&name).unwrap();
                match record["state"].as_str() {
                    Some("pending") => State::Held(record["token"].as_u64()),
                    Some("retry") => State::Retry,
                    Some("done") => State::Done(line.result(&name)),
                    None if record["outcome"] == "not_found" => State::Absent,
                    _ => panic!("{name}: {record}"),
                }
            } else {
                match line.command(&[b"GET", name.as_bytes()]).unwrap() {
                    Reply::Null => State::Absent,
                    Reply::Bytes(bytes) => State::Text(bytes),
                    other => panic!("{name}: {other:?}"),
                }
            };
            let is = |expected: &State| match (expected, &found) {
                (State::Held(None), State::Held(Some(_))) => true,
                (expected, found) => expected == found,
            };
            assert!(
                is(&key.certain) || key.maybe.as_ref().is_some_and(is),
                "{name} holds {found:?}; it was answered that it holds {:?}, and without an answer {:?}",
                key.certain,
                key.maybe
            );
            key.certain = found;
            key.maybe = None;
        }
    }
}
