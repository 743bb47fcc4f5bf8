//! What a script expects of an answer, and whether the answer is that.

use std::collections::BTreeMap;

use onced::model::time::{Span, Timestamp};

use super::answer::{Answer, Value};
use super::words::{Word, is_placeholder};

/// The values that a case has given names to.
pub(super) type Names = BTreeMap<String, Vec<u8>>;

/// The right side of a step.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    outcome: String,
    facts: Vec<Fact>,
}

#[derive(Clone, Debug)]
enum Fact {
    /// `-name`
    Missing(String),
    /// `name=value`
    Equals(String, Vec<u8>),
    /// `name=T1`: the first time it gives the name, later it compares.
    Named(String, String),
    /// `name=now+10s`
    At(String, Offset),
    /// `name=now+8s..now+12s`
    Between(String, Offset, Offset),
    /// `name=8000..12000`
    Within(String, u64, u64),
    /// `T2>T1`
    Greater(String, String),
}

/// An instant, by how many milliseconds it is after now.
#[derive(Clone, Copy, Debug)]
struct Offset(i64);

impl Expected {
    pub(super) fn parse(words: &[Word]) -> Result<Expected, String> {
        let (first, rest) = words.split_first().ok_or("nothing is expected")?;
        if first.name.is_some() {
            return Err("the first word expected is the outcome".into());
        }
        let facts = rest.iter().map(Fact::parse).collect::<Result<_, _>>()?;
        Ok(Expected {
            outcome: first.text()?.to_owned(),
            facts,
        })
    }

    /// Compares, and gives names.
    ///
    /// # Errors
    /// What was expected and what there is, of the first fact that does not hold.
    pub(super) fn check(
        &self,
        answer: &Answer,
        now: Timestamp,
        names: &mut Names,
    ) -> Result<(), (String, String)> {
        let outcome = &self.outcome;
        if answer.outcome != *outcome {
            return Err((outcome.clone(), answer.outcome.clone()));
        }
        for fact in &self.facts {
            if !fact.holds(&answer.members, now, names) {
                let expected = format!("{outcome} {}", fact.describe(now, names));
                return Err((
                    expected,
                    format!("{outcome} {}", fact.found(&answer.members)),
                ));
            }
        }
        Ok(())
    }
}

impl Fact {
    fn parse(word: &Word) -> Result<Fact, String> {
        let Some(path) = word.name.clone() else {
            let text = word.text()?;
            if let Some(path) = text.strip_prefix('-') {
                return Ok(Fact::Missing(path.to_owned()));
            }
            return match text.split_once('>') {
                Some((a, b)) if is_placeholder(a) && is_placeholder(b) => {
                    Ok(Fact::Greater(a.to_owned(), b.to_owned()))
                }
                _ => Err(format!("expected name=value, -name or T2>T1, found {text}")),
            };
        };
        if let Some(name) = word.placeholder() {
            return Ok(Fact::Named(path, name.to_owned()));
        }
        if !word.bare {
            return Ok(Fact::Equals(path, word.bytes.clone()));
        }
        let text = word.text()?;
        if text == "null" {
            return Ok(Fact::Missing(path));
        }
        let begins =
            |from: &str| from.starts_with("now") || from.starts_with(|c: char| c.is_ascii_digit());
        if let Some((from, to)) = text.split_once("..").filter(|(from, _)| begins(from)) {
            return match (Offset::parse(from)?, Offset::parse(to)?) {
                (Some(from), Some(to)) => Ok(Fact::Between(path, from, to)),
                _ => {
                    let number =
                        |text: &str| text.parse().map_err(|_| format!("not a number: {text}"));
                    Ok(Fact::Within(path, number(from)?, number(to)?))
                }
            };
        }
        Ok(match Offset::parse(text)? {
            Some(offset) => Fact::At(path, offset),
            None => Fact::Equals(path, word.bytes.clone()),
        })
    }

    fn holds(&self, members: &Value, now: Timestamp, names: &mut Names) -> bool {
        let written = |path: &str| members.find(path).map(Value::written);
        match self {
            Fact::Missing(path) => members.find(path).is_none(),
            Fact::Equals(path, value) => written(path).as_ref() == Some(value),
            Fact::Named(path, name) => match (written(path), names.get(name)) {
                (None, _) => false,
                (Some(value), Some(known)) => value == *known,
                (Some(value), None) => {
                    names.insert(name.clone(), value);
                    true
                }
            },
            Fact::At(path, offset) => written(path) == Some(offset.from(now).into_bytes()),
            // RFC 3339 texts of one length are in order.
            Fact::Between(path, from, to) => written(path).is_some_and(|value| {
                (from.from(now).into_bytes()..=to.from(now).into_bytes()).contains(&value)
            }),
            Fact::Within(path, from, to) => written(path)
                .and_then(|value| number(&value))
                .is_some_and(|value| (*from..=*to).contains(&value)),
            Fact::Greater(a, b) => match (names.get(a), names.get(b)) {
                (Some(a), Some(b)) => number(a).zip(number(b)).map_or(a > b, |(a, b)| a > b),
                _ => false,
            },
        }
    }

    /// What the answer says where this was expected.
    fn found(&self, members: &Value) -> String {
        let (Fact::Missing(path)
        | Fact::Equals(path, _)
        | Fact::Named(path, _)
        | Fact::At(path, _)
        | Fact::Between(path, ..)
        | Fact::Within(path, ..)) = self
        else {
            return "not so".to_owned();
        };
        let value = members.find(path);
        value.map_or(format!("-{path}"), |value| format!("{path}={value}"))
    }

    /// With everything in it that the script leaves to be computed.
    fn describe(&self, now: Timestamp, names: &Names) -> String {
        let known = |name: &str| {
            names.get(name).map_or("not given yet".to_owned(), |value| {
                value.escape_ascii().to_string()
            })
        };
        match self {
            Fact::Missing(path) => format!("-{path}"),
            Fact::Equals(path, value) => format!("{path}={}", Value::Text(value.clone())),
            Fact::Named(path, name) => format!("{path}={name} ({})", known(name)),
            Fact::At(path, offset) => format!("{path}={}", offset.from(now)),
            Fact::Between(path, from, to) => format!("{path}={}..{}", from.from(now), to.from(now)),
            Fact::Within(path, from, to) => format!("{path}={from}..{to}"),
            Fact::Greater(a, b) => format!("{a}>{b} ({a} is {}, {b} is {})", known(a), known(b)),
        }
    }
}

impl Offset {
    /// `now`, `now+10s`, `now-10s`; `None` where it does not begin so.
    fn parse(text: &str) -> Result<Option<Offset>, String> {
        let Some(rest) = text.strip_prefix("now") else {
            return Ok(None);
        };
        let span = |text: &str| {
            let span = Span::parse(text).map_err(|error| format!("{text}: {error}"))?;
            i64::try_from(span.as_millis()).map_err(|_| format!("too long: {text}"))
        };
        match (rest.strip_prefix('+'), rest.strip_prefix('-')) {
            _ if rest.is_empty() => Ok(Some(Offset(0))),
            (Some(after), _) => Ok(Some(Offset(span(after)?))),
            (_, Some(before)) => Ok(Some(Offset(-span(before)?))),
            _ => Err(format!("not an instant: {text}; quote it if it is a text")),
        }
    }

    fn from(self, now: Timestamp) -> String {
        Timestamp::from_millis(now.as_millis().saturating_add_signed(self.0)).to_string()
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
