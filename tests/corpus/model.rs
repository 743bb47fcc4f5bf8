//! The model alone: `apply` over a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use onced::model::command::{Command, List};
use onced::model::key::RecordKey;
use onced::model::outcome::{Outcome, Verdict};
use onced::model::policy::Policy;
use onced::model::record::{Record, State, Token};
use onced::model::shown::{settle, show};
use onced::model::time::{BootTime, Now, Span, Timestamp};
use onced::model::transition::{Context, Effect, apply};

use super::answer::Answer;
use super::runner::{Driver, START};
use super::script::Request;
use super::{command, strings};

/// A store of records in memory.
pub(super) struct Model {
    policies: BTreeMap<String, Policy>,
    records: BTreeMap<Bytes, Arc<Record>>,
    next_token: Token,
    elapsed: Span,
    sweeps: bool,
}

impl Model {
    /// Nothing is written down but decisions.
    pub(super) fn new() -> Model {
        Model {
            policies: BTreeMap::new(),
            records: BTreeMap::new(),
            next_token: Token::FIRST,
            elapsed: Span::ZERO,
            sweeps: false,
        }
    }

    /// Before every question, the end of leases is written down and what is over is removed: no answer may
    /// change by that.
    pub(super) fn swept() -> Model {
        Model {
            sweeps: true,
            ..Model::new()
        }
    }

    fn now(&self) -> Now {
        Now {
            time: START.after(self.elapsed),
            // Far from engine time, so that nothing holds by mixing the two up.
            boot: BootTime::from_millis(5_000_000).after(self.elapsed),
            wall_ahead: 0,
        }
    }

    fn policy(&self, namespace: &str) -> Policy {
        self.policies.get(namespace).cloned().unwrap_or_default()
    }

    fn sweep(&mut self) {
        let now = self.now();
        let mut records = std::mem::take(&mut self.records);
        records.retain(|joined, record| {
            let key = RecordKey::from_joined(joined.clone()).unwrap();
            let policy = self.policy(key.namespace());
            *record = settle(record, &policy, now);
            show(record, &policy, now).is_some()
        });
        self.records = records;
    }

    fn decide(&mut self, command: &Command) -> Outcome {
        let policy = self.policy(command.key.namespace());
        let context = Context {
            policy: &policy,
            now: self.now(),
            token: Some(self.next_token),
            slide: true,
        };
        let joined = command.key.joined();
        let step = apply(context, self.records.get(joined), command);
        if step.granted {
            self.next_token = self.next_token.next().unwrap();
        }
        match step.effect {
            Effect::None => {}
            Effect::Put(record) => {
                self.records.insert(joined.clone(), record);
            }
            Effect::Remove => {
                self.records.remove(joined);
            }
        }
        step.outcome
    }

    fn list(&self, list: &List) -> Answer {
        let (policy, now) = (self.policy(&list.namespace), self.now());
        let mut found = Vec::new();
        for (joined, record) in &self.records {
            let key = RecordKey::from_joined(joined.clone()).unwrap();
            let Some(shown) = show(record, &policy, now) else {
                continue;
            };
            let retry_due = shown.state == State::Retry && record.not_before <= now.boot;
            let wanted = key.namespace() == &*list.namespace
                && key.key().starts_with(&list.prefix)
                && list.after.as_ref().is_none_or(|after| key.key() > after)
                && list.state.is_none_or(|state| state == shown.state)
                && (!list.due || shown.orphaned || retry_due);
            if wanted {
                found.push((
                    key,
                    Outcome {
                        verdict: Verdict::Found,
                        record: Some(shown),
                        removed: false,
                        now,
                    },
                ));
            }
        }
        let more = found.len() > list.limit;
        found.truncate(list.limit);
        let next = found
            .last()
            .filter(|_| more)
            .map(|(key, _)| key.key().to_vec());
        Answer::page(&found, next.as_deref())
    }
}

impl Driver for Model {
    fn set_policy(&mut self, namespace: &str, policy: Policy) {
        self.policies.insert(namespace.to_owned(), policy);
    }

    fn advance(&mut self, span: Span) {
        self.elapsed = Span::from_millis(self.elapsed.as_millis() + span.as_millis());
    }

    fn now(&self) -> Timestamp {
        Model::now(self).time
    }

    fn run(&mut self, request: &Request) -> Answer {
        if self.sweeps {
            self.sweep();
        }
        if !request.redis.is_empty() {
            let outcome = self.decide(&strings::command(request));
            return strings::answer(request, &outcome);
        }
        if request.verb == "list" {
            return match command::list(request) {
                Ok(list) => self.list(&list),
                Err(problem) => Answer::bad_input(&problem),
            };
        }
        match command::command(request) {
            Ok(command) => Answer::of(&command.key, &self.decide(&command)),
            Err(problem) => Answer::bad_input(&problem),
        }
    }
}
