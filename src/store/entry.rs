//! What the journal carries: decisions, each with what it changed.

use std::sync::Arc;

use crate::model::key::RecordKey;
use crate::model::outcome::Reason;
use crate::model::policy::Policy;
use crate::model::record::{Event, Lsn, Record, Token};
use crate::model::time::Timestamp;

/// One decision at its place in the journal. Redo is idempotent: a change is an after-image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub lsn: Lsn,
    /// What it changed.
    pub change: Change,
    /// Who decided what, and when: the audit trail (SPEC 6).
    pub decision: Decision,
}

/// What a decision changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: a duplicate or a refusal.
    None(RecordKey),
    /// Nothing, many times over and over keys that were no longer told apart: only a sum per namespace.
    Tally(Box<str>),
    /// The record as it stands after it.
    Put(RecordKey, Arc<Record>),
    /// The record is gone.
    Remove(RecordKey),
    /// The policy of a namespace; without one, the defaults hold again.
    Policy(Box<str>, Option<Policy>),
}

impl Change {
    /// The namespace concerned.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Change::None(key) | Change::Put(key, _) | Change::Remove(key) => key.namespace(),
            Change::Tally(namespace) | Change::Policy(namespace, _) => namespace,
        }
    }

    /// The record concerned, where it is one.
    #[must_use]
    pub const fn key(&self) -> Option<&RecordKey> {
        match self {
            Change::None(key) | Change::Put(key, _) | Change::Remove(key) => Some(key),
            Change::Tally(_) | Change::Policy(..) => None,
        }
    }
}

/// A decision as the audit trail keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When, in engine time. Of several, the last.
    pub at: Timestamp,
    /// What was asked: one of [`VERBS`].
    pub verb: &'static str,
    /// What was answered: one of [`OUTCOMES`].
    pub outcome: &'static str,
    /// Why a claim acquired.
    pub reason: Option<Reason>,
    /// The fact that went into the record's history.
    pub event: Option<Event>,
    /// The token it concerns.
    pub token: Option<Token>,
    /// The attempt it concerns.
    pub attempt: u32,
    /// The generation it concerns.
    pub generation: u32,
    /// Owner of the claim, or name of the operator.
    pub by: Option<Box<str>>,
    /// How many decisions alike this stands for.
    pub count: u32,
}

/// What can be asked, as `Verb::name` has it, then what no client asks of one record. The place in this
/// list is the code on disk: only ever append.
pub const VERBS: [&str; 17] = [
    "claim", "renew", "effect", "complete", "fail", "release", "get", "replay", "forget", "read",
    "set", "del", "expire", "incr", "policy", "restore", "import",
];

/// What can be answered, as `Verdict::name` has it. The place in this list is the code on disk: only ever
/// append.
pub const OUTCOMES: [&str; 21] = [
    "acquired",
    "done",
    "busy",
    "backoff",
    "in_doubt",
    "dead",
    "mismatch",
    "conflict",
    "stale",
    "not_found",
    "renewed",
    "announced",
    "completed",
    "failed",
    "released",
    "replayed",
    "forgotten",
    "ok",
    "bad_input",
    "unavailable",
    "imported",
];
