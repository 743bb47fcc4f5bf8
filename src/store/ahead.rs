//! Removals ahead of their checkpoint: where a disk is so full that the next checkpoint does not fit, what was
//! removed after it is what makes it fit.
//!
//! A removal is in the journal and not covered by the store's LSN, so a crash redoes all that led to it, in order, and
//! comes to the same end: every entry has the whole record. What an entry may lack is a large body that the store
//! has. So a record with such bodies stays until its checkpoint, unless nothing in the journal since the last one can
//! refer to them.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableTable, WriteTransaction};

use super::checkpoint::{Written, namespace_of, write_meta};
use super::codec::{Lies, body_key, view_record};
use super::error::StoreError;
use super::filters::Filters;
use super::layout::Place;
use super::open::Store;
use super::shared::{Fault, bytewise, damage};
use crate::model::key::RecordKey;
use crate::model::time::Timestamp;

/// A record that was removed after the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Removal {
    /// Its name.
    pub key: RecordKey,
    /// Whether no entry since refers to large bodies that the store has of it.
    pub with_bodies: bool,
}

/// A record that is not in the store any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Its name.
    pub key: RecordKey,
    /// When it would have gone by age; `None`: it would not.
    pub end: Option<Timestamp>,
}

impl Store {
    /// Removes records in a commit of their own that covers no more of the journal than the last one did. The removals
    /// must be durable there, and memory must hide these records.
    ///
    /// # Errors
    /// As [`Store::checkpoint`]: after [`StoreError::Full`] fewer at a time may fit.
    pub fn remove_ahead(&mut self, removals: &[Removal]) -> Result<Vec<Gone>, StoreError> {
        let hash = |removal: &Removal| self.shared.hasher.hash(removal.key.joined());
        let hashes: Vec<u64> = removals.iter().map(hash).collect();
        let mut found: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
        Filters::new(&self.tables, &self.covers).each_possible(&hashes, |place, index| {
            // A table of a commit that failed is not there.
            if self
                .tables
                .get(&place)
                .is_some_and(|live| live.counts.rows > 0)
            {
                found.entry(place).or_default().push(index);
            }
        });
        let mut state = self.state.clone();
        state.commits += 1;
        let mut written = Written::new(state);
        let mut gone = Vec::new();
        let mut remove = || -> Result<(), Fault> {
            let transaction = self.shared.begin_write()?;
            for (place, indices) in &found {
                let named = indices
                    .iter()
                    .filter_map(|index| Some((removals.get(*index)?, *hashes.get(*index)?)));
                self.remove_from(&transaction, *place, named, &mut written, &mut gone)?;
            }
            if gone.is_empty() {
                return Ok(transaction.abort()?);
            }
            write_meta(&transaction, &mut written, &[])?;
            Ok(transaction.commit()?)
        };
        remove().map_err(|fault| self.shared.failed("remove from the store", fault))?;
        if !gone.is_empty() {
            self.settle(written);
        }
        Ok(gone)
    }

    fn remove_from<'a>(
        &self,
        transaction: &WriteTransaction,
        place: Place,
        removals: impl Iterator<Item = (&'a Removal, u64)>,
        written: &mut Written,
        gone: &mut Vec<Gone>,
    ) -> Result<(), Fault> {
        let Some(mut counts) = self.tables.get(&place).map(|live| live.counts) else {
            return Ok(());
        };
        let (name, before) = (place.name(), counts.rows);
        let mut table = transaction.open_table(bytewise(&name))?;
        let mut bodies = BTreeSet::new();
        for (removal, hash) in removals {
            let key: &[u8] = removal.key.joined();
            let end = {
                let Some(row) = table.get(key)? else {
                    continue;
                };
                let view = view_record(key, row.value());
                let view = view.map_err(|error| damage(&name, Some(key), error))?;
                let refs = view.refs().map(|body| body_key(key, body.lsn, body.part));
                let refs: BTreeSet<Vec<u8>> = refs.collect();
                if !refs.is_empty() && !removal.with_bodies {
                    continue;
                }
                bodies.extend(refs);
                match view.lies() {
                    Lies::Until(end) => Some(end),
                    Lies::Open | Lies::Forever => None,
                }
            };
            table.remove(key)?;
            let rows = counts.rows.checked_sub(1);
            counts.rows = rows.ok_or_else(|| damage(&name, None, "more records than counted"))?;
            counts.sum = counts.sum.wrapping_sub(hash);
            written.count(place, namespace_of(key), -1);
            gone.push(Gone {
                key: removal.key.clone(),
                end,
            });
        }
        if !bodies.is_empty() {
            let name = place.body_name();
            let mut table = transaction.open_table(bytewise(&name))?;
            for key in &bodies {
                let row = table.remove(key.as_slice())?;
                drop(row.ok_or_else(|| damage(&name, Some(key), "missing"))?);
            }
            counts.bodies = counts.bodies.saturating_sub(bodies.len() as u64);
        }
        if counts.rows < before {
            written.counts.insert(place, counts);
        }
        Ok(())
    }
}
