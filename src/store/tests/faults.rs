//! Disks that fill, fail, lose and lie; and readers that look meanwhile.

use super::*;
use crate::store::samples::{Dice, body, done, pending};
use crate::store::{FORMAT, StoreError};
use redb::TableDefinition;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn finished(token: u64) -> Record {
    done(token, Timestamp::from_millis(1_000_000), 4_600_000)
}

/// A store with something in each kind of table.
fn filled(disk: &Disk) -> Vec<(RecordKey, Record)> {
    let mut store = Store::create_with_backend(disk.source(), ID, OPTIONS).unwrap();
    let mut expected = Vec::new();
    for n in 0..400 {
        let mut record = if n % 3 == 0 {
            pending(n + 1)
        } else {
            finished(n + 1)
        };
        if n % 20 == 0 {
            record.payload = Some(body(&[n as u8; 6000], Some(Lsn(1))));
        }
        expected.push((key(format!("key-{n:03}")), record));
    }
    let changes = expected
        .iter()
        .map(|(name, r)| (name.clone(), arc(r.clone())))
        .collect();
    store.checkpoint(checkpoint(1, changes)).unwrap();
    store.close().unwrap();
    expected
}

#[test]
fn a_flipped_bit_is_refused_or_does_no_harm() {
    let mut dice = Dice::seeded();
    let disk = Disk::default();
    let expected = filled(&disk);
    let good = disk.bytes();
    // Half of the flips where records lie, half anywhere.
    let holds_data = |at: usize| good[at / 4096 * 4096..][..4096].iter().any(|b| *b != 0);
    let mut refused = 0;
    for n in 0..50 {
        let mut at = dice.below(good.len() as u64) as usize;
        while n % 2 == 0 && !holds_data(at) {
            at = dice.below(good.len() as u64) as usize;
        }
        let mut bad = good.clone();
        bad[at] ^= 1 << dice.below(8);
        let outcome = catch_unwind(AssertUnwindSafe(|| read_all(&Disk::of(bad), &expected)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
            Err(_) => panic!("a bit flipped at byte {at} gave a wrong answer or a panic"),
        }
    }
    assert!(
        refused > 5,
        "only {refused} flips were noticed: does the test flip what matters?"
    );
}

/// Panics at a wrong answer.
fn read_all(disk: &Disk, expected: &[(RecordKey, Record)]) -> Result<(), StoreError> {
    let (store, opened) = Store::open_with_backend(disk.source(), OPTIONS)?;
    assert_eq!(
        (opened.checkpoint, opened.records),
        (Lsn(1), expected.len() as u64)
    );
    let reader = store.reader();
    for (name, record) in expected {
        assert_eq!(
            reader.get(name, Bodies::All)?.as_ref(),
            Some(record),
            "{name:?}"
        );
    }
    assert_eq!(scan_all(&reader).len(), expected.len());
    Ok(())
}

/// Changes rows behind the store's back, with pages that are right.
fn tamper(disk: &Disk, change: impl FnOnce(&redb::WriteTransaction)) {
    let database = redb::Database::builder()
        .create_with_backend(disk.handle())
        .unwrap();
    let mut transaction = database.begin_write().unwrap();
    transaction.set_quick_repair(true);
    change(&transaction);
    transaction.commit().unwrap();
    database.close().unwrap();
}

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

#[test]
fn damage_within_sound_pages_is_refused_at_the_start_and_listed_by_the_check() {
    const OPEN: Rows = TableDefinition::new("open");
    const DONE: Rows = TableDefinition::new("done/512/8/0");
    const BODY: Rows = TableDefinition::new("body/open");
    type Tamper = fn(&redb::WriteTransaction);
    let table: [(&str, Tamper, &str); 8] = [
        (
            "a record lost",
            |t| drop(t.open_table(OPEN).unwrap().pop_first().unwrap()),
            "counted",
        ),
        (
            "a record changed",
            |t| {
                let mut table = t.open_table(OPEN).unwrap();
                let (key, mut value) = take_first(&mut table);
                value[10] ^= 1;
                table.insert(key.as_slice(), value.as_slice()).unwrap();
            },
            "the checksum differs",
        ),
        (
            "a record under another key",
            |t| {
                let mut table = t.open_table(OPEN).unwrap();
                let (_, value) = take_first(&mut table);
                table
                    .insert(&b"ns\0elsewhere"[..], value.as_slice())
                    .unwrap();
            },
            "the checksum differs",
        ),
        (
            "a record in the wrong table",
            |t| {
                let (key, value) = take_first(&mut t.open_table(OPEN).unwrap());
                t.open_table(DONE)
                    .unwrap()
                    .insert(key.as_slice(), value.as_slice())
                    .unwrap();
            },
            "it does not belong in this table",
        ),
        (
            "a record in two tables",
            |t| {
                const OTHER: Rows = TableDefinition::new("done/512/8/1");
                let mut done = t.open_table(DONE).unwrap();
                let (key, value) = take_first(&mut done);
                done.insert(key.as_slice(), value.as_slice()).unwrap();
                t.open_table(OTHER)
                    .unwrap()
                    .insert(key.as_slice(), value.as_slice())
                    .unwrap();
            },
            "a table that `meta` does not know",
        ),
        (
            "a body lost",
            |t| drop(t.open_table(BODY).unwrap().pop_first().unwrap()),
            "missing",
        ),
        (
            "a body too many",
            |t| {
                let row = super::super::codec::body_key(
                    b"ns\0nobody",
                    Lsn(1),
                    crate::store::Part::Payload,
                );
                t.open_table(BODY)
                    .unwrap()
                    .insert(row.as_slice(), &b"x"[..])
                    .unwrap();
            },
            "no record refers to this body",
        ),
        (
            "a table lost",
            |t| assert!(t.delete_table(DONE).unwrap()),
            "it knows tables that are not there",
        ),
    ];
    let original = Disk::default();
    let expected = filled(&original);
    for (what, change, reason) in table {
        let disk = original.copy();
        tamper(&disk, change);
        let refused = Store::open_with_backend(disk.source(), OPTIONS).map(|_| ());
        assert!(
            matches!(refused, Err(StoreError::Damage { .. })),
            "{what}: {refused:?}"
        );
        let report = crate::store::check_backend(&disk.source(), OPTIONS).unwrap();
        let found = report
            .findings
            .iter()
            .any(|finding| finding.reason.contains(reason));
        assert!(found, "{what}: {:?}", report.findings);
        assert_repaired(&disk, &report, &expected, what);
    }
}

/// After the repair it starts, and every record that was not named is there, whole.
fn assert_repaired(
    disk: &Disk,
    report: &crate::store::Report,
    expected: &[(RecordKey, Record)],
    what: &str,
) {
    let fixes: Vec<_> = report
        .findings
        .iter()
        .filter_map(|finding| finding.fix.clone())
        .collect();
    assert_eq!(fixes.len(), report.findings.len(), "{what}: {report:?}");
    crate::store::repair_backend(&disk.source(), &fixes, OPTIONS).unwrap();
    let after = crate::store::check_backend(&disk.copy().source(), OPTIONS).unwrap();
    assert_eq!(after.findings, [], "{what}");
    let (store, _) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
    let reader = store.reader();
    let (mut missing, mut bodiless) = (0, 0);
    for (name, record) in expected {
        match reader.get(name, Bodies::All).unwrap() {
            None => missing += 1,
            Some(found) if found == *record => {}
            Some(found) => {
                assert_eq!(found.payload, None, "{what}: {name:?}");
                assert_eq!(found.token, record.token, "{what}: {name:?}");
                bodiless += 1;
            }
        }
    }
    let lost = match what {
        "a record lost" | "a record changed" => (1, 0),
        // Taken from its own key, so it is lost like one.
        "a record under another key" => (1, 0),
        "a body lost" => (0, 1),
        "a table lost" => (266, 0),
        _ => (0, 0),
    };
    assert_eq!((missing, bodiless), lost, "{what}");
}

#[test]
fn of_two_records_of_a_key_the_later_one_stays_with_its_body() {
    const OPEN: Rows = TableDefinition::new("open");
    for (held, other, stays) in [(7, 9, 9), (9, 7, 9)] {
        let disk = Disk::default();
        let mut store = Store::create_with_backend(disk.source(), ID, OPTIONS).unwrap();
        put(&mut store, 1, "k", &pending(held));
        store.close().unwrap();
        let mut stray = (Vec::new(), Vec::new());
        tamper(&disk, |t| {
            stray = take_first(&mut t.open_table(OPEN).unwrap());
            t.open_table(OPEN)
                .unwrap()
                .insert(stray.0.as_slice(), stray.1.as_slice())
                .unwrap();
        });
        let mut store = Store::open_with_backend(disk.source(), OPTIONS).unwrap().0;
        let mut record = finished(other);
        record.payload = Some(body(&[1; 6000], Some(Lsn(2))));
        put(&mut store, 2, "k", &record);
        store.close().unwrap();
        tamper(&disk, |t| {
            t.open_table(OPEN)
                .unwrap()
                .insert(stray.0.as_slice(), stray.1.as_slice())
                .unwrap();
        });
        let report = crate::store::check_backend(&disk.source(), OPTIONS).unwrap();
        let found = |reason: &str| report.findings.iter().any(|f| f.reason.contains(reason));
        assert!(found("too, and later"), "{report:?}");
        let fixes: Vec<_> = report
            .findings
            .iter()
            .filter_map(|f| f.fix.clone())
            .collect();
        crate::store::repair_backend(&disk.source(), &fixes, OPTIONS).unwrap();
        let after = crate::store::check_backend(&disk.copy().source(), OPTIONS).unwrap();
        assert_eq!(after.findings, []);
        let (store, _) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
        let left = store.reader().get(&key("k"), Bodies::All).unwrap().unwrap();
        assert_eq!(left.token.get(), stays);
        assert_eq!(left.payload.is_some(), stays == other);
    }
}

fn take_first(table: &mut redb::Table<'_, &'static [u8], &'static [u8]>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = table.pop_first().unwrap().unwrap();
    (key.value().to_vec(), value.value().to_vec())
}

#[test]
fn a_changed_body_is_refused_when_it_is_read() {
    const BODY: Rows = TableDefinition::new("body/open");
    let disk = Disk::default();
    filled(&disk);
    tamper(&disk, |transaction| {
        let mut table = transaction.open_table(BODY).unwrap();
        let (key, mut value) = take_first(&mut table);
        value[3000] ^= 1;
        table.insert(key.as_slice(), value.as_slice()).unwrap();
    });
    let (store, _) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
    let name = key("key-000");
    assert!(store.reader().get(&name, Bodies::None).unwrap().is_some());
    let refused = store.reader().get(&name, Bodies::All);
    assert!(
        matches!(refused, Err(StoreError::Damage { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_newer_store_and_other_files_are_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onced.redb");
    let refuse = |expected: fn(&StoreError) -> bool| {
        let before = std::fs::read(&path).unwrap();
        let error = Store::open(&path, OPTIONS).err().expect("it is refused");
        assert!(expected(&error), "{error}");
        assert!(
            std::fs::read(&path).unwrap() == before,
            "{error}: the file was touched"
        );
    };
    // Newer, and left by a crash: its last commit is not the result of a clean shutdown.
    let disk = Disk::default();
    filled(&disk);
    let database = redb::Database::builder()
        .create_with_backend(disk.handle())
        .unwrap();
    let mut transaction = database.begin_write().unwrap();
    transaction.set_quick_repair(true);
    let mut format = b"onced store\0".to_vec();
    format.extend_from_slice(&(FORMAT + 1).to_le_bytes());
    let meta: Rows = TableDefinition::new("meta");
    transaction
        .open_table(meta)
        .unwrap()
        .insert(&b"format"[..], format.as_slice())
        .unwrap();
    transaction.commit().unwrap();
    std::fs::write(&path, disk.crashed().bytes()).unwrap();
    refuse(|error| matches!(error, StoreError::Newer { found, .. } if *found == FORMAT + 1));

    let other = Disk::default();
    redb::Database::builder()
        .create_with_backend(other.handle())
        .unwrap()
        .close()
        .unwrap();
    std::fs::write(&path, other.bytes()).unwrap();
    refuse(|error| matches!(error, StoreError::NotAStore { .. }));
    for bytes in [&b""[..], b"hello", &[0; 10_000]] {
        std::fs::write(&path, bytes).unwrap();
        refuse(|error| matches!(error, StoreError::NotAStore { .. }));
    }
    std::fs::remove_file(&path).unwrap();
    let missing = Store::open(&path, OPTIONS).err().unwrap();
    assert!(matches!(missing, StoreError::Io { .. }), "{missing}");
    assert!(!path.exists(), "opening never creates");
}

#[test]
fn a_file_is_created_once_and_opened_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onced.redb");
    // What a creation that was cut short left behind does no harm.
    std::fs::write(folder.path().join("onced.redb.new"), b"half").unwrap();
    let mut store = Store::create(&path, ID, OPTIONS).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    put(&mut store, 1, "k", &pending(1));
    let again = Store::create(&path, ID, OPTIONS).err().unwrap();
    assert!(matches!(again, StoreError::Exists { .. }), "{again}");
    let second = Store::open(&path, OPTIONS).err().unwrap();
    assert!(matches!(second, StoreError::InUse { .. }), "{second}");
    let reader = store.reader();
    store.close().unwrap();
    assert!(matches!(
        reader.get(&key("k"), Bodies::None),
        Err(StoreError::Closed)
    ));
    let (store, _) = Store::open(&path, OPTIONS).unwrap();
    assert_eq!(
        store.reader().get(&key("k"), Bodies::None).unwrap(),
        Some(pending(1))
    );
    drop(store);
    assert_eq!(crate::store::check(&path, OPTIONS).unwrap().findings, []);
}

#[test]
fn a_disk_that_is_full_at_any_write_loses_nothing() {
    let original = Disk::default();
    let mut expected = filled(&original);
    for n in 0..10 {
        expected[n * 7].1 = finished(500 + n as u64);
    }
    let changes: Changes = (0..10)
        .map(|n| &expected[n * 7])
        .map(|(k, r)| (k.clone(), arc(r.clone())))
        .collect();
    for error in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        for writes in 0.. {
            let disk = original.copy();
            let (mut store, _) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
            let reader = store.reader();
            let known = (
                key("key-399"),
                reader.get(&key("key-399"), Bodies::All).unwrap(),
            );
            disk.fail_after(writes, error);
            let first = store.checkpoint(checkpoint(2, changes.clone()));
            if first.is_ok() {
                assert!(writes > 3, "the commit writes more than {writes} times");
                break;
            }
            assert!(
                matches!(first, Err(StoreError::Full { .. })),
                "{writes}: {first:?}"
            );
            let second = store.checkpoint(checkpoint(2, changes.clone()));
            assert!(
                matches!(second, Err(StoreError::Full { .. })),
                "latched: {second:?}"
            );
            // Reopening works, or says that it is still full; never anything else.
            match store.reopen() {
                Ok(()) => assert_eq!(reader.get(&known.0, Bodies::All).unwrap(), known.1),
                Err(StoreError::Full { .. }) => {}
                Err(other) => panic!("{writes}: {other}"),
            }
            disk.heal();
            store.reopen().unwrap();
            store.checkpoint(checkpoint(2, changes.clone())).unwrap();
            assert_holds(&disk, &store, &expected);
        }
    }
}

#[test]
fn readers_of_a_latched_database_wait_for_its_reopening() {
    let disk = Disk::default();
    let expected = filled(&disk);
    let (mut store, _) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
    let reader = store.reader();
    disk.fail_after(0, ErrorKind::StorageFull);
    let change = vec![(key("new"), arc(pending(1)))];
    store.checkpoint(checkpoint(2, change)).unwrap_err();
    std::thread::scope(|scope| {
        let answers: Vec<_> = expected[..20]
            .iter()
            .map(|(name, _)| {
                let reader = reader.clone();
                scope.spawn(move || reader.get(name, Bodies::All))
            })
            .collect();
        disk.heal();
        store.reopen().unwrap();
        for (answer, (_, record)) in answers.into_iter().zip(&expected) {
            assert_eq!(answer.join().unwrap().unwrap().as_ref(), Some(record));
        }
    });
}

#[test]
fn any_other_failed_write_is_final_for_writer_and_readers() {
    let disk = Disk::default();
    filled(&disk);
    let (mut store, _) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
    let reader = store.reader();
    disk.fail_after(2, ErrorKind::PermissionDenied);
    for _ in 0..2 {
        let failed = store.checkpoint(checkpoint(2, vec![(key("new"), arc(pending(1)))]));
        assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    }
    // A reader gets what is in the cache or the error; it does not wait for ever.
    match reader.get(&key("key-001"), Bodies::All) {
        Ok(found) => assert!(found.is_some()),
        Err(error) => assert!(matches!(error, StoreError::Io { .. }), "{error}"),
    }
}

#[test]
fn a_failed_sync_is_final_also_for_lack_of_space() {
    let disk = Disk::default();
    filled(&disk);
    let (mut store, _) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
    disk.fail_syncs();
    let failed = store.checkpoint(checkpoint(2, vec![(key("new"), arc(pending(1)))]));
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    let (_, opened) = Store::open_with_backend(disk.crashed().source(), OPTIONS).unwrap();
    assert_eq!(opened.checkpoint, Lsn(1));
}

#[test]
fn a_crash_leaves_the_last_commit() {
    let disk = Disk::default();
    let mut store = Store::create_with_backend(disk.source(), ID, OPTIONS).unwrap();
    let mut expected: Vec<(RecordKey, Record)> = Vec::new();
    for lsn in 1..20 {
        let record = if lsn % 2 == 0 {
            pending(lsn)
        } else {
            finished(lsn)
        };
        put(&mut store, lsn, &format!("k{}", lsn % 7), &record);
        expected.retain(|(name, _)| *name != key(format!("k{}", lsn % 7)));
        expected.push((key(format!("k{}", lsn % 7)), record));
        // The power goes here, and also in the middle of the next commit, before it is synced.
        let crashed = disk.crashed();
        let (after, opened) = Store::open_with_backend(crashed.source(), OPTIONS).unwrap();
        assert_eq!(opened.checkpoint, Lsn(lsn));
        assert_holds(&crashed, &after, &expected);
    }
}

#[test]
fn a_reader_never_sees_a_key_vanish_while_it_moves() {
    let disk = Disk::default();
    let options = Options {
        part_rows: 64,
        ..OPTIONS
    };
    let mut store = Store::create_with_backend(disk.source(), ID, options).unwrap();
    let names: Vec<RecordKey> = (0..40).map(|n| key(format!("k{n}"))).collect();
    let all = |record: &dyn Fn(u64) -> Record| -> Changes {
        (0..40)
            .map(|n| (names[n as usize].clone(), arc(record(n))))
            .collect()
    };
    store
        .checkpoint(checkpoint(1, all(&|n| pending(n + 1))))
        .unwrap();
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let look = |reader: Reader| {
            let (names, stop, looks) = (&names, &stop, &looks);
            move || {
                while !stop.load(Ordering::Relaxed) {
                    for name in names {
                        assert!(reader.may_contain(name), "{name:?}");
                        assert!(
                            reader.get(name, Bodies::None).unwrap().is_some(),
                            "{name:?}"
                        );
                    }
                    let scan = Scan {
                        namespace: "ns",
                        prefix: b"k",
                        after: None,
                        limit: 100,
                        which: Which::All,
                    };
                    assert_eq!(reader.scan(&scan).unwrap().records.len(), 40);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(look(store.reader()))).collect();
        // Through open, ever later buckets, and sweeps of those left behind; at least as long as it takes
        // the readers to look a few hundred times.
        let mut lsn = 1;
        while (lsn < 150 || looks.load(Ordering::Relaxed) < 300)
            && !readers.iter().any(|reader| reader.is_finished())
        {
            lsn += 1;
            let now = 1_000_000 + lsn * 600_000;
            let changes = match lsn % 3 {
                0 => all(&|n| pending(n + 1)),
                _ => all(&|n| done(n + 1, Timestamp::from_millis(now), now + 3_600_000)),
            };
            store.checkpoint(checkpoint(lsn, changes)).unwrap();
            store.sweep(Timestamp::from_millis(now), b"").unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
