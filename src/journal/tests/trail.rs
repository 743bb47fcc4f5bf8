//! The audit trail: a reader sees exactly what was appended.

use super::*;
use crate::journal::read::{Reader, Trail};
use crate::journal::segment::HEADER_LEN;
use crate::journal::sim::seed;

/// Everything the reader has to give now.
fn drain(reader: &mut Reader) -> Log {
    let mut log = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        log.extend(batch.map(|(lsn, entry)| (lsn.0, entry.to_vec())));
    }
    log
}

fn read(trail: &Trail, after: u64, through: u64) -> Log {
    drain(&mut trail.read(Lsn(after), Lsn(through)).unwrap())
}

fn random_rig(rng: &mut Rng, frames: usize) -> Rig {
    let mut rig = Rig::new();
    for _ in 0..frames {
        rig.fill_spares().unwrap();
        let mut frame = random_frame(rng, rig.next(), SIZE as usize / 4);
        rig.append(&mut frame).unwrap();
    }
    rig
}

#[test]
fn a_reader_sees_exactly_what_was_appended_between_any_two_lsns() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let rig = random_rig(&mut rng, 60);
    let last = rig.next() - 1;
    let trail = rig.preparer.trail();
    assert_eq!((trail.oldest(), trail.durable()), (Lsn(1), Lsn(last)));
    for _ in 0..100 {
        let after = rng.below(last + 2);
        let through = rng.below(last + 5);
        let expected: Vec<_> = rig
            .log
            .iter()
            .filter(|(lsn, _)| *lsn > after && *lsn <= through)
            .cloned()
            .collect();
        assert!(
            read(&trail, after, through) == expected,
            "SEED={seed}: {after}..={through}"
        );
    }
}

#[test]
fn a_reader_follows_the_writer_over_rotations_and_starts() {
    let mut rig = Rig::new();
    let trail = rig.preparer.trail();
    let mut reader = trail.read(Lsn(0), Lsn(u64::MAX)).unwrap();
    let mut seen = drain(&mut reader);
    for _ in 0..20 {
        rig.append_thirds(1);
        assert_eq!(drain(&mut reader), [], "not before it is extended");
        reader.extend(trail.durable());
        seen.extend(drain(&mut reader));
        assert!(seen == rig.log);
    }
    for _ in 0..3 {
        rig.disk.crash(9);
        let log = rig.log;
        rig = Rig::again(&rig.disk, 0).unwrap();
        assert!(rig.log == log);
        rig.append_thirds(2);
    }
    assert!(
        read(&rig.preparer.trail(), 0, u64::MAX) == rig.log,
        "over old tails too"
    );
    assert!(read(&rig.preparer.trail(), 21, 23) == rig.log[21..23]);
}

#[test]
fn a_reading_from_beyond_the_end_waits_for_what_comes_after_it() {
    let mut rig = Rig::new();
    rig.append_thirds(2);
    let trail = rig.preparer.trail();
    let mut readers = [2, 3, 4].map(|after| trail.read(Lsn(after), Lsn(u64::MAX)).unwrap());
    for reader in &mut readers {
        assert_eq!(drain(reader), []);
    }
    rig.append_thirds(4);
    for (reader, after) in readers.iter_mut().zip([2, 3, 4]) {
        reader.extend(Lsn(u64::MAX));
        assert!(drain(reader) == rig.log[after..], "after {after}");
    }
}

#[test]
fn what_is_older_than_kept_is_gone_and_says_where_the_trail_begins() {
    let mut rig = Rig::new();
    rig.append_thirds(10);
    let trail = rig.preparer.trail();
    let mut slow = trail.read(Lsn(0), Lsn(10)).unwrap();
    slow.next_batch().unwrap().unwrap();
    rig.preparer.release(Lsn(6));
    assert_eq!(rig.preparer.make_space().unwrap(), SIZE);
    assert_eq!(trail.oldest(), Lsn(4));
    for (after, gone) in [(0, true), (2, true), (3, false), (9, false)] {
        match trail.read(Lsn(after), Lsn(10)) {
            Ok(mut reader) => {
                assert!(!gone, "after {after}");
                assert_eq!(drain(&mut reader).len() as u64, 10 - after);
            }
            Err(error) => {
                assert!(gone, "after {after}: {error}");
                assert!(
                    matches!(error.cause(), Cause::Gone { oldest: Lsn(4) }),
                    "{error}"
                );
            }
        }
    }
    // A reader under way is told too, at the latest where its segment ends.
    let error = loop {
        match slow.next_batch() {
            Ok(batch) => assert!(batch.is_some(), "it did not come to the end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.cause(), Cause::Gone { .. }), "{error}");
}

#[test]
fn a_reader_whose_segment_is_overwritten_sees_no_other_entries_and_is_told() {
    let mut rig = Rig::new();
    // Frames so small that the segment is read in one go would prove nothing: large ones, read one by one.
    rig.append_thirds(4);
    let mut reader = rig.preparer.trail().read(Lsn(0), Lsn(4)).unwrap();
    rig.preparer.release(Lsn(3));
    rig.preparer
        .prune(Timestamp::from_millis(u64::MAX))
        .unwrap();
    while rig.segments().last() != Some(&5) {
        rig.append_thirds(1);
    }
    let error = reader.next_batch().err().unwrap();
    assert!(matches!(error.cause(), Cause::Gone { .. }), "{error}");
}

#[test]
fn lsns_left_out_at_a_start_are_read_over_and_only_below_the_checkpoint() {
    let mut rig = Rig::new();
    rig.append_thirds(3);
    let (_, recovery) = read_all(&rig.disk, 3).unwrap();
    let (mut writer, preparer, _room) = recovery.into_writer(Lsn(10), options()).unwrap();
    writer.append(&mut frame_of(10, 100)).unwrap();
    let lsns: Vec<u64> = read(&preparer.trail(), 0, u64::MAX)
        .iter()
        .map(|(lsn, _)| *lsn)
        .collect();
    assert_eq!(lsns, [1, 2, 3, 10]);
    assert_eq!(read_all(&rig.disk, 9).unwrap().0.len(), 1);
    let error = refusal(&rig.disk, 3).to_string();
    assert!(error.contains("LSNs 4 to 9 were left out"), "{error}");
}

#[test]
fn damage_to_the_trail_is_named_and_not_passed_over() {
    let mut rig = Rig::new();
    rig.append_thirds(10);
    let trail = rig.preparer.trail();
    rig.disk.flip(&file_name(2), HEADER_LEN + THIRD + 80, 3);
    assert!(read(&trail, 0, 4) == rig.log[..4]);
    let mut reader = trail.read(Lsn(0), Lsn(10)).unwrap();
    let error = loop {
        match reader.next_batch() {
            Ok(batch) => assert!(batch.is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.path().file_name().unwrap(), &*file_name(2));
    assert!(
        matches!(error.cause(), Cause::Damage { offset, .. } if *offset == (HEADER_LEN + THIRD) as u64),
        "{error}"
    );
    rig.disk.delete(&file_name(3));
    let error = trail.read(Lsn(7), Lsn(10)).err().unwrap();
    assert!(matches!(error.cause(), Cause::Io(_)), "{error}");
}

#[test]
fn a_reader_may_run_beside_the_writer_and_the_preparer() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let rig = random_rig(&mut rng, 1);
    let trail = rig.preparer.trail();
    let frames = 400;
    let (log, seen) = std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            let mut rig = rig;
            for _ in 0..frames {
                rig.fill_spares().unwrap();
                let mut frame = random_frame(&mut rng, rig.next(), SIZE as usize / 4);
                rig.append(&mut frame).unwrap();
            }
            rig.log
        });
        let reading = scope.spawn(move || {
            let mut reader = trail.read(Lsn(0), Lsn(u64::MAX)).unwrap();
            let mut seen = Vec::new();
            loop {
                // Asked first: what was durable before the writer was done is all of it.
                let done = writing.is_finished();
                reader.extend(Lsn(u64::MAX));
                seen.extend(drain(&mut reader));
                if done {
                    return (writing.join().unwrap(), seen);
                }
                std::thread::yield_now();
            }
        });
        reading.join().unwrap()
    });
    assert!(log == seen, "SEED={seed}");
}
