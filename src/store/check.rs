//! The full check of a store that nobody has open: everything that can be derived is compared with its
//! derivation. Nothing is written; what repair would do about a finding comes with it.

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableError, TableHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::backend::{self, Source};
use super::codec::{
    BodyRef, Part, RecordView, StoreState, TableCounts, body_key, decode_body, decode_counts,
    decode_policy, split_body_key, view_record,
};
use super::error::StoreError;
use super::filter::{Filter, KeyHasher};
use super::layout::{META, Place};
use super::open::{Options, POLICY_KEYS, TABLE_KEYS, peek, read_state};
use super::repair::{Action, Fix};
use super::scan::NamespaceRuns;
use super::shared::{Fault, bytewise, explain};
use crate::model::body::LargeContent;
use crate::model::key::RecordKey;
use crate::model::record::{Lsn, Token};

/// At most so many findings are kept; the others are counted.
const MOST_FINDINGS: usize = 10_000;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The table.
    pub table: Box<str>,
    /// The key in it, escaped.
    pub key: Option<Box<str>>,
    /// What is wrong.
    pub reason: Box<str>,
    /// What repair does about it; `None` where it cannot do anything.
    pub fix: Option<Fix>,
}

/// What a store says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Chosen at creation.
    pub store_id: [u8; 16],
    /// Everything up to this LSN is in it.
    pub checkpoint: Lsn,
    /// No token from this one on was granted before that LSN.
    pub next_token: Token,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The database file.
    pub path: PathBuf,
    /// What it says of itself; `None` where that cannot be read.
    pub facts: Option<Facts>,
    /// Tables of records.
    pub tables: usize,
    /// Records.
    pub records: u64,
    /// Bodies kept beside their records.
    pub bodies: u64,
    /// The highest token of a record; 0 where there is none.
    pub highest_token: u64,
    /// What is wrong; empty for a sound store.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub more: u64,
}

impl Report {
    fn find(
        &mut self,
        table: &str,
        key: Option<&[u8]>,
        reason: impl ToString,
        fix: impl Into<Option<Action>>,
    ) {
        if self.findings.len() >= MOST_FINDINGS {
            self.more += 1;
            return;
        }
        self.findings.push(Finding {
            table: table.into(),
            key: key.map(|key| key.escape_ascii().to_string().into()),
            reason: reason.to_string().into(),
            fix: fix.into().map(Fix),
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

/// A large body that a record outside the store refers to.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whose.
    pub key: RecordKey,
    /// Which of its bodies.
    pub part: Part,
    /// The entry that brought it.
    pub lsn: Lsn,
    /// What the record says of it.
    pub large: LargeContent,
}

/// Those of the wanted bodies that the store in a file does not have, or not as they are wanted.
///
/// # Errors
/// As [`check`].
pub fn lacking(
    path: impl AsRef<Path>,
    wanted: Vec<Wanted>,
    options: Options,
) -> Result<Vec<Wanted>, StoreError> {
    const OPERATION: &str = "look for bodies in the store";
    let path = path.as_ref();
    let (database, failure) = peek(&backend::file(path), path, options.cache, OPERATION)?;
    let lacking = || -> Result<Vec<Wanted>, Fault> {
        let transaction = database.begin_read()?;
        let mut tables: Vec<Table> = Vec::new();
        for handle in transaction.list_tables()? {
            if Place::parse_body(handle.name()).is_some() {
                tables.push(transaction.open_table(bytewise(handle.name()))?);
            }
        }
        let mut lacking = Vec::new();
        for wanted in wanted {
            let row = body_key(wanted.key.joined(), wanted.lsn, wanted.part);
            let body = BodyRef {
                part: wanted.part,
                lsn: wanted.lsn,
                size: wanted.large.size,
                digest: wanted.large.digest,
            };
            let mut found = false;
            for table in &tables {
                let value = table.get(row.as_slice())?;
                found |= value.is_some_and(|value| decode_body(&row, value.value(), &body).is_ok());
            }
            if !found {
                lacking.push(wanted);
            }
        }
        Ok(lacking)
    };
    lacking().map_err(|fault| explain(OPERATION, path, &failure, fault))
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
    let transaction = database.begin_read()?;
    let meta = transaction.open_table(bytewise(META))?;
    let state: StoreState = match read_state(&meta) {
        Ok(state) => state,
        Err(Fault::Damage { table, reason, .. }) => {
            // Without it nobody knows what the store holds, and no fix could tell.
            report.find(&table, None, reason, None);
            return Ok(());
        }
        Err(other) => return Err(other),
    };
    report.facts = Some(Facts {
        store_id: state.store_id,
        checkpoint: state.checkpoint,
        next_token: state.next_token,
    });
    check_policies(&meta, report)?;
    let tables = check_tables(&transaction, &meta, report)?;
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

fn check_policies(meta: &Table, report: &mut Report) -> Result<(), Fault> {
    for row in meta.range(POLICY_KEYS..)? {
        let (key, value) = row?;
        let key = key.value();
        let Some(namespace) = key.strip_prefix(POLICY_KEYS) else {
            break;
        };
        let fix = || Action::Policy(key.into());
        if let Err(error) = std::str::from_utf8(namespace) {
            report.find(META, Some(key), error, fix());
        } else if let Err(error) = decode_policy(key, value.value()) {
            report.find(META, Some(key), error, fix());
        }
    }
    Ok(())
}

/// The tables there are, with the counts that `meta` has for them, if it has readable ones.
fn check_tables(
    transaction: &ReadTransaction,
    meta: &Table,
    report: &mut Report,
) -> Result<BTreeMap<Place, Option<TableCounts>>, Fault> {
    let mut known = BTreeMap::new();
    for row in meta.range(TABLE_KEYS..)? {
        let (key, value) = row?;
        let key = key.value();
        let Some(name) = key.strip_prefix(TABLE_KEYS) else {
            break;
        };
        let Some(place) = std::str::from_utf8(name).ok().and_then(Place::parse) else {
            report.find(META, Some(key), "not a table's name", Action::Count);
            continue;
        };
        let counts = match decode_counts(key, value.value()) {
            Ok(counts) => Some(counts),
            Err(error) => {
                report.find(META, Some(key), error, Action::Count);
                None
            }
        };
        known.insert(place, counts);
    }
    let mut there = BTreeSet::new();
    let mut bodies = BTreeSet::new();
    for handle in transaction.list_tables()? {
        let name = handle.name();
        match (Place::parse(name), Place::parse_body(name)) {
            _ if name == META => {}
            (Some(place), _) => drop(there.insert(place)),
            (_, Some(place)) => drop(bodies.insert(place)),
            _ => report.find(name, None, "a table that `meta` does not know", None),
        }
    }
    for place in there.iter().filter(|place| !known.contains_key(place)) {
        let reason = "a table that `meta` does not know";
        report.find(&place.name(), None, reason, Action::Count);
    }
    for place in bodies.difference(&there) {
        let reason = "bodies of a table that is not there";
        report.find(&place.body_name(), None, reason, Action::Bodies(*place));
    }
    for (place, counts) in known.iter().filter(|(place, _)| !there.contains(place)) {
        let rows = counts.map_or_else(|| "some".to_owned(), |counts| counts.rows.to_string());
        let reason = format!("it knows tables that are not there: {place}, of {rows} records");
        report.find(META, None, reason, Action::Count);
    }
    let counts = |place: Place| (place, known.get(&place).copied().flatten());
    Ok(there.into_iter().map(counts).collect())
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
        expected: Option<TableCounts>,
        report: &mut Report,
    ) -> Result<Filter, Fault> {
        let name = place.name();
        let (table, bodies) = (self.open(&name)?, self.open(&place.body_name())?);
        let mut found = TableCounts::default();
        let likely = expected.map_or(0, |expected| expected.rows);
        let mut filter = Filter::with_capacity(likely.min(1 << 20));
        let mut runs = NamespaceRuns::default();
        for row in table.iter().flat_map(ReadableTable::iter).flatten() {
            let (key, value) = row?;
            let key = key.value();
            let hash = self.hasher.hash(key);
            filter.insert(hash);
            found.rows += 1;
            found.sum = found.sum.wrapping_add(hash);
            let drops = || Action::Record(place, key.into());
            if !runs.count(key) {
                report.find(&name, Some(key), "that is no key", drops());
                continue;
            }
            match view_record(key, value.value()) {
                Err(error) => report.find(&name, Some(key), error, drops()),
                Ok(view) => {
                    report.highest_token = report.highest_token.max(view.token());
                    if !place.fits(view.lies()) {
                        let fix = Action::Move(place, key.into());
                        report.find(&name, Some(key), "it does not belong in this table", fix);
                    }
                    self.bodies(place, key, &view, bodies.as_ref(), report)?;
                }
            }
        }
        if let (Some(table), Some(bodies)) = (&table, &bodies) {
            found.bodies = unreferred(place, table, bodies, report)?;
        }
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            let reason = format!(
                "counted {} records and {} bodies, and `{META}` says {} and {}, or other ones",
                found.rows, found.bodies, expected.rows, expected.bodies
            );
            report.find(&name, None, reason, Action::Count);
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
            let fix = || Action::Reference(place, key.into(), body.lsn, body.part);
            match bodies
                .map(|bodies| bodies.get(row.as_slice()))
                .transpose()?
                .flatten()
            {
                None => report.find(&name, Some(&row), "a body is missing", fix()),
                Some(value) => {
                    if let Err(error) = decode_body(&row, value.value(), &body) {
                        report.find(&name, Some(&row), error, fix());
                    }
                }
            }
            if seen.contains(&row) {
                report.find(&name, Some(&row), "a body is referred to twice", fix());
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
            others.extend(
                self.open(&other.name())?
                    .map(|table| (*other, filter, table)),
            );
        }
        let own = filters.get(&place);
        for row in table.iter()? {
            let (key, value) = row?;
            let key = key.value();
            let hash = self.hasher.hash(key);
            if own.is_none_or(|filter| !filter.contains(hash)) {
                let reason = "the filter does not cover it";
                report.find(table.name(), Some(key), reason, None);
            }
            for (other, _, rows) in others.iter().filter(|(_, filter, _)| filter.contains(hash)) {
                let Some(theirs) = rows.get(key)? else {
                    continue;
                };
                // Where one of them cannot be read that was found already.
                let (Ok(this), Ok(that)) = (
                    view_record(key, value.value()),
                    view_record(key, theirs.value()),
                ) else {
                    continue;
                };
                // Of two alike the finished one stays: forgetting that work was done is the worse fault.
                let (older, newer) = match that.age() < this.age() {
                    true => (*other, place),
                    false => (place, *other),
                };
                let reason = format!("it is in {newer} too, and later");
                let fix = Action::Record(older, key.into());
                report.find(&older.name(), Some(key), reason, fix);
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
            let fix = Action::Body(place, row.into());
            let reason = "no record refers to this body";
            report.find(&place.body_name(), Some(row), reason, fix);
        }
    }
    Ok(count)
}
