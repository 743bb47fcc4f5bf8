//! Backups through their public face: what comes back is what was there, and nothing damaged comes back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::model::key::RecordKey;
use crate::model::policy::Policy;
use crate::model::record::Record;
use crate::model::time::Span;
use crate::store::samples::{Dice, body, key};
use crate::store::{Bodies, Checkpoint, Memtable, Options, Store};

const ID: [u8; 16] = *b"0123456789abcdef";

/// Any records of all kinds and states, some of them with large bodies.
fn records(dice: &mut Dice, count: usize) -> BTreeMap<RecordKey, Record> {
    let one = |at: usize, dice: &mut Dice| {
        let mut record = dice.record();
        if record.large_bodies().next().is_some() {
            let large = |dice: &mut Dice| body(&dice.bytes(5000), Some(Lsn(7)));
            record.payload = Some(large(dice));
            record.earlier_result = None;
            if let Some(result) = &mut record.result {
                result.body = large(dice);
            }
        }
        (key(format!("k{at}")), record)
    };
    (0..count).map(|at| one(at, dice)).collect()
}

fn policy() -> Policy {
    Policy {
        lease: Span::from_secs(7),
        ..Policy::default()
    }
}

/// A store with these records and a policy.
fn store(folder: &Path, records: &BTreeMap<RecordKey, Record>) -> Store {
    let path = folder.join("store.redb");
    let mut store = Store::create(path, ID, Options::default()).unwrap();
    let changes = records.iter();
    let changes = changes.map(|(key, record)| (key.clone(), Some(Arc::new(record.clone()))));
    store
        .checkpoint(Checkpoint {
            lsn: Lsn(9),
            next_token: Token::new(4711).unwrap(),
            mark: b"the clocks".to_vec(),
            policies: vec![("orders".into(), Some(policy()))],
            changes: Arc::new(Memtable::of(&ID, Lsn(9), changes).unwrap()),
        })
        .unwrap();
    store
}

fn back_up(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sink = |chunk: bytes::Bytes| {
        bytes.extend_from_slice(&chunk);
        true
    };
    let copied = store.reader().back_up(&mut sink).unwrap();
    assert!(matches!(copied, Copied::Whole { lsn: Lsn(9), .. }));
    bytes
}

fn written(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("backup");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn what_comes_back_is_what_was_there() {
    let mut dice = Dice::seeded();
    let folder = tempfile::tempdir().unwrap();
    let records = records(&mut dice, 500);
    let store = store(folder.path(), &records);
    let path = written(folder.path(), &back_up(&store));
    let mut backup = Backup::open(&path).unwrap();
    let head = Head {
        store_id: ID,
        lsn: Lsn(9),
        next_token: Token::new(4711).unwrap(),
        mark: b"the clocks".to_vec(),
    };
    assert_eq!(backup.head(), &head);
    let mut found = BTreeMap::new();
    let mut policies = Vec::new();
    while let Some(item) = backup.next_item().unwrap() {
        match item {
            Item::Policy(namespace, policy) => policies.push((namespace, policy)),
            Item::Record(key, record) => {
                assert!(found.insert(key, *record).is_none());
            }
        }
    }
    assert_eq!(policies, [("orders".into(), policy())]);
    assert_eq!(found.len(), records.len());
    for (key, record) in &found {
        let stored = store.reader().get(key, Bodies::All).unwrap();
        assert_eq!(stored.as_ref(), Some(record), "{key:?}");
        assert!(!record.lacks_bodies(), "{key:?}");
    }
    let contents = verify(&path).unwrap().1;
    assert_eq!(contents, backup.contents());
    assert_eq!((contents.policies, contents.records), (1, 500));
}

#[test]
fn whoever_takes_no_more_ends_the_copy() {
    let mut dice = Dice::seeded();
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &records(&mut dice, 400));
    for most in 0..3 {
        let mut taken = 0;
        let mut sink = |_| {
            taken += 1;
            taken <= most
        };
        let copied = store.reader().back_up(&mut sink).unwrap();
        assert_eq!((copied, taken), (Copied::Stopped, most + 1));
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_refused_by_its_name() {
    let mut dice = Dice::seeded();
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &records(&mut dice, 12));
    let whole = back_up(&store);
    assert!(verify(&written(folder.path(), &whole)).is_ok());
    let near_an_end = |at: usize| at < 200 || at + 200 > whole.len();
    let places = (0..whole.len()).filter(|at| near_an_end(*at) || at % 41 == 0);
    for at in places {
        let error = verify(&written(folder.path(), &whole[..at])).unwrap_err();
        let cut = matches!(error, BackupError::Cut { .. });
        let nothing = at == 0 && matches!(error, BackupError::NotABackup { .. });
        assert!(cut || nothing, "the first {at} bytes: {error}");

        let mut flipped = whole.clone();
        flipped[at] ^= 1 << dice.below(8);
        let error = verify(&written(folder.path(), &flipped)).unwrap_err();
        let named = match &error {
            BackupError::NotABackup { .. } => at < MAGIC.len(),
            BackupError::Damaged { .. } => at >= MAGIC.len(),
            // The length of a chunk reached over the end of the file.
            BackupError::Cut { .. } => at >= PREAMBLE,
            BackupError::Newer { .. } | BackupError::Io { .. } => false,
        };
        assert!(named, "byte {at}: {error}");
    }
}

#[test]
fn chunks_that_are_missing_doubled_swapped_or_of_another_backup_are_refused() {
    let mut dice = Dice::seeded();
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &records(&mut dice, 400));
    let mut chunks: Vec<bytes::Bytes> = Vec::new();
    let mut sink = |chunk| {
        chunks.push(chunk);
        true
    };
    store.reader().back_up(&mut sink).unwrap();
    assert!(chunks.len() > 4, "{} chunks", chunks.len());
    let refused = |what: &str, chunks: &[bytes::Bytes]| {
        let error = verify(&written(folder.path(), &chunks.concat())).unwrap_err();
        assert!(
            matches!(error, BackupError::Damaged { .. }),
            "{what}: {error}"
        );
    };
    let mut missing = chunks.clone();
    missing.remove(2);
    refused("missing", &missing);
    let mut doubled = chunks.clone();
    doubled.insert(2, chunks[2].clone());
    refused("doubled", &doubled);
    let mut swapped = chunks.clone();
    swapped.swap(1, 2);
    refused("swapped", &swapped);
    let mut longer = chunks.clone();
    longer.push(bytes::Bytes::from_static(b"x"));
    refused("longer", &longer);
    let mut other = chunks[0].to_vec();
    // The same store, a checkpoint later, with a sound head.
    other[32] ^= 1;
    let crc = crc32fast::hash(&other[..PREAMBLE - 4]);
    other[PREAMBLE - 4..].copy_from_slice(&crc.to_le_bytes());
    let mut mixed = chunks.clone();
    mixed[0] = other.into();
    refused("of another backup", &mixed);
}

#[test]
fn a_later_format_is_named_as_that() {
    let mut dice = Dice::seeded();
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &records(&mut dice, 1));
    let mut bytes = back_up(&store);
    bytes[12..16].copy_from_slice(&2_u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..PREAMBLE - 4]);
    bytes[PREAMBLE - 4..PREAMBLE].copy_from_slice(&crc.to_le_bytes());
    let error = verify(&written(folder.path(), &bytes)).unwrap_err();
    assert!(
        matches!(
            error,
            BackupError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn the_head_is_what_it_was_when_the_format_was_released() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &BTreeMap::new());
    let bytes = back_up(&store);
    let golden = b"onced backup\x01\0\0\x000123456789abcdef\x09\0\0\0\0\0\0\0";
    assert_eq!(&bytes[..PREAMBLE - 4], golden);
}
