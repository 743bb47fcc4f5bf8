//! Where records and bodies go.

use super::*;
use crate::model::policy::Policy;
use crate::model::record::{KeptResult, Retention, State};
use crate::model::time::Span;
use crate::store::samples::{Dice, body, done, pending};
use crate::store::{Part, Removal, StoreError, Swept, check_backend};
use std::collections::BTreeMap;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn created() -> (Disk, Store) {
    let disk = Disk::default();
    let store = Store::create_with_backend(disk.source(), ID, OPTIONS).unwrap();
    (disk, store)
}

/// Done at 1000 s, kept for an hour: expires in the bucket 4600 s / 512 s = 8.
fn finished(token: u64) -> Record {
    done(token, at(1_000_000), 4_600_000)
}

#[test]
fn what_is_past_its_retention_by_then_is_not_written_and_what_it_replaces_goes() {
    let (disk, mut store) = created();
    let mut later = finished(1);
    later.expires_at = Some(at(9_000_000));
    let changes = |lsn| {
        let records = [
            ("gone", finished(1)),
            ("there", later.clone()),
            ("open", pending(2)),
        ];
        let records = records.map(|(name, record)| (key(name), arc(record)));
        checkpoint(lsn, records.into())
    };
    let expected = [(key("there"), later.clone()), (key("open"), pending(2))];
    // Not while a batch under way may see it.
    let minute = at(4_600_000 + 60_000);
    let all = store.checkpoint_without(changes(1), Some(minute)).unwrap();
    assert_eq!((all.written, all.removed, all.records), (3, 0, 3));
    let past = Some(at(4_600_000 + 60_001));
    let some = store.checkpoint_without(changes(2), past).unwrap();
    assert_eq!((some.written, some.removed, some.records), (2, 1, 2));
    assert_holds(&disk, &store, &expected);
    let again = store.checkpoint_without(changes(3), past).unwrap();
    assert_eq!((again.written, again.removed, again.records), (2, 0, 2));
    assert_holds(&disk, &store, &expected);
}

#[test]
fn what_records_leave_behind_is_room_inside() {
    let (_disk, mut store) = created();
    let names: Vec<_> = (0..200).map(|number| format!("k{number}")).collect();
    let large = || {
        let mut record = finished(1);
        record.result.as_mut().unwrap().body = body(&[7; 20_000], Some(Lsn(1)));
        record
    };
    let before = store.free_inside().unwrap();
    let changes = names.iter().map(|name| (key(name), arc(large()))).collect();
    store.checkpoint(checkpoint(1, changes)).unwrap();
    let taken = 200 * 20_000;
    let changes = names.iter().map(|name| (key(name), None)).collect();
    store.checkpoint(checkpoint(2, changes)).unwrap();
    let after = store.free_inside().unwrap();
    assert!(
        (taken..3 * taken).contains(&(after - before)),
        "{before} {after}"
    );
}

#[test]
fn a_record_moves_from_open_to_done_to_a_later_bucket_and_away() {
    let (disk, mut store) = created();
    let name = key("k");
    put(&mut store, 1, "k", &pending(1));
    assert_eq!(tables(&disk), ["open"]);
    assert_holds(&disk, &store, &[(name.clone(), pending(1))]);

    put(&mut store, 2, "k", &finished(1));
    assert_eq!(tables(&disk), ["done/512/8/0", "open"]);
    assert_holds(&disk, &store, &[(name.clone(), finished(1))]);

    // A duplicate restarted the retention of a sliding window.
    let mut later = finished(1);
    later.expires_at = Some(at(9_000_000));
    put(&mut store, 3, "k", &later);
    assert_eq!(
        tables(&disk),
        ["done/512/17/0", "open"],
        "the emptied table is gone"
    );
    assert_holds(&disk, &store, &[(name.clone(), later)]);

    let committed = store
        .checkpoint(checkpoint(4, vec![(name.clone(), None)]))
        .unwrap();
    assert_eq!(
        (committed.written, committed.removed, committed.records),
        (0, 1, 0)
    );
    assert_eq!(tables(&disk), ["open"]);
    assert_eq!(store.reader().get(&name, Bodies::None).unwrap(), None);
    assert_holds(&disk, &store, &[]);
}

#[test]
fn a_record_that_never_expires_lies_apart() {
    let (disk, mut store) = created();
    let mut record = finished(1);
    record.expires_at = None;
    record.retention = Retention::Forever;
    put(&mut store, 1, "k", &record);
    assert_eq!(tables(&disk), ["done/forever/0", "open"]);
    store.sweep(at(u64::MAX), b"").unwrap();
    assert_holds(&disk, &store, &[(key("k"), record)]);
}

#[test]
fn bodies_are_written_once_move_with_their_record_and_go_when_nobody_refers_to_them() {
    let (disk, mut store) = created();
    let mut record = pending(1);
    record.payload = Some(body(&[b'p'; 300_000], Some(Lsn(1))));
    put(&mut store, 1, "k", &record);
    assert_eq!(tables(&disk), ["body/open", "open"]);

    // A renewal: with or without the bytes at hand, the row stays as it is.
    for (lsn, renewed) in [(2, record.clone()), (3, without_bytes(&record))] {
        let before = disk.written();
        put(&mut store, lsn, "k", &renewed);
        assert!(
            disk.written() - before < 100_000,
            "a renewal rewrites no body"
        );
        assert_holds(&disk, &store, &[(key("k"), record.clone())]);
    }

    // Completed, with a large result that is new.
    let mut complete = without_bytes(&record);
    complete.state = State::Done;
    complete.completed_at = Some(at(1_000_000));
    complete.expires_at = Some(at(4_600_000));
    complete.result = Some(KeptResult {
        body: body(&[b'r'; 200_000], Some(Lsn(4))),
        status: None,
    });
    put(&mut store, 4, "k", &complete);
    let expected = ["body/done/512/8/0", "body/open", "done/512/8/0", "open"];
    assert_eq!(tables(&disk), expected);
    assert_holds(&disk, &store, &[(key("k"), complete.clone())]);

    // Replayed: back to open with both, the result put aside, the bucket dropped.
    let mut replayed = without_bytes(&complete);
    replayed.state = State::Retry;
    (replayed.completed_at, replayed.expires_at) = (None, None);
    replayed.earlier_result = replayed.result.take();
    put(&mut store, 5, "k", &replayed);
    assert_eq!(tables(&disk), ["body/open", "open"]);
    assert_holds(&disk, &store, &[(key("k"), replayed.clone())]);

    // The payload is dropped, the earlier result stays.
    replayed.payload = None;
    put(&mut store, 6, "k", &replayed);
    assert_holds(&disk, &store, &[(key("k"), replayed)]);

    store
        .checkpoint(checkpoint(7, vec![(key("k"), None)]))
        .unwrap();
    assert_holds(&disk, &store, &[]);
    let report = crate::store::check_backend(&disk.copy().source(), OPTIONS).unwrap();
    assert_eq!(report.bodies, 0);
}

#[test]
fn payload_and_result_of_one_entry_are_two_bodies() {
    let (disk, mut store) = created();
    let mut record = finished(1);
    record.payload = Some(body(&[b'p'; 5000], Some(Lsn(1))));
    record.result = Some(KeptResult {
        body: body(&[b'r'; 6000], Some(Lsn(1))),
        status: None,
    });
    put(&mut store, 1, "k", &record);
    assert_holds(&disk, &store, &[(key("k"), record.clone())]);
    let reader = store.reader();
    let Content::Large(large) = &record.result.as_ref().unwrap().body.content else {
        panic!()
    };
    let bytes = reader.body(&key("k"), Part::Result, large).unwrap();
    assert_eq!(bytes.as_deref(), Some(&[b'r'; 6000][..]));
    assert_eq!(
        reader.body(&key("other"), Part::Result, large).unwrap(),
        None
    );
    let found = reader.get(&key("k"), Bodies::Result).unwrap().unwrap();
    assert!(
        found.payload.unwrap().content.bytes().is_none(),
        "it was not asked for"
    );
    assert!(found.result.unwrap().body.content.bytes().is_some());
}

#[test]
fn a_body_that_is_nowhere_is_not_committed() {
    let (disk, mut store) = created();
    let mut record = pending(1);
    record.payload = Some(body(&[1; 5000], Some(Lsn(1))));
    let changes = vec![(key("k"), arc(without_bytes(&record)))];
    let refused = store.checkpoint(checkpoint(1, changes));
    assert!(
        matches!(refused, Err(StoreError::Damage { .. })),
        "{refused:?}"
    );
    assert_holds(&disk, &store, &[]);
}

#[test]
fn a_bucket_dropped_after_its_record_moved_on_takes_nothing_with_it() {
    let (disk, mut store) = created();
    let mut record = finished(1);
    record.result = Some(KeptResult {
        body: body(&[b'r'; 9000], Some(Lsn(1))),
        status: None,
    });
    put(&mut store, 1, "moves", &record);
    put(&mut store, 2, "stays", &finished(2));
    let mut later = without_bytes(&record);
    later.expires_at = Some(at(9_000_000));
    put(&mut store, 3, "moves", &later);

    let nothing = store.sweep(at(4_608_000 + 60_000), b"").unwrap();
    assert_eq!(
        nothing,
        Swept::default(),
        "the bucket ended a minute ago, not more"
    );
    let swept = store.sweep(at(4_608_000 + 60_001), b"swept").unwrap();
    assert_eq!(
        swept,
        Swept {
            tables: 1,
            records: 1
        }
    );
    assert_eq!(
        tables(&disk),
        ["body/done/512/17/0", "done/512/17/0", "open"]
    );
    assert_holds(&disk, &store, &[(key("moves"), later.clone())]);
    assert!(!store.reader().may_contain(&key("stays")));
    let (_, opened) = Store::open_with_backend(disk.crashed().source(), OPTIONS).unwrap();
    assert_eq!(
        opened.mark, b"swept",
        "the instant is as durable as the sweep"
    );

    // Redo into a dropped bucket is tolerated, and the next sweep drops it again.
    put(&mut store, 4, "stays", &finished(2));
    assert_holds(
        &disk,
        &store,
        &[(key("moves"), later), (key("stays"), finished(2))],
    );
    assert_eq!(
        store.sweep(at(5_000_000), b"").unwrap(),
        Swept {
            tables: 1,
            records: 1
        }
    );
}

#[test]
fn a_part_is_closed_when_it_is_full_and_its_records_still_move() {
    let disk = Disk::default();
    let options = Options {
        part_rows: 10,
        ..OPTIONS
    };
    let mut store = Store::create_with_backend(disk.source(), ID, options).unwrap();
    let mut expected: Vec<(RecordKey, Record)> = (0..25)
        .map(|n| (key(format!("k{n:02}")), finished(n + 1)))
        .collect();
    for (lsn, chunk) in expected.chunks(5).enumerate() {
        let changes = chunk
            .iter()
            .map(|(name, r)| (name.clone(), arc(r.clone())))
            .collect();
        store
            .checkpoint(checkpoint(lsn as u64 + 1, changes))
            .unwrap();
    }
    let parts = ["done/512/8/0", "done/512/8/1", "done/512/8/2"];
    assert_eq!(tables(&disk), [&parts[..], &["open"]].concat());
    assert_holds(&disk, &store, &expected);
    // A change of a record in a closed part leaves it in one place only.
    expected[0].1.attempt = 9;
    put(&mut store, 10, "k00", &expected[0].1);
    assert_holds(&disk, &store, &expected);
    drop(store);
    let (store, opened) = Store::open_with_backend(disk.source(), options).unwrap();
    assert_eq!((opened.records, opened.tables), (25, 4));
    assert_holds(&disk, &store, &expected);
}

#[test]
fn what_a_checkpoint_carries_comes_back_at_the_next_start() {
    let (disk, mut store) = created();
    let policy = Policy {
        max_attempts: 9,
        ..Policy::default()
    };
    let mut first = checkpoint(7, vec![(key("k"), arc(pending(1)))]);
    first.mark = b"segment 3".to_vec();
    first.policies = vec![
        ("a".into(), Some(policy.clone())),
        ("b".into(), Some(policy.clone())),
    ];
    store.checkpoint(first).unwrap();
    let mut second = checkpoint(8, Vec::new());
    second.mark = b"segment 4".to_vec();
    second.policies = vec![("a".into(), None)];
    store.checkpoint(second).unwrap();
    store.close().unwrap();
    let (store, opened) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
    assert_eq!(opened.checkpoint, Lsn(8));
    assert_eq!(opened.next_token, Token::new(9).unwrap());
    assert_eq!(opened.store_id, ID);
    assert_eq!(opened.mark, b"segment 4");
    assert_eq!(opened.policies, [("b".into(), policy)]);
    assert_holds(&disk, &store, &[(key("k"), pending(1))]);
}

#[test]
fn a_checkpoint_out_of_order_is_refused_whole() {
    let (disk, mut store) = created();
    put(&mut store, 5, "k", &pending(1));
    let mut low_token = checkpoint(6, Vec::new());
    low_token.next_token = Token::FIRST;
    for refused in [checkpoint(4, Vec::new()), low_token] {
        let answer = store.checkpoint(refused);
        assert!(
            matches!(answer, Err(StoreError::Invalid { .. })),
            "{answer:?}"
        );
    }
    assert_holds(&disk, &store, &[(key("k"), pending(1))]);
    put(&mut store, 6, "k", &finished(1));
    assert_holds(&disk, &store, &[(key("k"), finished(1))]);
}

#[test]
fn scans_are_in_key_order_over_all_tables_and_only_what_was_asked_for() {
    let (_disk, mut store) = created();
    let mut changes = Changes::new();
    for (n, name) in ["a1", "a2", "b1", "b2", "b3", "\u{ff}"]
        .into_iter()
        .enumerate()
    {
        let record = if n % 2 == 0 { pending(1) } else { finished(1) };
        changes.push((key(name), arc(record.clone())));
        changes.push((RecordKey::new("ns2", name.as_bytes()).unwrap(), arc(record)));
    }
    changes.push((key([b'b', 255, 255]), arc(finished(1))));
    store.checkpoint(checkpoint(1, changes)).unwrap();
    let reader = store.reader();
    let names = |prefix: &[u8], after: Option<&[u8]>, limit, which| {
        let page = reader
            .scan(&Scan {
                namespace: "ns",
                prefix,
                after,
                limit,
                which,
            })
            .unwrap();
        let names: Vec<_> = page
            .records
            .iter()
            .map(|(name, _)| name.key().escape_ascii().to_string())
            .collect();
        (names.join(" "), page.more)
    };
    let all = (r"a1 a2 b1 b2 b3 b\xff\xff \xc3\xbf".into(), false);
    assert_eq!(names(b"", None, 100, Which::All), all);
    assert_eq!(names(b"b", None, 2, Which::All), ("b1 b2".into(), true));
    assert_eq!(
        names(b"b", Some(b"b2"), 2, Which::All),
        (r"b3 b\xff\xff".into(), false)
    );
    assert_eq!(
        names(b"b", Some(b"a2"), 1, Which::All),
        ("b1".into(), true),
        "after is before prefix"
    );
    assert_eq!(
        names(b"b\xff", None, 9, Which::All),
        (r"b\xff\xff".into(), false)
    );
    assert_eq!(
        names(b"", None, 100, Which::Open),
        ("a1 b1 b3".into(), false)
    );
    assert_eq!(
        names(b"", Some(b"zzz"), 0, Which::All),
        (String::new(), true)
    );
    assert_eq!(names(b"x", None, 9, Which::All), (String::new(), false));
    assert_eq!(reader.namespaces(), ["ns".into(), "ns2".into()]);
}

#[test]
fn counts_leave_out_buckets_that_are_over() {
    let (_disk, mut store) = created();
    put(&mut store, 1, "open", &pending(1));
    put(&mut store, 2, "soon", &finished(2));
    put(&mut store, 3, "later", &done(3, at(1_000_000), 9_000_000));
    for (now, open, done) in [(4_607_999, 1, 2), (4_608_000, 1, 1), (u64::MAX, 1, 0)] {
        let rows = store.reader().count("ns", at(now));
        assert_eq!((rows.open, rows.done), (open, done), "at {now}");
    }
    assert_eq!(store.reader().count("nobody", at(0)), Default::default());
}

#[test]
fn new_keys_do_not_reach_the_disk_also_after_the_open_table_has_turned_over() {
    let (_disk, mut store) = created();
    let reader = store.reader();
    // Many times as many keys pass through `open` as ever are in it.
    for round in 0..20_u64 {
        let gone = |n| key(format!("r{}-{n}", round - 1));
        let mut changes: Changes = Vec::new();
        for n in 0..1000 {
            changes.push((key(format!("r{round}-{n}")), arc(pending(1))));
            if round > 0 {
                changes.push((gone(n), None));
            }
        }
        store.checkpoint(checkpoint(round + 1, changes)).unwrap();
    }
    let present = (0..1000)
        .filter(|n| reader.may_contain(&key(format!("r19-{n}"))))
        .count();
    assert_eq!(present, 1000);
    let old = (0..1000)
        .filter(|n| reader.may_contain(&key(format!("r2-{n}"))))
        .count();
    assert!(
        old < 20,
        "{old} of 1000 keys long gone are still held possible"
    );
    let new = (0..10_000)
        .filter(|n| reader.may_contain(&key(format!("new-{n}"))))
        .count();
    assert!(new < 40, "{new} of 10000 new keys are held possible");
    assert!(reader.filter_stats().bytes < 200_000);
}

#[test]
fn a_random_history_is_kept_exactly() {
    let mut dice = Dice::seeded();
    let disk = Disk::default();
    let options = Options {
        part_rows: 20,
        ..OPTIONS
    };
    let mut store = Store::create_with_backend(disk.source(), ID, options).unwrap();
    let mut model: BTreeMap<RecordKey, Record> = BTreeMap::new();
    for lsn in 1..60 {
        let mut changes: BTreeMap<RecordKey, Option<Arc<Record>>> = BTreeMap::new();
        for _ in 0..dice.below(20) {
            let name = key(format!("k{}", dice.below(60)));
            if dice.below(5) == 0 {
                model.remove(&name);
                changes.insert(name, None);
                continue;
            }
            let expires = 1_000_000 + dice.below(4_000_000);
            let mut record = match dice.below(3) {
                0 => pending(lsn),
                _ => done(lsn, at(1_000_000), expires),
            };
            record.retention = Retention::For(Span::from_millis(dice.below(7_200_000)));
            // A payload that stays, goes, or is new.
            let old = model.get(&name).and_then(|old| old.payload.clone());
            let len = 5000 + dice.below(3000);
            record.payload = match dice.below(3) {
                0 => old,
                1 => Some(body(&dice.bytes(len), Some(Lsn(lsn)))),
                _ => None,
            };
            let written = if dice.below(2) == 0 {
                without_old_bytes(&record, lsn)
            } else {
                record.clone()
            };
            changes.insert(name.clone(), arc(written));
            model.insert(name, record);
        }
        store
            .checkpoint(checkpoint(lsn, changes.into_iter().collect()))
            .unwrap();
        if dice.below(2) == 0 {
            store.cover_one().unwrap();
        }
        if dice.below(10) == 0 {
            drop(store);
            store = Store::open_with_backend(disk.source(), options).unwrap().0;
        }
        if lsn % 10 == 0 {
            let expected: Vec<_> = model.clone().into_iter().collect();
            assert_holds(&disk, &store, &expected);
        }
    }
    // And what is over goes, nothing else.
    let now = 3_000_000;
    store.sweep(at(now), b"").unwrap();
    for (name, record) in &model {
        if record.expires_at.is_none_or(|expires| expires > at(now)) {
            assert_eq!(
                store.reader().get(name, Bodies::All).unwrap().as_ref(),
                Some(record)
            );
        }
    }
    assert_eq!(
        crate::store::check_backend(&disk.copy().source(), options)
            .unwrap()
            .findings,
        []
    );
}

/// Bytes only of bodies that are new with this LSN.
fn without_old_bytes(record: &Record, lsn: u64) -> Record {
    match &record.payload {
        Some(payload) => match &payload.content {
            Content::Large(large) if large.lsn == Some(Lsn(lsn)) => record.clone(),
            _ => without_bytes(record),
        },
        None => record.clone(),
    }
}

#[test]
fn what_was_removed_since_goes_ahead_of_its_checkpoint_and_its_bodies_where_nothing_refers_to_them()
{
    let (disk, mut store) = created();
    let large = |lsn| {
        let mut record = finished(lsn);
        record.result.as_mut().unwrap().body = body(&[7; 20_000], Some(Lsn(lsn)));
        record
    };
    let changes = [
        ("small", finished(1)),
        ("open", pending(1)),
        ("large", large(1)),
        ("kept", large(1)),
        ("stays", finished(1)),
    ];
    let changes = changes.map(|(name, record)| (key(name), arc(record)));
    store.checkpoint(checkpoint(1, changes.into())).unwrap();
    let removal = |name: &str, with_bodies| Removal {
        key: key(name),
        with_bodies,
    };
    let removals = [
        removal("kept", false),
        removal("large", true),
        removal("never", true),
        removal("open", false),
        removal("small", false),
    ];
    let mut gone = store.remove_ahead(&removals).unwrap();
    gone.sort_by(|a, b| a.key.cmp(&b.key));
    let gone: Vec<_> = gone.into_iter().map(|gone| (gone.key, gone.end)).collect();
    let end = Some(at(4_600_000));
    let expected = [
        (key("large"), end),
        (key("open"), None),
        (key("small"), end),
    ];
    assert_eq!(gone, expected);
    assert_eq!(store.checkpoint_lsn(), Lsn(1));
    assert_eq!(store.remove_ahead(&removals).unwrap(), []);
    // What a start finds is sound, and covers no more of the journal.
    drop(store);
    let (mut store, opened) = Store::open_with_backend(disk.source(), OPTIONS).unwrap();
    assert_eq!((opened.checkpoint, opened.records), (Lsn(1), 2));
    let report = check_backend(&disk.source(), OPTIONS).unwrap();
    assert_eq!(report.findings, []);
    let left = [
        (key("kept"), without_bytes(&large(1))),
        (key("stays"), finished(1)),
    ];
    assert_holds(&disk, &store, &left);
    // The checkpoint that covers the removals finds them done.
    let removed = removals.map(|removal| (removal.key, None));
    let committed = store.checkpoint(checkpoint(2, removed.into())).unwrap();
    assert_eq!((committed.removed, committed.records), (1, 1));
    assert_holds(&disk, &store, &[(key("stays"), finished(1))]);
}
