//! Records written lately, in memory: what the store does not have yet.
//!
//! Two maps: new writes go to the active one; a checkpoint freezes it, copies it to the store and drops it.
//! A look-up asks active, then frozen, then the store; a removal hides the store's row until it is
//! checkpointed.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::body::Content;
use crate::model::key::RecordKey;
use crate::model::record::{Lsn, Record, Token};
use crate::model::time::Timestamp;

/// What was last decided about a key.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// `None`: removed.
    pub(super) record: Option<Arc<Record>>,
    /// The entry that made it so.
    pub(super) lsn: Lsn,
}

/// Slots by name.
pub(super) type Map = HashMap<RecordKey, Slot>;

/// How many records more (or fewer) than the store a namespace has.
type Balance = HashMap<Box<str>, i64>;

/// The recent records.
#[derive(Debug, Default)]
pub(super) struct Recent {
    active: Map,
    active_bytes: usize,
    balance: Balance,
    frozen: Option<Frozen>,
}

/// A map on its way to the store.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) slots: Arc<Map>,
    /// The last entry that is in it.
    pub(super) lsn: Lsn,
    /// The token that the next grant gets.
    pub(super) next_token: Token,
    /// When it was frozen, in engine time.
    pub(super) at: Timestamp,
    bytes: usize,
    balance: Arc<Balance>,
}

impl Recent {
    /// What memory knows of a key; `None` sends the question to the store.
    pub(super) fn get(&self, key: &RecordKey) -> Option<&Slot> {
        self.active.get(key).or_else(|| {
            self.frozen
                .as_ref()
                .and_then(|frozen| frozen.slots.get(key))
        })
    }

    /// Takes a decision in. `existed`: there was a record as written, in memory or in the store.
    pub(super) fn put(&mut self, key: RecordKey, slot: Slot, existed: bool) {
        let difference = i64::from(slot.record.is_some()) - i64::from(existed);
        if difference != 0 {
            match self.balance.get_mut(key.namespace()) {
                Some(balance) => *balance = balance.saturating_add(difference),
                None => {
                    self.balance.insert(key.namespace().into(), difference);
                }
            }
        }
        let name = key.joined().len();
        self.active_bytes = self.active_bytes.saturating_add(size(name, &slot));
        if let Some(old) = self.active.insert(key, slot) {
            self.active_bytes = self.active_bytes.saturating_sub(size(name, &old));
        }
    }

    /// Bytes that no checkpoint has taken up yet.
    pub(super) fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// Bytes of both maps, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.active_bytes
            .saturating_add(self.frozen.as_ref().map_or(0, |frozen| frozen.bytes))
    }

    /// Nothing waits for a checkpoint.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.frozen.is_none()
    }

    /// Freezes what is active. A map frozen before is still there after a checkpoint that failed for want of
    /// space: then that one is taken up again first.
    pub(super) fn freeze(&mut self, lsn: Lsn, next_token: Token, at: Timestamp) -> Frozen {
        let frozen = self.frozen.take().unwrap_or_else(|| Frozen {
            slots: Arc::new(std::mem::take(&mut self.active)),
            lsn,
            next_token,
            at,
            bytes: std::mem::take(&mut self.active_bytes),
            balance: Arc::new(std::mem::take(&mut self.balance)),
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

    /// All slots of both maps, the newer alone where a key has two.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&RecordKey, &Slot)> {
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.slots.iter());
        let hidden = |(key, _): &(&RecordKey, &Slot)| !self.active.contains_key(*key);
        self.active.iter().chain(frozen.filter(hidden))
    }
}

/// What a slot costs in memory, about: the map's own overhead, the name, the record, its texts and bodies.
fn size(name: usize, slot: &Slot) -> usize {
    /// A place in the map at its usual load, and what the allocator and the counts of shared parts take.
    const OVERHEAD: usize = 128;
    OVERHEAD + name + slot.record.as_deref().map_or(0, record_size)
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
