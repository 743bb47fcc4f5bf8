//! Several commands as one decision: each sees what the earlier ones did, and all that they changed becomes
//! durable in one frame, or nothing of it.
//!
//! A program runs under the engine's lock, at one instant, over keys that it declared: what their records
//! are was read before. What it does is staged, and kept only when it has ended; a program that is put off,
//! because there is no room for what it wrote, runs again from its beginning. So a program bounds its own
//! time, and has no effect but through [`Steps`].
//!
//! Deliberately absent: what a program is. `EXEC` and scripts are the Redis face's.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::clock::Timer;
use super::core::{Asked, Core, Fetched};
use super::cost::{Cost, cost, removes};
use super::fetch::Fetch;
use super::gather::Durable;
use super::recent::record_size;
use super::{Engine, Flush, Inner, PATIENCE, Unavailable, Unit};
use crate::model::command::{Command, StringVerb, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::Outcome;
use crate::model::record::{Lsn, Record, Token};
use crate::model::time::Now;
use crate::model::transition::{Effect, Step};

/// The most keys of one program.
pub const MAX_KEYS: usize = 10_000;
/// The most changes that one program may make.
pub const MAX_CHANGES: usize = 2_000;
/// The most keys that are watched at once, over all connections.
pub const MAX_WATCHED: usize = 100_000;

/// Commands that are decided together, chosen while they are decided.
pub trait Program: Send {
    /// What it answers.
    type Answer: Send;

    /// The keys it may touch.
    fn keys(&self) -> &[RecordKey];

    /// Whether it may look at values, or only at whether there are any.
    fn reads_values(&self) -> bool {
        true
    }

    /// Called before each run, outside the lock: for whatever takes its time.
    fn prepare(&mut self) {}

    /// Runs, under the lock. Only the last run counts.
    fn run(&mut self, steps: &mut Steps<'_>) -> Self::Answer;
}

/// A bound of programs that was met. Nothing was stored by the command that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A key was not declared.
    Undeclared,
    /// More than [`MAX_KEYS`] keys.
    Keys,
    /// More than [`MAX_CHANGES`] changes.
    Changes,
    /// More than [`MAX_WATCHED`] keys are watched.
    Watched,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Undeclared => f.write_str(
                "a key was used that was not declared; give all keys of a script as KEYS",
            ),
            Bound::Keys => write!(f, "more than {MAX_KEYS} keys in one transaction or script"),
            Bound::Changes => {
                write!(
                    f,
                    "more than {MAX_CHANGES} changes in one transaction or script"
                )
            }
            Bound::Watched => write!(
                f,
                "{MAX_WATCHED} keys are watched already, over all connections; try again"
            ),
        }
    }
}

/// What a program asks of the engine, at one instant.
pub struct Steps<'a> {
    core: &'a mut Core,
    fetched: &'a Fetched,
    /// The keys, with their hashes.
    declared: &'a HashMap<RecordKey, u64>,
    now: Now,
    /// Whether there is room for changes at all.
    writable: bool,
    /// What no change may be larger than, all together.
    most: u64,
    token: Token,
    /// The highest entry that was seen.
    rest: Lsn,
    staged: HashMap<RecordKey, Option<Arc<Record>>>,
    taken: Vec<(Command, u64, Step)>,
    cost: Cost,
}

impl fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steps({} taken)", self.taken.len())
    }
}

impl Steps<'_> {
    /// The instant.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// Decides a unit on what the earlier ones left; its answers come one by one, as those of
    /// [`Engine::submit`].
    pub fn decide(&mut self, unit: &Unit) -> Vec<Result<Outcome, Unavailable>> {
        match unit {
            Unit::One(command) => vec![self.one(command, true)],
            Unit::All(commands) => self.all(commands),
        }
    }

    /// How far it has come.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            token: self.token,
            staged: self.staged.clone(),
            taken: self.taken.len(),
            cost: self.cost,
        }
    }

    /// Undoes what was done since.
    pub fn undo(&mut self, to: Mark) {
        self.taken.truncate(to.taken);
        (self.token, self.staged, self.cost) = (to.token, to.staged, to.cost);
    }

    /// Whether nothing happened to the watched keys since. The answer rests on what did.
    pub fn unchanged(&mut self, watch: &Watch) -> bool {
        for (key, _) in &watch.seen {
            let hash = self.declared.get(key).copied().unwrap_or_default();
            if let Some(row) = self.core.recent.get(hash, key) {
                self.rest = self.rest.max(row.lsn());
            }
        }
        watch.seen.iter().all(|(key, seen)| {
            let changes = self.core.watches.0.get(key).map(|watched| watched.changes);
            // What was there and is past its end now has changed too, though nobody wrote it.
            changes == Some(seen.changes) && (!seen.present || self.present(key))
        })
    }

    fn one(&mut self, command: &Command, alone: bool) -> Result<Outcome, Unavailable> {
        let key = &command.key;
        let hash = self.declared.get(key).copied();
        let hash = hash.ok_or(Unavailable::Program(Bound::Undeclared))?;
        let record = match self.staged.get(key) {
            Some(record) => record.clone(),
            None => self.core.record(command, hash, self.fetched)?,
        };
        let (now, token) = (self.now, (self.token, alone));
        let (core, rest) = (&*self.core, &mut self.rest);
        let step = core.step(command, hash, self.fetched, now, token, record, rest)?;
        let after = match &step.effect {
            Effect::None if step.late.is_none() => return Ok(step.outcome),
            Effect::None => None,
            Effect::Put(record) => Some(Some(record.clone())),
            Effect::Remove => Some(None),
        };
        if let Some(after) = after {
            if !self.writable {
                return Err(Unavailable::Full);
            }
            if self.taken.len() >= MAX_CHANGES {
                return Err(Unavailable::Program(Bound::Changes));
            }
            let size = after.as_deref().map_or(0, record_size);
            // A write is counted with all it brings, and a change of what was there with all it carries on.
            let own = cost(command).max(size.saturating_add(key.joined().len() * 2));
            if (self.cost.journal.saturating_add(own)) as u64 > self.most {
                return Err(Unavailable::TooLarge);
            }
            self.cost.journal = self.cost.journal.saturating_add(own);
            self.cost.memory = self.cost.memory.saturating_add(own);
            self.cost.adds |= !removes(&command.verb);
            self.staged.insert(key.clone(), after);
        }
        if step.granted {
            self.token = self.token.next().unwrap_or(Token::MAX);
        }
        let outcome = step.outcome.clone();
        self.taken.push((command.clone(), hash, step));
        Ok(outcome)
    }

    /// All of them, or none: where one does not hold, the earlier ones are undone.
    fn all(&mut self, commands: &[Command]) -> Vec<Result<Outcome, Unavailable>> {
        let (taken, token, cost) = (self.taken.len(), self.token, self.cost);
        let before: Vec<_> = commands
            .iter()
            .map(|command| (command.key.clone(), self.staged.get(&command.key).cloned()))
            .collect();
        let mut answers = Vec::with_capacity(commands.len());
        for command in commands {
            match self.one(command, false) {
                Ok(outcome) => answers.push(Ok(outcome)),
                Err(why) => {
                    answers = vec![Err(why); commands.len()];
                    break;
                }
            }
        }
        let holds = |answer: &Result<Outcome, _>| answer.as_ref().is_ok_and(Outcome::holds);
        if !answers.iter().all(holds) {
            self.taken.truncate(taken);
            (self.token, self.cost) = (token, cost);
            // Backwards, so that of a key that comes twice the first state stays.
            for (key, staged) in before.into_iter().rev() {
                match staged {
                    Some(staged) => self.staged.insert(key, staged),
                    None => self.staged.remove(&key),
                };
            }
        }
        answers
    }

    fn present(&self, key: &RecordKey) -> bool {
        let read = Command::new(key.clone(), Verb::String(StringVerb::Read)).without_bodies();
        let Some(hash) = self.declared.get(key).copied() else {
            return false;
        };
        let Ok(record) = self.core.record(&read, hash, self.fetched) else {
            return false;
        };
        let (now, token) = (self.now, (self.token, true));
        let (core, fetched, mut rest) = (&*self.core, self.fetched, Lsn(0));
        let step = core.step(&read, hash, fetched, now, token, record, &mut rest);
        step.is_ok_and(|step| step.outcome.record.is_some())
    }
}

/// How far a program had come.
pub struct Mark {
    token: Token,
    staged: HashMap<RecordKey, Option<Arc<Record>>>,
    taken: usize,
    cost: Cost,
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mark({} taken)", self.taken)
    }
}

/// Keys that are watched, each with how often it had changed.
#[derive(Debug, Default)]
pub(super) struct Watches(HashMap<RecordKey, Watched>);

#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    changes: u64,
}

impl Watches {
    /// A record was written or removed.
    pub(super) fn changed(&mut self, key: &RecordKey) {
        if let Some(watched) = self.0.get_mut(key) {
            watched.changes = watched.changes.wrapping_add(1);
        }
    }
}

/// Keys as they were at one instant; [`Steps::unchanged`] says whether anything happened to them since, and
/// be it that they were written and written back. Costs memory until it is dropped.
pub struct Watch {
    inner: Arc<Inner>,
    seen: Vec<(RecordKey, Seen)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    changes: u64,
    present: bool,
}

impl Watch {
    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &RecordKey> {
        self.seen.iter().map(|(key, _)| key)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({} keys)", self.seen.len())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut core = self.inner.core.lock();
        for (key, _) in &self.seen {
            if let Some(watched) = core.watches.0.get_mut(key) {
                watched.watchers = watched.watchers.saturating_sub(1);
                if watched.watchers == 0 {
                    core.watches.0.remove(key);
                }
            }
        }
    }
}

/// The program that begins to watch.
struct Begin<'a> {
    keys: Vec<RecordKey>,
    inner: &'a Arc<Inner>,
}

impl Program for Begin<'_> {
    type Answer = Result<Watch, Unavailable>;

    fn keys(&self) -> &[RecordKey] {
        &self.keys
    }

    fn reads_values(&self) -> bool {
        false
    }

    fn run(&mut self, steps: &mut Steps<'_>) -> Self::Answer {
        if steps.core.watches.0.len().saturating_add(self.keys.len()) > MAX_WATCHED {
            return Err(Unavailable::Program(Bound::Watched));
        }
        let mut seen = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let present = steps.present(key);
            let watched = steps.core.watches.0.entry(key.clone()).or_default();
            watched.watchers = watched.watchers.saturating_add(1);
            let changes = watched.changes;
            seen.push((key.clone(), Seen { changes, present }));
        }
        let inner = self.inner.clone();
        Ok(Watch { inner, seen })
    }
}

/// What came of one look under the lock.
enum Attempt<'a, Answer> {
    Done(Answer, Option<Durable>, Option<Flush<'a>>),
    Read(Vec<(RecordKey, bool)>, u64),
    Wait,
}

impl Engine {
    /// Runs a program: one decision, answered once what it rests on is durable.
    ///
    /// # Errors
    /// Then nothing was stored, but after [`Unavailable::Stopping`] it may have been.
    pub async fn run<P: Program>(&self, program: P) -> Result<P::Answer, Unavailable> {
        let timer = Timer::start();
        let answer = self.decide_program(program).await;
        self.inner.metrics.ran(self.face, timer.elapsed());
        if let Err(why) = &answer {
            self.inner.metrics.refused(*why);
        }
        answer
    }

    async fn decide_program<P: Program>(&self, mut program: P) -> Result<P::Answer, Unavailable> {
        let hasher = self.inner.reader.hasher();
        let hashed = |key: &RecordKey| (key.clone(), hasher.hash(key.joined()));
        let declared: HashMap<RecordKey, u64> = program.keys().iter().map(hashed).collect();
        if declared.len() > MAX_KEYS {
            return Err(Unavailable::Program(Bound::Keys));
        }
        let read = |key: &RecordKey| {
            let mut read = Command::new(key.clone(), Verb::String(StringVerb::Read));
            read.with_bodies = program.reads_values();
            Unit::One(read)
        };
        let reads: Vec<Unit> = declared.keys().map(read).collect();
        let asked = Asked::new(&reads, hasher);
        let mut fetch = Fetch::new(self);
        program.prepare();
        let (answer, durable) = loop {
            // Asked for before the look, so that no wake-up in between is lost.
            let room_made = self.inner.room_made.notified();
            match self.attempt(&mut program, &declared, &asked, fetch.fetched())? {
                Attempt::Done(answer, durable, flush) => {
                    if let Some(flush) = flush {
                        flush.run().await;
                    }
                    break (answer, durable);
                }
                Attempt::Wait => {
                    fetch.let_go();
                    if tokio::time::timeout(PATIENCE, room_made).await.is_err() {
                        let full = self.running()?.full;
                        return Err(match full {
                            true => Unavailable::Full,
                            false => Unavailable::Overloaded,
                        });
                    }
                    program.prepare();
                }
                Attempt::Read(missing, checkpoint) => {
                    fetch.read_all(&missing, checkpoint).await?;
                }
            }
        };
        drop(fetch);
        if let Some(durable) = durable
            && durable.await.is_err()
        {
            // The journal failed: what was decided may or may not be on the disk.
            return Err(Unavailable::Stopping);
        }
        Ok(answer)
    }

    /// Watches keys from now on.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub async fn watch(&self, keys: Vec<RecordKey>) -> Result<Watch, Unavailable> {
        let inner = &self.inner;
        self.run(Begin { keys, inner }).await?
    }

    fn attempt<'a, P: Program>(
        &'a self,
        program: &mut P,
        declared: &HashMap<RecordKey, u64>,
        asked: &Asked<'_>,
        fetched: &Fetched,
    ) -> Result<Attempt<'a, P::Answer>, Unavailable> {
        let mut core = self.running()?;
        let missing = core.missing(asked, fetched, |hashes, possible| {
            self.inner.reader.mark_possible(hashes, possible);
        })?;
        if !missing.is_empty() {
            return Ok(Attempt::Read(missing, core.checkpoints));
        }
        let was_empty = core.gather.is_empty();
        let mut writable = true;
        let (answer, durable) = loop {
            let (now, token) = (core.clock.now(), core.next_token);
            let mut steps = Steps {
                fetched,
                declared,
                now,
                writable,
                most: self.inner.limits.unit(),
                token,
                rest: Lsn(0),
                staged: HashMap::new(),
                taken: Vec::new(),
                cost: Cost::default(),
                core: &mut core,
            };
            let answer = program.run(&mut steps);
            let Steps {
                taken, cost, rest, ..
            } = steps;
            if taken.is_empty() {
                break (answer, core.gather.wait(rest));
            }
            if cost.memory > 0 && !self.has_room(&mut core, cost) {
                if core.exhausted && writable {
                    writable = false;
                    continue;
                }
                return Ok(Attempt::Wait);
            }
            let first = core.next_lsn;
            let steps = taken
                .iter()
                .map(|(command, hash, step)| (command, *hash, step.clone()));
            core.keep_all(steps.collect(), fetched, now, true)?;
            let rest = match core.next_lsn {
                next if next > first => rest.max(Lsn(next.0.saturating_sub(1))),
                _ => rest,
            };
            break (answer, core.gather.wait(rest));
        };
        let wake_journal = was_empty && !core.gather.is_empty();
        let wake_store = core.recent.active_bytes() >= self.inner.limits.freeze_at;
        self.inner.unlock(core);
        if wake_store {
            self.inner.wake_store.notify_one();
        }
        let flush = wake_journal.then(|| Flush::new(&self.inner));
        Ok(Attempt::Done(answer, durable, flush))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Options;
    use crate::model::command::{Expiry, Set, StringVerb};
    use crate::model::outcome::{StringReply, Verdict};

    type Body = dyn FnMut(&mut Steps<'_>) -> Vec<Result<Outcome, Unavailable>> + Send;

    struct Plan {
        keys: Vec<RecordKey>,
        prepared: usize,
        body: Box<Body>,
    }

    impl Program for Plan {
        type Answer = (usize, Vec<Result<Outcome, Unavailable>>);

        fn keys(&self) -> &[RecordKey] {
            &self.keys
        }

        fn prepare(&mut self) {
            self.prepared += 1;
        }

        fn run(&mut self, steps: &mut Steps<'_>) -> Self::Answer {
            (self.prepared, (self.body)(steps))
        }
    }

    fn key(name: &str) -> RecordKey {
        RecordKey::new("default", name.as_bytes()).unwrap()
    }

    fn plan(
        keys: &[&str],
        body: impl FnMut(&mut Steps<'_>) -> Vec<Result<Outcome, Unavailable>> + Send + 'static,
    ) -> Plan {
        Plan {
            keys: keys.iter().map(|name| key(name)).collect(),
            prepared: 0,
            body: Box::new(body),
        }
    }

    fn set(name: &str, value: Vec<u8>) -> Unit {
        let set = Set {
            value: value.into(),
            when: None,
            get: false,
            expiry: Expiry::Never,
        };
        let verb = StringVerb::Set(Box::new(set));
        Unit::One(Command::new(key(name), Verb::String(verb)))
    }

    fn add(name: &str) -> Unit {
        Unit::One(Command::new(key(name), Verb::String(StringVerb::Add(1))))
    }

    async fn value(engine: &Engine, name: &str) -> Option<Vec<u8>> {
        let read = Command::new(key(name), Verb::String(StringVerb::Read));
        let answer = engine
            .submit(vec![Unit::One(read)])
            .await
            .remove(0)
            .unwrap();
        let content = answer.string_value().unwrap()?;
        content.bytes().map(|bytes| bytes.to_vec())
    }

    #[tokio::test]
    async fn steps_see_each_other_and_what_is_undone_is_not_stored() {
        let engine = Engine::volatile(Options::default());
        let program = plan(&["a", "b"], |steps| {
            let mut answers = steps.decide(&add("a"));
            let mark = steps.mark();
            steps.decide(&add("a"));
            steps.decide(&set("b", vec![7; 50_000]));
            steps.undo(mark);
            answers.extend(steps.decide(&add("a")));
            answers
        });
        let (prepared, answers) = engine.run(program).await.unwrap();
        assert_eq!(prepared, 1);
        let numbers: Vec<_> = answers
            .into_iter()
            .map(|answer| answer.unwrap().verdict)
            .collect();
        let number = |number| Verdict::String(StringReply::Number(number));
        assert_eq!(numbers, [number(1), number(2)]);
        assert_eq!(value(&engine, "a").await, Some(b"2".to_vec()));
        assert_eq!(value(&engine, "b").await, None);
    }

    #[tokio::test]
    async fn a_large_value_is_written_and_changed_in_one_program() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.journal.segment_size = 16 << 20;
        let large = vec![7; 50_000];
        {
            let (engine, _) = Engine::open(dir.path(), options.clone()).unwrap();
            let written = large.clone();
            let program = plan(&["a"], move |steps| {
                let expire = StringVerb::Expire {
                    to: Expiry::In(crate::model::time::Span::from_secs(60)),
                    when: Default::default(),
                };
                let mut answers = steps.decide(&set("a", written.clone()));
                answers
                    .extend(steps.decide(&Unit::One(Command::new(key("a"), Verb::String(expire)))));
                answers
            });
            let (_, answers) = engine.run(program).await.unwrap();
            assert!(answers.iter().all(Result::is_ok));
            assert_eq!(value(&engine, "a").await, Some(large.clone()));
            engine.close().unwrap();
        }
        for _ in 0..2 {
            let (engine, _) = Engine::open(dir.path(), options.clone()).unwrap();
            assert_eq!(value(&engine, "a").await, Some(large.clone()));
            engine.close().unwrap();
        }
    }

    #[tokio::test]
    async fn bounds_are_errors_of_their_own() {
        let engine = Engine::volatile(Options::default());
        let program = plan(&["a"], |steps| {
            let mut answers = steps.decide(&add("other"));
            answers.extend(steps.decide(&set("a", vec![7; 9 << 20])));
            for _ in 0..=MAX_CHANGES {
                answers.push(steps.decide(&add("a")).remove(0));
            }
            answers
        });
        let (_, answers) = engine.run(program).await.unwrap();
        let whys: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        assert_eq!(whys.first(), Some(&Unavailable::Program(Bound::Undeclared)));
        assert_eq!(whys.get(1), Some(&Unavailable::TooLarge));
        assert!(matches!(
            whys.last(),
            Some(Unavailable::Program(Bound::Changes) | Unavailable::TooLarge)
        ));
        let names: Vec<String> = (0..=MAX_KEYS).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let why = engine.run(plan(&names, |_| Vec::new())).await.err();
        assert_eq!(why, Some(Unavailable::Program(Bound::Keys)));
        let mut watches = Vec::new();
        for number in 0..MAX_WATCHED / MAX_KEYS {
            let keys = (0..MAX_KEYS).map(|at| key(&format!("{number}:{at}")));
            watches.push(engine.watch(keys.collect()).await.unwrap());
        }
        let why = engine.watch(vec![key("one more")]).await.err();
        assert_eq!(why, Some(Unavailable::Program(Bound::Watched)));
        watches.pop();
        assert!(engine.watch(vec![key("one more")]).await.is_ok());
        drop(watches);
        assert!(
            engine.inner.core.lock().watches.0.is_empty(),
            "nothing is kept of them"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn watched_increments_of_many_are_lost_by_none() {
        let engine = Engine::volatile(Options::default());
        let clients: Vec<_> = (0..16)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut done = 0;
                    while done < 20 {
                        let watch = engine.watch(vec![key("n")]).await.unwrap();
                        let present = value(&engine, "n").await;
                        let text =
                            present.map_or("0".to_owned(), |v| String::from_utf8(v).unwrap());
                        let next = text.parse::<u64>().unwrap() + 1;
                        let program = plan(&["n"], move |steps| match steps.unchanged(&watch) {
                            true => steps.decide(&set("n", next.to_string().into_bytes())),
                            false => Vec::new(),
                        });
                        let (_, answers) = engine.run(program).await.unwrap();
                        done += answers.len();
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        assert_eq!(value(&engine, "n").await, Some(b"320".to_vec()));
    }
}
