//! Inspection finds what recovery refuses, and repair makes a journal of it that recovery reads, also where the
//! repair itself is cut off by a crash.

use super::*;
use crate::journal::inspect::{Inspection, Region, Remedy, inspect};
use crate::journal::repair::repair;
use crate::journal::sim::seed;

/// What an inspection says, and the entries that a repair would redo.
fn look(disk: &SimDisk, checkpoint: u64) -> (Inspection, Log) {
    let mut log = Vec::new();
    let mut visit = |region, lsn: Lsn, bytes: &[u8]| {
        if region == Region::Ahead {
            log.push((lsn.0, bytes.to_vec()));
        }
        Ok(())
    };
    let found = inspect(disk, &STORE, Some(Lsn(checkpoint)), &mut visit).unwrap();
    log.retain(|(lsn, _)| *lsn <= found.plan.kept().0);
    (found, log)
}

/// A journal of several segments and starts, something that happened to it, and where the checkpoint was.
fn damaged(rng: &mut Rng) -> (SimDisk, Log, u64) {
    let mut rig = Rig::new();
    let mut log = Vec::new();
    for _ in 0..1 + rng.below(3) {
        for _ in 0..1 + rng.below(12) {
            rig.fill_spares().unwrap();
            let mut frame = random_frame(rng, rig.next(), SIZE as usize / 4);
            rig.append(&mut frame).unwrap();
        }
        let disk = rig.disk.clone();
        log.append(&mut rig.log);
        if rng.below(2) == 0 {
            rig.writer.close().unwrap();
        }
        rig = Rig::again(&disk, 0).unwrap();
        rig.log.clear();
    }
    let disk = rig.disk.clone();
    let last = log.last().map_or(0, |(lsn, _)| *lsn);
    let names: Vec<String> = rig
        .names()
        .into_iter()
        .filter(|name| !name.ends_with(".tmp"))
        .collect();
    for _ in 0..1 + rng.below(2) {
        let name = &names[rng.below(names.len() as u64) as usize];
        if !disk.list().unwrap().contains(name) {
            continue;
        }
        match rng.below(6) {
            0 => disk.delete(name),
            1 => disk.truncate(name, rng.below(SIZE) as usize),
            _ => {
                let len = disk.bytes(name).len() as u64;
                if len > 0 {
                    disk.flip(name, rng.below(len) as usize, rng.below(8) as u8);
                }
            }
        }
    }
    (disk, log, rng.below(last + 1))
}

/// A version that is damaged reads like one of a later release: nobody repairs that.
fn is_later(found: &Inspection) -> bool {
    let beyond = |remedy: &Remedy| matches!(remedy, Remedy::Beyond(_));
    found.findings.iter().any(|finding| beyond(&finding.remedy))
}

#[test]
fn inspection_refuses_what_recovery_refuses_and_reads_what_it_reads() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut refused = 0;
    for round in 0..400 {
        let (disk, original, checkpoint) = damaged(&mut rng);
        let before = disk.content();
        let (found, log) = look(&disk, checkpoint);
        assert!(
            disk.content() == before,
            "seed {seed}, round {round}: it wrote"
        );
        let after = |log: &Log| -> Log {
            log.iter()
                .filter(|(lsn, _)| *lsn > checkpoint)
                .cloned()
                .collect()
        };
        match read_all(&disk, checkpoint) {
            Ok((read, _)) => {
                assert!(!found.plan.cuts(), "seed {seed}, round {round}: {found:?}");
                assert_eq!(log, after(&read), "seed {seed}, round {round}");
            }
            Err(error) => {
                refused += 1;
                assert!(
                    !found.findings.is_empty(),
                    "seed {seed}, round {round}: {error}"
                );
                assert!(
                    !found.plan.is_empty() || is_later(&found),
                    "seed {seed}, round {round}: {error}"
                );
            }
        }
        let expected = after(&original);
        assert_eq!(log, expected[..log.len()], "seed {seed}, round {round}");
    }
    assert!(
        refused > 50,
        "{refused} of 400: does the test damage what matters?"
    );
}

#[test]
fn a_repair_cut_off_at_any_write_is_finished_by_the_next_one() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut cuts = 0;
    for round in 0..60 {
        let (disk, _, checkpoint) = damaged(&mut rng);
        let (found, _) = look(&disk, checkpoint);
        if found.plan.is_empty() || is_later(&found) {
            continue;
        }
        // Redone and given up, as the store has it before the journal is touched.
        let top = if found.plan.cuts() {
            found.plan.top().0
        } else {
            checkpoint
        };
        for ops in 0.. {
            let disk = disk.fork();
            disk.fail_after(ops);
            let done = repair(Arc::new(disk.clone()), &STORE, &found.plan, options()).is_ok();
            disk.crash(rng.next());
            cuts += u32::from(!done);
            let (again, _) = look(&disk, top);
            assert!(
                !is_later(&again),
                "seed {seed}, round {round}, {ops} operations: {again:?}"
            );
            let mut next = top;
            if done {
                assert_eq!(
                    again.findings,
                    [],
                    "seed {seed}, round {round}, {ops} operations"
                );
            } else if !again.plan.is_empty() {
                next = next.max(again.plan.top().0);
                repair(Arc::new(disk.clone()), &STORE, &again.plan, options()).unwrap();
                let (sound, _) = look(&disk, next);
                assert_eq!(
                    sound.findings,
                    [],
                    "seed {seed}, round {round}, {ops} operations"
                );
            }
            let mut recovery = open(&disk, next).unwrap();
            while recovery.next_frame().unwrap().is_some() {}
            let lsn = Lsn(recovery.last_lsn().0.max(next) + 1);
            recovery.into_writer(lsn, options()).unwrap();
            if done {
                break;
            }
        }
    }
    assert!(cuts > 100, "only {cuts} repairs were cut off");
}
