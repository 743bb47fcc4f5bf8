//! Looking records up, from any thread.

use bytes::Bytes;
use redb::{AccessGuard, Range, ReadTransaction, TableError, TableHandle};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;
use std::sync::Arc;

use super::codec::{BodyRef, Part, body_key, decode_body, view_record};
use super::error::StoreError;
use super::filter::{FilterStats, KeyHasher};
use super::layout::Place;
use super::shared::{Catalog, Fault, Namespaces, Shared, bytewise, damage};
use crate::model::body::{Body, Content, LargeContent};
use crate::model::key::RecordKey;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// A page of a scan ends early when it has read so many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Which large bodies come with a record; small ones always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// None.
    None,
    /// The payload.
    Payload,
    /// The result.
    Result,
    /// All, an earlier result included.
    All,
}

/// What came of reading several records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Several {
    /// The first of them, all if there is nothing too large among them; `None` where there is no record.
    Found(Vec<Option<Record>>),
    /// None: their large bodies have so many bytes, and were not admitted.
    Declined(usize),
}

/// Which tables a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Only open records: `pending`, `retry`, `in_doubt` and `dead`.
    Open,
}

/// One page of a namespace's records in key order.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    /// Which namespace.
    pub namespace: &'a str,
    /// Only keys that begin so.
    pub prefix: &'a [u8],
    /// Only keys after this one.
    pub after: Option<&'a [u8]>,
    /// At most so many records.
    pub limit: usize,
    /// From these tables.
    pub which: Which,
}

/// Records without large bodies; expired ones that are not swept yet are among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In key order.
    pub records: Vec<(RecordKey, Record)>,
    /// Whether there may be more after the last one. A page may end before its limit, for its size.
    pub more: bool,
}

/// How many records a namespace has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Open ones, exactly.
    pub open: u64,
    /// Done ones, without those in buckets that are over.
    pub done: u64,
}

/// How many records there are, as of one commit. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Namespaces>);

impl Counts {
    /// Those of a namespace, without what is in buckets that are over.
    #[must_use]
    pub fn of(&self, namespace: &str, now: Timestamp) -> Rows {
        let mut counted = Rows::default();
        for (place, rows) in self.0.get(namespace).into_iter().flatten() {
            match place {
                Place::Open => counted.open += rows,
                place if place.has_expired(now) => {}
                _ => counted.done += rows,
            }
        }
        counted
    }
}

/// Reads the store. Cheap to clone; every call is a short transaction of its own, of the last commit.
///
/// Where a full disk has latched the database, calls wait until the writer has reopened it: so the thread
/// that owns the [`super::Store`] must not call a reader between the failure and the reopening.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>) -> Reader {
        Reader { shared }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether the store may hold the record: `false` is certain, about everything committed. Takes no
    /// read and, but for a shared lock, no lock.
    #[must_use]
    pub fn may_contain(&self, key: &RecordKey) -> bool {
        self.shared
            .may_contain(self.shared.hasher.hash(key.joined()))
    }

    /// As [`Reader::may_contain`] for several keys at once, by their hashes: sets those that are possible.
    pub fn mark_possible(&self, hashes: &[u64], possible: &mut [bool]) {
        self.shared.mark_possible(hashes, possible);
    }

    /// How the store hashes keys.
    #[must_use]
    pub fn hasher(&self) -> &KeyHasher {
        &self.shared.hasher
    }

    /// The record of a key.
    ///
    /// # Errors
    /// [`StoreError::Damage`] if the record or a body asked for is not what was written;
    /// [`StoreError::Io`], [`StoreError::Closed`].
    pub fn get(&self, key: &RecordKey, bodies: Bodies) -> Result<Option<Record>, StoreError> {
        self.shared.read("read a record", |transaction, catalog| {
            let Some(mut found) = self.row_in(transaction, catalog, key)? else {
                return Ok(None);
            };
            fetch_bodies(
                transaction,
                found.place,
                key.joined(),
                &mut found.record,
                bodies,
            )?;
            Ok(Some(found.record))
        })
    }

    /// The records of keys, in their order, all of the same commit; with their large bodies for those keys whose
    /// `bool` asks for them. Ends early, after one key at least, where what was read has reached `most` bytes.
    ///
    /// Before large bodies are read, `admit` is asked with how many bytes they have.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_some(
        &self,
        keys: &[(RecordKey, bool)],
        most: usize,
        mut admit: impl FnMut(usize) -> bool,
    ) -> Result<Several, StoreError> {
        self.shared.read("read records", |transaction, catalog| {
            let mut found = Vec::new();
            let (mut size, mut large) = (0_usize, 0_usize);
            for (key, with_bodies) in keys {
                if size >= most && !found.is_empty() {
                    break;
                }
                let row = self.row_in(transaction, catalog, key)?;
                if let Some(row) = &row {
                    let bodies = row.record.large_bodies().map(|body| body.size as usize);
                    let bodies = if *with_bodies { bodies.sum() } else { 0 };
                    large = large.saturating_add(bodies);
                    size = size.saturating_add(bodies).saturating_add(row.len);
                }
                found.push(row);
            }
            if large > 0 && !admit(large) {
                return Ok(Several::Declined(large));
            }
            let records = found
                .into_iter()
                .zip(keys)
                .map(|(row, (key, with_bodies))| {
                    let Some(Found {
                        place, mut record, ..
                    }) = row
                    else {
                        return Ok(None);
                    };
                    let bodies = if *with_bodies {
                        Bodies::All
                    } else {
                        Bodies::None
                    };
                    fetch_bodies(transaction, place, key.joined(), &mut record, bodies)?;
                    Ok(Some(record))
                });
            Ok(Several::Found(records.collect::<Result<_, Fault>>()?))
        })
    }

    /// The bytes of a large body of a record, by what the record says of it. `None` where it is no longer
    /// there.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn body(
        &self,
        key: &RecordKey,
        part: Part,
        large: &LargeContent,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some(lsn) = large.lsn else {
            return Ok(large.bytes.clone());
        };
        let body = BodyRef {
            part,
            lsn,
            size: large.size,
            digest: large.digest,
        };
        let hash = self.shared.hasher.hash(key.joined());
        self.shared.read("read a body", |transaction, catalog| {
            for place in catalog.filters.places(hash) {
                if let Some(bytes) = read_body(transaction, place, key.joined(), &body)? {
                    return Ok(Some(bytes));
                }
            }
            Ok(None)
        })
    }

    /// A page of records in key order, merged over all tables.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn scan(&self, scan: &Scan<'_>) -> Result<Page, StoreError> {
        self.shared
            .read("scan records", |transaction, _| scan_in(transaction, scan))
    }

    /// How many records a namespace has, from memory.
    #[must_use]
    pub fn count(&self, namespace: &str, now: Timestamp) -> Rows {
        self.counts().of(namespace, now)
    }

    /// How many records there are, as of the last commit.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts(self.shared.namespaces.lock().clone())
    }

    /// The namespaces that have records, in order.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Box<str>> {
        self.shared.namespaces.lock().keys().cloned().collect()
    }

    /// How well the filters do.
    #[must_use]
    pub fn filter_stats(&self) -> FilterStats {
        let bytes = self.shared.catalog().filters.bytes();
        self.shared.counters.stats(bytes)
    }

    fn row_in(
        &self,
        transaction: &ReadTransaction,
        catalog: &Catalog,
        key: &RecordKey,
    ) -> Result<Option<Found>, Fault> {
        let joined: &[u8] = key.joined();
        let hash = self.shared.hasher.hash(joined);
        for place in catalog.filters.places(hash) {
            let name = place.name();
            let value = match transaction.open_table(bytewise(&name)) {
                Ok(table) => table.get(joined)?,
                // Not committed yet, or no longer there.
                Err(TableError::TableDoesNotExist(_)) => None,
                Err(error) => return Err(error.into()),
            };
            self.shared.counters.count(value.is_some());
            if let Some(value) = value {
                let damaged = |error| damage(&name, Some(joined), error);
                let value = value.value();
                let view = view_record(joined, value).map_err(damaged)?;
                return Ok(Some(Found {
                    place,
                    record: view.to_record().map_err(damaged)?,
                    len: value.len(),
                }));
            }
        }
        Ok(None)
    }
}

/// A record as it lies in a table.
struct Found {
    place: Place,
    /// Without large bodies.
    record: Record,
    /// Bytes of its row.
    len: usize,
}

/// Puts the bytes of large bodies into a record just read.
fn fetch_bodies(
    transaction: &ReadTransaction,
    place: Place,
    key: &[u8],
    record: &mut Record,
    bodies: Bodies,
) -> Result<(), Fault> {
    let wants_payload = matches!(bodies, Bodies::Payload | Bodies::All);
    let wants_result = matches!(bodies, Bodies::Result | Bodies::All);
    let payload = record.payload.as_mut().filter(|_| wants_payload);
    let result = record.result.as_mut().filter(|_| wants_result);
    let earlier = record
        .earlier_result
        .as_mut()
        .filter(|_| bodies == Bodies::All);
    let results = result
        .into_iter()
        .chain(earlier)
        .map(|kept| (Part::Result, &mut kept.body));
    for (part, body) in payload
        .into_iter()
        .map(|body| (Part::Payload, body))
        .chain(results)
    {
        let Body {
            content: Content::Large(large),
            ..
        } = body
        else {
            continue;
        };
        let LargeContent {
            size,
            digest,
            lsn: Some(lsn),
            ..
        } = **large
        else {
            continue;
        };
        let found = read_body(
            transaction,
            place,
            key,
            &BodyRef {
                part,
                lsn,
                size,
                digest,
            },
        )?;
        let missing = || damage(&place.body_name(), Some(key), "a body is missing");
        large.bytes = Some(found.ok_or_else(missing)?);
    }
    Ok(())
}

fn read_body(
    transaction: &ReadTransaction,
    place: Place,
    key: &[u8],
    body: &BodyRef,
) -> Result<Option<Bytes>, Fault> {
    let name = place.body_name();
    let table = match transaction.open_table(bytewise(&name)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let row = body_key(key, body.lsn, body.part);
    let Some(value) = table.get(row.as_slice())? else {
        return Ok(None);
    };
    let bytes =
        decode_body(&row, value.value(), body).map_err(|error| damage(&name, Some(&row), error))?;
    Ok(Some(Bytes::copy_from_slice(bytes)))
}

type Rest = Range<'static, &'static [u8], &'static [u8]>;
type Value = AccessGuard<'static, &'static [u8]>;

/// One table in a merge: its next row's value, and the rows after that.
struct Source {
    name: String,
    value: Option<Value>,
    rest: Rest,
}

impl Source {
    /// Takes the next row; returns its key.
    fn advance(&mut self) -> Result<Option<Bytes>, Fault> {
        let Some(row) = self.rest.next() else {
            return Ok(None);
        };
        let (key, value) = row?;
        self.value = Some(value);
        Ok(Some(Bytes::copy_from_slice(key.value())))
    }
}

fn scan_in(transaction: &ReadTransaction, scan: &Scan<'_>) -> Result<Page, Fault> {
    let mut sources = Vec::new();
    let mut heads = BinaryHeap::new();
    let (from, to) = bounds(scan);
    let range = (
        from.as_ref().map(Vec::as_slice),
        to.as_ref().map(Vec::as_slice),
    );
    for handle in transaction.list_tables()? {
        match Place::parse(handle.name()) {
            None => continue,
            Some(place) if scan.which == Which::Open && place != Place::Open => continue,
            Some(_) => {}
        }
        let rest = transaction
            .open_table(bytewise(handle.name()))?
            .range::<&[u8]>(range)?;
        let mut source = Source {
            name: handle.name().to_owned(),
            value: None,
            rest,
        };
        if let Some(key) = source.advance()? {
            heads.push(Reverse((key, sources.len())));
            sources.push(source);
        }
    }
    let mut page = Page::default();
    let mut bytes = 0;
    while let Some(Reverse((key, index))) = heads.pop() {
        if page.records.len() >= scan.limit || bytes >= PAGE_BYTES {
            page.more = true;
            break;
        }
        let Some(source) = sources.get_mut(index) else {
            continue;
        };
        let damaged = |error: &dyn std::fmt::Display| damage(&source.name, Some(&key), error);
        if let Some(value) = source.value.take() {
            let value = value.value();
            bytes += key.len() + value.len();
            let view = view_record(&key, value).map_err(|error| damaged(&error))?;
            let record = view.to_record().map_err(|error| damaged(&error))?;
            let name = RecordKey::from_joined(key.clone());
            page.records
                .push((name.ok_or_else(|| damaged(&"that is no key"))?, record));
        }
        if let Some(key) = source.advance()? {
            heads.push(Reverse((key, index)));
        }
    }
    Ok(page)
}

/// The joined keys a scan reads.
fn bounds(scan: &Scan<'_>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let join = |key: &[u8]| [scan.namespace.as_bytes(), &[0], key].concat();
    let prefix = join(scan.prefix);
    // The first byte string after all that begin with the prefix; a namespace keeps it from being empty.
    let mut end = prefix.clone();
    while let Some(255) = end.last() {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    let from = match scan.after.map(join) {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    (from, Bound::Excluded(end))
}
