//! The decision: one pure function for every face (SPEC 2 to 5, 7).
//!
//! Order of every decision:
//! 1. What can be refused unseen is refused ([`Verb::check`]); nothing is stored.
//! 2. How the record shows now: past its retention it is absent, past its lease it is an orphan, `in_doubt`
//!    or `dead` ([`super::shown`]).
//! 3. The verb's own order, written at the head of its function.

mod claim;
mod import;
mod string;
mod verbs;

use std::sync::Arc;

use super::command::{Command, Verb};
use super::outcome::{Outcome, Shown, Verdict};
use super::policy::Policy;
use super::record::{Record, Token};
use super::shown::show;
use super::time::Now;

/// What a decision needs to know beside record and command.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The namespace's policy.
    pub policy: &'a Policy,
    /// The instant of the batch.
    pub now: Now,
    /// The token that a grant would get; `None` where all are used up.
    pub token: Option<Token>,
    /// Whether a duplicate may restart a sliding window; not on a full store (SPEC 9).
    pub slide: bool,
}

/// What becomes of the record.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It stays as it is.
    None,
    /// It is now this one.
    Put(Arc<Record>),
    /// It is gone.
    Remove,
}

/// A decision.
#[derive(Clone, Debug)]
pub struct Step {
    /// What becomes of the record.
    pub effect: Effect,
    /// What is answered.
    pub outcome: Outcome,
    /// The context's token was granted and is used up.
    pub granted: bool,
    /// A complete arrived with this ended token: a possible double execution, to be counted.
    pub late: Option<Token>,
}

/// Decides one command on one record (`None`: nothing is stored under the key).
#[must_use]
pub fn apply(context: Context<'_>, record: Option<&Arc<Record>>, command: &Command) -> Step {
    if let Err(bad) = command.verb.check() {
        return context.refuse(Verdict::BadInput(bad), None);
    }
    let shown = record.and_then(|record| show(record, context.policy, context.now));
    let by = command.by.clone();
    match &command.verb {
        Verb::Claim(claim) => claim::decide(context, shown, claim, by),
        Verb::Renew { token, lease } => verbs::renew(context, shown, *token, *lease),
        Verb::Effect { token } => verbs::effect(context, shown, *token, by),
        Verb::Complete {
            token: Some(token),
            result,
        } => verbs::complete(context, shown, *token, result, by),
        Verb::Complete {
            token: None,
            result,
        } => verbs::complete_by_hand(context, shown, result, by),
        Verb::Fail {
            token,
            error,
            retry_in,
            bury,
        } => {
            let failure = verbs::Failure {
                error: error.clone(),
                retry_in: *retry_in,
                bury: *bury,
                by,
            };
            match token {
                Some(token) => verbs::fail(context, &command.key, shown, *token, failure),
                None => verbs::fail_by_hand(context, &command.key, shown, failure),
            }
        }
        Verb::Release { token } => verbs::release(context, shown, *token, by),
        Verb::Get => match shown {
            Some(_) => context.refuse(Verdict::Found, shown),
            None => context.refuse(Verdict::NotFound, None),
        },
        Verb::Replay { generation, force } => {
            verbs::replay(context, shown, *generation, *force, by)
        }
        Verb::Forget { force } => verbs::forget(context, shown, *force),
        Verb::String(verb) => string::decide(context, shown, verb, by),
        Verb::Import(import) => import::decide(context, shown, import),
    }
}

impl Context<'_> {
    /// An answer that changes nothing.
    fn refuse(self, verdict: Verdict, record: Option<Shown>) -> Step {
        let outcome = Outcome {
            verdict,
            record,
            removed: false,
            now: self.now,
        };
        Step {
            effect: Effect::None,
            outcome,
            granted: false,
            late: None,
        }
    }

    /// The record is now this one, changed now, and that is what the answer shows.
    fn put(self, verdict: Verdict, mut record: Record) -> Step {
        record.changed_at = self.now.time;
        self.put_as_is(verdict, record)
    }

    /// The record is now this one, and that is what the answer shows.
    fn put_as_is(self, verdict: Verdict, record: Record) -> Step {
        let record = Arc::new(record);
        // What was written a moment ago is not past its age; an end of retention in the very instant is
        // possible only for string records, which answer with the old value instead.
        let shown = show(&record, self.policy, self.now).unwrap_or_else(|| Shown {
            record: record.clone(),
            state: record.state,
            orphaned: false,
            max_attempts: record.max_attempts.unwrap_or(self.policy.max_attempts),
        });
        let outcome = Outcome {
            verdict,
            record: Some(shown),
            removed: false,
            now: self.now,
        };
        Step {
            effect: Effect::Put(record),
            outcome,
            granted: false,
            late: None,
        }
    }

    /// The record is gone, and the answer shows it as it was.
    fn remove(self, verdict: Verdict, shown: Shown) -> Step {
        let outcome = Outcome {
            verdict,
            record: Some(shown),
            removed: true,
            now: self.now,
        };
        Step {
            effect: Effect::Remove,
            outcome,
            granted: false,
            late: None,
        }
    }
}
