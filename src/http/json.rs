//! Answers as JSON, written straight into a buffer (SPEC 6).

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;

use super::batch::MAX_BATCH;
use super::params::cursor;
use super::problem::{self, Refusal};
use crate::engine::{Namespace, Page, Replays, States};
use crate::model::body::Body;
use crate::model::key::RecordKey;
use crate::model::outcome::{Field, Fields, Outcome};
use crate::model::policy::Policy;
use crate::model::record::{Retention, State};
use crate::model::time::Span;

/// Bodies up to this many bytes stand in the answer; of larger ones, only the facts.
pub const BODY_LIMIT: usize = 64 * 1024;
/// What most answers need.
const USUAL: usize = 512;

/// Whether the bytes of payloads and results stand in the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bodies {
    Whole,
    Facts,
}

/// The answer about a record.
#[must_use]
pub fn answer(outcome: &Outcome, key: &RecordKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL);
    let mut object = Object::begin(&mut out);
    object.outcome(&outcome.fields(), key, Bodies::Whole);
    object.end();
    out
}

/// A refusal about a record, as a problem document (RFC 9457).
#[must_use]
pub fn refused(outcome: &Outcome, key: &RecordKey, status: StatusCode) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL);
    let mut object = Object::begin(&mut out);
    object.problem(outcome.verdict.name(), status);
    object.outcome(&outcome.fields(), key, Bodies::Facts);
    object.end();
    out
}

/// A refusal without a record, as a problem document (RFC 9457).
#[must_use]
pub fn problem(
    outcome: &'static str,
    status: StatusCode,
    detail: &str,
    retry_after: Option<Span>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL);
    let mut object = Object::begin(&mut out);
    object.problem(outcome, status);
    object.member("outcome");
    text(object.out, outcome);
    object.member("detail");
    text(object.out, detail);
    if let Some(span) = retry_after {
        object.member("retry_after_ms");
        number(object.out, span.as_millis());
    }
    object.end();
    out
}

/// A page of a listing.
#[must_use]
pub fn page(page: &Page) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL.saturating_mul(page.records.len().saturating_add(1)));
    out.extend_from_slice(b"{\"records\":[");
    for (at, (key, outcome)) in page.records.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let mut object = Object::begin(&mut out);
        object.outcome(&outcome.fields(), key, Bodies::Facts);
        object.end();
    }
    out.extend_from_slice(b"],\"next\":");
    match &page.next {
        Some(key) => text(&mut out, &cursor(key)),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    out
}

/// The answers of a batch, in order, one after the other. Results stand in it as long as it is no longer than a
/// batch may be.
#[derive(Debug)]
pub struct Results(Vec<u8>);

impl Results {
    /// For so many answers.
    #[must_use]
    pub fn of(answers: usize) -> Results {
        let mut out = Vec::with_capacity(USUAL.saturating_mul(answers.saturating_add(1)));
        out.extend_from_slice(b"{\"results\":[");
        Results(out)
    }

    /// The next one.
    pub fn push(&mut self, key: &RecordKey, answer: &Result<Outcome, Refusal>) {
        let out = &mut self.0;
        if !out.ends_with(b"[") {
            out.push(b',');
        }
        let bodies = match out.len() < MAX_BATCH {
            true => Bodies::Whole,
            false => Bodies::Facts,
        };
        let mut object = Object::begin(out);
        match answer {
            Ok(outcome) => object.outcome(&outcome.fields(), key, bodies),
            Err(refusal) => {
                object.member("outcome");
                text(object.out, refusal.outcome);
                object.name(key);
                object.member("detail");
                text(object.out, &refusal.detail);
                if let Some(span) = refusal.retry_after {
                    object.member("retry_after_ms");
                    number(object.out, span.as_millis());
                }
            }
        }
        object.end();
    }

    /// All of them.
    #[must_use]
    pub fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"]}");
        self.0
    }
}

/// What a page of replays came to.
#[must_use]
pub fn replays(namespace: &str, replays: &Replays) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL);
    let mut object = Object::begin(&mut out);
    object.member("namespace");
    text(object.out, namespace);
    object.member("replayed");
    number(object.out, replays.replayed);
    object.member("skipped");
    let mut skipped = Object::begin(object.out);
    for (why, count) in &replays.skipped {
        skipped.member(why);
        number(skipped.out, *count);
    }
    skipped.end();
    object.member("next");
    match &replays.next {
        Some(key) => text(object.out, &cursor(key)),
        None => object.out.extend_from_slice(b"null"),
    }
    object.end();
    out
}

/// A claim of an atomic batch met a record that is done, as a problem document (RFC 9457).
#[must_use]
pub fn already_done(key: &RecordKey, status: StatusCode) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL);
    let mut object = Object::begin(&mut out);
    object.problem("done", status);
    object.member("outcome");
    text(object.out, "done");
    object.name(key);
    object.member("detail");
    text(
        object.out,
        "this key was done already, so nothing of the batch was stored; send the batch without it",
    );
    object.end();
    out
}

/// All namespaces.
#[must_use]
pub fn namespaces(all: &[Namespace]) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL.saturating_mul(all.len().saturating_add(1)));
    out.extend_from_slice(b"{\"namespaces\":[");
    for (at, namespace) in all.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let mut object = Object::begin(&mut out);
        object.namespace(namespace);
        object.end();
    }
    out.extend_from_slice(b"]}");
    out
}

/// One namespace, with how many records show in each state.
#[must_use]
pub fn namespace(namespace: &Namespace, states: &States) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL);
    let mut object = Object::begin(&mut out);
    object.namespace(namespace);
    object.member("states");
    let mut counts = Object::begin(object.out);
    for (state, count) in [
        (State::Pending, states.pending),
        (State::Retry, states.retry),
        (State::Done, states.done),
        (State::InDoubt, states.in_doubt),
        (State::Dead, states.dead),
    ] {
        counts.member(state.name());
        number(counts.out, count);
    }
    counts.end();
    object.member("orphaned");
    number(object.out, states.orphaned);
    object.end();
    out
}

/// An object being written.
pub(super) struct Object<'b> {
    out: &'b mut Vec<u8>,
    first: bool,
}

impl Object<'_> {
    pub(super) fn begin(out: &mut Vec<u8>) -> Object<'_> {
        out.push(b'{');
        Object { out, first: true }
    }

    pub(super) fn end(self) {
        self.out.push(b'}');
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.member(name);
        number(self.out, value);
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.member(name);
        text(self.out, value);
    }

    /// A member whose value is written by `write`.
    pub(super) fn raw(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.member(name);
        write(self.out);
    }

    pub(super) fn null(&mut self, name: &str) {
        self.member(name);
        self.out.extend_from_slice(b"null");
    }

    /// A key, under the name that its bytes ask for.
    pub(super) fn key(&mut self, key: &[u8]) {
        match std::str::from_utf8(key) {
            Ok(key) => self.text("key", key),
            Err(_) => {
                self.member("key_base64");
                base64(self.out, key);
            }
        }
    }

    /// Begins a member. Names are the program's own and need no escaping.
    fn member(&mut self, name: &str) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// What every problem document begins with.
    fn problem(&mut self, outcome: &'static str, status: StatusCode) {
        self.member("type");
        self.out.extend_from_slice(b"\"/manual/problems/");
        self.out.extend_from_slice(outcome.as_bytes());
        self.out.push(b'"');
        self.member("title");
        text(self.out, problem::title(outcome));
        self.member("status");
        number(self.out, status.as_u16().into());
    }

    /// The members of an outcome; namespace and key follow on what says how it was decided.
    fn outcome(&mut self, fields: &Fields, key: &RecordKey, bodies: Bodies) {
        let decided = |(name, _): &&(&str, Field)| matches!(*name, "outcome" | "reason");
        let head = fields.iter().take_while(decided).count();
        let (head, rest) = fields.split_at_checked(head).unwrap_or((fields, &[]));
        self.fields(head, bodies);
        self.name(key);
        self.fields(rest, bodies);
    }

    /// Namespace and key.
    fn name(&mut self, key: &RecordKey) {
        self.member("namespace");
        text(self.out, key.namespace());
        self.key(key.key());
    }

    fn namespace(&mut self, namespace: &Namespace) {
        self.member("namespace");
        text(self.out, &namespace.name);
        self.member("records");
        number(self.out, namespace.records);
        self.member("policy_from");
        text(self.out, namespace.origin.name());
        self.member("policy");
        let mut object = Object::begin(self.out);
        object.policy(&namespace.policy);
        object.end();
    }

    /// The members of a policy, as they are put.
    fn policy(&mut self, policy: &Policy) {
        let kept = |retention: Retention| match retention {
            Retention::For(span) => span.to_string(),
            Retention::Forever => "forever".to_owned(),
        };
        for (name, value) in [
            ("lease", policy.lease.to_string()),
            ("retention", kept(policy.retention)),
            ("window", policy.window.name().to_owned()),
            ("on_lease_end", policy.on_lease_end.name().to_owned()),
            ("backoff", policy.backoff.to_string()),
            ("backoff_max", policy.backoff_max.to_string()),
            ("fingerprint", policy.fingerprint.name().to_owned()),
            ("forget_open_after", kept(policy.forget_open_after)),
        ] {
            self.member(name);
            text(self.out, &value);
        }
        self.member("max_attempts");
        number(self.out, policy.max_attempts.into());
    }

    fn fields(&mut self, fields: &[(&'static str, Field)], bodies: Bodies) {
        for (name, value) in fields {
            self.member(name);
            field(self.out, value, bodies);
        }
    }

    fn body(&mut self, body: &Body, status: Option<u16>, bodies: Bodies) {
        self.member("content_type");
        text(self.out, &body.content_type);
        if let Some(status) = status {
            self.member("status");
            number(self.out, status.into());
        }
        self.member("size");
        number(self.out, body.content.len() as u64);
        let bytes = body.content.bytes();
        let Some(bytes) = bytes.filter(|it| it.len() <= BODY_LIMIT && bodies == Bodies::Whole)
        else {
            return;
        };
        if let Ok(words) = std::str::from_utf8(bytes) {
            self.member("body");
            text(self.out, words);
        } else {
            self.member("body_base64");
            base64(self.out, bytes);
        }
    }
}

/// Maps and lists of an answer nest two deep, by construction: no outside input decides the recursion.
fn field(out: &mut Vec<u8>, value: &Field, bodies: Bodies) {
    match value {
        Field::Null => out.extend_from_slice(b"null"),
        Field::Bool(flag) => truth(out, *flag),
        Field::Int(int) => number(out, *int),
        Field::Text(word) => text(out, word),
        Field::Time(time) => {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "\"{time}\"");
        }
        Field::Body { body, status } => {
            let mut object = Object::begin(out);
            object.body(body, *status, bodies);
            object.end();
        }
        Field::Handed(content) => truth(out, content.is_some()),
        Field::Map(fields) => {
            let mut object = Object::begin(out);
            object.fields(fields, bodies);
            object.end();
        }
        Field::List(values) => {
            out.push(b'[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                field(out, value, bodies);
            }
            out.push(b']');
        }
    }
}

fn truth(out: &mut Vec<u8>, flag: bool) {
    out.extend_from_slice(if flag { b"true" } else { b"false" });
}

fn number(out: &mut Vec<u8>, number: u64) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{number}");
}

fn text(out: &mut Vec<u8>, words: &str) {
    // A string always serialises, and writing to a Vec cannot fail.
    let _ = serde_json::to_writer(out, words);
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
}
