//! What the engine's lock guards: the one order of decisions.
//!
//! Under the lock there is no IO: what a decision needs from the store was read before, or the filters say
//! that it is not there. What was read holds only as long as no checkpoint has dropped the map that hid it,
//! so it carries the number of checkpoints it was read under.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::clock::Clock;
use super::gather::{Durable, Gather};
use super::late::Late;
use super::program::Watches;
pub(super) use super::recent::record_size;
use super::recent::{Frozen, Recent, Slot};
use super::{MAX_NAMESPACES, Unavailable, Unit};
use crate::model::body::{Content, LargeContent};
use crate::model::command::{Command, Mode, Payload, StringVerb, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Reason, Verdict};
use crate::model::policy::{FingerprintKind, Policy};
use crate::model::record::{Fingerprint, Lsn, Record, Token};
use crate::model::time::{Now, Timestamp};
use crate::model::transition::{Context, Effect, Step, apply};
use crate::store::{Change, Decision, Entry, encode_entry};

/// What a new record costs in memory or in the journal beside its key, names and bodies, generously.
const OVERHEAD: usize = 1024;

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
    /// Checkpoints since the start: what was read from the store under another number is void.
    pub(super) checkpoints: u64,
    /// Readers that were overtaken twice: the frozen map stays until they have decided.
    pub(super) holds: u32,
    /// When the map was frozen that the store got last: no later sweep may go beyond it.
    pub(super) frozen_at: Timestamp,
    /// Namespaces that came into being, policies or records; forgotten at a restart if they have neither.
    pub(super) namespaces: HashSet<Box<str>>,
    /// What connections watch.
    pub(super) watches: Watches,
    /// A buffer for entries.
    pub(super) entry: Vec<u8>,
    pub(super) next_lsn: Lsn,
    /// [`Token::MAX`] is never granted: it says that all others were.
    pub(super) next_token: Token,
}

/// Policies by namespace, over the built-in default.
#[derive(Debug, Default)]
pub(super) struct Policies {
    pub(super) by_namespace: BTreeMap<String, Policy>,
    pub(super) standard: Policy,
}

impl Policies {
    pub(super) fn get(&self, namespace: &str) -> &Policy {
        self.by_namespace.get(namespace).unwrap_or(&self.standard)
    }
}

/// Bytes that decisions can take at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// In memory.
    pub(super) memory: usize,
    /// In the journal.
    pub(super) journal: usize,
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
    pub(super) bodies: Vec<(Lsn, Bytes)>,
}

/// The answers of a batch, and what they rest on.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) answers: Vec<Result<Outcome, Unavailable>>,
    /// To wait for before any of them leaves.
    pub(super) durable: Option<Durable>,
}

impl Unit {
    /// Its commands, in order.
    #[must_use]
    pub fn commands(&self) -> &[Command] {
        match self {
            Unit::One(command) => std::slice::from_ref(command),
            Unit::All(commands) => commands,
        }
    }

    /// Bytes its entries and records can take at most, beside what the records have already.
    pub(super) fn cost(&self) -> usize {
        self.commands().iter().map(cost).sum()
    }
}

/// Whether a command can change anything.
pub(super) fn writes(verb: &Verb) -> bool {
    !matches!(
        verb,
        Verb::Get | Verb::String(StringVerb::Read | StringVerb::Digest)
    )
}

pub(super) fn cost(command: &Command) -> usize {
    if !writes(&command.verb) {
        return 0;
    }
    let bodies = match &command.verb {
        Verb::Claim(claim) => {
            let result = match &claim.mode {
                Mode::Once { result: Some(kept) } => kept.body.content.len(),
                _ => 0,
            };
            result
                + claim
                    .payload
                    .as_ref()
                    .map_or(0, |payload| payload.body.content.len())
        }
        Verb::Complete { result, .. } => result.body.content.len(),
        Verb::Fail { error, .. } => error.as_ref().map_or(0, |error| error.len()),
        Verb::String(StringVerb::Set(set)) => set.value.len(),
        _ => 0,
    };
    OVERHEAD + command.key.joined().len() * 2 + bodies
}

/// Whether the bodies' bytes belong into the answer.
fn shows_bodies(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Claim(_)
            | Verb::Get
            | Verb::String(
                StringVerb::Read
                    | StringVerb::Digest
                    | StringVerb::Set(_)
                    | StringVerb::Delete { .. }
                    | StringVerb::Expire { .. }
            )
    )
}

/// Whether the bodies' bytes are needed to decide: those of a large value may be in the store alone.
fn looks_into_value(verb: &Verb) -> bool {
    matches!(verb, Verb::String(verb) if verb.looks_into_value())
}

impl Core {
    /// The keys of these commands that have to be read from the store first.
    pub(super) fn missing(
        &self,
        units: &[Unit],
        fetched: &Fetched,
        may_contain: impl Fn(&RecordKey) -> bool,
    ) -> Vec<RecordKey> {
        let mut keys = Vec::new();
        for command in units.iter().flat_map(Unit::commands) {
            let key = &command.key;
            let read = fetched.checkpoints == self.checkpoints && fetched.found.contains_key(key);
            let wanted = match self.recent.get(key) {
                Some(slot) => {
                    shows_bodies(&command.verb)
                        && slot
                            .record
                            .as_deref()
                            .is_some_and(|record| absent_bodies(record) > 0)
                }
                None => true,
            };
            if wanted && !read && may_contain(&command.key) {
                keys.push(command.key.clone());
            }
        }
        keys
    }

    /// The fingerprints that a decision will ask for and that are not computed yet: by the policy's kind and
    /// by the record's, which may differ.
    pub(super) fn unhashed<'a>(
        &self,
        units: &'a [Unit],
        fetched: &Fetched,
    ) -> Vec<(&'a Payload, FingerprintKind)> {
        let mut wanted = Vec::new();
        for command in units.iter().flat_map(Unit::commands) {
            let Verb::Claim(claim) = &command.verb else {
                continue;
            };
            let (None, Some(payload)) = (&claim.fingerprint, &claim.payload) else {
                continue;
            };
            let kept =
                self.record(&command.key, fetched)
                    .and_then(|record| match record.fingerprint {
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
        wanted
    }

    /// The record as memory or else the store has it.
    fn record<'a>(&'a self, key: &RecordKey, fetched: &'a Fetched) -> Option<&'a Arc<Record>> {
        match self.recent.get(key) {
            Some(slot) => slot.record.as_ref(),
            None => self.found(key, fetched)?.record.as_ref(),
        }
    }

    /// What was read from the store, unless a checkpoint has made it void since: then the key was read again,
    /// or the filters say by now that it is not there.
    fn found<'a>(&self, key: &RecordKey, fetched: &'a Fetched) -> Option<&'a Found> {
        let valid = fetched.checkpoints == self.checkpoints;
        fetched.found.get(key).filter(|_| valid)
    }

    /// Bytes that deciding these units can take at most.
    pub(super) fn cost(&self, units: &[Unit], fetched: &Fetched) -> Cost {
        let commands = units.iter().flat_map(Unit::commands);
        let mut sum = Cost::default();
        for command in commands.filter(|command| writes(&command.verb)) {
            let own = cost(command);
            let record = self.record(&command.key, fetched);
            let carried = record.map_or(0, |record| record_size(record));
            // Large bodies are in the journal already: entries refer to them.
            let large = record.map_or(0, |record| {
                let bytes = large_bodies(record).filter_map(|large| large.bytes.as_ref());
                bytes.map(Bytes::len).sum()
            });
            sum.memory = sum.memory.saturating_add(own).saturating_add(carried);
            sum.journal =
                (sum.journal.saturating_add(own)).saturating_add(carried.saturating_sub(large));
        }
        sum
    }

    /// Decides a batch, in order, at one instant; where nothing can be written, what would is refused.
    pub(super) fn decide(&mut self, units: &[Unit], fetched: &Fetched, write: bool) -> Decided {
        let now = self.clock.now();
        let first = self.next_lsn;
        let mut answers = Vec::with_capacity(units.len());
        let mut rest = Lsn(0);
        for unit in units {
            match unit {
                Unit::One(command) => {
                    let step = self.step(command, fetched, now, self.next_token, None, &mut rest);
                    answers.push(step.and_then(|step| match step.effect {
                        Effect::None => Ok(self.account(command, step)),
                        _ if !write => Err(Unavailable::Full),
                        _ => self.keep(command, step, fetched, now),
                    }));
                }
                Unit::All(commands) => {
                    let answer = self.decide_all(commands, fetched, now, write, &mut rest);
                    answers.extend(spread(answer, commands.len()));
                }
            }
        }
        if self.next_lsn > first {
            // Entries of this batch: the last one given is the highest it rests on.
            rest = rest.max(Lsn(self.next_lsn.0 - 1));
        }
        Decided {
            answers,
            durable: self.gather.wait(rest),
        }
    }

    fn decide_all(
        &mut self,
        commands: &[Command],
        fetched: &Fetched,
        now: Now,
        write: bool,
        rest: &mut Lsn,
    ) -> Result<Vec<Outcome>, Unavailable> {
        // What the earlier commands of the unit did, as the later ones have to see it.
        let mut staged: HashMap<&RecordKey, Option<Arc<Record>>> = HashMap::new();
        let mut token = self.next_token;
        let mut steps = Vec::with_capacity(commands.len());
        for command in commands {
            let key = &command.key;
            let step = self.step(command, fetched, now, token, staged.get(key), rest)?;
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
            steps.push((command, step));
        }
        if steps.iter().all(|(_, step)| step.outcome.holds()) {
            self.keep_all(steps, fetched, now, write)
        } else {
            Ok(steps.into_iter().map(|(_, step)| step.outcome).collect())
        }
    }

    /// One decision on the record as memory, the unit so far or the store has it; nothing is kept yet.
    pub(super) fn step(
        &self,
        command: &Command,
        fetched: &Fetched,
        now: Now,
        token: Token,
        staged: Option<&Option<Arc<Record>>>,
        rest: &mut Lsn,
    ) -> Result<Step, Unavailable> {
        let key = &command.key;
        let slot = self.recent.get(key);
        if let Some(slot) = slot {
            *rest = (*rest).max(slot.lsn);
        }
        let record = match staged {
            Some(record) => record.as_ref(),
            None => self.record(key, fetched),
        };
        let found = self.found(key, fetched);
        let whole = match (record, found) {
            (Some(record), Some(found)) if looks_into_value(&command.verb) => {
                let mut record = record.clone();
                attach(&mut record, &found.bodies);
                Some(record)
            }
            _ => None,
        };
        let record = whole.as_ref().or(record);
        let policy = self.policies.get(command.key.namespace());
        let token = (token < Token::MAX).then_some(token);
        let context = Context {
            policy,
            now,
            token,
            slide: !self.full,
        };
        let mut step = apply(context, record, command);
        if step.granted && record.is_none() && self.is_one_namespace_too_many(command) {
            return Err(Unavailable::Namespaces);
        }
        if self.full && (step.granted || matches!(step.outcome.verdict, Verdict::Replayed)) {
            return Err(Unavailable::Full);
        }
        if let (true, Some(shown), Some(found)) =
            (shows_bodies(&command.verb), &mut step.outcome.record, found)
        {
            attach(&mut shown.record, &found.bodies);
        }
        Ok(step)
    }

    fn is_one_namespace_too_many(&self, command: &Command) -> bool {
        self.namespaces.len() >= MAX_NAMESPACES
            && !self.namespaces.contains(command.key.namespace())
    }

    /// Writes one decision down: in memory and in the next frame.
    fn keep(
        &mut self,
        command: &Command,
        step: Step,
        fetched: &Fetched,
        now: Now,
    ) -> Result<Outcome, Unavailable> {
        let lsn = self.next_lsn;
        let mut entry = std::mem::take(&mut self.entry);
        entry.clear();
        let slot = plan(command, &step, lsn, now, &mut entry);
        if let Ok(Some(slot)) = &slot {
            self.gather.push(lsn, [entry.as_slice()]);
            self.enter(&command.key, slot.clone(), fetched);
        }
        self.entry = entry;
        slot?;
        Ok(self.account(command, step))
    }

    /// Writes decisions down that stand or fall together. Nothing is written if one of the entries cannot be.
    pub(super) fn keep_all(
        &mut self,
        steps: Vec<(&Command, Step)>,
        fetched: &Fetched,
        now: Now,
        write: bool,
    ) -> Result<Vec<Outcome>, Unavailable> {
        let writes = |(_, step): &(&Command, Step)| !matches!(step.effect, Effect::None);
        if !write && steps.iter().any(writes) {
            return Err(Unavailable::Full);
        }
        let first = self.next_lsn;
        let mut lsn = first;
        let mut entries: Vec<Vec<u8>> = Vec::new();
        let mut slots = Vec::new();
        for (command, step) in &steps {
            let mut entry = Vec::new();
            if let Some(slot) = plan(command, step, lsn, now, &mut entry)? {
                entries.push(entry);
                slots.push((&command.key, slot));
                lsn = Lsn(lsn.0.saturating_add(1));
            }
        }
        if !entries.is_empty() {
            self.gather.push(first, entries.iter().map(Vec::as_slice));
        }
        for (key, slot) in slots {
            self.enter(key, slot, fetched);
        }
        let outcomes = steps.into_iter();
        Ok(outcomes
            .map(|(command, step)| self.account(command, step))
            .collect())
    }

    /// Takes a planned slot into memory, at the LSN it was planned for.
    fn enter(&mut self, key: &RecordKey, slot: Slot, fetched: &Fetched) {
        let existed = self.record(key, fetched).is_some();
        if !existed && !self.namespaces.contains(key.namespace()) {
            self.namespaces.insert(key.namespace().into());
        }
        self.next_lsn = Lsn(slot.lsn.0.saturating_add(1));
        self.watches.changed(key);
        self.recent.put(key.clone(), slot, existed);
    }

    /// What a decision uses up and what is counted of it.
    fn account(&mut self, command: &Command, step: Step) -> Outcome {
        if step.granted {
            self.next_token = self.next_token.next().unwrap_or(Token::MAX);
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

    /// Freezes what is active, for a checkpoint.
    pub(super) fn freeze(&mut self) -> Frozen {
        let last = Lsn(self.next_lsn.0.saturating_sub(1));
        let now = self.clock.now();
        self.recent.freeze(last, self.next_token, now.time)
    }

    /// The store has the frozen map now: what was read before is void.
    pub(super) fn thaw(&mut self) -> Option<Frozen> {
        self.checkpoints += 1;
        self.recent.thaw()
    }
}

/// What a decision writes: its entry, appended to `entry`, and what memory keeps. `None`: it changes nothing.
fn plan(
    command: &Command,
    step: &Step,
    lsn: Lsn,
    now: Now,
    entry: &mut Vec<u8>,
) -> Result<Option<Slot>, Unavailable> {
    let record = match &step.effect {
        Effect::None => return Ok(None),
        Effect::Put(record) => Some(placed(record.clone(), lsn)),
        Effect::Remove => None,
    };
    let decision = decision(command, &step.outcome, record.as_deref(), now);
    let key = command.key.clone();
    let change = match &record {
        Some(record) => Change::Put(key, record.clone()),
        None => Change::Remove(key),
    };
    if let Err(error) = encode_entry(
        &Entry {
            lsn,
            change,
            decision,
        },
        entry,
    ) {
        // Faces and model keep every field within what an entry can hold.
        tracing::error!(key = ?command.key, %error, "a decision does not fit an entry of the journal");
        return Err(Unavailable::Defect);
    }
    Ok(Some(Slot { record, lsn }))
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

/// The decision as the audit trail keeps it.
fn decision(command: &Command, outcome: &Outcome, record: Option<&Record>, now: Now) -> Decision {
    let shown = outcome.record.as_ref().map(|shown| &*shown.record);
    let facts = record.or(shown);
    let reason = match outcome.verdict {
        Verdict::Acquired(reason) => Some(reason),
        _ => None,
    };
    let event = match outcome.verdict {
        // These change a record without a fact of its history.
        Verdict::Renewed | Verdict::Done | Verdict::Acquired(Reason::Resumed) => None,
        _ => record
            .and_then(|record| record.history.last())
            .map(|entry| entry.event),
    };
    Decision {
        at: now.time,
        verb: command.verb.name(),
        outcome: outcome.verdict.name(),
        reason,
        event,
        token: facts.map(|facts| facts.token),
        attempt: facts.map_or(0, |facts| facts.attempt),
        generation: facts.map_or(0, |facts| facts.generation),
        by: command
            .by
            .clone()
            .or_else(|| facts.and_then(|facts| facts.owner.clone())),
        count: 1,
    }
}

/// The record with its new large bodies placed: this entry is the one that makes them durable.
fn placed(mut record: Arc<Record>, lsn: Lsn) -> Arc<Record> {
    if large_bodies(&record).any(|large| large.lsn.is_none()) {
        for large in large_bodies_mut(Arc::make_mut(&mut record)) {
            large.lsn.get_or_insert(lsn);
        }
    }
    record
}

/// Puts bytes read from the store into a record that is about to be shown.
fn attach(record: &mut Arc<Record>, bodies: &[(Lsn, Bytes)]) {
    if bodies.is_empty() || absent_bodies(record) == 0 {
        return;
    }
    for large in large_bodies_mut(Arc::make_mut(record)) {
        let found = bodies.iter().find(|(lsn, _)| large.lsn == Some(*lsn));
        if let (None, Some((_, bytes))) = (&large.bytes, found) {
            large.bytes = Some(bytes.clone());
        }
    }
}

/// Takes the bytes of large bodies out of a record read from the store, so that memory and journal carry
/// references to what the store has already.
pub(super) fn detach(record: &mut Record) -> Vec<(Lsn, Bytes)> {
    large_bodies_mut(record)
        .filter_map(|large| Some((large.lsn?, large.bytes.take()?)))
        .collect()
}

fn absent_bodies(record: &Record) -> usize {
    large_bodies(record)
        .filter(|large| large.bytes.is_none())
        .count()
}

pub(super) fn large_bodies(record: &Record) -> impl Iterator<Item = &LargeContent> {
    let results = record
        .result
        .iter()
        .chain(&record.earlier_result)
        .map(|kept| &kept.body);
    results
        .chain(&record.payload)
        .filter_map(|body| match &body.content {
            Content::Large(large) => Some(&**large),
            Content::Inline(_) => None,
        })
}

pub(super) fn large_bodies_mut(record: &mut Record) -> impl Iterator<Item = &mut LargeContent> {
    let results = record
        .result
        .iter_mut()
        .chain(&mut record.earlier_result)
        .map(|kept| &mut kept.body);
    results
        .chain(&mut record.payload)
        .filter_map(|body| match &mut body.content {
            Content::Large(large) => Some(&mut **large),
            Content::Inline(_) => None,
        })
}
