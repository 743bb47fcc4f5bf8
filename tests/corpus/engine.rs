//! The engine's handle, with a clock moved by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use onced::engine::clock::{ManualClock, Source};
use onced::engine::{Engine, Options, Unit};
use onced::model::command::Command;
use onced::model::outcome::Outcome;
use onced::model::policy::Policy;
use onced::model::time::{Span, Timestamp};

use super::answer::{Answer, Value};
use super::runner::{Driver, START};
use super::script::Request;
use super::{command, strings};

/// An engine on an empty data directory.
pub(super) struct Place {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    policies: BTreeMap<String, Policy>,
    runtime: tokio::runtime::Runtime,
    engine: Option<Engine>,
}

impl Place {
    pub(super) fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
            clock: ManualClock::new(START.as_millis(), 5_000_000),
            policies: BTreeMap::new(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            engine: None,
        }
    }

    /// The engine, started where it does not run.
    pub(super) fn engine(&mut self) -> Engine {
        if self.engine.is_none() {
            self.engine = Some(self.start());
        }
        self.engine.clone().unwrap()
    }

    /// How an engine comes to be: the one place that knows.
    fn start(&self) -> Engine {
        let mut options = Options {
            clock: Source::Manual(self.clock.clone()),
            policies: self.policies.clone(),
            ..Options::default()
        };
        // The smallest that holds the largest bodies, as each case makes its own.
        options.journal.segment_size = 16 << 20;
        Engine::open(self.dir.path(), options).unwrap().0
    }

    /// Stops the engine; the next question starts it again.
    pub(super) fn stop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.close().unwrap();
        }
    }

    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    fn decide(&mut self, command: Command) -> Result<Outcome, Answer> {
        let engine = self.engine();
        let mut answers = self.wait(engine.submit(vec![Unit::One(command)]));
        answers
            .remove(0)
            .map_err(|why| Answer::new("unavailable").with("detail", Value::text(why)))
    }

    /// A Redis string command, where the driver's own face has none.
    pub(super) fn redis(&mut self, request: &Request) -> Answer {
        let outcome = self.decide(strings::command(request));
        outcome.map_or_else(
            |answer| answer,
            |outcome| strings::answer(request, &outcome),
        )
    }

    /// Policies come from the configuration, which is read at the start.
    pub(super) fn set_policy(&mut self, namespace: &str, policy: Policy) {
        self.stop();
        self.policies.insert(namespace.to_owned(), policy);
    }

    pub(super) fn advance(&self, span: Span) {
        self.clock.advance(span);
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis(Source::Manual(self.clock.clone()).read().wall)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The engine, asked directly.
pub(super) struct Direct {
    place: Place,
    restarts: bool,
}

impl Direct {
    pub(super) fn new() -> Direct {
        Direct {
            place: Place::new(),
            restarts: false,
        }
    }

    /// Stopped and started between all questions: no answer may change by that.
    pub(super) fn restarting() -> Direct {
        Direct {
            restarts: true,
            ..Direct::new()
        }
    }
}

impl Driver for Direct {
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
        if self.restarts {
            self.place.stop();
        }
        if !request.redis.is_empty() {
            return self.place.redis(request);
        }
        if request.verb == "list" {
            let list = match command::list(request) {
                Ok(list) => list,
                Err(problem) => return Answer::bad_input(&problem),
            };
            let engine = self.place.engine();
            let page = self.place.wait(engine.list(list)).unwrap();
            return Answer::page(&page.records, page.next.as_deref());
        }
        match command::command(request) {
            Ok(command) => {
                let key = command.key.clone();
                let outcome = self.place.decide(command);
                outcome.map_or_else(|answer| answer, |outcome| Answer::of(&key, &outcome))
            }
            Err(problem) => Answer::bad_input(&problem),
        }
    }
}
