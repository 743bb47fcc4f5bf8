//! Records written lately, in memory: what the store does not have yet.
//!
//! Two maps: new writes go to the active one; a checkpoint freezes it, copies it to the store and drops it.
//! A look-up asks active, then frozen, then the store; a removal hides the store's row until it is
//! checkpointed.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::body::Content;
use crate::model::key::RecordKey;
use crate::model::record::{Lsn, Record, Token};
use crate::model::time::Timestamp;
use crate::store::{Checkpoint, CodecError, KeyHasher, Memtable, Row, Write};

/// How many records more (or fewer) than the store a namespace has.
type Balance = HashMap<Box<str>, i64>;

/// The recent records.
#[derive(Debug)]
pub(super) struct Recent {
    active: Memtable,
    balance: Balance,
    frozen: Option<Frozen>,
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
}

impl Frozen {
    /// The map as the store takes it.
    pub(super) fn checkpoint(&self, mark: Vec<u8>) -> Checkpoint {
        Checkpoint {
            lsn: self.lsn,
            next_token: self.next_token,
            mark,
            policies: Vec::new(),
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
            frozen: None,
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

    /// Takes a decision in. `existed`: there was a record as written, in memory or in the store.
    pub(super) fn put(&mut self, hash: u64, key: &RecordKey, write: Write<'_>, existed: bool) {
        let difference = i64::from(write.value.is_some()) - i64::from(existed);
        if difference != 0 {
            match self.balance.get_mut(key.namespace()) {
                Some(balance) => *balance = balance.saturating_add(difference),
                None => {
                    self.balance.insert(key.namespace().into(), difference);
                }
            }
        }
        self.active.put(hash, key.joined(), write);
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
        self.active.is_empty() && self.frozen.is_none()
    }

    /// Freezes what is active. A map frozen before is still there after a checkpoint that failed for want of
    /// space: then that one is taken up again first.
    pub(super) fn freeze(&mut self, lsn: Lsn, next_token: Token, at: Timestamp) -> Frozen {
        let frozen = self.frozen.take().unwrap_or_else(|| {
            let next = Memtable::new(self.active.hasher().clone());
            Frozen {
                rows: Arc::new(mem::replace(&mut self.active, next)),
                lsn,
                next_token,
                at,
                balance: Arc::new(mem::take(&mut self.balance)),
            }
        });
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// The store has the frozen map; it is handed out so that it can be dropped outside the lock.
    pub(super) fn thaw(&mut self) -> Option<Frozen> {
        self.frozen.take()
    }

    /// How many records more than the store a namespace has.
    pub(super) fn balance(&self, namespace: &str) -> i64 {
        let of = |balance: &Balance| balance.get(namespace).copied().unwrap_or(0);
        of(&self.balance) + self.frozen.as_ref().map_or(0, |frozen| of(&frozen.balance))
    }

    /// Counts anew how many records more than the store there are, after a start that could not bring these
    /// records there.
    pub(super) fn count_against<E>(
        &mut self,
        stored: impl Fn(&RecordKey) -> Result<bool, E>,
    ) -> Result<(), E> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.rows.clone());
        if let Some(frozen) = &mut self.frozen {
            frozen.balance = Arc::new(balance(&frozen.rows, |_, key| stored(key))?);
        }
        self.balance = balance(&self.active, |hash, key| {
            let below = frozen
                .as_ref()
                .and_then(|rows| rows.get(hash, key.joined()));
            below.map_or_else(|| stored(key), |row| Ok(row.is_record()))
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
    mut below: impl FnMut(u64, &RecordKey) -> Result<bool, E>,
) -> Result<Balance, E> {
    let mut balance = Balance::new();
    for row in rows.rows() {
        let Some(key) = row.name() else {
            continue;
        };
        let difference = i64::from(row.is_record()) - i64::from(below(row.hash(), &key)?);
        *balance.entry(key.namespace().into()).or_default() += difference;
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
