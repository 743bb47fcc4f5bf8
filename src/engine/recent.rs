//! Records written lately, in memory: what the store does not have yet.
//!
//! Two maps: new writes go to the active one; a checkpoint freezes it, copies it to the store and drops it.
//! A look-up asks active, then frozen, then the store; a removal hides the store's row until it is
//! checkpointed.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::body::Content;
use crate::model::key::RecordKey;
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Record, State, Token};
use crate::model::time::Timestamp;
use crate::store::{Checkpoint, CodecError, Gone, KeyHasher, Memtable, Removal, Row, Write};

/// How many records more (or fewer) than the store a namespace has, by namespace.
type Balance = HashMap<Box<str>, Difference>;

/// When a record goes by age; `None`: it does not.
pub(super) type End = Option<Timestamp>;

/// A record's end, as it is written.
pub(super) fn end(record: &Record) -> End {
    record.expires_at.filter(|_| record.state == State::Done)
}

/// Records that came, less those that went.
#[derive(Clone, Debug, Default)]
struct Difference {
    /// All that came, and those that went and have no end.
    net: i64,
    /// Those of the store that went, by their end: the store itself does not count them for ever.
    gone: BTreeMap<Timestamp, i64>,
}

impl Difference {
    fn replace(&mut self, end: End) {
        match end {
            Some(end) => *self.gone.entry(end).or_default() += 1,
            None => self.net = self.net.saturating_sub(1),
        }
    }

    fn add(&mut self, other: &Difference) {
        self.net = self.net.saturating_add(other.net);
        for (end, count) in &other.gone {
            *self.gone.entry(*end).or_default() += count;
        }
    }

    /// Takes back that one of the store was replaced: the store counts it no more.
    fn forget(&mut self, end: End) {
        match end {
            Some(end) => *self.gone.entry(end).or_default() -= 1,
            None => self.net = self.net.saturating_add(1),
        }
    }

    fn at(&self, now: Timestamp) -> i64 {
        let after = (Bound::Excluded(now), Bound::Unbounded);
        self.net - self.gone.range(after).map(|(_, count)| count).sum::<i64>()
    }
}

/// The recent records.
#[derive(Debug)]
pub(super) struct Recent {
    active: Memtable,
    balance: Balance,
    policies: BTreeMap<Box<str>, Option<Policy>>,
    frozen: Option<Frozen>,
    /// Memory for the next map, while there is much to do.
    spare: Option<Memtable>,
}

/// A map on its way to the store.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) rows: Arc<Memtable>,
    /// The last entry that is in it.
    pub(super) lsn: Lsn,
    /// The token that the next grant gets.
    pub(super) next_token: Token,
    /// When it was frozen, in engine time.
    pub(super) at: Timestamp,
    balance: Arc<Balance>,
    policies: Arc<BTreeMap<Box<str>, Option<Policy>>>,
}

impl Frozen {
    /// The map as the store takes it.
    pub(super) fn checkpoint(&self, mark: Vec<u8>) -> Checkpoint {
        let policies = self.policies.iter();
        Checkpoint {
            lsn: self.lsn,
            next_token: self.next_token,
            mark,
            policies: policies
                .map(|(name, policy)| (name.clone(), policy.clone()))
                .collect(),
            changes: self.rows.clone(),
        }
    }
}

impl Recent {
    /// Nothing yet, for the store whose id the hasher was made of.
    pub(super) fn new(hasher: KeyHasher) -> Recent {
        Recent {
            active: Memtable::new(hasher),
            balance: Balance::new(),
            policies: BTreeMap::new(),
            frozen: None,
            spare: None,
        }
    }

    /// The hash that keys are known by.
    pub(super) fn hash(&self, key: &RecordKey) -> u64 {
        self.active.hash(key.joined())
    }

    /// What memory knows of a key, by its hash; `None` sends the question to the store.
    pub(super) fn get(&self, hash: u64, key: &RecordKey) -> Option<Row<'_>> {
        let key: &[u8] = key.joined();
        self.active.get(hash, key).or_else(|| {
            self.frozen
                .as_ref()
                .and_then(|frozen| frozen.rows.get(hash, key))
        })
    }

    /// Takes a decision in, and the end of the record that it takes the place of, as written, in memory or in
    /// the store.
    pub(super) fn put(
        &mut self,
        hash: u64,
        key: &RecordKey,
        write: Write<'_>,
        replaced: Option<End>,
    ) {
        let came = i64::from(write.value.is_some());
        if came != 0 || replaced.is_some() {
            if !self.balance.contains_key(key.namespace()) {
                let namespace = key.namespace().into();
                self.balance.insert(namespace, Difference::default());
            }
            if let Some(balance) = self.balance.get_mut(key.namespace()) {
                balance.net = balance.net.saturating_add(came);
                if let Some(end) = replaced {
                    // One that came meanwhile goes whatever its end is.
                    let row = self.active.get(hash, key.joined());
                    let own = row.is_some_and(|row| row.is_record());
                    balance.replace(end.filter(|_| !own));
                }
            }
        }
        self.active.put(hash, key.joined(), write);
    }

    /// Takes in the policy of a namespace; without one, the defaults hold again.
    pub(super) fn put_policy(&mut self, namespace: &str, policy: Option<Policy>) {
        self.policies.insert(namespace.into(), policy);
    }

    /// Bytes that no checkpoint has taken up yet.
    pub(super) fn active_bytes(&self) -> usize {
        self.active.bytes()
    }

    /// Bytes of both maps, roughly.
    pub(super) fn bytes(&self) -> usize {
        let frozen = self.frozen.as_ref();
        let frozen = frozen.map_or(0, |frozen| frozen.rows.bytes());
        self.active.bytes().saturating_add(frozen)
    }

    /// Nothing waits for a checkpoint.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.policies.is_empty() && self.frozen.is_none()
    }

    /// Freezes what is active. A map frozen before is still there after a checkpoint that failed for want of
    /// space: then that one is taken up again first.
    pub(super) fn freeze(&mut self, lsn: Lsn, next_token: Token, at: Timestamp) -> Frozen {
        let frozen = self.frozen.take().unwrap_or_else(|| {
            let next = self.spare.take();
            let next = next.unwrap_or_else(|| Memtable::new(self.active.hasher().clone()));
            Frozen {
                rows: Arc::new(mem::replace(&mut self.active, next)),
                lsn,
                next_token,
                at,
                balance: Arc::new(mem::take(&mut self.balance)),
                policies: Arc::new(mem::take(&mut self.policies)),
            }
        });
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// Freezes what is active into the map that is frozen already, where that makes it smaller: records of it that were
    /// removed since need no space. `None` where none was.
    pub(super) fn refreeze(
        &mut self,
        lsn: Lsn,
        next_token: Token,
        at: Timestamp,
    ) -> Option<Frozen> {
        let frozen = self.frozen.as_ref()?;
        let hidden = |row: Row<'_>| frozen.rows.get(row.hash(), row.key());
        let gone =
            |row: &Row<'_>| !row.is_record() && hidden(*row).is_some_and(|row| row.is_record());
        if !self.active.rows().any(|row| gone(&row)) {
            return None;
        }
        let mut rows = Memtable::new(self.active.hasher().clone());
        for row in self.rows() {
            rows.put_row(row, hidden(row));
        }
        let mut balance = Balance::clone(&frozen.balance);
        for (namespace, active) in &self.balance {
            balance.entry(namespace.clone()).or_default().add(active);
        }
        let mut policies = BTreeMap::clone(&frozen.policies);
        policies.append(&mut self.policies);
        self.balance.clear();
        self.active = Memtable::new(self.active.hasher().clone());
        let merged = Frozen {
            rows: Arc::new(rows),
            lsn,
            next_token,
            at,
            balance: Arc::new(balance),
            policies: Arc::new(policies),
        };
        self.frozen = Some(merged.clone());
        Some(merged)
    }

    /// The store has the frozen map; it is handed out so that it can be dropped outside the lock.
    pub(super) fn thaw(&mut self) -> Option<Frozen> {
        self.frozen.take()
    }

    /// Takes the memory of a map that was dropped for the next one; what is not taken comes back.
    pub(super) fn reuse(&mut self, spare: Option<Memtable>) -> Option<Memtable> {
        mem::replace(&mut self.spare, spare)
    }

    /// How many records more a namespace has than the store counts at that instant.
    pub(super) fn balance(&self, namespace: &str, now: Timestamp) -> i64 {
        let of = |balance: &Balance| balance.get(namespace).map_or(0, |known| known.at(now));
        of(&self.balance) + self.frozen.as_ref().map_or(0, |frozen| of(&frozen.balance))
    }

    /// Counts anew how many records more than the store there are, after a start that could not bring these
    /// records there.
    pub(super) fn count_against<E>(
        &mut self,
        stored: impl Fn(&RecordKey) -> Result<Option<End>, E>,
    ) -> Result<(), E> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.rows.clone());
        if let Some(frozen) = &mut self.frozen {
            frozen.balance = Arc::new(balance(&frozen.rows, |_, key| stored(key))?);
        }
        self.balance = balance(&self.active, |hash, key| {
            let below = frozen
                .as_ref()
                .and_then(|rows| rows.get(hash, key.joined()));
            let known = |row: Row<'_>| row.record().ok().flatten().map(|record| end(&record));
            below.map_or_else(|| stored(key), |row| Ok(known(row)))
        })?;
        Ok(())
    }

    /// Whether a record refers to a body that only the store has, as it does to those up to its checkpoint.
    pub(super) fn needs_stored_bodies(&self, checkpoint: Lsn) -> Result<bool, CodecError> {
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.rows.rows());
        for row in self.active.rows().chain(frozen) {
            if row.has_bodies_of(checkpoint)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Up to when what the frozen map has may be given up as past its retention. A record that was not when it was
    /// frozen may have become a later one meanwhile, with the same bodies: then no further than that.
    pub(super) fn may_forget(
        &self,
        frozen: &Frozen,
        now: Timestamp,
    ) -> Result<Timestamp, CodecError> {
        for row in self.active.rows() {
            if row.has_bodies_of(frozen.lsn)? {
                return Ok(frozen.at);
            }
        }
        Ok(now)
    }

    /// The records that were removed after one LSN and up to another.
    pub(super) fn removals(&self, after: Lsn, through: Lsn) -> Vec<Removal> {
        let removed = |row: &Row<'_>| !row.is_record() && row.lsn() > after && row.lsn() <= through;
        let frozen = self.frozen.as_ref();
        let removal = |row: Row<'_>| {
            let older = frozen.and_then(|frozen| frozen.rows.get(row.hash(), row.key()));
            let had_bodies = |row: Row<'_>| row.has_large_bodies();
            Some(Removal {
                key: row.name()?,
                with_bodies: !had_bodies(row) && !older.is_some_and(had_bodies),
            })
        };
        self.rows().filter(removed).filter_map(removal).collect()
    }

    /// Records that memory hides went from the store before their checkpoint.
    pub(super) fn went(&mut self, gone: &[Gone]) {
        for Gone { key, end } in gone {
            let hash = self.hash(key);
            let frozen = self.frozen.as_mut();
            // The older map is the one that took the place of the store's record.
            let older = frozen.filter(|frozen| frozen.rows.get(hash, key.joined()).is_some());
            let balance = match older {
                Some(frozen) => Arc::make_mut(&mut frozen.balance),
                None => &mut self.balance,
            };
            let difference = balance.entry(key.namespace().into()).or_default();
            difference.forget(*end);
        }
    }

    /// Whether a map waits for the store.
    pub(super) fn has_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// What both maps have, the newer alone where a key is in both.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.rows.rows());
        let hidden = |row: &Row<'_>| self.active.get(row.hash(), row.key()).is_none();
        self.active.rows().chain(frozen.filter(hidden))
    }
}

/// How many records more than below a map has, by namespace.
fn balance<E>(
    rows: &Memtable,
    mut below: impl FnMut(u64, &RecordKey) -> Result<Option<End>, E>,
) -> Result<Balance, E> {
    let mut balance = Balance::new();
    for row in rows.rows() {
        let Some(key) = row.name() else {
            continue;
        };
        let difference = balance.entry(key.namespace().into()).or_default();
        difference.net += i64::from(row.is_record());
        if let Some(end) = below(row.hash(), &key)? {
            difference.replace(end);
        }
    }
    Ok(balance)
}

/// What a record costs in memory, about.
pub(super) fn record_size(record: &Record) -> usize {
    let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
    let held = |content: &Content| content.bytes().map_or(0, Bytes::len);
    let results = record
        .result
        .iter()
        .chain(&record.earlier_result)
        .map(|kept| &kept.body);
    let bodies: usize = results
        .chain(&record.payload)
        .map(|body| held(&body.content))
        .sum();
    let history: usize = record
        .history
        .iter()
        .map(|entry| size_of_val(entry) + text(&entry.by))
        .sum();
    size_of_val(record)
        + bodies
        + history
        + text(&record.claim_id)
        + text(&record.owner)
        + text(&record.last_error)
}
