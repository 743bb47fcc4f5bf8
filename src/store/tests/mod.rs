//! The store through its public face.

mod disk;
mod faults;
mod moves;

use super::samples::{arc, key, without_bytes};
use super::{Bodies, Checkpoint, Memtable, Options, Reader, Scan, Store, Which};
use crate::model::body::Content;
use crate::model::key::RecordKey;
use crate::model::record::{Lsn, Record, Token};
use crate::model::time::Timestamp;
use disk::Disk;
use std::sync::Arc;

const ID: [u8; 16] = *b"0123456789abcdef";

/// Small parts and a small cache, so that little data reaches every path.
const OPTIONS: Options = Options {
    cache: 1 << 20,
    part_rows: 1_000_000,
    tables: 1024,
};

type Changes = Vec<(RecordKey, Option<Arc<Record>>)>;

fn checkpoint(lsn: u64, changes: Changes) -> Checkpoint {
    Checkpoint {
        lsn: Lsn(lsn),
        next_token: Token::new(lsn + 1).unwrap(),
        mark: vec![lsn as u8],
        policies: Vec::new(),
        changes: Arc::new(Memtable::of(&ID, Lsn(lsn), changes).unwrap()),
    }
}

fn put(store: &mut Store, lsn: u64, name: &str, record: &Record) {
    let changes = vec![(key(name), arc(record.clone()))];
    store.checkpoint(checkpoint(lsn, changes)).unwrap();
}

/// The names of the tables there are, by a look at the database through a full check's eyes.
fn tables(disk: &Disk) -> Vec<String> {
    use redb::{ReadableDatabase, TableHandle};
    let database = redb::Database::builder()
        .create_with_backend(disk.copy().handle())
        .unwrap();
    let transaction = database.begin_read().unwrap();
    let mut names: Vec<String> = transaction
        .list_tables()
        .unwrap()
        .map(|table| table.name().to_owned())
        .collect();
    names.retain(|name| name != "meta");
    names.sort();
    names
}

/// A sound store, and its records as expected: by `get`, `scan` and `count`.
fn assert_holds(disk: &Disk, store: &Store, expected: &[(RecordKey, Record)]) {
    let report = super::check_backend(&disk.copy().source(), OPTIONS).unwrap();
    assert_eq!(report.findings, [], "{report:?}");
    assert_eq!(report.records, expected.len() as u64);
    let reader = store.reader();
    for (name, record) in expected {
        assert!(reader.may_contain(name), "{name:?}");
        let found = reader.get(name, Bodies::All).unwrap();
        assert_eq!(found.as_ref(), Some(record), "{name:?}");
        assert_bodies_are_here(&found.unwrap());
    }
    let mut sorted: Vec<_> = expected.to_vec();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert_eq!(scan_all(&reader), sorted);
    let rows = reader.count("ns", Timestamp::default());
    assert_eq!(rows.open + rows.done, expected.len() as u64);
}

fn assert_bodies_are_here(record: &Record) {
    let results = [&record.result, &record.earlier_result]
        .into_iter()
        .flatten();
    for body in record.payload.iter().chain(results.map(|kept| &kept.body)) {
        if let Content::Large(large) = &body.content {
            let bytes = large.bytes.as_ref().expect("bytes were asked for");
            assert_eq!(crate::model::body::sha256(bytes), large.digest);
        }
    }
}

fn scan_all(reader: &Reader) -> Vec<(RecordKey, Record)> {
    let mut found = Vec::new();
    loop {
        let after = found
            .last()
            .map(|(name, _): &(RecordKey, Record)| name.key().to_vec());
        let scan = Scan {
            namespace: "ns",
            prefix: b"",
            after: after.as_deref(),
            limit: 7,
            which: Which::All,
        };
        let page = reader.scan(&scan).unwrap();
        found.extend(page.records);
        if !page.more {
            return found;
        }
    }
}
