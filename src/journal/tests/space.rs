//! Space: what the room promises, what spares are made of, what a full disk does.

use super::*;
use crate::journal::frame::max_frame;
use crate::journal::sim::seed;

#[test]
fn the_room_never_promises_more_than_can_be_appended() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for round in 0..200 {
        let mut rig = Rig::new();
        // Anywhere in a segment, with any number of spares.
        let mut start = random_frame(&mut rng, 1, SIZE as usize / 4);
        rig.append(&mut start).unwrap();
        for _ in 0..rng.below(4) {
            rig.preparer.prepare().unwrap();
        }
        let mut promised = rig.room.available();
        // Large frames waste most: a quarter, a little less, or anything.
        loop {
            let most = (max_frame(SIZE) - rng.below(3)).min(promised) as usize;
            if most < HEAD_LEN + ENTRY_HEAD_LEN {
                break;
            }
            let mut frame = match rng.below(3) {
                0 => random_frame(&mut rng, rig.next(), most),
                _ => frame_of(rig.next(), most),
            };
            let before = rig.room.available();
            rig.append(&mut frame)
                .unwrap_or_else(|error| panic!("SEED={seed}, round {round}: {error}"));
            promised -= frame.len() as u64;
            assert!(
                rig.room.available() >= promised,
                "SEED={seed}, round {round}: taken back"
            );
            assert!(
                rig.room.available() + frame.len() as u64 >= before,
                "SEED={seed}"
            );
        }
    }
}

#[test]
fn the_room_is_used_up_by_frames_that_waste_nothing() {
    let mut rig = Rig::new();
    // A third is rounded down.
    let rest = (SIZE - 4096 - HEAD_LEN as u64) % 3;
    assert_eq!(rig.room.available(), 3 * THIRD as u64 + rest);
    for left in [2, 1, 0] {
        rig.append_of(THIRD).unwrap();
        assert_eq!(rig.room.available(), left * THIRD as u64 + rest);
    }
    let error = rig.append_of(THIRD).unwrap_err();
    assert!(error.is_full(), "{error}");
    // Nothing was written for it, so it goes on as soon as there is a spare.
    rig.preparer.prepare().unwrap();
    rig.append_of(THIRD).unwrap();
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
}

#[test]
fn a_frame_over_a_quarter_of_a_segment_is_refused_and_nothing_else() {
    let mut rig = Rig::new();
    let most = max_frame(SIZE) as usize;
    assert_eq!(rig.writer.max_frame(), most as u64);
    let error = rig.append_of(most + 1).unwrap_err();
    assert!(
        matches!(
            error.cause(),
            Cause::TooLarge {
                len: 4097,
                max: 4096
            }
        ),
        "{error}"
    );
    rig.append_of(most).unwrap();
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
}

#[test]
fn a_full_disk_while_preparing_is_full_and_loses_nothing() {
    let mut rig = Rig::new();
    rig.append_of(THIRD).unwrap();
    for free in [0, SIZE - 1] {
        rig.disk.set_free(free);
        let room = rig.room.available();
        let before = rig.names();
        let error = rig.preparer.prepare().unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!(
            (rig.names(), rig.room.available()),
            (before, room),
            "nothing is left over"
        );
        assert_eq!(rig.disk.space().unwrap().free, free);
    }
    // What fits into allocated space goes on.
    rig.append_of(THIRD).unwrap();
    rig.append_of(THIRD).unwrap();
    assert!(rig.append_of(THIRD).unwrap_err().is_full());
    rig.disk.set_free(SIZE);
    rig.preparer.prepare().unwrap();
    rig.append_of(THIRD).unwrap();
    rig.disk.crash(1);
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
}

#[test]
fn the_audit_trail_goes_before_a_spare_is_refused_oldest_first() {
    let mut rig = Rig::new();
    rig.append_thirds(10);
    rig.disk.set_free(0);
    assert!(
        rig.preparer.prepare().unwrap_err().is_full(),
        "nothing is in the checkpoint"
    );
    rig.preparer.release(Lsn(6));
    rig.preparer.prepare().unwrap();
    assert_eq!(rig.segments(), [2, 3, 4]);
    assert_eq!(rig.preparer.make_space().unwrap(), SIZE);
    assert_eq!(rig.segments(), [3, 4]);
    assert_eq!(
        rig.preparer.make_space().unwrap(),
        0,
        "segment 3 is not in the checkpoint"
    );
    rig.preparer.prepare().unwrap();
    assert!(rig.preparer.prepare().unwrap_err().is_full());
    assert_eq!(read_all(&rig.disk, 6).unwrap().0.len(), 4);
}

#[test]
fn a_store_starts_on_a_full_disk_from_what_it_has() {
    // From a spare that is left.
    let mut rig = Rig::new();
    rig.append_thirds(4);
    rig.disk.set_free(0);
    rig.disk.crash(1);
    let again = Rig::again(&rig.disk, 0).unwrap();
    assert_eq!(again.log, rig.log);
    // From a segment in the checkpoint.
    assert_eq!((again.segments(), again.room.spares()), (vec![1, 2, 3], 0));
    let mut rig = Rig::again(&again.disk, 4).unwrap();
    assert_eq!(rig.segments(), [2, 3, 4]);
    rig.append_of(100).unwrap();
    // From nothing: full, and all is as before.
    let mut tight = Rig::new();
    tight.append_of(100).unwrap();
    tight.disk.set_free(0);
    let before = tight.disk.content();
    let error = Rig::again(&tight.disk, 0).err().unwrap();
    assert!(error.is_full(), "{error}");
    assert!(tight.disk.content() == before);
    tight.disk.set_free(SIZE);
    assert_eq!(Rig::again(&tight.disk, 0).unwrap().log, tight.log);
}

#[test]
fn segments_in_the_checkpoint_stay_for_their_age_and_no_longer() {
    let mut rig = Rig::new();
    rig.append_thirds(10);
    rig.preparer.release(Lsn(9));
    // Marks are a second apart; the age is an hour. Segment 1 ends with LSN 3, segment 2 with 6.
    let hour = 3_600_000;
    for (now, oldest) in [(0, 1), (3000 + hour, 1), (3001 + hour, 2), (6000 + hour, 2)] {
        rig.preparer.prune(Timestamp::from_millis(now)).unwrap();
        assert_eq!(rig.segments()[0], oldest, "{now}");
    }
    // Also in the next life, that has only the headers to know it from.
    rig.disk.crash(1);
    let mut rig = Rig::again(&rig.disk, 9).unwrap();
    for (now, oldest) in [
        (6000 + hour, 2),
        (6001 + hour, 3),
        (9001 + hour, 4),
        (u64::MAX, 4),
    ] {
        rig.preparer.prune(Timestamp::from_millis(now)).unwrap();
        assert_eq!(
            rig.segments()[0],
            oldest,
            "{now}: segment 4 is not in the checkpoint"
        );
    }
    rig.append_of(100).unwrap();
}

#[test]
fn segments_in_the_checkpoint_stay_up_to_their_limit_of_bytes() {
    let disk = SimDisk::new(64 << 20);
    let limited = Options {
        audit_bytes: 2 * SIZE + 1,
        ..options()
    };
    let mut rig = Rig::with(&disk, limited).unwrap();
    rig.append_thirds(16);
    rig.preparer.prune(Timestamp::default()).unwrap();
    assert_eq!(
        rig.segments(),
        [1, 2, 3, 4, 5, 6],
        "nothing is in the checkpoint"
    );
    rig.preparer.release(Lsn(9));
    rig.preparer.prune(Timestamp::default()).unwrap();
    assert_eq!(rig.segments(), [2, 3, 4, 5, 6]);
    rig.preparer.release(Lsn(12));
    let spares = rig.room.spares();
    rig.preparer.prepare().unwrap();
    assert_eq!(rig.segments(), [3, 4, 5, 6], "recycled first");
    assert_eq!(rig.room.spares(), spares + 1);
}

#[test]
fn nothing_that_is_not_durable_is_ever_released() {
    let mut rig = Rig::new();
    rig.append_thirds(5);
    rig.preparer.release(Lsn(u64::MAX));
    rig.append_thirds(3);
    rig.preparer
        .prune(Timestamp::from_millis(u64::MAX))
        .unwrap();
    assert_eq!(
        rig.segments(),
        [2, 3],
        "segment 2 ends above what was durable at the release"
    );
}

#[test]
fn another_segment_size_takes_over_from_the_next_segment_on() {
    let mut rig = Rig::new();
    rig.append_thirds(4);
    let (_, recovery) = read_all(&rig.disk, 0).unwrap();
    let larger = Options {
        segment_size: 2 * SIZE,
        ..options()
    };
    let (mut writer, preparer, room) = recovery.into_writer(Lsn(5), larger).unwrap();
    assert_eq!(room.spares(), 0, "the spares were of the old size");
    let mut frame = frame_of(5, SIZE as usize / 2);
    writer.append(&mut frame).unwrap();
    rig.log
        .extend(frame.entries().map(|(lsn, entry)| (lsn.0, entry.to_vec())));
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
    // Old segments are of no use as spares: they are removed, and new space is taken.
    preparer.release(Lsn(5));
    preparer.prune(Timestamp::from_millis(u64::MAX)).unwrap();
    assert_eq!(room.spares(), 0);
    preparer.prepare().unwrap();
    assert_eq!(room.spares(), 1);
}

#[test]
fn a_journal_is_not_made_over_one_that_was_used() {
    let mut rig = Rig::new();
    rig.append_of(100).unwrap();
    let error = Rig::with(&rig.disk, options()).err().unwrap();
    assert!(matches!(error.cause(), Cause::Exists), "{error}");
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
    // Nor if its first frame is damaged.
    rig.append_of(100).unwrap();
    rig.disk.flip(&file_name(1), 4096 + 80, 0);
    let error = Rig::with(&rig.disk, options()).err().unwrap();
    assert!(matches!(error.cause(), Cause::Exists), "{error}");
    // Of one without entries nothing is lost, whatever store it was for.
    let rig = Rig::new();
    create::create(Arc::new(rig.disk.clone()), [1; 16], Lsn(1), options()).unwrap();
}

#[test]
fn a_restored_store_begins_above_the_lsns_it_had() {
    let disk = SimDisk::new(1 << 20);
    let (mut writer, ..) =
        create::create(Arc::new(disk.clone()), STORE, Lsn(1000), options()).unwrap();
    writer.append(&mut frame_of(1000, 100)).unwrap();
    let (log, recovery) = read_all(&disk, 999).unwrap();
    assert_eq!((log[0].0, recovery.last_lsn()), (1000, Lsn(1000)));
    let error = refusal(&disk, 900);
    assert!(matches!(error.cause(), Cause::Missing { .. }), "{error}");
}

/// What a start on a full disk without a spare goes on in.
fn in_place(disk: &SimDisk, checkpoint: u64) -> Result<Rig, JournalError> {
    let (log, recovery) = read_all(disk, checkpoint)?;
    let next = Lsn(recovery.last_lsn().0 + 1);
    let begun = recovery.into_writer_in_place(next, options())?;
    let (writer, preparer, room) = begun;
    Ok(Rig {
        disk: disk.clone(),
        writer,
        preparer,
        room,
        log,
    })
}

#[test]
fn without_space_for_a_segment_a_start_goes_on_in_the_newest_one_again_and_again() {
    let mut rig = Rig::new();
    rig.append_of(1000).unwrap();
    rig.disk.set_free(0);
    let disk = rig.disk.clone();
    for closed in [true, false, true, false] {
        let Rig { writer, log, .. } = rig;
        if closed {
            writer.close().unwrap();
        } else {
            drop(writer);
            disk.crash(1);
        }
        let error = Rig::again(&disk, 0).err().expect("there is no space");
        assert!(error.is_full(), "{error}");
        rig = in_place(&disk, 0).unwrap();
        assert_eq!(rig.log, log);
        assert_eq!(rig.segments(), [1]);
        let room = rig.room.available();
        rig.append_of(1000).unwrap();
        assert_eq!(rig.room.available(), room - 1000);
    }
    // And in a fresh one as soon as there is space.
    disk.set_free(4 * SIZE);
    rig.append_thirds(3);
    assert_eq!(rig.segments(), [1, 2]);
    let Rig { writer, log, .. } = rig;
    drop(writer);
    disk.crash(2);
    assert_eq!(read_all(&disk, 0).unwrap().0, log);
}

#[test]
fn a_segment_is_not_gone_on_in_with_a_gap_or_of_another_size() {
    let mut rig = Rig::new();
    rig.append_of(1000).unwrap();
    let disk = rig.disk.clone();
    drop(rig);
    let again = |next: u64, options: Options| {
        let (_, recovery) = read_all(&disk, 0).unwrap();
        recovery
            .into_writer_in_place(Lsn(next), options)
            .map(|_| ())
    };
    let larger = Options {
        segment_size: 2 * SIZE,
        ..options()
    };
    for (next, options) in [(3, options()), (2, larger)] {
        let error = again(next, options).unwrap_err();
        assert!(error.is_full(), "{error}");
    }
    assert!(again(1, options()).is_err());
    again(2, options()).unwrap();
}
