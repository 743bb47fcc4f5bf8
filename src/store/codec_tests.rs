//! Every format on disk: golden bytes, round trips, and bytes that nobody wrote.

use super::super::entry::{Change, Decision};
use super::super::samples::{Dice, body, done, key, pending, without_bytes};
use super::*;
use crate::model::body::{Body, Content, LargeContent};
use crate::model::command::{Claim, Command, StringVerb, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Reason, Verdict};
use crate::model::record::{Event, KeptResult, Kind, Retention, State};
use crate::model::time::Span;
use std::sync::Arc;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encoded(key: &[u8], record: &Record) -> Vec<u8> {
    let mut value = Vec::new();
    encode_record(key, record, &mut value).unwrap();
    value
}

fn decoded(key: &[u8], value: &[u8]) -> Result<Record, CodecError> {
    view_record(key, value)?.to_record()
}

/// A record with every field set, a large payload and an inline result.
fn full_record() -> Record {
    let mut record = done(
        42,
        Timestamp::from_millis(1_767_323_045_678),
        1_767_409_445_678,
    );
    record.once = true;
    record.fingerprint = Some(crate::model::record::Fingerprint::Given("body-1".into()));
    record.claim_id = Some("attempt-7".into());
    record.max_attempts = Some(3);
    record.effect_announced = true;
    record.last_error = Some("lease ended".into());
    record.payload = Some(body(&[b'x'; 5000], Some(Lsn(300))));
    record.earlier_result = Some(KeptResult {
        body: body(b"", None),
        status: None,
    });
    without_bytes(&record)
}

fn decision() -> Decision {
    Decision {
        at: Timestamp::from_millis(1_767_323_045_678),
        verb: "claim",
        outcome: "acquired",
        reason: Some(Reason::Takeover),
        event: Some(Event::TakenOver),
        token: Token::new(42),
        attempt: 2,
        generation: 1,
        by: Some("worker-1".into()),
        count: 1,
    }
}

/// LargeContent compares by digest alone; this also looks at where the bytes are.
fn places(record: &Record) -> Vec<(Option<Lsn>, Option<usize>)> {
    let results = [&record.result, &record.earlier_result]
        .into_iter()
        .flatten();
    let bodies = record.payload.iter().chain(results.map(|kept| &kept.body));
    bodies
        .filter_map(|body| match &body.content {
            Content::Large(large) => {
                let LargeContent { lsn, bytes, .. } = &**large;
                Some((*lsn, bytes.as_ref().map(|b| b.len())))
            }
            Content::Inline(_) => None,
        })
        .collect()
}

// The bytes below are what version 1 wrote. They never change: a new version gets golden bytes of its own,
// and these must still decode.

#[test]
fn golden_record() {
    let record = full_record();
    let value = encoded(b"orders\0evt_1", &record);
    assert_eq!(hex(&value), GOLDEN_RECORD);
    assert_eq!(decoded(b"orders\0evt_1", &value), Ok(record));
}

#[test]
fn golden_body_row() {
    let row = body_key(b"orders\0evt_1", Lsn(300), Part::Result);
    assert_eq!(hex(&row), "6f7264657273006576745f31000000000000012c01");
    assert_eq!(
        split_body_key(&row),
        Some((&b"orders\0evt_1"[..], Lsn(300), Part::Result))
    );
    let value = encode_body(&row, b"body");
    assert_eq!(hex(&value), GOLDEN_BODY);
    let body = BodyRef {
        part: Part::Result,
        lsn: Lsn(300),
        size: 4,
        digest: sha256(b"body"),
    };
    assert_eq!(decode_body(&row, &value, &body), Ok(&b"body"[..]));
    let other = BodyRef {
        digest: sha256(b"other"),
        ..body
    };
    assert!(matches!(
        decode_body(&row, &value, &other),
        Err(CodecError::Rule(_))
    ));
}

#[test]
fn golden_entries() {
    let record = pending(42);
    let changes = [
        Change::None(key("k")),
        Change::Tally("ns".into()),
        Change::Put(key("k"), Arc::new(record)),
        Change::Remove(key("k")),
        Change::Policy("ns".into(), Some(Policy::default())),
        Change::Policy("ns".into(), None),
    ];
    for (change, golden) in changes.into_iter().zip(GOLDEN_ENTRIES) {
        let entry = Entry {
            lsn: Lsn(301),
            change,
            decision: decision(),
        };
        let mut bytes = Vec::new();
        encode_entry(&entry, &mut bytes).unwrap();
        assert_eq!(hex(&bytes), golden);
        assert_eq!(decode_entry(&bytes), Ok(entry));
    }
}

#[test]
fn golden_meta_rows() {
    let policy = Policy {
        retention: Retention::Forever,
        ..Policy::default()
    };
    let value = encode_policy(b"policy/ns", &policy).unwrap();
    assert_eq!(hex(&value), GOLDEN_POLICY);
    assert_eq!(decode_policy(b"policy/ns", &value), Ok(policy));
    let state = StoreState {
        store_id: *b"0123456789abcdef",
        commits: 7,
        checkpoint: Lsn(301),
        next_token: Token::new(43).unwrap(),
        mark: vec![1, 2, 3],
    };
    let value = encode_state(b"state", &state).unwrap();
    assert_eq!(hex(&value), GOLDEN_STATE);
    assert_eq!(decode_state(b"state", &value), Ok(state));
    let counts = TableCounts {
        rows: 1,
        sum: u64::MAX,
        bodies: 2,
    };
    let value = encode_counts(b"table/open", &counts).unwrap();
    assert_eq!(hex(&value), GOLDEN_COUNTS);
    assert_eq!(decode_counts(b"table/open", &value), Ok(counts));
}

#[test]
fn records_come_back_as_they_were() {
    let mut dice = Dice::seeded();
    for n in 0..2000 {
        let name = key(format!("k{n}"));
        let record = dice.record();
        let value = encoded(name.joined(), &record);
        let back = decoded(name.joined(), &value).unwrap();
        assert_eq!(places(&back), places(&record));
        assert_eq!(back, record);
    }
}

#[test]
fn entries_come_back_as_they_were_with_the_bytes_that_are_new() {
    let mut dice = Dice::seeded();
    for n in 0..500 {
        let mut record = dice.record();
        // A payload that is new with this entry, in either spelling.
        let lsn = Lsn((1 << 41) + dice.below(1 << 40));
        let len = 5000 + dice.below(100);
        let bytes = dice.bytes(len);
        record.payload = Some(body(&bytes, if n % 2 == 0 { None } else { Some(lsn) }));
        let entry = Entry {
            lsn,
            change: Change::Put(key(format!("k{n}")), Arc::new(record)),
            decision: decision(),
        };
        let mut encoded = Vec::new();
        encode_entry(&entry, &mut encoded).unwrap();
        let back = decode_entry(&encoded).unwrap();
        assert_eq!(back, entry);
        let Change::Put(_, record) = back.change else {
            panic!("another change")
        };
        assert_eq!(places(&record)[0], (Some(lsn), Some(bytes.len())));
        assert!(
            places(&record)[1..]
                .iter()
                .all(|(lsn, bytes)| lsn.is_some() && bytes.is_none())
        );
    }
}

#[test]
fn a_body_that_lies_in_the_store_is_only_referred_to() {
    let mut record = pending(1);
    record.payload = Some(body(&[7; 100_000], Some(Lsn(5))));
    let entry = |lsn| Entry {
        lsn,
        change: Change::Put(key("k"), Arc::new(record.clone())),
        decision: decision(),
    };
    let mut bytes = Vec::new();
    encode_entry(&entry(Lsn(5)), &mut bytes).unwrap();
    assert!(bytes.len() > 100_000, "new with this entry");
    bytes.clear();
    encode_entry(&entry(Lsn(6)), &mut bytes).unwrap();
    assert!(bytes.len() < 500, "known since an earlier one");
    assert!(encoded(b"ns\0k", &record).len() < 500, "in a table");
}

#[test]
fn no_bytes_make_decoding_panic_and_no_changed_bit_goes_unnoticed() {
    let mut dice = Dice::seeded();
    for n in 0..300 {
        let name = key(format!("k{n}"));
        let record = dice.record();
        let good = encoded(name.joined(), &record);
        for _ in 0..20 {
            let mut bad = good.clone();
            let at = dice.below(bad.len() as u64) as usize;
            bad[at] ^= 1 << dice.below(8);
            assert_eq!(decoded(name.joined(), &bad), Err(CodecError::Checksum));
            // Past the checksum: whatever it makes of it, it must not panic.
            let mut forged = good[..good.len() - 4].to_vec();
            mutate(&mut dice, &mut forged[1..]);
            forged.truncate(1 + dice.below(forged.len() as u64) as usize);
            append_crc(name.joined(), 0, &mut forged);
            let _ = decoded(name.joined(), &forged);
        }
        for len in 0..good.len().min(64) {
            assert!(
                decoded(name.joined(), &good[..len]).is_err(),
                "cut at {len}"
            );
        }
        assert_eq!(
            decoded(b"ns\0other", &good),
            Err(CodecError::Checksum),
            "under another key"
        );
        let entry = Entry {
            lsn: Lsn(u64::MAX),
            change: Change::Put(name, Arc::new(record)),
            decision: decision(),
        };
        let mut bytes = Vec::new();
        encode_entry(&entry, &mut bytes).unwrap();
        for len in 0..bytes.len().min(64) {
            assert!(decode_entry(&bytes[..len]).is_err(), "cut at {len}");
        }
        for _ in 0..20 {
            let mut bad = bytes.clone();
            mutate(&mut dice, &mut bad);
            let _ = decode_entry(&bad);
            let len = dice.below(200);
            let _ = decode_entry(&dice.bytes(len));
        }
        let trailing = [&bytes[..], &[0]].concat();
        assert_eq!(decode_entry(&trailing), Err(CodecError::Malformed));
    }
}

fn mutate(dice: &mut Dice, bytes: &mut [u8]) {
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(bytes.len() as u64) as usize;
        bytes[at] = dice.below(256) as u8;
    }
}

#[test]
fn later_versions_are_told_apart_from_damage() {
    let mut value = encoded(b"ns\0k", &pending(1));
    value.truncate(value.len() - 4);
    value[0] = 2;
    append_crc(b"ns\0k", 0, &mut value);
    assert_eq!(decoded(b"ns\0k", &value), Err(CodecError::Version(2)));
    assert_eq!(decode_entry(&[2, 0]), Err(CodecError::Version(2)));
    assert_eq!(decode_entry(&[]), Err(CodecError::Short));
}

#[test]
fn what_no_store_may_hold_is_refused_on_write() {
    type Spoil = fn(&mut Record);
    let large = |bytes: &[u8]| body(bytes, None);
    let table: [(&str, Spoil); 12] = [
        ("a string that is not done", |r| r.kind = Kind::String),
        ("done without a time", |r| r.state = State::Done),
        ("an open record that expires", |r| {
            r.expires_at = Some(Timestamp::from_millis(1))
        }),
        ("retry by the end of its lease", |r| {
            r.state = State::Retry;
            r.by_lease_end = true;
        }),
        ("generation 0", |r| r.generation = 0),
        ("too many attempts", |r| r.max_attempts = Some(1_000_001)),
        ("an empty owner", |r| r.owner = Some("".into())),
        ("a long claim id", |r| {
            r.claim_id = Some("x".repeat(129).into())
        }),
        ("a long error text", |r| {
            r.last_error = Some("x".repeat(4097).into())
        }),
        ("nine facts", |r| r.history = vec![r.history[0].clone(); 9]),
        ("a body never journaled", |r| {
            r.payload = Some(body(&[0; 5000], None))
        }),
        ("a large body kept inline", |r| {
            let content = Content::Inline(vec![0; 4097].into());
            r.payload = Some(Body {
                content_type: "a/b".into(),
                content,
            });
        }),
    ];
    for (what, spoil) in table {
        let mut record = pending(1);
        spoil(&mut record);
        let refused = encode_record(b"ns\0k", &record, &mut Vec::new());
        assert!(
            matches!(refused, Err(CodecError::Rule(_))),
            "{what}: {refused:?}"
        );
    }
    let mut record = pending(1);
    record.payload = Some(large(&[0; 5000]));
    let entry = |record, decision| Entry {
        lsn: Lsn(1),
        change: Change::Put(key("k"), Arc::new(record)),
        decision,
    };
    let refused = encode_entry(&entry(without_bytes(&record), decision()), &mut Vec::new());
    assert!(
        matches!(refused, Err(CodecError::Rule(_))),
        "a new body without its bytes"
    );
    // Written by an entry, it names an earlier one.
    let mut record = pending(1);
    record.payload = Some(large(&[0; 5000]));
    if let Some(Content::Large(large)) = record.payload.as_mut().map(|body| &mut body.content) {
        (large.lsn, large.bytes) = (Some(Lsn(7)), None);
    }
    for (lsn, good) in [(6, false), (8, true)] {
        let entry = Entry {
            lsn: Lsn(lsn),
            ..entry(record.clone(), decision())
        };
        let mut bytes = Vec::new();
        encode_entry(&entry, &mut bytes).unwrap();
        assert_eq!(
            decode_entry(&bytes).is_ok(),
            good,
            "a body of entry 7 in entry {lsn}"
        );
    }
    for spoilt in [
        Decision {
            verb: "dance",
            ..decision()
        },
        Decision {
            outcome: "",
            ..decision()
        },
    ] {
        let refused = encode_entry(&entry(pending(1), spoilt), &mut Vec::new());
        assert!(matches!(refused, Err(CodecError::Rule(_))));
    }
}

#[test]
fn every_name_of_the_model_has_a_code() {
    use super::super::entry::{OUTCOMES, VERBS};
    let token = Token::FIRST;
    let result = KeptResult {
        body: body(b"", None),
        status: None,
    };
    let verbs = [
        Verb::Claim(Box::<Claim>::default()),
        Verb::Renew { token, lease: None },
        Verb::Effect { token },
        Verb::Complete {
            token: None,
            result,
        },
        Verb::Fail {
            token: None,
            error: None,
            retry_in: None,
            bury: false,
        },
        Verb::Release { token },
        Verb::Get,
        Verb::Replay {
            generation: None,
            force: false,
        },
        Verb::Forget { force: false },
        Verb::String(StringVerb::Read),
        Verb::String(StringVerb::Delete { when: None }),
        Verb::String(StringVerb::Add(1)),
    ];
    for verb in verbs {
        let command = Command::new(key("k"), verb);
        assert!(
            VERBS.contains(&command.verb.name()),
            "{}",
            command.verb.name()
        );
    }
    assert!(VERBS.contains(&"set") && VERBS.contains(&"expire") && VERBS.contains(&"import"));
    let verdicts = [
        Verdict::Acquired(Reason::New),
        Verdict::Done,
        Verdict::Busy,
        Verdict::Backoff,
        Verdict::InDoubt,
        Verdict::Dead,
        Verdict::Mismatch,
        Verdict::Conflict(crate::model::outcome::Conflict::Claimable),
        Verdict::Stale,
        Verdict::NotFound,
        Verdict::Renewed,
        Verdict::Announced,
        Verdict::Completed,
        Verdict::Failed,
        Verdict::Released,
        Verdict::Replayed,
        Verdict::Forgotten,
        Verdict::Found,
        Verdict::BadInput(crate::model::command::BadInput::Wait),
        Verdict::OutOfTokens,
        Verdict::Imported(crate::model::outcome::Imported::There),
    ];
    for verdict in verdicts {
        assert!(OUTCOMES.contains(&verdict.name()), "{}", verdict.name());
    }
}

#[test]
fn policies_outside_their_ranges_are_refused() {
    let refused = [
        Policy {
            lease: Span::ZERO,
            ..Policy::default()
        },
        Policy {
            retention: Retention::For(Span::ZERO),
            ..Policy::default()
        },
        Policy {
            max_attempts: 1_000_001,
            ..Policy::default()
        },
    ];
    for policy in refused {
        assert!(matches!(
            encode_policy(b"policy/ns", &policy),
            Err(CodecError::Rule(_))
        ));
    }
}

#[test]
fn a_key_in_an_entry_is_checked() {
    let name = RecordKey::new("ns", b"k").unwrap();
    let entry = Entry {
        lsn: Lsn(1),
        change: Change::Remove(name),
        decision: decision(),
    };
    let mut bytes = Vec::new();
    encode_entry(&entry, &mut bytes).unwrap();
    let at = bytes
        .windows(4)
        .position(|window| window == b"ns\0k")
        .unwrap();
    bytes[at] = b'N';
    assert_eq!(
        decode_entry(&bytes),
        Err(CodecError::Rule("a key that is none"))
    );
}

const GOLDEN_RECORD: &str = "010002062a01010106626f64792d310109617474656d70742d370108776f726b65722d31fc40420f00fb60eafb60ea01fc80ee3600010300fddc9934f936030000010001fc00dbde09010b6c6561736520656e64656401010a746578742f706c61696e01fb8813c59d3c0480cc2d71d8f646e735e92da65450311eec46e81a5db8c7e6e8a92054fb2c010101c8010a746578742f706c61696e00026f6b0100010a746578742f706c61696e000001000000010168944eb0";
const GOLDEN_BODY: &str = "01626f6479ed9bf46f";
const GOLDEN_ENTRIES: [&str; 6] = [
    "01fb2d0100046e73006bfd2e8fa97c9b010000000001020101012a02010108776f726b65722d3101",
    "01fb2d0101026e73fd2e8fa97c9b010000000001020101012a02010108776f726b65722d3101",
    "01fb2d0102046e73006b0000002a010100000108776f726b65722d31fc40420f00fb60eafb60ea01fc80ee3600000000000000000000010000000101fd2e8fa97c9b010000000001020101012a02010108776f726b65722d3101",
    "01fb2d0103046e73006bfd2e8fa97c9b010000000001020101012a02010108776f726b65722d3101",
    "01fb2d0104026e7301fb60ea01fc0014730f000500fb1027fc80ee36000000fd2e8fa97c9b010000000001020101012a02010108776f726b65722d3101",
    "01fb2d0104026e7300fd2e8fa97c9b010000000001020101012a02010108776f726b65722d3101",
];
const GOLDEN_POLICY: &str = "01fb60ea00000500fb1027fc80ee360000003226a9cf";
const GOLDEN_STATE: &str = "013031323334353637383961626364656607fb2d012b03010203c4d1d201";
const GOLDEN_COUNTS: &str = "0101fdffffffffffffffff02e287e25a";
