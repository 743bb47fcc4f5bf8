//! The scan at every start: reads each record once, checks it, and builds what is kept in memory.

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableError,
    TableHandle,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::codec::{TableCounts, decode_counts, view_record};
use super::filter::{KeyHasher, Unshared};
use super::layout::{META, Place};
use super::open::TABLE_KEYS;
use super::shared::{Fault, Live, Namespaces, Tables, bytewise, damage};
use crate::model::key::{MAX_KEY, MAX_NAMESPACE, check_namespace};

/// Decoding takes longer than reading, so a second core halves the time; more find the disk busy.
const THREADS: usize = 2;

/// What the scan found.
pub(super) struct Scanned {
    pub(super) tables: Tables,
    pub(super) namespaces: Namespaces,
}

/// Scans all tables.
///
/// # Errors
/// Damage: at the first record or table that is not what was written.
pub(super) fn scan(database: &Database, hasher: &KeyHasher) -> Result<Scanned, Fault> {
    let mut work: Vec<(Place, TableCounts)> = {
        let transaction = database.begin_read()?;
        list_tables(&transaction)?.into_iter().collect()
    };
    // Large tables first, so that the threads end together.
    work.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.rows));
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let worker = || -> Result<Vec<(Place, ScannedTable)>, Fault> {
        let mut done = Vec::new();
        let transaction = database.begin_read()?;
        while !stop.load(Ordering::Relaxed)
            && let Some((place, counts)) = work.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let scanned = scan_table(&transaction, *place, *counts, hasher);
            stop.fetch_or(scanned.is_err(), Ordering::Relaxed);
            done.push((*place, scanned?));
        }
        Ok(done)
    };
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..THREADS.min(work.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let mut results = vec![worker()];
        // A panic ends the process; here it only has to go on.
        results.extend(threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }));
        results
    });
    let mut scanned = Scanned {
        tables: Tables::new(),
        namespaces: Namespaces::new(),
    };
    for result in results {
        for (place, table) in result? {
            scanned.tables.insert(place, table.live);
            for (namespace, rows) in table.namespaces {
                scanned
                    .namespaces
                    .entry(namespace)
                    .or_default()
                    .insert(place, rows);
            }
        }
    }
    Ok(scanned)
}

/// The tables of records with their counts. Tables and `meta` must agree on what there is.
pub(super) fn list_tables(
    transaction: &ReadTransaction,
) -> Result<BTreeMap<Place, TableCounts>, Fault> {
    let meta = transaction.open_table(bytewise(META))?;
    let mut tables = BTreeMap::new();
    for row in meta.range(TABLE_KEYS..)? {
        let (key, value) = row?;
        let Some(name) = key.value().strip_prefix(TABLE_KEYS) else {
            break;
        };
        let place = std::str::from_utf8(name).ok().and_then(Place::parse);
        let place = place.ok_or_else(|| damage(META, Some(key.value()), "not a table's name"))?;
        let counts = decode_counts(key.value(), value.value())
            .map_err(|error| damage(META, Some(key.value()), error))?;
        tables.insert(place, counts);
    }
    let mut named = 0;
    for handle in transaction.list_tables()? {
        let name = handle.name();
        let known = |place: Place| tables.contains_key(&place);
        match (Place::parse(name), Place::parse_body(name)) {
            _ if name == META => {}
            (Some(place), _) if known(place) => named += 1,
            (_, Some(place)) if known(place) => {}
            _ => return Err(damage(name, None, "a table that `meta` does not know")),
        }
    }
    if named != tables.len() {
        return Err(damage(META, None, "it knows tables that are not there"));
    }
    Ok(tables)
}

struct ScannedTable {
    live: Live,
    namespaces: Vec<(Box<str>, u64)>,
}

fn scan_table(
    transaction: &ReadTransaction,
    place: Place,
    expected: TableCounts,
    hasher: &KeyHasher,
) -> Result<ScannedTable, Fault> {
    let name = place.name();
    let table = transaction.open_table(bytewise(&name))?;
    let mut found = TableCounts {
        bodies: count_bodies(transaction, place)?,
        ..TableCounts::default()
    };
    // Room to grow by a quarter without a second link. What `meta` says is no reason to trust it with
    // memory: more rows than the table has are a difference found at the end.
    let len = table.len()?;
    let mut filter = Unshared::with_capacity(len.min(expected.rows).saturating_mul(5) / 4);
    let mut runs = NamespaceRuns::default();
    for row in table.iter()? {
        let (key, value) = row?;
        let (key, value) = (key.value(), value.value());
        let view = view_record(key, value).map_err(|error| damage(&name, Some(key), error))?;
        if !place.fits(view.lies()) {
            return Err(damage(
                &name,
                Some(key),
                "the record does not belong in this table",
            ));
        }
        if !runs.count(key) {
            return Err(damage(&name, Some(key), "that is no key"));
        }
        let hash = hasher.hash(key);
        filter.insert(hash);
        found.rows += 1;
        found.sum = found.sum.wrapping_add(hash);
    }
    if found != expected {
        let reason = format!(
            "{} records and {} bodies are there where {} and {} were written, or other ones",
            found.rows, found.bodies, expected.rows, expected.bodies
        );
        return Err(damage(&name, None, reason));
    }
    Ok(ScannedTable {
        live: Live {
            counts: found,
            filter: filter.share(),
        },
        namespaces: runs.finish(),
    })
}

/// Rows of the paired body table; that is known without reading them.
pub(super) fn count_bodies(transaction: &ReadTransaction, place: Place) -> Result<u64, Fault> {
    let name = place.body_name();
    match transaction.open_table(bytewise(&name)) {
        Ok(table) => Ok(table.len()?),
        Err(TableError::TableDoesNotExist(_)) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Counts keys per namespace. Keys come in order, so each namespace is one run.
#[derive(Default)]
pub(super) struct NamespaceRuns {
    runs: Vec<(Box<str>, u64)>,
}

impl NamespaceRuns {
    /// Counts a joined key; `false` where it is not one.
    pub(super) fn count(&mut self, joined: &[u8]) -> bool {
        let Some(split) = joined.iter().take(MAX_NAMESPACE + 1).position(|b| *b == 0) else {
            return false;
        };
        let (namespace, key) = joined.split_at(split);
        if !(2..=MAX_KEY + 1).contains(&key.len()) {
            return false;
        }
        if let Some((name, count)) = self.runs.last_mut()
            && name.as_bytes() == namespace
        {
            *count += 1;
            return true;
        }
        match std::str::from_utf8(namespace) {
            Ok(namespace) if check_namespace(namespace).is_ok() => {
                self.runs.push((namespace.into(), 1));
                true
            }
            _ => false,
        }
    }

    pub(super) fn finish(self) -> Vec<(Box<str>, u64)> {
        self.runs
    }
}
