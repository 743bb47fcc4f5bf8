//! `explain`: the time line of a key, in sentences.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::client::{Request, Server};
use super::events::{self, Wanted};
use super::holder::Key;
use super::{Exit, Failure, show};

/// Tell what happened to a key: who, when, which decision, and why
#[derive(Args, Debug)]
pub(super) struct Explain {
    #[command(flatten)]
    key: Key,

    #[command(flatten)]
    server: Server,
}

impl Explain {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = Request {
            method: "GET",
            path: self.key.path("")?,
            query: Vec::new(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        let answer = self.server.send(&request)?;
        let record = match answer.outcome.as_deref() {
            Some("ok") => serde_json::from_slice(&answer.body).unwrap_or_default(),
            Some("not_found") => Value::Null,
            _ => return events::refused(&answer),
        };
        let wanted = Wanted {
            ns: Some(self.key.namespace().to_owned()),
            key: Some(self.key.bytes().to_vec()),
            ..Wanted::default()
        };
        let mut lines = match self.server.stream(&wanted.request(), wanted.patience())? {
            Ok(lines) => lines,
            Err(answer) => return events::refused(&answer),
        };
        let mut told = Vec::new();
        while let Some(line) = events::next(&mut lines)? {
            if events::lsn(&line).is_none() {
                return events::refused(&events::problem(line));
            }
            told.push(serde_json::from_slice(&line).unwrap_or_default());
        }
        let found = !(record.is_null() && told.is_empty());
        let text = if self.server.json {
            format!("{}\n", json!({"record": record, "events": told}))
        } else {
            let name = show::plain(&Value::String(self.key.shown()));
            text(&name, &record, &told)
        };
        show::page(text.as_bytes())?;
        Ok(if found { Exit::Success } else { Exit::Failure })
    }
}

/// How it stands, then what happened, the oldest first.
fn text(name: &str, record: &Value, events: &[Value]) -> String {
    let mut out = format!("{name}: {}\n", standing(record));
    for fact in timeline(record, events) {
        let (at, count) = (word(&fact, "at"), fact.get("count").and_then(Value::as_u64));
        out.push_str(&format!("{at}  {}", sentence(&fact)));
        match count {
            None | Some(1) => out.push_str(".\n"),
            Some(times) => out.push_str(&format!(", {times} times, here for the last time.\n")),
        }
    }
    if events.is_empty() && record.is_null() {
        out.push_str("The audit trail says nothing of it, as far as it is kept.\n");
    }
    out
}

/// What is so now.
fn standing(record: &Value) -> String {
    if record.is_null() {
        return "there is no record; a claim would be acquired".to_owned();
    }
    let at = |name: &str| word(record, name);
    let orphaned = record.get("orphaned").and_then(Value::as_bool) == Some(true);
    match &*at("state") {
        "pending" if orphaned => format!(
            "pending, and its lease ended at {} without a word from its holder; the next claim takes it over",
            at("lease_expires_at")
        ),
        "pending" => format!(
            "pending: {} holds it until {}",
            who(record.get("owner")),
            at("lease_expires_at")
        ),
        "retry" => format!(
            "the last attempt ended without success; the next may start at {}",
            at("not_before")
        ),
        "done" => match record.get("expires_at").and_then(Value::as_str) {
            Some(expires) => format!("done; claims are duplicates until {expires}"),
            None => "done; claims are duplicates for ever".to_owned(),
        },
        "in_doubt" => "in doubt: its holder vanished, and the side effect may have happened; look at the other \
                       side, then complete, fail or replay it"
            .to_owned(),
        "dead" => "dead: no further attempt is made until somebody replays, resolves or forgets it".to_owned(),
        other => other.to_owned(),
    }
}

/// The events, and before them what the record's history knows and the trail no more.
fn timeline(record: &Value, events: &[Value]) -> Vec<Value> {
    let same = |one: &Value, other: &Value| {
        ["event", "token", "at"]
            .iter()
            .all(|name| one.get(name) == other.get(name))
    };
    let history = record.get("history").and_then(Value::as_array);
    let unknown = history
        .into_iter()
        .flatten()
        .filter(|fact| !events.iter().any(|event| same(event, fact)));
    let mut all: Vec<Value> = unknown.chain(events).cloned().collect();
    // Times are of one form, so their text sorts as they do; what is of one instant stays in its order.
    all.sort_by_key(|fact| word(fact, "at"));
    all
}

fn word(fact: &Value, name: &str) -> String {
    match fact.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(value) => show::plain(value),
    }
}

fn who(by: Option<&Value>) -> String {
    match by {
        Some(by @ Value::String(_)) => show::plain(by),
        _ => "somebody without a name".to_owned(),
    }
}

/// One fact as a sentence, without its end.
fn sentence(fact: &Value) -> String {
    let by = who(fact.get("by"));
    let number = |name: &str| word(fact, name);
    let grant = format!("attempt {}, token {}", number("attempt"), number("token"));
    let token = number("token");
    match (&*word(fact, "event"), &*word(fact, "outcome")) {
        ("acquired", _) => format!("{by} acquired it as new ({grant})"),
        ("taken_over", _) => {
            format!("{by} took it over, because the lease of the holder before had ended ({grant})")
        }
        ("retried", _) => format!("{by} acquired it for another attempt ({grant})"),
        ("acquired_by_replay", _) => {
            format!("{by} acquired it as the first attempt after a replay ({grant})")
        }
        ("lease_ended", _) => {
            format!("The lease of token {token} had ended without a word from its holder")
        }
        ("effect_announced", _) => format!(
            "{by} announced that the side effect was about to happen (token {token}); from here the end of the \
             lease means in doubt"
        ),
        ("completed", _) => format!("{by} completed it (token {token})"),
        ("failed", _) => format!("{by} said that the attempt failed (token {token})"),
        ("buried", _) => format!("{by} put it aside as dead (token {token})"),
        ("released", _) => format!("{by} gave it back: nothing had happened (token {token})"),
        ("replayed", _) => format!("{by} asked for another round"),
        ("completed_by_hand", _) => format!("{by} resolved it as done by hand, without a token"),
        ("failed_by_hand", _) => format!("{by} resolved it as failed by hand, without a token"),
        ("buried_by_hand", _) => format!("{by} put it aside as dead by hand, without a token"),
        ("late_completion", _) => format!(
            "A complete came with the ended token {token}: the work may have been done twice"
        ),
        ("restored", _) => {
            "A backup was restored: whether the work went on after it is not known".to_owned()
        }
        ("claim", "acquired") => format!("{by} asked again for the claim he held, and got it ({grant})"),
        ("claim", "busy") => "A claim was refused, because another holder was at work".to_owned(),
        ("claim", "backoff") => "A claim was refused, because the next attempt was not due".to_owned(),
        ("claim", "done") => "A claim was a duplicate: it was done already".to_owned(),
        ("claim", "mismatch") => {
            "A claim was refused, because it came with another request body".to_owned()
        }
        ("claim", "in_doubt") => {
            "A claim was refused, because nobody knows whether it had happened".to_owned()
        }
        ("claim", "dead") => "A claim was refused, because no further attempt is made".to_owned(),
        ("renew", "renewed") => format!("{by} renewed the lease (token {token})"),
        ("complete", "stale") => {
            "A complete came with an ended token and changed nothing: the work may have been done twice"
                .to_owned()
        }
        (verb, "stale") => format!("A {verb} came with an ended token and changed nothing"),
        ("forget", "forgotten") => format!("{by} removed the record"),
        (verb, outcome) => format!("{verb} was answered {outcome}"),
    }
}
