//! A crash at every operation that changes the disk, one by one: nothing acknowledged is lost, nothing else
//! comes up but the one frame that was under way.

use super::*;
use crate::journal::disk::RealDisk;
use crate::journal::sim::{Op, seed};

/// Runs `workload` with the power cut at each of its operations, then again on what is left, and checks what was
/// acknowledged. `workload` says what it released.
fn at_every_operation(
    prepare: impl Fn() -> (SimDisk, Option<Rig>),
    workload: impl Fn(&SimDisk, Option<Rig>, &mut Told) -> Result<(), JournalError>,
) {
    let first = seed();
    let mut cuts = 0;
    for cut in 0.. {
        let mut over = false;
        for seed in first..first + 6 {
            let (disk, rig) = prepare();
            let mut told = Told::default();
            disk.fail_after(cut);
            let done = workload(&disk, rig, &mut told);
            over = done.is_ok();
            disk.crash(seed);
            check(&disk, &told, &format!("cut {cut}, SEED={seed}"));
        }
        if over {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 2, "the workload changes something");
}

/// What a workload was told before the power went.
#[derive(Default)]
struct Told {
    created: bool,
    log: Log,
    checkpoint: u64,
}

fn check(disk: &SimDisk, told: &Told, at: &str) {
    // Somebody frees space before the next start.
    disk.set_free(1 << 20);
    let rig = match Rig::again(disk, told.checkpoint) {
        Ok(rig) => rig,
        Err(error) => {
            assert!(!told.created, "{at}: {error}");
            Rig::with(disk, options()).unwrap_or_else(|error| panic!("{at}: {error}"))
        }
    };
    let mut rig = rig;
    let expected: Vec<_> = told
        .log
        .iter()
        .filter(|(lsn, _)| *lsn > told.checkpoint)
        .cloned()
        .collect();
    assert!(
        rig.log.starts_with(&expected),
        "{at}: {} entries acknowledged",
        expected.len()
    );
    assert!(
        rig.log.len() <= expected.len() + 1,
        "{at}: more than the frame under way"
    );
    // And it goes on: what is appended now is there after the next crash, with all before it.
    rig.fill_spares().unwrap();
    for _ in 0..5 {
        rig.append_of(THIRD).unwrap();
    }
    let log = rig.log;
    drop(rig.writer);
    disk.crash(1);
    let (read, _) = read_all(disk, told.checkpoint).unwrap_or_else(|error| panic!("{at}: {error}"));
    assert!(read == log, "{at}: the same again");
}

#[test]
fn a_crash_while_a_journal_is_made_leaves_one_that_can_be_made_or_opened() {
    at_every_operation(
        || (SimDisk::new(1 << 20), None),
        |disk, _, told| {
            Rig::with(disk, options())?;
            told.created = true;
            Ok(())
        },
    );
}

#[test]
fn a_crash_while_a_journal_is_made_over_an_unused_one_leaves_one_that_can_be_made_or_opened() {
    at_every_operation(
        || (Rig::new().disk, None),
        |disk, _, told| {
            Rig::with(disk, options())?;
            told.created = true;
            Ok(())
        },
    );
}

#[test]
fn a_crash_at_any_operation_of_appends_and_rotations_loses_nothing_acknowledged() {
    at_every_operation(
        || {
            let rig = Rig::new();
            rig.fill_spares().unwrap();
            (rig.disk.clone(), Some(rig))
        },
        |_, rig, told| {
            let mut rig = rig.unwrap();
            told.created = true;
            for _ in 0..8 {
                let appended = rig.append_of(THIRD);
                told.log.clone_from(&rig.log);
                appended?;
            }
            assert_eq!(rig.segments(), [1, 2, 3]);
            Ok(())
        },
    );
}

#[test]
fn a_crash_at_any_operation_of_preparing_and_recycling_loses_nothing_acknowledged() {
    at_every_operation(
        || {
            let mut rig = Rig::new();
            rig.append_thirds(10);
            assert_eq!((rig.segments(), rig.room.spares()), (vec![1, 2, 3, 4], 1));
            (rig.disk.clone(), Some(rig))
        },
        |_, rig, told| {
            let mut rig = rig.unwrap();
            told.created = true;
            told.log.clone_from(&rig.log);
            told.checkpoint = 9;
            rig.preparer.release(Lsn(9));
            // One segment is recycled for want of a spare, one for want of space, one removed.
            rig.disk.set_free(0);
            rig.preparer.prepare()?;
            assert_eq!((rig.segments(), rig.room.spares()), (vec![2, 3, 4], 2));
            rig.preparer.make_space()?;
            rig.preparer.prepare()?;
            rig.preparer.prune(Timestamp::from_millis(u64::MAX))?;
            assert_eq!((rig.segments(), rig.room.spares()), (vec![4], 3));
            // All three are written over.
            for _ in 0..9 {
                let appended = rig.append_of(THIRD);
                told.log.clone_from(&rig.log);
                appended?;
            }
            rig.disk.set_free(1 << 20);
            Ok(())
        },
    );
}

#[test]
fn a_crash_at_any_operation_of_a_start_loses_nothing_acknowledged() {
    at_every_operation(
        || {
            let mut rig = Rig::new();
            rig.append_thirds(4);
            rig.disk.crash(3);
            rig.disk.put("alloc-00000099.tmp", &[0; 100]);
            rig.disk.put("spare-00000098.tmp", &[1; 4096]);
            (rig.disk.clone(), Some(rig))
        },
        |disk, rig, told| {
            told.created = true;
            told.log = rig.unwrap().log;
            let mut again = Rig::again(disk, 0)?;
            assert!(!again.names().iter().any(|name| name.contains("0000009")));
            let appended = again.append_of(500);
            told.log.clone_from(&again.log);
            appended
        },
    );
}

#[test]
fn a_crash_at_any_operation_while_the_only_spare_is_a_recycled_segment_loses_nothing() {
    at_every_operation(
        || {
            let mut rig = Rig::new();
            rig.append_thirds(4);
            while rig.room.spares() > 0 {
                rig.append_of(THIRD).unwrap();
            }
            (rig.disk.clone(), Some(rig))
        },
        |_, rig, told| {
            let mut rig = rig.unwrap();
            told.created = true;
            told.log.clone_from(&rig.log);
            told.checkpoint = 3;
            rig.preparer.release(Lsn(3));
            rig.preparer.prune(Timestamp::from_millis(u64::MAX))?;
            assert_eq!(rig.room.spares(), 1);
            for _ in 0..4 {
                let appended = rig.append_of(THIRD);
                told.log.clone_from(&rig.log);
                appended?;
            }
            Ok(())
        },
    );
}

#[test]
fn a_recycled_segment_whose_new_name_is_not_durable_is_no_spare_before_it_is() {
    at_every_operation(
        || {
            let mut rig = Rig::new();
            rig.append_thirds(4);
            // The only spare is a segment, and the machine goes on without having its new name on disk.
            while rig.room.spares() > 0 {
                rig.append_of(THIRD).unwrap();
            }
            rig.preparer.release(Lsn(3));
            rig.disk.fail_once(Op::SyncDir);
            rig.preparer
                .prune(Timestamp::from_millis(u64::MAX))
                .unwrap_err();
            assert!(
                rig.names().contains(&"spare-00000004.tmp".to_string()),
                "{:?}",
                rig.names()
            );
            rig.disk.kill();
            (rig.disk.clone(), Some(rig))
        },
        |disk, rig, told| {
            told.created = true;
            told.checkpoint = 3;
            told.log = rig.unwrap().log;
            let mut again = Rig::again(disk, 3)?;
            let appended = again.append_of(500);
            told.log.truncate(3);
            told.log.extend(again.log);
            appended
        },
    );
}

#[test]
fn many_lives_with_crashes_anywhere_keep_every_acknowledged_entry() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for round in 0..30 {
        let disk = SimDisk::new(64 << 20);
        let mut rig = Rig::with(&disk, options()).unwrap();
        let mut all: Log = Vec::new();
        let mut checkpoint = 0;
        for life in 0..12 {
            let at = format!("SEED={seed}, round {round}, life {life}");
            disk.fail_after(rng.below(120));
            while all.len() < 5000 {
                let next = rig.next();
                let mut frame = random_frame(&mut rng, next, SIZE as usize / 4);
                if rig
                    .fill_spares()
                    .and_then(|()| rig.append(&mut frame))
                    .is_err()
                {
                    break;
                }
                if rng.below(8) == 0 {
                    checkpoint = rig.next() - 1 - rng.below(3).min(rig.next() - 1 - checkpoint);
                    rig.preparer.release(Lsn(checkpoint));
                }
                let now = Timestamp::from_millis(1000 * rig.next().saturating_sub(30) + 3_600_000);
                if rig.preparer.prune(now).is_err() {
                    break;
                }
            }
            let known = all.last().map_or(0, |(lsn, _)| *lsn);
            all.extend(rig.log.into_iter().filter(|(lsn, _)| *lsn > known));
            drop(rig.writer);
            // Sometimes only the process dies.
            if rng.below(4) == 0 {
                disk.kill()
            } else {
                disk.crash(rng.next())
            }
            rig = Rig::again(&disk, checkpoint).unwrap_or_else(|error| panic!("{at}: {error}"));
            let from = all
                .iter()
                .position(|(lsn, _)| *lsn > checkpoint)
                .unwrap_or(all.len());
            let read: Vec<_> = rig
                .log
                .iter()
                .filter(|(lsn, _)| *lsn > checkpoint)
                .cloned()
                .collect();
            assert!(read.starts_with(&all[from..]), "{at}");
        }
    }
}

#[test]
fn what_recovery_read_is_durable_even_if_it_never_was_acknowledged() {
    for seed in 0..20 {
        let mut rig = Rig::new();
        rig.append_of(2000).unwrap();
        rig.disk.fail_once(Op::Sync);
        rig.append_of(2000).unwrap_err();
        rig.disk.kill();
        // The page cache still has the frame. The engine writes it into a checkpoint.
        let (log, _) = read_all(&rig.disk, 0).unwrap();
        assert_eq!(log.len(), 2);
        rig.disk.crash(seed);
        let (log, _) = read_all(&rig.disk, 2).unwrap();
        assert!(log.is_empty(), "and the journal does not end below it");
    }
}

#[test]
fn after_any_failed_write_or_sync_nothing_is_appended_any_more() {
    for (op, frames) in [
        (Op::Write, 1),
        (Op::Sync, 1),
        (Op::Rename, 4),
        (Op::SyncDir, 4),
        (Op::Write, 4),
    ] {
        let mut rig = Rig::new();
        rig.fill_spares().unwrap();
        for _ in 1..frames {
            rig.append_of(THIRD).unwrap();
        }
        rig.disk.fail_once(op);
        let error = rig.append_of(THIRD).unwrap_err();
        assert!(matches!(error.cause(), Cause::Io(_)), "{op:?}: {error}");
        assert_eq!(rig.room.available(), 0);
        for _ in 0..2 {
            let error = rig.append_of(100).unwrap_err();
            assert!(matches!(error.cause(), Cause::Poisoned), "{op:?}: {error}");
        }
        let error = rig.preparer.prepare().unwrap_err();
        assert!(matches!(error.cause(), Cause::Poisoned), "{op:?}: {error}");
    }
}

#[test]
fn a_failure_while_preparing_ends_the_writer_too() {
    let prepare = |rig: &Rig| rig.preparer.prepare();
    let make_space = |rig: &Rig| rig.preparer.make_space().map(drop);
    type Act<'a> = &'a dyn Fn(&Rig) -> Result<(), JournalError>;
    let table: [(Op, Act); 5] = [
        (Op::Create, &prepare),
        (Op::Rename, &prepare),
        (Op::SyncDir, &prepare),
        (Op::Remove, &make_space),
        (Op::SyncDir, &make_space),
    ];
    for (op, act) in table {
        let mut rig = Rig::new();
        rig.append_thirds(4);
        rig.preparer.release(Lsn(3));
        rig.disk.fail_once(op);
        let error = act(&rig).unwrap_err();
        assert!(matches!(error.cause(), Cause::Io(_)), "{op:?}: {error}");
        assert!(matches!(
            rig.append_of(100).unwrap_err().cause(),
            Cause::Poisoned
        ));
        assert!(rig.room.is_over());
    }
}

#[test]
fn the_same_on_a_real_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let disk = || Arc::new(RealDisk::create(&path).unwrap());
    let started = create::create(disk(), STORE, Lsn(1), options()).unwrap();
    let mut log = Log::new();
    let mut running = Some(started);
    for checkpoint in [0, 7, 15, 23] {
        let (mut writer, preparer, room) = match running.take() {
            Some(running) => running,
            None => {
                let mut recovery = recovery::open(disk(), STORE, Lsn(checkpoint)).unwrap();
                let mut read = Log::new();
                while let Some(frame) = recovery.next_frame().unwrap() {
                    read.extend(frame.entries().map(|(lsn, entry)| (lsn.0, entry.to_vec())));
                }
                assert!(read == log[checkpoint as usize..]);
                assert_eq!(recovery.torn_tail(), None);
                let next = Lsn(recovery.last_lsn().0 + 1);
                recovery.into_writer(next, options()).unwrap()
            }
        };
        for _ in 0..8 {
            while room.wants_spares() {
                preparer.prepare().unwrap();
            }
            let mut frame = frame_of(writer.next_lsn().0, THIRD);
            writer.append(&mut frame).unwrap();
            log.extend(frame.entries().map(|(lsn, entry)| (lsn.0, entry.to_vec())));
        }
        let mut reader = preparer.trail().read(Lsn(0), Lsn(u64::MAX)).unwrap();
        let mut read = Log::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            read.extend(batch.map(|(lsn, entry)| (lsn.0, entry.to_vec())));
        }
        assert!(read == log);
    }
}

#[test]
fn a_start_on_a_full_disk_never_takes_the_newest_segment_for_a_spare() {
    for ops in 0..20 {
        let rig = Rig::new();
        assert_eq!((rig.segments(), rig.room.spares()), (vec![1], 0));
        rig.disk.set_free(0);
        rig.disk.fail_after(ops);
        // Nothing is in it that the checkpoint lacks, but the record of the highest segment asks for it.
        let again = Rig::again(&rig.disk, 0);
        assert!(again.is_err(), "there is no space for the next one");
        drop(again);
        rig.disk.crash(ops);
        rig.disk.set_free(SIZE);
        Rig::again(&rig.disk, 0).unwrap();
    }
}

fn two_frames() -> Rig {
    let mut rig = Rig::new();
    rig.append_of(1000).unwrap();
    rig.append_of(1000).unwrap();
    rig
}

/// Two frames, and a third of which the head is there and not the rest.
fn torn_rig() -> Rig {
    let cut = |seed| {
        let mut rig = two_frames();
        // The write goes through and its sync does not.
        rig.disk.fail_after(1);
        rig.append_of(2000).unwrap_err();
        rig.disk.crash(seed);
        rig
    };
    let is_torn = |rig: &Rig| read_all(&rig.disk, 0).unwrap().1.torn_tail().is_some();
    (1..1000).map(cut).find(is_torn).unwrap()
}

#[test]
fn a_crash_at_any_operation_of_going_on_in_the_newest_segment_loses_nothing_acknowledged() {
    for torn in [false, true] {
        at_every_operation(
            || {
                let rig = if torn { torn_rig() } else { two_frames() };
                rig.disk.set_free(0);
                (rig.disk.clone(), Some(rig))
            },
            |disk, rig, told| {
                told.created = true;
                told.log = rig.unwrap().log;
                let (log, recovery) = read_all(disk, 0)?;
                assert_eq!(recovery.torn_tail().is_some(), torn);
                told.log = log;
                let next = Lsn(recovery.last_lsn().0 + 1);
                let (mut writer, ..) = recovery.into_writer_in_place(next, options())?;
                for lsn in next.0..next.0 + 3 {
                    let mut frame = frame_of(lsn, 1500);
                    writer.append(&mut frame)?;
                    let entries = frame.entries().map(|(lsn, entry)| (lsn.0, entry.to_vec()));
                    told.log.extend(entries);
                }
                Ok(())
            },
        );
    }
}
