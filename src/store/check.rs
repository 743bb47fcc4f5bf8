//! The full check of a store that nobody has open: everything that can be derived is compared with its
//! derivation. Nothing is written.

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableError, TableHandle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::backend::{self, Source};
use super::codec::{RecordView, TableCounts, body_key, decode_body, split_body_key, view_record};
use super::error::StoreError;
use super::filter::{Filter, KeyHasher};
use super::layout::{META, Place};
use super::open::{Options, peek, read_meta};
use super::scan::{NamespaceRuns, list_tables};
use super::shared::{Fault, bytewise, explain};

/// At most so many findings are kept; the others are counted.
const MOST_FINDINGS: usize = 1000;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The table.
    pub table: Box<str>,
    /// The key in it, escaped.
    pub key: Option<Box<str>>,
    /// What is wrong.
    pub reason: Box<str>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The database file.
    pub path: PathBuf,
    /// Tables of records.
    pub tables: usize,
    /// Records.
    pub records: u64,
    /// Bodies kept beside their records.
    pub bodies: u64,
    /// What is wrong; empty for a sound store.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub more: u64,
}

impl Report {
    fn find(&mut self, table: &str, key: Option<&[u8]>, reason: impl ToString) {
        if self.findings.len() >= MOST_FINDINGS {
            self.more += 1;
            return;
        }
        self.findings.push(Finding {
            table: table.into(),
            key: key.map(|key| key.escape_ascii().to_string().into()),
            reason: reason.to_string().into(),
        });
    }
}

/// Checks the store in a file: pages, records, their places, bodies, counts, sums and filters.
///
/// # Errors
/// Where the file cannot be read as a store at all, [`StoreError::Damage`] among it: then a page is not
/// what was written, and no table can be trusted.
pub fn check(path: impl AsRef<Path>, options: Options) -> Result<Report, StoreError> {
    let path = path.as_ref();
    check_source(&backend::file(path), path, options)
}

/// As [`check`], of the storage of a backend.
///
/// # Errors
/// As there.
pub fn check_backend(source: &Source, options: Options) -> Result<Report, StoreError> {
    check_source(source, Path::new("the backend"), options)
}

fn check_source(source: &Source, path: &Path, options: Options) -> Result<Report, StoreError> {
    const OPERATION: &str = "check the store";
    let (database, failure) = peek(source, path, options.cache, OPERATION)?;
    let mut report = Report {
        path: path.to_owned(),
        ..Report::default()
    };
    check_database(&database, &mut report)
        .map_err(|fault| explain(OPERATION, path, &failure, fault))?;
    Ok(report)
}

fn check_database(database: &Database, report: &mut Report) -> Result<(), Fault> {
    let (state, _) = kept(report, read_meta(database))?.unzip();
    let Some(state) = state else { return Ok(()) };
    let transaction = database.begin_read()?;
    let Some(tables) = kept(report, list_tables(&transaction))? else {
        return Ok(());
    };
    let checker = Checker {
        transaction: &transaction,
        hasher: KeyHasher::new(&state.store_id),
    };
    let mut filters = BTreeMap::new();
    for (place, expected) in &tables {
        filters.insert(*place, checker.table(*place, *expected, report)?);
    }
    for place in tables.keys() {
        checker.places(*place, &filters, report)?;
    }
    report.tables = tables.len();
    Ok(())
}

/// Turns damage into a finding.
fn kept<T>(report: &mut Report, result: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Damage { table, key, reason }) => {
            report.findings.push(Finding { table, key, reason });
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

struct Checker<'a> {
    transaction: &'a ReadTransaction,
    hasher: KeyHasher,
}

type Table = redb::ReadOnlyTable<&'static [u8], &'static [u8]>;

impl Checker<'_> {
    fn open(&self, name: &str) -> Result<Option<Table>, Fault> {
        match self.transaction.open_table(bytewise(name)) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks each record of a table and its bodies, and the table's counts. Returns its filter.
    fn table(
        &self,
        place: Place,
        expected: TableCounts,
        report: &mut Report,
    ) -> Result<Filter, Fault> {
        let name = place.name();
        let (table, bodies) = (self.open(&name)?, self.open(&place.body_name())?);
        let mut found = TableCounts::default();
        let mut filter = Filter::with_capacity(expected.rows.min(1 << 20));
        let mut runs = NamespaceRuns::default();
        for row in table.iter().flat_map(ReadableTable::iter).flatten() {
            let (key, value) = row?;
            let key = key.value();
            let hash = self.hasher.hash(key);
            filter.insert(hash);
            found.rows += 1;
            found.sum = found.sum.wrapping_add(hash);
            if !runs.count(key) {
                report.find(&name, Some(key), "that is no key");
            }
            match view_record(key, value.value()) {
                Err(error) => report.find(&name, Some(key), error),
                Ok(view) => {
                    if !place.fits(view.lies()) {
                        report.find(&name, Some(key), "it does not belong in this table");
                    }
                    self.bodies(place, key, &view, bodies.as_ref(), report)?;
                }
            }
        }
        if let (Some(table), Some(bodies)) = (&table, &bodies) {
            found.bodies = unreferred(place, table, bodies, report)?;
        }
        if found != expected {
            let reason = format!("counted {found:?}, and `{META}` says {expected:?}");
            report.find(&name, None, reason);
        }
        report.records += found.rows;
        report.bodies += found.bodies;
        Ok(filter)
    }

    /// Each body a record refers to is there, once referred to, and the right one.
    fn bodies(
        &self,
        place: Place,
        key: &[u8],
        view: &RecordView<'_>,
        bodies: Option<&Table>,
        report: &mut Report,
    ) -> Result<(), Fault> {
        let mut seen = Vec::new();
        for body in view.refs() {
            let row = body_key(key, body.lsn, body.part);
            let name = place.body_name();
            match bodies
                .map(|bodies| bodies.get(row.as_slice()))
                .transpose()?
                .flatten()
            {
                None => report.find(&name, Some(&row), "a body is missing"),
                Some(value) => {
                    if let Err(error) = decode_body(&row, value.value(), &body) {
                        report.find(&name, Some(&row), error);
                    }
                }
            }
            if seen.contains(&row) {
                report.find(&name, Some(&row), "a body is referred to twice");
            }
            seen.push(row);
        }
        Ok(())
    }

    /// No record of this table is in another one too, and the filters cover the tables.
    fn places(
        &self,
        place: Place,
        filters: &BTreeMap<Place, Filter>,
        report: &mut Report,
    ) -> Result<(), Fault> {
        let Some(table) = self.open(&place.name())? else {
            return Ok(());
        };
        let mut others = Vec::new();
        for (other, filter) in filters.iter().filter(|(other, _)| **other > place) {
            others.extend(self.open(&other.name())?.map(|table| (filter, table)));
        }
        let own = filters.get(&place);
        for row in table.iter()? {
            let (key, _) = row?;
            let hash = self.hasher.hash(key.value());
            if own.is_none_or(|filter| !filter.contains(hash)) {
                report.find(
                    table.name(),
                    Some(key.value()),
                    "the filter does not cover it",
                );
            }
            for (_, other) in others.iter().filter(|(filter, _)| filter.contains(hash)) {
                if other.get(key.value())?.is_some() {
                    let reason = format!("it is in {} too", other.name());
                    report.find(table.name(), Some(key.value()), reason);
                }
            }
        }
        Ok(())
    }
}

/// Finds bodies that no record refers to; returns the number of bodies.
fn unreferred(
    place: Place,
    table: &Table,
    bodies: &Table,
    report: &mut Report,
) -> Result<u64, Fault> {
    let mut count = 0;
    for row in bodies.iter()? {
        let (row, _) = row?;
        let row = row.value();
        count += 1;
        let referred = match split_body_key(row) {
            None => false,
            Some((key, lsn, part)) => table.get(key)?.is_some_and(|value| {
                let view = view_record(key, value.value());
                // A record that cannot be read was reported already.
                view.is_ok_and(|view| view.refs().any(|b| (b.part, b.lsn) == (part, lsn)))
            }),
        };
        if !referred {
            report.find(
                &place.body_name(),
                Some(row),
                "no record refers to this body",
            );
        }
    }
    Ok(count)
}
