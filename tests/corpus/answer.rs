//! What a driver answers, in one form for all of them.

use onced::model::body::{Body, Content};
use onced::model::key::RecordKey;
use onced::model::outcome::{Field, Fields, Outcome};

/// An outcome and its members.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) outcome: String,
    pub(super) members: Value,
}

/// A member. Numbers, truths and instants are texts here, as a script writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Text(Vec<u8>),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Answer {
    pub(super) fn new(outcome: &str) -> Answer {
        Answer {
            outcome: outcome.to_owned(),
            members: Value::Map(Vec::new()),
        }
    }

    pub(super) fn with(mut self, name: &str, value: Value) -> Answer {
        self.members.put(name, value);
        self
    }

    /// Refused before there was a command, in a face's words.
    pub(super) fn bad_input(detail: &str) -> Answer {
        Answer::new("bad_input").with("detail", Value::text(detail))
    }

    /// The outcome of the model, as every face words it.
    pub(super) fn of(key: &RecordKey, outcome: &Outcome) -> Answer {
        let mut members = named(key);
        members.extend(map(&outcome.fields()));
        Answer {
            outcome: outcome.verdict.name().to_owned(),
            members: Value::Map(members),
        }
    }

    /// A page of a listing.
    pub(super) fn page(records: &[(RecordKey, Outcome)], next: Option<&[u8]>) -> Answer {
        let record = |(key, outcome): &(RecordKey, Outcome)| {
            let mut members = named(key);
            members.extend(map(&outcome.fields()));
            Value::Map(members)
        };
        Answer::new("ok")
            .with("records", Value::List(records.iter().map(record).collect()))
            .with(
                "next",
                next.map_or(Value::Null, |next| Value::Text(next.to_vec())),
            )
    }
}

fn named(key: &RecordKey) -> Vec<(String, Value)> {
    vec![
        ("namespace".to_owned(), Value::text(key.namespace())),
        ("key".to_owned(), Value::Text(key.key().to_vec())),
    ]
}

fn map(fields: &Fields) -> Vec<(String, Value)> {
    fields
        .iter()
        .map(|(name, field)| ((*name).to_owned(), Value::of(field)))
        .collect()
}

impl Value {
    pub(super) fn text(text: impl ToString) -> Value {
        Value::Text(text.to_string().into_bytes())
    }

    fn of(field: &Field) -> Value {
        match field {
            Field::Null | Field::Handed(None) => Value::Null,
            Field::Bool(value) => Value::text(value),
            Field::Int(value) => Value::text(value),
            Field::Text(value) => Value::text(value),
            Field::Time(value) => Value::text(value),
            Field::Body { body, status } => Value::of_body(body, *status),
            Field::Handed(Some(content)) => bytes(content),
            Field::Map(fields) => Value::Map(map(fields)),
            Field::List(fields) => Value::List(fields.iter().map(Value::of).collect()),
        }
    }

    fn of_body(body: &Body, status: Option<u16>) -> Value {
        Value::Map(vec![
            ("content_type".to_owned(), Value::text(&body.content_type)),
            ("status".to_owned(), status.map_or(Value::Null, Value::text)),
            ("size".to_owned(), Value::text(body.content.len())),
            ("body".to_owned(), bytes(&body.content)),
        ])
    }

    /// Sets a member of a map.
    pub(super) fn put(&mut self, name: &str, value: Value) {
        let Value::Map(members) = self else {
            panic!("no members: {self}")
        };
        members.retain(|(known, _)| known != name);
        members.push((name.to_owned(), value));
    }

    /// A member of a map, a place of a list (`0`, `last`). What is null is not there.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let found = match self {
            Value::Map(members) => members
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value),
            Value::List(items) if name == "last" => items.last(),
            Value::List(items) => items.get(name.parse::<usize>().ok()?),
            Value::Null | Value::Text(_) => None,
        };
        found.filter(|value| **value != Value::Null)
    }

    /// The member that a path with dots leads to.
    pub(super) fn find(&self, path: &str) -> Option<&Value> {
        path.split('.')
            .try_fold(self, |value, name| value.get(name))
    }

    /// As a script writes it: a history is written as its events, records as their keys, a body as its bytes.
    pub(super) fn written(&self) -> Vec<u8> {
        match self {
            Value::Null => Vec::new(),
            Value::Text(bytes) => bytes.clone(),
            Value::List(items) => items
                .iter()
                .map(Value::written)
                .collect::<Vec<_>>()
                .join(&b","[..]),
            Value::Map(_) => {
                let short = ["event", "key", "body"]
                    .into_iter()
                    .find_map(|name| self.get(name));
                short.map_or_else(|| self.to_string().into_bytes(), Value::written)
            }
        }
    }
}

fn bytes(content: &Content) -> Value {
    content
        .bytes()
        .map_or(Value::Null, |bytes| Value::Text(bytes.to_vec()))
}

/// For messages: long bytes are cut.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Text(bytes) if bytes.len() > 100 => {
                write!(
                    f,
                    "{}.. ({} bytes)",
                    bytes[..100].escape_ascii(),
                    bytes.len()
                )
            }
            Value::Text(bytes) => write!(f, "{}", bytes.escape_ascii()),
            Value::List(items) => {
                f.write_str("[")?;
                items.iter().try_for_each(|item| write!(f, " {item}"))?;
                f.write_str(" ]")
            }
            Value::Map(members) => {
                f.write_str("{")?;
                members
                    .iter()
                    .try_for_each(|(name, value)| write!(f, " {name}={value}"))?;
                f.write_str(" }")
            }
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.outcome)?;
        let Value::Map(members) = &self.members else {
            return Ok(());
        };
        let told = members.iter().filter(|(name, _)| name != "outcome");
        told.into_iter()
            .try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}
