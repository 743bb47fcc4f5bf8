//! Namespaces: what is in them, and the policy that holds there (SPEC 5).
//!
//! A policy that is put is an entry of the journal like any decision, made in the one order: commands that
//! come after it are decided by it. Where the configuration speaks for a namespace, its word comes last at
//! every start, so that a policy put there is refused and not lost later.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::core::Core;
use super::cost::Cost;
use super::gather::Durable;
use super::{Engine, PATIENCE, Unavailable};
use crate::model::command::List;
use crate::model::policy::Policy;
use crate::model::record::{Lsn, State};
use crate::model::shown::show;
use crate::store::{Change, Decision, Entry, Which, encode_entry};

/// What the entry of a policy takes at most, in memory and in the journal.
const POLICY_COST: usize = 1024;

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: Box<str>,
    /// How many records it has. Those past their retention may be included until their bucket is over.
    pub records: u64,
    /// The policy in force.
    pub policy: Policy,
    /// Where that comes from.
    pub origin: Origin,
}

/// Where the policy of a namespace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set one: the built-in default.
    Default,
    /// The configuration.
    Configuration,
    /// It was put.
    Put,
}

impl Origin {
    /// Its name on every face.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::Configuration => "configuration",
            Origin::Put => "put",
        }
    }
}

/// How many records show in each state. A namespace is counted in parts, each as of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// `pending`, orphans among them.
    pub pending: u64,
    /// `retry`.
    pub retry: u64,
    /// `done`; those past their retention may be included until their bucket is over.
    pub done: u64,
    /// `in_doubt`.
    pub in_doubt: u64,
    /// `dead`.
    pub dead: u64,
    /// The orphans among the pending.
    pub orphaned: u64,
}

impl Engine {
    /// All namespaces that came into being, in order of their names.
    ///
    /// # Errors
    /// [`Unavailable::Stopping`].
    pub async fn namespaces(&self) -> Result<Vec<Namespace>, Unavailable> {
        let (all, durable) = {
            let mut core = self.running()?;
            let mut names: Vec<Box<str>> = core.namespaces.iter().cloned().collect();
            names.sort_unstable();
            let all: Vec<_> = names.iter().map(|name| core.namespace(name)).collect();
            (all, core.wait_for_last())
        };
        settled(durable).await?;
        Ok(all)
    }

    /// One namespace; one that never came into being has no records and the default policy.
    ///
    /// # Errors
    /// [`Unavailable::Stopping`].
    pub async fn namespace(&self, name: &str) -> Result<Namespace, Unavailable> {
        let (namespace, durable) = {
            let mut core = self.running()?;
            (core.namespace(name), core.wait_for_last())
        };
        settled(durable).await?;
        Ok(namespace)
    }

    /// The policy in force in a namespace at this instant.
    ///
    /// # Errors
    /// [`Unavailable::Stopping`].
    pub fn policy(&self, namespace: &str) -> Result<Policy, Unavailable> {
        Ok(self.running()?.policies.get(namespace).clone())
    }

    /// How many records of a namespace show in each state.
    ///
    /// # Errors
    /// [`Unavailable::Stopping`]; a failing store stops the process.
    pub async fn states(&self, name: &str) -> Result<States, Unavailable> {
        let list = List {
            namespace: name.into(),
            state: None,
            prefix: Bytes::new(),
            due: false,
            after: None,
            limit: 1,
        };
        let (mut states, mut open) = (States::default(), 0_u64);
        let mut after = None;
        loop {
            let slice = self.slice(&list, Which::Open, after.as_ref()).await?;
            settled(slice.durable).await?;
            for record in slice.records.values() {
                if record.state == State::Done {
                    continue;
                }
                open = open.saturating_add(1);
                let Some(shown) = show(record, &slice.policy, slice.now) else {
                    continue;
                };
                let count = match shown.state {
                    State::Pending => &mut states.pending,
                    State::Retry => &mut states.retry,
                    State::Done => &mut states.done,
                    State::InDoubt => &mut states.in_doubt,
                    State::Dead => &mut states.dead,
                };
                *count = count.saturating_add(1);
                states.orphaned = states.orphaned.saturating_add(shown.orphaned.into());
            }
            match slice.end {
                Some(end) => after = Some(end),
                None => break,
            }
        }
        states.done = self.count(name).await?.saturating_sub(open);
        Ok(states)
    }

    /// Sets the policy of a namespace, whole. Durable when it returns; claims that come later are decided by
    /// it. `by` is the operator's name, for the audit.
    ///
    /// # Errors
    /// [`Unavailable::Configured`] where the configuration speaks for the namespace, [`Unavailable::Full`],
    /// [`Unavailable::Namespaces`]: nothing was stored. After [`Unavailable::Stopping`] it may have been.
    pub async fn set_policy(
        &self,
        namespace: &str,
        policy: Policy,
        by: Option<Box<str>>,
    ) -> Result<(), Unavailable> {
        loop {
            // Asked for before the look, so that no wake-up in between is lost.
            let room_made = self.inner.room_made.notified();
            if let Some(durable) = self.put_policy(namespace, &policy, by.as_deref())? {
                return settled(durable).await;
            }
            if tokio::time::timeout(PATIENCE, room_made).await.is_err() {
                return Err(Unavailable::Overloaded);
            }
        }
    }

    /// From here on the configuration has these policies, and no others. A namespace that it speaks for no longer goes
    /// back to the policy that was put, or to the default. Claims that come later are decided by them.
    pub fn configure(&self, policies: BTreeMap<String, Policy>) {
        let mut core = self.inner.core.lock();
        let names = policies.keys().map(|name| name.as_str().into());
        core.namespaces.extend(names);
        core.policies.configured = policies;
    }

    /// Looks under the lock whether there is room for a policy, and puts it. `None`: there is no room yet.
    fn put_policy(
        &self,
        namespace: &str,
        policy: &Policy,
        by: Option<&str>,
    ) -> Result<Option<Option<Durable>>, Unavailable> {
        let cost = Cost {
            memory: POLICY_COST,
            journal: POLICY_COST,
            adds: true,
        };
        let mut core = self.running()?;
        if core.policies.configured.contains_key(namespace) {
            return Err(Unavailable::Configured);
        }
        if core.policies.put.get(namespace) == Some(policy) {
            return Ok(Some(core.wait_for_last()));
        }
        if core.full || core.exhausted {
            return Err(Unavailable::Full);
        }
        if core.is_namespace_too_many(namespace) {
            return Err(Unavailable::Namespaces);
        }
        if !self.has_room(&mut core, cost) {
            return Ok(None);
        }
        core.put_policy(namespace, policy.clone(), by.map(Box::from))?;
        let durable = core.wait_for_last();
        drop(core);
        self.inner.gathered.notify_one();
        Ok(Some(durable))
    }
}

impl Core {
    fn namespace(&mut self, name: &str) -> Namespace {
        let now = self.clock.now().time;
        let rows = self.stored.of(name, now);
        let stored = rows.open.saturating_add(rows.done);
        let origin = if self.policies.configured.contains_key(name) {
            Origin::Configuration
        } else if self.policies.put.contains_key(name) {
            Origin::Put
        } else {
            Origin::Default
        };
        Namespace {
            name: name.into(),
            records: stored.saturating_add_signed(self.recent.balance(name, now)),
            policy: self.policies.get(name).clone(),
            origin,
        }
    }

    /// For what is told of everything there is: it may rest on the last entry.
    fn wait_for_last(&mut self) -> Option<Durable> {
        let last = Lsn(self.next_lsn.0.saturating_sub(1));
        self.gather.wait(last)
    }

    fn put_policy(
        &mut self,
        namespace: &str,
        policy: Policy,
        by: Option<Box<str>>,
    ) -> Result<(), Unavailable> {
        let lsn = self.next_lsn;
        let entry = Entry {
            lsn,
            change: Change::Policy(namespace.into(), Some(policy.clone())),
            decision: Decision {
                at: self.clock.now().time,
                verb: "policy",
                outcome: "ok",
                reason: None,
                event: None,
                token: None,
                attempt: 0,
                generation: 0,
                by,
                count: 1,
            },
        };
        let mut bytes = Vec::new();
        encode_entry(&entry, &mut bytes).map_err(|error| {
            tracing::error!(namespace, %error, "a policy does not fit an entry of the journal");
            Unavailable::Defect
        })?;
        self.gather.push(lsn, [bytes.as_slice()]);
        self.next_lsn = Lsn(lsn.0.saturating_add(1));
        self.recent.put_policy(namespace, Some(policy.clone()));
        self.policies.put.insert(namespace.into(), policy);
        self.namespaces.insert(namespace.into());
        Ok(())
    }
}

async fn settled(durable: Option<Durable>) -> Result<(), Unavailable> {
    match durable {
        Some(durable) => durable.await.map(drop).map_err(|_| Unavailable::Stopping),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::{Options, Unit};
    use crate::model::command::{Claim, Command, Mode, Verb};
    use crate::model::key::RecordKey;
    use crate::model::time::Span;

    fn options() -> Options {
        let mut options = Options::default();
        options.journal.segment_size = 16 << 20;
        options
    }

    fn policy(lease: u64) -> Policy {
        Policy {
            lease: Span::from_secs(lease),
            ..Policy::default()
        }
    }

    async fn claim(engine: &Engine, namespace: &str, key: &str, mode: Mode) {
        let claim = Claim {
            mode,
            ..Claim::default()
        };
        let key = RecordKey::new(namespace, key.as_bytes()).unwrap();
        let command = Command::new(key, Verb::Claim(Box::new(claim)));
        let answers = engine.submit(vec![Unit::One(command)]).await;
        assert!(answers.iter().all(Result::is_ok));
    }

    /// What a kill leaves: the directory as it is while the engine runs.
    fn killed(from: &std::path::Path) -> tempfile::TempDir {
        loop {
            let to = tempfile::tempdir().unwrap();
            match copy(from, to.path()) {
                Ok(()) => return to,
                // A segment is prepared under another name meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn copy(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                std::fs::create_dir(&target)?;
                copy(&entry.path(), &target)?;
            } else {
                std::fs::copy(entry.path(), target)?;
            }
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_policy_is_there_after_a_kill_by_the_journal_alone_and_after_each_later_start() {
        let dir = tempfile::tempdir().unwrap();
        let slow = Options {
            // No checkpoint comes by itself before the directory is copied.
            tick: Duration::from_secs(3600),
            ..options()
        };
        let (engine, _) = Engine::open(dir.path(), slow).unwrap();
        for lease in [7, 8] {
            let put = engine.set_policy("orders", policy(lease), None).await;
            assert_eq!(put, Ok(()));
        }
        let killed = killed(dir.path());
        engine.close().unwrap();
        for (dir, mut redone) in [(killed, 2), (dir, 0)] {
            // The first start redoes the journal; the later ones read what its checkpoint wrote.
            for _ in 0..3 {
                let (engine, report) = Engine::open(dir.path(), options()).unwrap();
                assert_eq!(report.redone, redone);
                redone = 0;
                let found = engine.namespace("orders").await.unwrap();
                assert_eq!((found.policy, found.origin), (policy(8), Origin::Put));
                engine.close().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_checkpoint_is_due_where_only_a_policy_changed() {
        let engine = Engine::volatile(Options {
            tick: Duration::from_millis(1),
            ..Options::default()
        });
        engine.set_policy("a", policy(9), None).await.unwrap();
        let stored = async {
            while !engine.inner.core.lock().recent.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), stored).await;
        assert!(waited.is_ok(), "the store never got it");
    }

    #[tokio::test]
    async fn the_configuration_speaks_last_and_a_put_against_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = Engine::open(dir.path(), options()).unwrap();
        engine.set_policy("a", policy(7), None).await.unwrap();
        engine.close().unwrap();
        let configured = Options {
            policies: [("a".to_owned(), policy(9))].into(),
            ..options()
        };
        let (engine, _) = Engine::open(dir.path(), configured).unwrap();
        let put = engine.set_policy("a", policy(8), None).await;
        assert_eq!(put, Err(Unavailable::Configured));
        let found = engine.namespace("a").await.unwrap();
        let expected = (policy(9), Origin::Configuration);
        assert_eq!((found.policy, found.origin), expected);
        // Changed while it runs; what was put is still there under it.
        engine.configure([("b".to_owned(), policy(5))].into());
        for (name, lease, origin) in [
            ("a", policy(7), Origin::Put),
            ("b", policy(5), Origin::Configuration),
        ] {
            let found = engine.namespace(name).await.unwrap();
            assert_eq!((found.policy, found.origin), (lease, origin), "{name}");
        }
        engine.close().unwrap();
        let (engine, _) = Engine::open(dir.path(), options()).unwrap();
        let found = engine.namespace("a").await.unwrap();
        assert_eq!((found.policy, found.origin), (policy(7), Origin::Put));
        engine.close().unwrap();
    }

    #[tokio::test]
    async fn namespaces_are_listed_with_what_is_in_them_whether_in_memory_or_in_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = Engine::open(dir.path(), options()).unwrap();
        engine.set_policy("b", policy(1), None).await.unwrap();
        for number in 0..3 {
            claim(&engine, "a", &format!("p{number}"), Mode::Lease).await;
        }
        claim(&engine, "a", "d", Mode::Once { result: None }).await;
        let expected = States {
            pending: 3,
            done: 1,
            ..States::default()
        };
        assert_eq!(engine.states("a").await, Ok(expected));
        engine.close().unwrap();
        let (engine, _) = Engine::open(dir.path(), options()).unwrap();
        claim(&engine, "a", "one more", Mode::Lease).await;
        let states = engine.states("a").await.unwrap();
        assert_eq!((states.pending, states.done), (4, 1));
        let all = engine.namespaces().await.unwrap();
        let all: Vec<_> = all.iter().map(|it| (&*it.name, it.records)).collect();
        assert_eq!(all, [("a", 5), ("b", 0)]);
        let unknown = engine.namespace("nobody").await.unwrap();
        assert_eq!((unknown.records, unknown.origin), (0, Origin::Default));
        assert_eq!(engine.namespaces().await.unwrap().len(), 2);
        engine.close().unwrap();
    }

    #[tokio::test]
    async fn a_policy_brings_no_namespace_too_many_into_being() {
        let engine = Engine::volatile(Options::default());
        for number in 0..super::super::MAX_NAMESPACES {
            let name = format!("n{number}");
            engine.inner.core.lock().namespaces.insert(name.into());
        }
        let put = engine.set_policy("more", policy(1), None).await;
        assert_eq!(put, Err(Unavailable::Namespaces));
        assert_eq!(engine.set_policy("n7", policy(1), None).await, Ok(()));
    }
}
