//! The engine's handle, with a clock moved by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use onced::engine::clock::{ManualClock, Source};
use onced::engine::{Engine, Options, Unit};
use onced::model::command::Command;
use onced::model::outcome::Outcome;
use onced::model::policy::Policy;
use onced::model::time::{Span, Timestamp};

use super::answer::Answer;
use super::runner::{Driver, START};
use super::script::Request;
use super::{command, strings};

/// An engine on an empty store.
pub(super) struct Place {
    clock: Arc<ManualClock>,
    policies: BTreeMap<String, Policy>,
    runtime: tokio::runtime::Runtime,
    engine: Option<Engine>,
}

impl Place {
    pub(super) fn new() -> Place {
        Place {
            clock: ManualClock::new(START.as_millis(), 5_000_000),
            policies: BTreeMap::new(),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            engine: None,
        }
    }

    /// The engine, started at the first question.
    pub(super) fn engine(&mut self) -> Engine {
        let options = Options {
            clock: Source::Manual(self.clock.clone()),
            policies: self.policies.clone(),
        };
        self.engine.get_or_insert_with(|| start(options)).clone()
    }

    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(super) fn decide(&mut self, command: Command) -> Outcome {
        let engine = self.engine();
        let mut answers = self.wait(engine.submit(vec![Unit::One(command)]));
        answers.remove(0).unwrap()
    }

    /// A Redis string command, where the driver's own face has none.
    pub(super) fn redis(&mut self, request: &Request) -> Answer {
        let outcome = self.decide(strings::command(request));
        strings::answer(request, &outcome)
    }

    pub(super) fn set_policy(&mut self, namespace: &str, policy: Policy) {
        assert!(self.engine.is_none(), "the policy of a running engine cannot be changed yet");
        self.policies.insert(namespace.to_owned(), policy);
    }

    pub(super) fn advance(&self, span: Span) {
        self.clock.advance(span);
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis(Source::Manual(self.clock.clone()).read().wall)
    }
}

/// How an engine comes to be: the one place that knows.
fn start(options: Options) -> Engine {
    Engine::volatile(options)
}

/// The engine, asked directly.
pub(super) struct Direct(Place);

impl Direct {
    pub(super) fn new() -> Direct {
        Direct(Place::new())
    }
}

impl Driver for Direct {
    fn set_policy(&mut self, namespace: &str, policy: Policy) {
        self.0.set_policy(namespace, policy);
    }

    fn advance(&mut self, span: Span) {
        self.0.advance(span);
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn run(&mut self, request: &Request) -> Answer {
        if !request.redis.is_empty() {
            return self.0.redis(request);
        }
        if request.verb == "list" {
            let list = match command::list(request) {
                Ok(list) => list,
                Err(problem) => return Answer::bad_input(&problem),
            };
            let engine = self.0.engine();
            let page = self.0.wait(engine.list(list)).unwrap();
            return Answer::page(&page.records, page.next.as_deref());
        }
        match command::command(request) {
            Ok(command) => {
                let key = command.key.clone();
                Answer::of(&key, &self.0.decide(command))
            }
            Err(problem) => Answer::bad_input(&problem),
        }
    }
}
