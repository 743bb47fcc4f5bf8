//! What the engine's lock guards: the one order of decisions.
//!
//! Under the lock there is no IO: what a decision needs from the store was read before, or the filters say
//! that it is not there. What was read holds only as long as no checkpoint has dropped the map that hid it,
//! so it carries the number of checkpoints it was read under.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::clock::Clock;
use super::cost::{Cost, cost, looks_into_value, removes, shows_bodies, writes};
use super::gather::{Durable, Gather};
use super::late::Late;
use super::open::StoreId;
use super::program::Watches;
use super::recent::{End, Frozen, Recent, end, record_size};
use super::unchanged::Unchanged;
use super::waiters::Waiters;
use super::written::Written;
use super::{MAX_NAMESPACES, Unavailable, Unit};
use crate::model::body::LargeContent;
use crate::model::command::{Command, Payload, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Imported, Outcome, Verdict};
use crate::model::policy::{FingerprintKind, Policy};
use crate::model::record::{Fingerprint, Lsn, Record, Token};
use crate::model::time::{Now, Timestamp};
use crate::model::transition::{Context, Effect, Step, apply};
use crate::store::{CodecError, Counts, Entry, Gone, KeyHasher, encode_entry};

/// The state of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    Stopping,
    Failed,
}

pub(super) struct Core {
    pub(super) clock: Clock,
    pub(super) recent: Recent,
    pub(super) gather: Gather,
    pub(super) policies: Policies,
    pub(super) phase: Phase,
    /// The store thread has ended, so nobody asks the journal for anything any more.
    pub(super) store_ended: bool,
    /// Complete with an ended token, so far.
    pub(super) late: Late,
    /// The disk has no room for new records (SPEC 9).
    pub(super) full: bool,
    /// The reserve is used up as well: memory and segments do not get any emptier.
    pub(super) exhausted: bool,
    /// Somebody waits for a segment to be allocated.
    pub(super) wants_room: bool,
    /// What the store counts, as of the checkpoint that memory comes after.
    pub(super) stored: Counts,
    /// Checkpoints since the start: what was read from the store under another number is void.
    pub(super) checkpoints: u64,
    /// Readers that were overtaken twice: the frozen map stays until they have decided.
    pub(super) holds: u32,
    /// The store has everything up to here, and somebody waits until it has everything up to there.
    pub(super) in_store: Lsn,
    pub(super) wanted_in_store: Lsn,
    /// When the map was frozen that the store got last: no later sweep may go beyond it.
    pub(super) frozen_at: Timestamp,
    /// Namespaces that came into being, policies or records; forgotten at a restart if they have neither.
    pub(super) namespaces: HashSet<Box<str>>,
    /// What connections watch.
    pub(super) watches: Watches,
    /// Claims that wait for a key.
    pub(super) waiters: Waiters,
    /// A buffer.
    pub(super) written: Written,
    /// For the audit trail.
    pub(super) unchanged: Unchanged,
    pub(super) next_lsn: Lsn,
    /// [`Token::MAX`] is never granted: it says that all others were.
    pub(super) next_token: Token,
    /// Of the store behind it.
    pub(super) store_id: StoreId,
}

/// Policies by namespace, over the built-in default.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// Those that were put.
    pub(super) put: BTreeMap<String, Policy>,
    /// Those of the configuration: they go before.
    pub(super) configured: BTreeMap<String, Policy>,
    pub(super) standard: Policy,
}

impl Policies {
    pub(super) fn get(&self, namespace: &str) -> &Policy {
        self.configured
            .get(namespace)
            .or_else(|| self.put.get(namespace))
            .unwrap_or(&self.standard)
    }
}

/// What was read from the store, outside the lock.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// The checkpoints under which it was read.
    pub(super) checkpoints: u64,
    pub(super) found: HashMap<RecordKey, Found>,
}

/// A record of the store, its large bodies beside it.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) record: Option<Arc<Record>>,
    pub(super) bodies: Vec<LargeContent>,
}

/// The units of a batch, with the hashes of their commands' keys, which are computed outside the lock.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) units: &'a [Unit],
    hashes: Vec<u64>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(units: &'a [Unit], hasher: &KeyHasher) -> Asked<'a> {
        let commands = units.iter().flat_map(Unit::commands);
        let hashes = commands.map(|command| hasher.hash(command.key.joined()));
        Asked {
            units,
            hashes: hashes.collect(),
        }
    }

    /// Leaves all but the first `units` out.
    pub(super) fn keep(&mut self, units: usize) {
        self.units = self.units.get(..units).unwrap_or(self.units);
        let commands = self.units.iter().map(|unit| unit.commands().len());
        self.hashes.truncate(commands.sum());
    }

    /// Each with its hash.
    pub(super) fn commands(&self) -> impl Iterator<Item = (&'a Command, u64)> {
        let commands = self.units.iter().flat_map(Unit::commands);
        commands.zip(self.hashes.iter().copied())
    }
}

/// The answers of a batch, and what they rest on.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) answers: Vec<Result<Outcome, Unavailable>>,
    /// To wait for before any of them leaves.
    pub(super) durable: Option<Durable>,
}

impl Core {
    /// The keys of these commands that have to be read from the store first, and whether with their large bodies.
    /// `mark_possible` sets which of some hashes the store may know.
    pub(super) fn missing(
        &self,
        asked: &Asked<'_>,
        fetched: &Fetched,
        mark_possible: impl Fn(&[u64], &mut [bool]),
    ) -> Result<Vec<(RecordKey, bool)>, Unavailable> {
        let mut wanted = Vec::with_capacity(asked.hashes.len());
        let mut hashes = Vec::with_capacity(asked.hashes.len());
        for (command, hash) in asked.commands() {
            let key = &command.key;
            let read = fetched.checkpoints == self.checkpoints && fetched.found.contains_key(key);
            let here = match self.recent.get(hash, key) {
                Some(row) if row.has_large_bodies() && shows_bodies(command) => {
                    !row.lacks_bodies().map_err(|error| broken(command, error))?
                }
                Some(_) => true,
                None => false,
            };
            if !read && !here {
                let with_bodies = shows_bodies(command) || looks_into_value(&command.verb);
                wanted.push((key, with_bodies));
                hashes.push(hash);
            }
        }
        let mut possible = vec![false; hashes.len()];
        mark_possible(&hashes, &mut possible);
        let possible = wanted.into_iter().zip(possible);
        Ok(possible
            .filter(|(_, possible)| *possible)
            .map(|((key, with_bodies), _)| (key.clone(), with_bodies))
            .collect())
    }

    /// The fingerprints that a decision will ask for and that are not computed yet: by the policy's kind and
    /// by the record's, which may differ.
    pub(super) fn unhashed<'a>(
        &self,
        asked: &Asked<'a>,
        fetched: &Fetched,
    ) -> Result<Vec<(&'a Payload, FingerprintKind)>, Unavailable> {
        let mut wanted = Vec::new();
        for (command, hash) in asked.commands() {
            let Verb::Claim(claim) = &command.verb else {
                continue;
            };
            let (None, Some(payload)) = (&claim.fingerprint, &claim.payload) else {
                continue;
            };
            let record = self.record(command, hash, fetched)?;
            let kept = record.and_then(|record| match record.fingerprint {
                Some(Fingerprint::Raw(_)) => Some(FingerprintKind::Raw),
                Some(Fingerprint::Json(_)) => Some(FingerprintKind::Json),
                _ => None,
            });
            let policy = self.policies.get(command.key.namespace()).fingerprint;
            let kinds = kept.into_iter().chain([policy]);
            wanted.extend(
                kinds
                    .filter(|kind| !payload.knows(*kind))
                    .map(|kind| (payload, kind)),
            );
        }
        Ok(wanted)
    }

    /// The record as memory or else the store has it.
    pub(super) fn record(
        &self,
        command: &Command,
        hash: u64,
        fetched: &Fetched,
    ) -> Result<Option<Arc<Record>>, Unavailable> {
        match self.recent.get(hash, &command.key) {
            Some(row) => {
                let record = row.record().map_err(|error| broken(command, error))?;
                Ok(record.map(Arc::new))
            }
            None => Ok(self
                .found(&command.key, fetched)
                .and_then(|found| found.record.clone())),
        }
    }

    /// What was read from the store, unless a checkpoint has made it void since: then the key was read again,
    /// or the filters say by now that it is not there.
    fn found<'a>(&self, key: &RecordKey, fetched: &'a Fetched) -> Option<&'a Found> {
        if fetched.found.is_empty() || fetched.checkpoints != self.checkpoints {
            return None;
        }
        fetched.found.get(key)
    }

    /// Bytes that deciding these units can take at most.
    pub(super) fn cost(&self, asked: &Asked<'_>, fetched: &Fetched) -> Cost {
        let mut sum = Cost::default();
        for (command, hash) in asked
            .commands()
            .filter(|(command, _)| writes(&command.verb))
        {
            let own = cost(command);
            if removes(&command.verb) {
                sum.memory = sum.memory.saturating_add(own);
                sum.journal = sum.journal.saturating_add(own);
                continue;
            }
            sum.adds = true;
            // Large bodies are in the journal already: entries refer to them.
            let (carried, large) = match self.recent.get(hash, &command.key) {
                Some(row) => (row.size(), row.held()),
                None => {
                    let found = self.found(&command.key, fetched);
                    let record = found.and_then(|found| found.record.as_deref());
                    (record.map_or(0, record_size), 0)
                }
            };
            sum.memory = sum.memory.saturating_add(own).saturating_add(carried);
            sum.journal = (sum.journal)
                .saturating_add(own)
                .saturating_add(carried.saturating_sub(large));
        }
        sum
    }

    /// Decides a batch, in order, at one instant; where nothing can be written, what would is refused.
    pub(super) fn decide(&mut self, asked: &Asked<'_>, fetched: &Fetched, write: bool) -> Decided {
        let now = self.clock.now();
        let first = self.next_lsn;
        let mut answers = Vec::with_capacity(asked.hashes.len());
        let mut hashes = asked.hashes.iter().copied();
        let mut rest = Lsn(0);
        for unit in asked.units {
            match unit {
                Unit::One(command) => {
                    let hash = hashes.next().unwrap_or_default();
                    answers.push(self.decide_one(command, hash, fetched, now, write, &mut rest));
                }
                Unit::All(commands) => {
                    let commands: Vec<_> = commands.iter().zip(&mut hashes).collect();
                    let answer = self.decide_all(&commands, fetched, now, write, &mut rest);
                    answers.extend(spread(answer, commands.len()));
                }
            }
        }
        self.resting(answers, first, rest)
    }

    /// Answers that rest on an entry that was seen, and on their own: all from `first` on.
    pub(super) fn resting(
        &mut self,
        answers: Vec<Result<Outcome, Unavailable>>,
        first: Lsn,
        mut rest: Lsn,
    ) -> Decided {
        if self.next_lsn > first {
            // The last one given is the highest.
            rest = rest.max(Lsn(self.next_lsn.0 - 1));
        }
        let durable = self.gather.wait(rest);
        Decided { answers, durable }
    }

    fn decide_one(
        &mut self,
        command: &Command,
        hash: u64,
        fetched: &Fetched,
        now: Now,
        write: bool,
        rest: &mut Lsn,
    ) -> Result<Outcome, Unavailable> {
        let record = self.record(command, hash, fetched)?;
        let replaced = record.as_deref().map(end);
        let grants = (self.next_token, true);
        let step = self.step(command, hash, fetched, now, grants, record, rest)?;
        self.keep_one(command, hash, step, replaced, now, write)
    }

    /// Writes a decision down; `replaced` is the end of the record that was there.
    pub(super) fn keep_one(
        &mut self,
        command: &Command,
        hash: u64,
        step: Step,
        replaced: Option<End>,
        now: Now,
        write: bool,
    ) -> Result<Outcome, Unavailable> {
        match step.effect {
            Effect::None => Ok(self.account(command, step)),
            _ if !write => Err(Unavailable::Full),
            _ => {
                let lsn = self.next_lsn;
                self.written.write(command, &step, lsn, now)?;
                self.gather.push(lsn, [self.written.entry.as_slice()]);
                let written = std::mem::take(&mut self.written);
                self.enter(&command.key, hash, &written, replaced);
                self.written = written;
                self.tell_waiters(&command.key, &step.effect, now);
                Ok(self.account(command, step))
            }
        }
    }

    fn decide_all(
        &mut self,
        commands: &[(&Command, u64)],
        fetched: &Fetched,
        now: Now,
        write: bool,
        rest: &mut Lsn,
    ) -> Result<Vec<Outcome>, Unavailable> {
        // What the earlier commands of the unit did, as the later ones have to see it.
        let mut staged: HashMap<&RecordKey, Option<Arc<Record>>> = HashMap::new();
        let mut token = self.next_token;
        let mut steps = Vec::with_capacity(commands.len());
        for (command, hash) in commands {
            let key = &command.key;
            let record = match staged.get(key) {
                Some(record) => record.clone(),
                None => self.record(command, *hash, fetched)?,
            };
            let grants = (token, false);
            let step = self.step(command, *hash, fetched, now, grants, record, rest)?;
            match &step.effect {
                Effect::None => {}
                Effect::Put(record) => {
                    staged.insert(key, Some(record.clone()));
                }
                Effect::Remove => {
                    staged.insert(key, None);
                }
            }
            if step.granted {
                token = token.next().unwrap_or(Token::MAX);
            }
            steps.push((*command, *hash, step));
        }
        if steps.iter().all(|(_, _, step)| step.outcome.holds()) {
            self.keep_all(steps, fetched, now, write)
        } else {
            Ok(steps.into_iter().map(|(_, _, step)| step.outcome).collect())
        }
    }

    /// One decision on the record as memory, the unit so far or the store has it; nothing is kept yet. A
    /// duplicate restarts its window only `alone`: a unit that one is in stores nothing.
    #[allow(clippy::too_many_arguments)] // all that a decision depends on
    pub(super) fn step(
        &self,
        command: &Command,
        hash: u64,
        fetched: &Fetched,
        now: Now,
        (token, alone): (Token, bool),
        mut record: Option<Arc<Record>>,
        rest: &mut Lsn,
    ) -> Result<Step, Unavailable> {
        let key = &command.key;
        if let Some(row) = self.recent.get(hash, key) {
            *rest = (*rest).max(row.lsn());
        }
        if looks_into_value(&command.verb)
            && let Some(record) = &mut record
            && let Some(found) = self.found(key, fetched)
            && record.lacks_bodies()
        {
            Arc::make_mut(record).attach_bodies(&found.bodies);
        }
        let policy = self.policies.get(key.namespace());
        let token = (token < Token::MAX).then_some(token);
        let context = Context {
            policy,
            now,
            token,
            slide: alone && !self.full,
        };
        let mut step = apply(context, record.as_ref(), command);
        let imported = matches!(step.outcome.verdict, Verdict::Imported(Imported::Stored));
        let created = step.granted || imported;
        if created && record.is_none() && self.is_one_namespace_too_many(command) {
            return Err(Unavailable::Namespaces);
        }
        if self.full && (created || matches!(step.outcome.verdict, Verdict::Replayed)) {
            return Err(Unavailable::Full);
        }
        if let Some(shown) = &mut step.outcome.record
            && shows_bodies(command)
            && let Some(found) = self.found(key, fetched)
            && !found.bodies.is_empty()
            && shown.record.lacks_bodies()
        {
            Arc::make_mut(&mut shown.record).attach_bodies(&found.bodies);
        }
        Ok(step)
    }

    fn is_one_namespace_too_many(&self, command: &Command) -> bool {
        self.is_namespace_too_many(command.key.namespace())
    }

    pub(super) fn is_namespace_too_many(&self, namespace: &str) -> bool {
        self.namespaces.len() >= MAX_NAMESPACES && !self.namespaces.contains(namespace)
    }

    /// Writes decisions down that stand or fall together. Nothing is written if one of the entries cannot be.
    pub(super) fn keep_all(
        &mut self,
        steps: Vec<(&Command, u64, Step)>,
        fetched: &Fetched,
        now: Now,
        write: bool,
    ) -> Result<Vec<Outcome>, Unavailable> {
        let writes = |step: &Step| !matches!(step.effect, Effect::None);
        if !write && steps.iter().any(|(_, _, step)| writes(step)) {
            return Err(Unavailable::Full);
        }
        let first = self.next_lsn;
        let mut lsn = first;
        let mut entries = Vec::new();
        let mut left: HashMap<&RecordKey, Option<End>> = HashMap::new();
        for (command, hash, step) in steps.iter().filter(|(_, _, step)| writes(step)) {
            let mut written = Written::default();
            written.write(command, step, lsn, now)?;
            // What an earlier step of the unit wrote is what a later one replaces.
            let before = match left.get(&command.key) {
                Some(before) => *before,
                None => self.record(command, *hash, fetched)?.as_deref().map(end),
            };
            let after = match &step.effect {
                Effect::Put(record) => Some(end(record)),
                Effect::None | Effect::Remove => None,
            };
            left.insert(&command.key, after);
            entries.push((*command, *hash, written, before));
            lsn = Lsn(lsn.0.saturating_add(1));
        }
        if !entries.is_empty() {
            let bytes = entries
                .iter()
                .map(|(_, _, written, _)| written.entry.as_slice());
            self.gather.push(first, bytes);
        }
        for (command, hash, written, replaced) in &entries {
            self.enter(&command.key, *hash, written, *replaced);
        }
        for (command, _, step) in &steps {
            self.tell_waiters(&command.key, &step.effect, now);
        }
        let outcomes = steps.into_iter();
        Ok(outcomes
            .map(|(command, _, step)| self.account(command, step))
            .collect())
    }

    /// Takes what was written into memory, at the LSN it was written for.
    fn enter(&mut self, key: &RecordKey, hash: u64, written: &Written, replaced: Option<End>) {
        if replaced.is_none() && !self.namespaces.contains(key.namespace()) {
            self.namespaces.insert(key.namespace().into());
        }
        let change = written.change();
        self.next_lsn = Lsn(change.lsn.0.saturating_add(1));
        self.recent.put(hash, key, change, replaced);
        self.watches.changed(key);
    }

    /// What a decision uses up and what is counted of it.
    fn account(&mut self, command: &Command, step: Step) -> Outcome {
        if matches!(step.effect, Effect::None) && writes(&command.verb) {
            self.unchanged.add(command, &step.outcome, step.outcome.now);
        }
        if step.granted {
            self.next_token = self.next_token.next().unwrap_or(Token::MAX);
        }
        if let (Verb::Import(import), Verdict::Imported(Imported::Stored)) =
            (&command.verb, &step.outcome.verdict)
        {
            let above = import.granted.next().unwrap_or(Token::MAX);
            self.next_token = self.next_token.max(above);
        }
        if let Some(token) = step.late
            && self.late.add(token)
        {
            tracing::warn!(
                key = ?command.key, %token,
                "a complete came with an ended token: the work may have been done twice"
            );
        }
        step.outcome
    }

    /// Gives the decisions that changed nothing to the next frame, if so many bytes of segments have room for them.
    /// Whether there are any in it now.
    pub(super) fn write_unchanged(&mut self, room: u64) -> bool {
        let needed = self.gather.queued().saturating_add(self.unchanged.cost());
        if self.unchanged.is_empty() || self.full || needed > room {
            return false;
        }
        let mut bytes = Vec::new();
        for (change, decision) in self.unchanged.take() {
            let entry = Entry {
                lsn: self.next_lsn,
                change,
                decision,
            };
            bytes.clear();
            match encode_entry(&entry, &mut bytes) {
                Ok(()) => {
                    self.gather.push(entry.lsn, [bytes.as_slice()]);
                    self.next_lsn = Lsn(entry.lsn.0.saturating_add(1));
                }
                Err(error) => tracing::error!(%error, "a decision does not fit the audit trail"),
            }
        }
        true
    }

    /// Freezes what is active, for a checkpoint.
    pub(super) fn freeze(&mut self) -> Frozen {
        let last = Lsn(self.next_lsn.0.saturating_sub(1));
        let now = self.clock.now();
        self.recent.freeze(last, self.next_token, now.time)
    }

    /// Freezes what is active into the map that finds no space, if that makes it smaller.
    pub(super) fn refreeze(&mut self) -> Option<Frozen> {
        let last = Lsn(self.next_lsn.0.saturating_sub(1));
        let now = self.clock.now();
        self.recent.refreeze(last, self.next_token, now.time)
    }

    /// Records that memory hides are not in the store any more.
    pub(super) fn went(&mut self, gone: &[Gone], stored: Counts) {
        self.recent.went(gone);
        self.stored = stored;
    }

    /// The store has the frozen map now: what was read before is void.
    pub(super) fn thaw(&mut self, stored: Counts) -> Option<Frozen> {
        self.checkpoints += 1;
        self.stored = stored;
        self.recent.thaw()
    }
}

/// The answers of a unit one by one; what refuses a unit refuses each of its commands.
fn spread(
    answer: Result<Vec<Outcome>, Unavailable>,
    commands: usize,
) -> impl Iterator<Item = Result<Outcome, Unavailable>> {
    let (outcomes, refused) = match answer {
        Ok(outcomes) => (outcomes, None),
        Err(why) => (Vec::new(), Some(std::iter::repeat_n(Err(why), commands))),
    };
    outcomes
        .into_iter()
        .map(Ok)
        .chain(refused.into_iter().flatten())
}

/// Memory does not hold what was put there.
fn broken(command: &Command, error: CodecError) -> Unavailable {
    tracing::error!(key = ?command.key, %error, "a recent record cannot be read; the machine's memory may be failing");
    Unavailable::Defect
}
