//! A crash at every operation that changes the disk, one by one: nothing acknowledged is lost, nothing else
//! comes up but the one frame that was under way.

use super::*;
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
            rig.append_thirds(8);
            (rig.disk.clone(), Some(rig))
        },
        |_, rig, told| {
            let mut rig = rig.unwrap();
            told.created = true;
            told.log.clone_from(&rig.log);
            told.checkpoint = 7;
            rig.preparer.release(Lsn(7));
            rig.preparer.prepare()?;
            rig.preparer.prune(Timestamp::from_millis(u64::MAX))?;
            rig.preparer.prepare()?;
            rig.preparer.make_space()?;
            // Recycled segments are written over.
            for _ in 0..8 {
                let appended = rig.append_of(THIRD);
                told.log.clone_from(&rig.log);
                appended?;
            }
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
    for op in [Op::Create, Op::Rename, Op::SyncDir] {
        let mut rig = Rig::new();
        rig.disk.fail_once(op);
        let error = rig.preparer.prepare().unwrap_err();
        assert!(matches!(error.cause(), Cause::Io(_)), "{op:?}: {error}");
        assert!(matches!(
            rig.append_of(100).unwrap_err().cause(),
            Cause::Poisoned
        ));
        assert!(rig.room.is_over());
    }
}
