//! The engine: decides commands in one order and answers once what they rest on is durable.

pub mod clock;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use self::clock::{Clock, Source};
use crate::model::command::{Command, List, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Verdict};
use crate::model::policy::Policy;
use crate::model::record::{Record, Token};
use crate::model::shown::show;
use crate::model::time::Span;
use crate::model::transition::{Context, Effect, apply};

/// What is decided together.
#[derive(Clone, Debug)]
pub enum Unit {
    /// One command.
    One(Command),
    /// Several, in order: if one of them does not hold ([`Outcome::holds`]), nothing of them is stored.
    All(Vec<Command>),
}

/// Why a command was not decided. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The store has no room for what creates records or hands out work (SPEC 9).
    Full,
    /// Recent writes wait for the disk, and did so for too long.
    Overloaded,
    /// More than one unit may write (SPEC 10).
    TooLarge,
    /// The engine is stopping.
    Stopping,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unavailable::Full => {
                "the disk of the data directory is full; free space, it goes on by itself"
            }
            Unavailable::Overloaded => {
                "the disk is slower than the writes that wait for it; try again"
            }
            Unavailable::TooLarge => "more than may be written in one step; send less at once",
            Unavailable::Stopping => "the server is stopping; try again",
        })
    }
}

impl std::error::Error for Unavailable {}

/// A page of a listing: records in key order, as `get` answers them but without bodies.
#[derive(Clone, Debug)]
pub struct Page {
    /// The records.
    pub records: Vec<(RecordKey, Outcome)>,
    /// Where the next page begins (its `after`), if there may be more.
    pub next: Option<Bytes>,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where time comes from.
    pub clock: Source,
    /// Policies by namespace, from the configuration.
    pub policies: BTreeMap<String, Policy>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Source::system(),
            policies: BTreeMap::new(),
        }
    }
}

/// The engine's handle. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Mutex<Core>>,
}

struct Core {
    clock: Clock,
    token: Token,
    policies: BTreeMap<String, Policy>,
    standard: Policy,
    records: HashMap<Bytes, Arc<Record>>,
}

impl Engine {
    /// An engine that forgets everything when it is dropped.
    #[must_use]
    pub fn volatile(options: Options) -> Engine {
        let core = Core {
            clock: Clock::new(options.clock, None),
            token: Token::FIRST,
            policies: options.policies,
            standard: Policy::default(),
            records: HashMap::new(),
        };
        Engine {
            core: Arc::new(Mutex::new(core)),
        }
    }

    /// Decides all commands in order, at one instant, and answers each once what its answer rests on is
    /// durable. Answers come in the order of the commands, those of a [`Unit::All`] one by one.
    pub async fn submit(&self, units: Vec<Unit>) -> Vec<Result<Outcome, Unavailable>> {
        let mut core = self.core.lock();
        let now = core.clock.now();
        let mut out = Vec::new();
        for unit in &units {
            let commands = match unit {
                Unit::One(command) => std::slice::from_ref(command),
                Unit::All(commands) => commands,
            };
            let (before, token, first) = (core.records.clone(), core.token, out.len());
            for command in commands {
                let core = &mut *core;
                let joined = command.key.joined();
                let policy = core
                    .policies
                    .get(command.key.namespace())
                    .unwrap_or(&core.standard);
                let context = Context {
                    policy,
                    now,
                    token: Some(core.token),
                    slide: true,
                };
                let step = apply(context, core.records.get(joined), command);
                if let (true, Some(next)) = (step.granted, core.token.next()) {
                    core.token = next;
                }
                match step.effect {
                    Effect::None => {}
                    Effect::Put(record) => {
                        core.records.insert(joined.clone(), record);
                    }
                    Effect::Remove => {
                        core.records.remove(joined);
                    }
                }
                out.push(Ok(step.outcome));
            }
            let holds = |outcome: &Result<Outcome, _>| outcome.as_ref().is_ok_and(Outcome::holds);
            if matches!(unit, Unit::All(_)) && !out.iter().skip(first).all(holds) {
                core.records = before;
                core.token = token;
            }
        }
        out
    }

    /// A page of records in key order.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn list(&self, list: List) -> Result<Page, Unavailable> {
        let mut core = self.core.lock();
        let now = core.clock.now();
        let policy = core
            .policies
            .get(&*list.namespace)
            .unwrap_or(&core.standard)
            .clone();
        let mut records: Vec<_> = core
            .records
            .iter()
            .filter_map(|(joined, record)| {
                let key = RecordKey::from_joined(joined.clone())?;
                let shown = show(record, &policy, now)?;
                let due = shown.orphaned
                    || (shown.state == crate::model::record::State::Retry
                        && shown.record.not_before <= now.boot);
                let fits = key.namespace() == &*list.namespace
                    && key.key().starts_with(&list.prefix)
                    && list.after.as_ref().is_none_or(|after| key.key() > after)
                    && list.state.is_none_or(|state| state == shown.state)
                    && (!list.due || due);
                fits.then(|| {
                    let verdict = Verdict::Found;
                    (
                        key,
                        Outcome {
                            verdict,
                            record: Some(shown),
                            removed: false,
                            now,
                        },
                    )
                })
            })
            .collect();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let more = records.len() > list.limit;
        records.truncate(list.limit);
        let next = records.last().filter(|_| more);
        let next = next.map(|(key, _)| Bytes::copy_from_slice(key.key()));
        Ok(Page { records, next })
    }

    /// How many records a namespace has, past retention or not yet swept ones included.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn count(&self, namespace: &str) -> Result<u64, Unavailable> {
        let list = List {
            namespace: namespace.into(),
            state: None,
            prefix: Bytes::new(),
            due: false,
            after: None,
            limit: usize::MAX,
        };
        Ok(self.list(list).await?.records.len() as u64)
    }

    /// The instant, on the engine's clock.
    #[must_use]
    pub fn now(&self) -> crate::model::time::Now {
        self.core.lock().clock.now()
    }
}

#[allow(unused)]
fn unused(_: Verb, _: Span) {}
