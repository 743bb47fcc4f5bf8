//! One checkpoint: many records, sorted, in one transaction.

use redb::{Table, WriteTransaction};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::bodies::{OldBodies, write_bodies};
use super::codec::{
    BodyRef, Lies, StoreState, TableCounts, encode_counts, encode_policy, encode_state, view_record,
};
use super::error::StoreError;
use super::filter::Filter;
use super::filters::Filters;
use super::layout::{Chooser, META, Place, is_over};
use super::memtable::{Memtable, Row, Sorted};
use super::open::{STATE_KEY, Store, counts_key, policy_key, unwritable};
use super::shared::{Fault, Live, bytewise, damage};
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Token};
use crate::model::time::Timestamp;

const OPERATION: &str = "checkpoint";

/// What goes into the store in one transaction.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Everything up to this LSN is in it, and durable in the journal already. Never below the last one's.
    pub lsn: Lsn,
    /// No token from this one on was granted up to that LSN. Never below the last one's.
    pub next_token: Token,
    /// For the caller; not understood here.
    pub mark: Vec<u8>,
    /// Namespaces whose policy changed; without one, the defaults hold again.
    pub policies: Vec<(Box<str>, Option<Policy>)>,
    /// Records as they are, or gone. Large bodies have an LSN; those that are in the store already need no
    /// bytes.
    pub changes: Arc<Memtable>,
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its LSN.
    pub lsn: Lsn,
    /// Records written.
    pub written: u64,
    /// Records that were there and are gone.
    pub removed: u64,
    /// Records in the store now.
    pub records: u64,
    /// Tables of records now.
    pub tables: usize,
}

/// Changes with what was found out about them before the transaction.
pub(super) struct Plan<'a> {
    /// In key order.
    pub(super) changes: Sorted<'a>,
    /// Where the record of each goes; `None` where it is removed.
    pub(super) targets: Vec<Option<Place>>,
    /// The large bodies that it refers to, each row once, by number of the change.
    pub(super) refs: BTreeMap<usize, Vec<BodyRef>>,
    ops: BTreeMap<Place, Ops>,
}

/// What happens to one table, as indices of changes in key order.
#[derive(Default)]
struct Ops {
    /// Keys that its filter holds possible and that belong elsewhere now.
    removals: Vec<usize>,
    /// Records to write.
    puts: Vec<usize>,
}

/// What becomes true with the commit.
pub(super) struct Written {
    state: StoreState,
    pub(super) counts: BTreeMap<Place, TableCounts>,
    namespaces: BTreeMap<(Place, Box<str>), i64>,
    emptied: Vec<Place>,
    removed: u64,
}

impl Written {
    pub(super) fn new(state: StoreState) -> Written {
        Written {
            state,
            counts: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            emptied: Vec::new(),
            removed: 0,
        }
    }

    /// So many records of a namespace came to a table, or went.
    pub(super) fn count(&mut self, place: Place, namespace: &str, change: i64) {
        // Keys come in order, so the entry is nearly always the last one of its table.
        if let Some(mut last) = self.namespaces.last_entry()
            && last.key().0 == place
            && &*last.key().1 == namespace
        {
            *last.get_mut() += change;
            return;
        }
        *self
            .namespaces
            .entry((place, namespace.into()))
            .or_insert(0) += change;
    }
}

impl Store {
    /// Commits a checkpoint. When it returns, the records are durable here and every reader's filters
    /// know them; a key never vanishes for a reader while it moves between tables.
    ///
    /// # Errors
    /// [`StoreError::Full`]: nothing was committed; [`Store::reopen`], then try again with the same
    /// changes. [`StoreError::Invalid`]: nothing was committed. Anything else is final.
    pub fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Committed, StoreError> {
        self.checkpoint_without(checkpoint, None)
    }

    /// The same, and what is past its retention by then, and a minute over, goes as if it were removed: where there is no
    /// space, what nobody will see needs none. The mark has to say that it was as late, and no record that comes
    /// later may refer to bodies of these.
    ///
    /// # Errors
    /// As [`Store::checkpoint`].
    pub fn checkpoint_without(
        &mut self,
        checkpoint: Checkpoint,
        past: Option<Timestamp>,
    ) -> Result<Committed, StoreError> {
        self.validate(&checkpoint)?;
        let Checkpoint {
            lsn,
            next_token,
            mark,
            policies,
            changes,
        } = checkpoint;
        let state = StoreState {
            store_id: self.state.store_id,
            commits: self.state.commits + 1,
            checkpoint: lsn,
            next_token,
            mark,
        };
        let plan = self.plan(&changes, past)?;
        let records = plan.targets.iter().flatten().count() as u64;
        let written = self
            .write(&plan, state, &policies)
            .map_err(|fault| self.shared.failed(OPERATION, fault))?;
        let removed = written.removed;
        self.settle(written);
        Ok(Committed {
            lsn,
            written: records,
            removed,
            records: self.tables.values().map(|live| live.counts.rows).sum(),
            tables: self.tables.len(),
        })
    }

    /// Brings one more table under a filter over many, if there is one to bring: after a start there are as many as it
    /// has tables. One at a time, because all of its keys are read for it.
    ///
    /// # Errors
    /// As [`Reader::get`](super::Reader::get).
    pub fn cover_one(&mut self) -> Result<(), StoreError> {
        if let Some(place) = self.covers.loose(&self.tables) {
            let hashes = self.hashes(place)?;
            self.covers.join(place, self.bounds.part_rows, &hashes);
            self.shared.publish(&self.tables, &self.covers, false);
        }
        Ok(())
    }

    fn validate(&self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let reason = if checkpoint.lsn < self.state.checkpoint {
            format!(
                "LSN {} comes after {}",
                checkpoint.lsn.0, self.state.checkpoint.0
            )
        } else if checkpoint.next_token < self.state.next_token {
            let (next, last) = (checkpoint.next_token, self.state.next_token);
            format!("next token {next} comes after {last}")
        } else {
            return Ok(());
        };
        Err(StoreError::Invalid {
            operation: OPERATION,
            reason: reason.into(),
        })
    }

    /// Chooses tables, and makes the filters cover what will be committed.
    fn plan<'a>(
        &mut self,
        changes: &'a Memtable,
        past: Option<Timestamp>,
    ) -> Result<Plan<'a>, StoreError> {
        let changes = changes.sorted();
        let counted = self
            .tables
            .iter()
            .map(|(place, live)| (*place, live.counts.rows));
        let mut chooser = Chooser::new(self.bounds, counted);
        let mut targets = Vec::with_capacity(changes.hashes().len());
        let mut refs = BTreeMap::new();
        for (index, row) in changes.rows().enumerate() {
            let found = planned(&row, past, &mut chooser);
            let (target, bodies) = found.map_err(|fault| self.shared.failed(OPERATION, fault))?;
            targets.push(target);
            if !bodies.is_empty() {
                refs.insert(index, bodies);
            }
        }
        let mut ops: BTreeMap<Place, Ops> = BTreeMap::new();
        for (index, target) in targets.iter().enumerate() {
            if let Some(target) = target {
                ops.entry(*target).or_default().puts.push(index);
            }
        }
        let less = self.make_room(&ops)?;
        let hashes: Vec<u64> = changes.hashes().collect();
        Filters::new(&self.tables, &self.covers).each_possible(&hashes, |place, index| {
            if targets
                .get(index)
                .is_some_and(|target| *target != Some(place))
            {
                ops.entry(place).or_default().removals.push(index);
            }
        });
        for (target, hash) in targets.iter().zip(&hashes) {
            if let Some(place) = target
                && let Some(live) = self.tables.get_mut(place)
            {
                live.filter.insert(*hash);
                self.covers.insert(*place, *hash);
            }
        }
        self.shared.publish(&self.tables, &self.covers, less);
        Ok(Plan {
            changes,
            targets,
            refs,
            ops,
        })
    }

    /// Adds the tables that are new, makes worn filters anew from what is committed, and gives stale covers up. Tells
    /// whether anything was taken away.
    fn make_room(&mut self, ops: &BTreeMap<Place, Ops>) -> Result<bool, StoreError> {
        let mut less = self.covers.give_up_stale(&self.tables);
        for (place, ops) in ops {
            let more = ops.puts.len() as u64;
            let Some(live) = self.tables.get_mut(place) else {
                let live = Live {
                    counts: TableCounts::default(),
                    filter: Filter::with_capacity(more),
                };
                if self.tables.keys().any(|other| place.is_kin(*other)) {
                    self.covers.join(*place, self.bounds.part_rows, &[]);
                }
                self.tables.insert(*place, live);
                continue;
            };
            if live.filter.is_worn(live.counts.rows, more) {
                let capacity = live.counts.rows.saturating_add(more).saturating_mul(2);
                let mut filter = Filter::with_capacity(capacity);
                for hash in self.hashes(*place)? {
                    filter.insert(hash);
                }
                if let Some(live) = self.tables.get_mut(place) {
                    live.filter = filter;
                }
                less = true;
            }
        }
        Ok(less)
    }

    /// The hashes of all keys that are committed in a table.
    fn hashes(&self, place: Place) -> Result<Vec<u64>, StoreError> {
        self.shared.read(OPERATION, |transaction, _| {
            let mut hashes = Vec::new();
            match transaction.open_table(bytewise(&place.name())) {
                Ok(table) => {
                    for row in table.range::<&[u8]>(..)? {
                        hashes.push(self.shared.hasher.hash(row?.0.value()));
                    }
                }
                // It was to be added by a commit that failed, or by this one.
                Err(redb::TableError::TableDoesNotExist(_)) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(hashes)
        })
    }

    fn write(
        &self,
        plan: &Plan<'_>,
        state: StoreState,
        policies: &[(Box<str>, Option<Policy>)],
    ) -> Result<Written, Fault> {
        let transaction = self.shared.begin_write()?;
        let mut written = Written::new(state);
        let mut old_bodies = HashMap::new();
        for (place, ops) in &plan.ops {
            let counts = self
                .tables
                .get(place)
                .map_or_else(TableCounts::default, |live| live.counts);
            let mut writer = TableWriter {
                place: *place,
                table: transaction.open_table(bytewise(&place.name()))?,
                counts,
                had_bodies: counts.bodies > 0,
                old_bodies: &mut old_bodies,
                written: &mut written,
            };
            writer.run(plan, ops)?;
            let counts = writer.counts;
            written.counts.insert(*place, counts);
        }
        write_bodies(&transaction, plan, &old_bodies, &mut written.counts)?;
        write_meta(&transaction, &mut written, policies)?;
        transaction.commit()?;
        Ok(written)
    }

    /// Takes over in memory what is committed now.
    pub(super) fn settle(&mut self, written: Written) {
        self.state = written.state;
        for (place, counts) in written.counts {
            if let Some(live) = self.tables.get_mut(&place) {
                live.counts = counts;
            }
        }
        let mut known = self.shared.namespaces.lock();
        let namespaces = Arc::make_mut(&mut *known);
        for ((place, namespace), change) in written.namespaces {
            let rows = namespaces
                .entry(namespace)
                .or_default()
                .entry(place)
                .or_insert(0);
            *rows = rows.saturating_add_signed(change);
        }
        namespaces.retain(|_, tables| {
            tables.retain(|_, rows| *rows > 0);
            !tables.is_empty()
        });
        drop(known);
        if !written.emptied.is_empty() {
            for place in &written.emptied {
                self.tables.remove(place);
                self.covers.leave(*place);
            }
            self.shared.publish(&self.tables, &self.covers, true);
        }
    }
}

struct TableWriter<'a, 'txn> {
    place: Place,
    table: Table<'txn, &'static [u8], &'static [u8]>,
    counts: TableCounts,
    /// Whether replaced records have to be looked at for bodies.
    had_bodies: bool,
    old_bodies: &'a mut OldBodies,
    written: &'a mut Written,
}

impl TableWriter<'_, '_> {
    fn run(&mut self, plan: &Plan<'_>, ops: &Ops) -> Result<(), Fault> {
        for (index, row) in pick(plan, &ops.removals) {
            let key = row.key;
            let refs = match self.table.remove(key)? {
                None => continue,
                Some(old) if self.had_bodies => refs(self.place, key, old.value())?,
                Some(_) => Vec::new(),
            };
            self.remember(index, refs);
            self.counts.rows = self
                .counts
                .rows
                .checked_sub(1)
                .ok_or_else(|| damage(&self.place.name(), None, "more records than counted"))?;
            self.counts.sum = self.counts.sum.wrapping_sub(row.hash);
            self.written.count(self.place, namespace_of(key), -1);
            let goes = plan.targets.get(index).is_some_and(Option::is_none);
            self.written.removed += u64::from(goes);
        }
        for (index, row) in pick(plan, &ops.puts) {
            let Some(value) = row.value else {
                continue;
            };
            let key = row.key;
            let replaced = match self.table.insert(key, value)? {
                None => None,
                Some(old) if self.had_bodies => Some(refs(self.place, key, old.value())?),
                Some(_) => Some(Vec::new()),
            };
            if let Some(refs) = replaced {
                self.remember(index, refs);
            } else {
                self.counts.rows += 1;
                self.counts.sum = self.counts.sum.wrapping_add(row.hash);
                self.written.count(self.place, namespace_of(key), 1);
            }
        }
        Ok(())
    }

    fn remember(&mut self, index: usize, refs: Vec<BodyRef>) {
        if !refs.is_empty() {
            let refs = refs.into_iter().map(|body| (self.place, body));
            self.old_bodies.entry(index).or_default().extend(refs);
        }
    }
}

/// The namespace of a joined key.
pub(super) fn namespace_of(key: &[u8]) -> &str {
    let namespace = key.split(|byte| *byte == 0).next().unwrap_or_default();
    // It was checked to be ASCII when the name was made.
    std::str::from_utf8(namespace).unwrap_or_default()
}

/// Where a record goes, and its large bodies, each row once. Looks at a row of memory as at one of the disk: what
/// it was damaged to is not written.
fn planned(
    row: &Row<'_>,
    past: Option<Timestamp>,
    chooser: &mut Chooser,
) -> Result<(Option<Place>, Vec<BodyRef>), Fault> {
    let mut refs: Vec<BodyRef> = Vec::new();
    let Some(view) = row.view().map_err(unwritable)? else {
        return Ok((None, refs));
    };
    if let (Lies::Until(end), Some(past)) = (view.lies(), past)
        && is_over(end, past)
    {
        return Ok((None, refs));
    }
    if row.has_large_bodies() {
        for body in view.refs() {
            let is_it = |known: &BodyRef| (known.part, known.lsn) == (body.part, body.lsn);
            if !refs.iter().any(is_it) {
                refs.push(body);
            }
        }
    }
    Ok((Some(chooser.choose(&view)), refs))
}

fn pick<'a>(plan: &'a Plan<'a>, indices: &'a [usize]) -> impl Iterator<Item = (usize, Row<'a>)> {
    indices
        .iter()
        .filter_map(|index| Some((*index, plan.changes.get(*index)?)))
}

/// The bodies a stored record refers to.
fn refs(place: Place, key: &[u8], value: &[u8]) -> Result<Vec<BodyRef>, Fault> {
    let view = view_record(key, value).map_err(|error| damage(&place.name(), Some(key), error))?;
    Ok(view.refs().collect())
}

/// Counts, state and policies; drops tables that became empty.
pub(super) fn write_meta(
    transaction: &WriteTransaction,
    written: &mut Written,
    policies: &[(Box<str>, Option<Policy>)],
) -> Result<(), Fault> {
    let mut meta = transaction.open_table(bytewise(META))?;
    for (place, counts) in &written.counts {
        let key = counts_key(*place);
        if counts.rows == 0 && *place != Place::Open {
            transaction.delete_table(bytewise(&place.name()))?;
            transaction.delete_table(bytewise(&place.body_name()))?;
            meta.remove(key.as_slice())?;
            written.emptied.push(*place);
        } else {
            let value = encode_counts(&key, counts).map_err(unwritable)?;
            meta.insert(key.as_slice(), value.as_slice())?;
        }
    }
    for (namespace, policy) in policies {
        let key = policy_key(namespace);
        match policy {
            Some(policy) => {
                let value = encode_policy(&key, policy).map_err(unwritable)?;
                meta.insert(key.as_slice(), value.as_slice())?;
            }
            None => drop(meta.remove(key.as_slice())?),
        }
    }
    let state = encode_state(STATE_KEY, &written.state).map_err(unwritable)?;
    meta.insert(STATE_KEY, state.as_slice())?;
    Ok(())
}
