//! A damaged journal: a start refuses, the check names it, the repair drops what it named and nothing else.

use std::fs;
use std::path::Path;

use super::*;

/// Entries in the journal, about eleven to a segment: three segments and a part of a fourth.
const ENTRIES: usize = 40;

struct Case {
    what: &'static str,
    /// How many entries the store has already.
    checkpointed: usize,
    damage: fn(&Path, &Journal),
    /// What the check says.
    says: &'static str,
    /// How many entries are there after the repair.
    kept: fn(&Journal) -> usize,
}

/// The number of entries before the one that begins a segment, the so-manyth of the journal.
fn before(journal: &Journal, segment: usize) -> usize {
    let mut numbers: Vec<u64> = journal.frames.iter().map(|(number, _)| *number).collect();
    numbers.dedup();
    let wanted = numbers[segment];
    journal
        .frames
        .iter()
        .take_while(|(number, _)| *number < wanted)
        .count()
}

fn number(journal: &Journal, nth: usize) -> u64 {
    journal.frames[before(journal, nth)].0
}

fn hit(dir: &Path, journal: &Journal, entry: usize) {
    let (number, offset) = journal.frames[entry];
    flip(&segment(dir, number), offset + 100);
}

const CASES: [Case; 13] = [
    Case {
        what: "a frame in the newest segment",
        checkpointed: 0,
        damage: |dir, journal| hit(dir, journal, ENTRIES - 2),
        says: "verifies there, and one at offset",
        kept: |_| ENTRIES - 2,
    },
    Case {
        what: "a frame in a segment before",
        checkpointed: 0,
        damage: |dir, journal| hit(dir, journal, before(journal, 1) + 3),
        says: "and the journal went on to",
        kept: |journal| before(journal, 1) + 3,
    },
    Case {
        what: "the first frame after the checkpoint",
        checkpointed: 5,
        damage: |dir, journal| hit(dir, journal, 5),
        says: "and the journal went on to",
        kept: |_| 5,
    },
    Case {
        what: "a frame that the checkpoint covers, with needed ones behind it",
        checkpointed: 5,
        damage: |dir, journal| hit(dir, journal, 3),
        says: "and the journal went on to",
        kept: |_| ENTRIES,
    },
    Case {
        what: "the same in the newest segment",
        checkpointed: ENTRIES - 2,
        damage: |dir, journal| hit(dir, journal, ENTRIES - 4),
        says: "verifies there, and one at offset",
        kept: |_| ENTRIES,
    },
    Case {
        what: "a segment lost in between",
        checkpointed: 0,
        damage: |dir, journal| fs::remove_file(segment(dir, number(journal, 1))).unwrap(),
        says: "it is missing",
        kept: |journal| before(journal, 1),
    },
    Case {
        what: "the newest segment lost",
        checkpointed: 0,
        damage: |dir, journal| fs::remove_file(segment(dir, number(journal, 3))).unwrap(),
        says: "it is missing",
        kept: |journal| before(journal, 3),
    },
    Case {
        what: "the header of a segment",
        checkpointed: 0,
        damage: |dir, journal| flip(&segment(dir, number(journal, 2)), 50),
        says: "its checksum is wrong",
        kept: |journal| before(journal, 2),
    },
    Case {
        what: "a segment cut short",
        checkpointed: 0,
        damage: |dir, journal| {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(segment(dir, number(journal, 3)));
            file.unwrap().set_len(10_000).unwrap();
        },
        says: "its length is 10000 bytes",
        kept: |journal| before(journal, 3),
    },
    Case {
        what: "a segment of the audit trail",
        checkpointed: ENTRIES - 2,
        damage: |dir, journal| flip(&segment(dir, number(journal, 1)), 50),
        says: "its checksum is wrong",
        kept: |_| ENTRIES,
    },
    Case {
        what: "all segments lost, and the store has some",
        checkpointed: 7,
        damage: |dir, _| {
            for number in segments(dir) {
                fs::remove_file(segment(dir, number)).unwrap();
            }
        },
        says: "it is missing",
        kept: |_| 7,
    },
    Case {
        what: "the record of the highest segment lost",
        checkpointed: 0,
        damage: |dir, _| fs::remove_file(dir.join("data/journal/highest")).unwrap(),
        says: "it is missing",
        kept: |_| ENTRIES,
    },
    Case {
        what: "the record of the highest segment damaged",
        checkpointed: 0,
        damage: |dir, _| fs::write(dir.join("data/journal/highest"), [0xFF; 8192]).unwrap(),
        says: "neither of its slots verifies",
        kept: |_| ENTRIES,
    },
];

#[test]
fn repair_drops_what_is_damaged_and_the_rest_is_there() {
    for case in CASES {
        let what = case.what;
        let folder = tempfile::tempdir().unwrap();
        let dir = used(&folder);
        let mut journal = Journal::open(&dir);
        journal.append(ENTRIES);
        if case.checkpointed > 0 {
            journal.checkpoint(case.checkpointed);
        }
        let sound = run("check", &dir, &[]);
        assert_eq!(sound.code, 0, "{what}: {sound:?}");
        (case.damage)(&dir, &journal);
        let kept = (case.kept)(&journal);
        drop_and_verify(&dir, &journal, kept, case.says, what);
    }
}

fn drop_and_verify(dir: &Path, journal: &Journal, kept: usize, says: &str, what: &str) {
    assert_refused(dir, what);
    let before = contents(dir);
    let found = run("check", dir, &[]);
    assert_eq!(found.code, 13, "{what}: {found:?}");
    assert!(found.stdout.contains(says), "{what}: {found:?}");
    // Nobody is there to ask.
    let declined = run("check", dir, &["--repair"]);
    assert_eq!(declined.code, 13, "{what}: {declined:?}");
    assert!(
        declined.stdout.contains("repair drops "),
        "{what}: {declined:?}"
    );
    assert!(
        declined.stdout.contains("nothing was changed"),
        "{what}: {declined:?}"
    );
    assert!(contents(dir) == before, "{what}: it was touched");

    let repaired = run("check", dir, &["--repair", "--yes"]);
    assert_eq!(repaired.code, 0, "{what}: {repaired:?}");
    assert!(
        repaired.stdout.contains("repaired, and clean"),
        "{what}: {repaired:?}"
    );
    let mut there = stored();
    there.extend(journaled(0..kept));
    let gone = journaled(kept..ENTRIES);
    let token = journal.next_token + ENTRIES as u64 - 1;
    assert_starts(dir, &there, &gone, token, what);
    // What was dropped does not come back, and what was kept stays.
    assert_starts_again(dir, &there, &gone, what);
}

fn assert_starts_again(dir: &Path, there: &[String], gone: &[String], what: &str) {
    let server = Server::start(dir);
    let mut redis = server.redis();
    for (keys, count) in [(there, 1), (gone, 0)] {
        for name in keys {
            let exists = redis.command(&format!("EXISTS {name}"));
            assert_eq!(
                exists,
                Reply::Integer(count),
                "{what}: {name}, started again"
            );
        }
    }
}

#[test]
fn an_entry_that_cannot_be_read_in_a_sound_frame_ends_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let mut journal = Journal::open(&dir);
    journal.append(5);
    journal.append_bytes(b"no entry");
    journal.append(ENTRIES);
    drop_and_verify(&dir, &journal, 5, "cannot be read", "an entry that is none");
}

#[test]
fn a_torn_end_is_no_damage_and_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let mut journal = Journal::open(&dir);
    journal.append(3);
    hit(&dir, &journal, 2);
    let found = run("check", &dir, &[]);
    assert_eq!(found.code, 0, "{found:?}");
    assert!(found.stdout.contains("were not written whole"), "{found:?}");
    let mut there = stored();
    there.extend(journaled(0..2));
    assert_starts(&dir, &there, &journaled(2..3), 0, "a torn end");
}

#[test]
fn another_stores_segment_is_left_alone() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, other) = (used(&folder), used(&other));
    let newest = *segments(&dir).last().unwrap();
    fs::copy(
        segment(&other, *segments(&other).last().unwrap()),
        segment(&dir, newest),
    )
    .unwrap();
    assert_refused(&dir, "a foreign segment");
    let before = contents(&dir);
    let found = run("check", &dir, &["--repair", "--yes"]);
    assert_eq!(found.code, 13, "{found:?}");
    assert!(
        found.stdout.contains("the id of another store"),
        "{found:?}"
    );
    assert!(found.stdout.contains("repair cannot help; "), "{found:?}");
    assert!(contents(&dir) == before, "it was touched");
}

#[test]
fn a_next_token_that_was_granted_already_is_found_and_raised() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let mut journal = Journal::open(&dir);
    journal.append(ENTRIES);
    journal.checkpoint_with(ENTRIES, journal.next_token);
    let found = run("check", &dir, &[]);
    assert_eq!(found.code, 13, "{found:?}");
    let token = journal.next_token + ENTRIES as u64 - 1;
    let says = format!(
        "token {token} was granted, and the next one would be {}",
        journal.next_token
    );
    assert!(found.stdout.contains(&says), "{found:?}");
    assert_eq!(run("check", &dir, &["--repair", "--yes"]).code, 0);
    let mut there = stored();
    there.extend(journaled(0..ENTRIES));
    assert_starts(&dir, &there, &[], token, "the next token");
}

#[test]
fn where_decisions_are_dropped_what_was_pending_is_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let server = Server::start(&dir);
    let mut http = server.http();
    let claimed = http.post(
        "/v1/claims/default/held?lease=1h&store=true",
        &[b'p'; 70_000],
    );
    assert_eq!(claimed.status, 201, "{claimed:?}");
    let token = claimed.json()["token"].as_u64().unwrap();
    assert_eq!(server.term().code(), 0);
    let mut journal = Journal::open(&dir);
    journal.append(ENTRIES);
    hit(&dir, &journal, ENTRIES - 2);
    let repaired = run("check", &dir, &["--repair", "--yes"]);
    assert_eq!(repaired.code, 0, "{repaired:?}");
    let told = "what is pending becomes in_doubt";
    assert!(repaired.stdout.contains(told), "{repaired:?}");

    let server = Server::start(&dir);
    let mut http = server.http();
    let again = http.post("/v1/claims/default/held", b"");
    assert_eq!(again.outcome(), "in_doubt");
    let payload = http.get("/v1/claims/default/held/payload");
    assert_eq!(payload.body, [b'p'; 70_000]);
    let path = format!("/v1/claims/default/held/complete?token={token}");
    assert_eq!(http.post(&path, b"").outcome(), "stale");
    assert_eq!(
        http.post("/v1/claims/default/held/complete", b"").status,
        200
    );
}
