//! What is on disk is not what was written: refused, with file, place, reason and what repair would drop; and
//! the ends that are none.

use super::*;
use crate::journal::highest::HIGHEST;
use crate::journal::segment::HEADER_LEN;

const FIRST: &str = "0000000000000001.seg";

/// The cause, as (offset, reason, drops) of damage.
fn damage(error: &JournalError) -> (u64, &str, &str) {
    match error.cause() {
        Cause::Damage {
            offset,
            reason,
            drops,
        } => (*offset, reason, drops),
        other => panic!("{other:?}"),
    }
}

/// A journal of small frames of 100 bytes in one segment, not closed.
fn small_frames(count: u64) -> SimDisk {
    let mut rig = Rig::new();
    for _ in 0..count {
        rig.append_of(100).unwrap();
    }
    rig.disk
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_off_and_reported() {
    let disk = small_frames(3);
    let last = HEADER_LEN + 200;
    for torn in last..last + 100 {
        let disk = disk.fork();
        let mut bytes = disk.bytes(FIRST);
        bytes[torn..].fill(0);
        let whole = bytes == disk.bytes(FIRST);
        disk.put(FIRST, &bytes);
        let (log, recovery) = read_all(&disk, 0).unwrap();
        // An entry can end in zeros, and then nothing is torn.
        assert_eq!(log.len(), if whole { 3 } else { 2 }, "torn at {torn}");
        let tail = recovery.torn_tail().map(|tail| (tail.offset, tail.bytes));
        if torn >= last + 20 && !whole {
            assert_eq!(tail, Some((last as u64, 100)), "torn at {torn}");
            assert_eq!(
                recovery.torn_tail().unwrap().path.file_name().unwrap(),
                FIRST
            );
        }
        // The store goes on, and the torn frame does not come back.
        let rig = Rig::again(&disk, 0).unwrap();
        assert_eq!(rig.log.len(), log.len());
    }
}

#[test]
fn a_flipped_bit_anywhere_is_an_end_in_the_last_frame_and_refused_in_any_other() {
    let disk = small_frames(3);
    for frame in 0..3u64 {
        for byte in 0..100usize {
            let disk = disk.fork();
            let offset = HEADER_LEN as u64 + 100 * frame;
            disk.flip(FIRST, offset as usize + byte, (byte % 8) as u8);
            if frame == 2 {
                assert_eq!(read_all(&disk, 0).unwrap().0.len(), 2, "byte {byte}");
                continue;
            }
            let error = refusal(&disk, 0);
            assert_eq!(error.path().file_name().unwrap(), FIRST);
            let (found, reason, drops) = damage(&error);
            assert_eq!(found, offset, "{reason}");
            assert!(
                reason.contains(&format!("one at offset {} does", offset + 100)),
                "{reason}"
            );
            let dropped = format!(
                "every entry from LSN {} on: segment 1 from offset",
                frame + 1
            );
            assert!(drops.starts_with(&dropped), "{drops}");
        }
    }
}

#[test]
fn a_damaged_last_frame_is_refused_if_the_journal_was_closed() {
    let mut rig = Rig::new();
    rig.append_of(100).unwrap();
    rig.append_of(100).unwrap();
    rig.writer.close().unwrap();
    assert_eq!(read_all(&rig.disk, 0).unwrap().0.len(), 2);
    rig.disk.flip(FIRST, HEADER_LEN + 150, 0);
    assert_eq!(damage(&refusal(&rig.disk, 0)).0, HEADER_LEN as u64 + 100);
}

#[test]
fn a_damaged_last_frame_is_refused_if_its_segment_was_closed() {
    let mut rig = Rig::new();
    rig.append_thirds(3);
    // The end frame is written and synced, and then the power goes.
    rig.disk.fail_after(2);
    rig.append_of(THIRD).unwrap_err();
    rig.disk.crash(1);
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
    rig.disk.flip(FIRST, HEADER_LEN + 2 * THIRD + 100, 0);
    assert_eq!(
        damage(&refusal(&rig.disk, 0)).0,
        (HEADER_LEN + 2 * THIRD) as u64
    );
}

#[test]
fn a_damaged_frame_in_a_segment_that_has_a_next_one_is_refused() {
    let mut rig = Rig::new();
    rig.append_thirds(7);
    assert_eq!(rig.segments(), [1, 2, 3]);
    rig.disk.flip(FIRST, HEADER_LEN + 2 * THIRD + 80, 0);
    let error = refusal(&rig.disk, 0);
    let (offset, reason, drops) = damage(&error);
    assert_eq!(offset, (HEADER_LEN + 2 * THIRD) as u64);
    assert!(
        reason.contains("no frame of LSN 3 verifies there"),
        "{reason}"
    );
    assert!(drops.ends_with("and segments 2 to 3"), "{drops}");
    // With the checkpoint behind it, it is only the audit trail that has suffered.
    assert_eq!(read_all(&rig.disk, 3).unwrap().0.len(), 4);
}

#[test]
fn a_segment_without_its_end_frame_is_whole_if_the_next_one_says_so() {
    let mut rig = Rig::new();
    rig.append_thirds(4);
    rig.disk.flip(FIRST, HEADER_LEN + 3 * THIRD, 0);
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
}

#[test]
fn a_gap_in_the_lsns_is_refused() {
    // Frames that verify, of LSN 1 and 3.
    let rig = Rig::new();
    let mut bytes = rig.disk.bytes(FIRST);
    let place = crate::journal::segment::Place::new(&STORE, 1);
    for (lsn, offset) in [(1, HEADER_LEN), (3, HEADER_LEN + 100)] {
        let wire = frame_of(lsn, 100).seal(&place, offset as u64).to_vec();
        bytes[offset..offset + 100].copy_from_slice(&wire);
    }
    rig.disk.put(FIRST, &bytes);
    let error = refusal(&rig.disk, 0);
    assert_eq!(damage(&error).0, HEADER_LEN as u64 + 100);
    assert!(
        damage(&error).1.contains("LSN 3 follows, and 2 should"),
        "{error}"
    );
}

#[test]
fn a_missing_segment_is_refused_unless_the_checkpoint_is_past_it() {
    let mut rig = Rig::new();
    rig.append_thirds(10);
    assert_eq!(rig.segments(), [1, 2, 3, 4]);
    // (the segment deleted, the checkpoint, whether that is refused)
    let table = [
        (1, 0, true),
        (2, 0, true),
        (3, 0, true),
        (4, 0, true),
        (4, 10, true),
        (1, 2, true),
        (1, 3, false),
        (2, 3, true),
        (2, 6, false),
        (2, 10, false),
    ];
    for (deleted, checkpoint, refused) in table {
        let disk = rig.disk.fork();
        disk.delete(&file_name(deleted));
        match read_all(&disk, checkpoint) {
            Ok((log, _)) => {
                assert!(!refused, "{deleted} {checkpoint}");
                assert_eq!(log.len() as u64, 10 - checkpoint);
            }
            Err(error) => {
                assert!(refused, "{deleted} {checkpoint}: {error}");
                assert!(matches!(error.cause(), Cause::Missing { .. }), "{error}");
                assert_eq!(error.path().file_name().unwrap(), &*file_name(deleted));
            }
        }
    }
}

#[test]
fn a_file_that_is_not_this_store_s_is_refused_and_named() {
    let rig = Rig::new();
    let other = SimDisk::new(1 << 20);
    create::create(Arc::new(other.clone()), [1; 16], Lsn(1), options()).unwrap();
    for name in [FIRST, HIGHEST] {
        let disk = rig.disk.fork();
        disk.put(name, &other.bytes(name));
        let error = refusal(&disk, 0);
        assert!(matches!(error.cause(), Cause::Foreign), "{error}");
        assert_eq!(error.path().file_name().unwrap(), name);
    }
}

#[test]
fn a_segment_that_is_not_whole_or_not_itself_is_refused() {
    let mut rig = Rig::new();
    rig.append_thirds(4);
    let change = |change: &dyn Fn(&SimDisk)| {
        let disk = rig.disk.fork();
        change(&disk);
        refusal(&disk, 0).to_string()
    };
    type Change<'a> = &'a dyn Fn(&SimDisk);
    let table: [(Change, &str); 5] = [
        (
            &|disk| disk.truncate(FIRST, 8192),
            "its length is 8192 bytes and should be 16384",
        ),
        (&|disk| disk.truncate(FIRST, 100), "shorter than a header"),
        (&|disk| disk.flip(FIRST, 200, 0), "its checksum is wrong"),
        (
            &|disk| disk.flip(FIRST, 0, 0),
            "does not begin as a file of the journal",
        ),
        (
            &|disk| disk.put(FIRST, &disk.bytes(&file_name(2))),
            "it is segment 2 under another name",
        ),
    ];
    for (act, expected) in table {
        let text = change(act);
        assert!(text.contains(expected) && text.contains(FIRST), "{text}");
    }
    // A header that verifies, of a size that cannot be.
    let disk = rig.disk.fork();
    let mut bytes = disk.bytes(FIRST)[..8192].to_vec();
    bytes[40..48].copy_from_slice(&8192u64.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..HEADER_LEN - 4]);
    bytes[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
    disk.put(FIRST, &bytes);
    assert_eq!(
        damage(&refusal(&disk, 0)),
        (
            40,
            "a segment never has 8192 bytes",
            "every entry after segment 0"
        )
    );
    let disk = rig.disk.fork();
    disk.flip(FIRST, 8, 1);
    assert!(matches!(
        refusal(&disk, 0).cause(),
        Cause::Newer { version: 3 }
    ));
}

#[test]
fn a_wrong_record_of_the_highest_segment_is_refused() {
    let mut rig = Rig::new();
    let old = rig.disk.bytes(HIGHEST);
    rig.append_thirds(4);
    let two = rig.disk.bytes(HIGHEST);
    rig.append_thirds(4);
    // Segment 3 has frames: the record of 1 is two behind, that of 2 is one behind.
    for bytes in [old, two] {
        let disk = rig.disk.fork();
        disk.put(HIGHEST, &bytes);
        let error = refusal(&disk, 0);
        assert_eq!(error.path().file_name().unwrap(), HIGHEST);
        assert!(
            damage(&error).1.contains("and segment 3 is in use"),
            "{error}"
        );
    }
    let disk = rig.disk.fork();
    disk.delete(HIGHEST);
    assert!(matches!(refusal(&disk, 0).cause(), Cause::Missing { .. }));
    // Every segment is gone: a used store never comes up empty.
    let disk = rig.disk.fork();
    for number in 1..=3 {
        disk.delete(&file_name(number));
    }
    assert!(matches!(refusal(&disk, 8).cause(), Cause::Missing { .. }));
    let error = Rig::with(&disk, options()).err().unwrap();
    assert!(matches!(error.cause(), Cause::Exists), "{error}");
}

#[test]
fn a_journal_that_ends_below_the_checkpoint_is_refused() {
    let disk = small_frames(3);
    let mut bytes = disk.bytes(FIRST);
    bytes[HEADER_LEN + 100..].fill(0);
    disk.put(FIRST, &bytes);
    assert_eq!(read_all(&disk, 1).unwrap().0.len(), 0);
    let error = refusal(&disk, 2);
    assert!(
        damage(&error)
            .1
            .contains("ends with LSN 1, and the checkpoint is at 2"),
        "{error}"
    );
}

#[test]
fn stale_frames_of_a_recycled_segment_never_verify() {
    let mut rig = Rig::new();
    rig.append_thirds(7);
    rig.preparer.release(Lsn(6));
    rig.preparer
        .prune(Timestamp::from_millis(u64::MAX))
        .unwrap();
    // Three spares now. The journal goes around: what is written last is a recycled segment.
    while rig.segments().last() != Some(&6) {
        rig.append_thirds(1);
        rig.preparer.release(Lsn(rig.next() - 1));
        rig.preparer
            .prune(Timestamp::from_millis(u64::MAX))
            .unwrap();
    }
    let bytes = rig.disk.bytes(&file_name(6));
    // Behind what was cleared for the frames that are there now.
    let stale = HEADER_LEN + 2 * THIRD;
    let stale = &bytes[stale..stale + HEAD_LEN];
    assert!(stale.iter().any(|byte| *byte != 0), "an old frame is there");
    let last = rig.next() - 1;
    let (log, recovery) = read_all(&rig.disk, last - 1).unwrap();
    assert_eq!(log.last().unwrap().0, last);
    assert_eq!(recovery.torn_tail(), None, "nor is it taken for a torn one");
}

#[test]
fn entries_that_hold_whole_frames_do_not_hide_the_end() {
    let mut rig = Rig::new();
    rig.append_of(100).unwrap();
    let copy = rig.disk.bytes(FIRST)[HEADER_LEN..HEADER_LEN + 100].to_vec();
    let place = crate::journal::segment::Place::new(&STORE, 1);
    // A frame that would verify where the last one ends, inside of the last one's entry.
    let planned = (HEADER_LEN + 100 + HEAD_LEN + ENTRY_HEAD_LEN + 100) as u64;
    let wire = frame_of(3, 100).seal(&place, planned + 1).to_vec();
    let mut frame = Frame::new(Lsn(2));
    frame.set_mark(mark(2));
    frame.push(&[&copy[..], &wire, &copy].concat());
    rig.append(&mut frame).unwrap();
    assert_eq!(read_all(&rig.disk, 0).unwrap().0, rig.log);
    // Torn behind the copies: they are at other places than they were made for.
    rig.disk.flip(FIRST, HEADER_LEN + 100 + frame.len() - 1, 0);
    assert_eq!(read_all(&rig.disk, 0).unwrap().0.len(), 1);
}

#[test]
fn opening_and_reading_changes_nothing_on_disk() {
    let mut rig = Rig::new();
    rig.append_thirds(5);
    rig.disk.put("spare-00000050.tmp", &[0; 10]);
    rig.disk.crash(5);
    let before = rig.disk.content();
    read_all(&rig.disk, 0).unwrap();
    read_all(&rig.disk, 4).unwrap();
    assert!(rig.disk.content() == before);
}

#[test]
fn the_writer_is_handed_out_only_at_the_end_and_above_it() {
    let mut rig = Rig::new();
    rig.append_thirds(2);
    let misuse =
        |error: JournalError| assert!(matches!(error.cause(), Cause::Misuse(_)), "{error}");
    let early = open(&rig.disk, 0).unwrap();
    misuse(early.into_writer(Lsn(3), options()).err().unwrap());
    let (_, recovery) = read_all(&rig.disk, 0).unwrap();
    misuse(recovery.into_writer(Lsn(2), options()).err().unwrap());
    let (_, recovery) = read_all(&rig.disk, 0).unwrap();
    let odd = Options {
        segment_size: 20_000,
        ..options()
    };
    misuse(recovery.into_writer(Lsn(3), odd).err().unwrap());
    let mut again = Rig::again(&rig.disk, 0).unwrap();
    misuse(again.append(&mut frame_of(4, 100)).unwrap_err());
    again.append(&mut frame_of(3, 100)).unwrap();
}

#[test]
fn the_last_clocks_are_known_after_every_start() {
    let mut rig = Rig::new();
    assert_eq!(read_all(&rig.disk, 0).unwrap().1.last_mark(), None);
    rig.append_of(100).unwrap();
    // A frame without entries carries its mark alone.
    let mut idle = Frame::new(Lsn(2));
    idle.set_mark(mark(77));
    rig.append(&mut idle).unwrap();
    for _ in 0..2 {
        let (log, recovery) = read_all(&rig.disk, 0).unwrap();
        assert_eq!((log.len(), recovery.last_mark()), (1, Some(mark(77))));
        // From the second time on it is in the fresh segment's header.
        Rig::again(&rig.disk, 1).unwrap();
    }
    assert_eq!(
        read_all(&rig.disk, 1).unwrap().1.last_mark(),
        Some(mark(77))
    );
}

#[test]
fn a_frame_that_straddles_the_checkpoint_is_read_whole_and_those_below_are_not() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        let next = rig.next();
        let mut frame = Frame::new(Lsn(next));
        frame.set_mark(mark(next));
        for lsn in next..next + 3 {
            frame.push(&entry(lsn, 50));
        }
        rig.append(&mut frame).unwrap();
    }
    for (checkpoint, first) in [(0, 1), (2, 1), (3, 4), (5, 4), (6, 7), (8, 7), (9, 10)] {
        let (log, _) = read_all(&rig.disk, checkpoint).unwrap();
        let lsns: Vec<u64> = log.iter().map(|(lsn, _)| *lsn).collect();
        assert_eq!(
            lsns,
            (first..10).collect::<Vec<_>>(),
            "checkpoint {checkpoint}"
        );
    }
}
