//! The engine's handle.

use std::time::Duration;

use bytes::Bytes;

use super::core::{Asked, Fetched, Found};
use super::*;
use crate::model::body::{Body, Content};
use crate::model::command::{Claim, Command, Mode, Payload, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Reason, Verdict};
use crate::model::record::{KeptResult, Token};
use crate::store;

fn command(key: &str, verb: Verb) -> Unit {
    Unit::One(Command::new(
        RecordKey::new("default", key.as_bytes()).unwrap(),
        verb,
    ))
}

fn claim() -> Verb {
    Verb::Claim(Box::default())
}

fn result(bytes: Vec<u8>) -> KeptResult {
    let content = Content::new(bytes.into());
    KeptResult {
        body: Body {
            content_type: "a/b".into(),
            content,
        },
        status: None,
    }
}

async fn one(engine: &Engine, unit: Unit) -> Outcome {
    engine.submit(vec![unit]).await.remove(0).unwrap()
}

fn options() -> Options {
    let mut options = Options::default();
    options.journal.segment_size = 16 << 20;
    options
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, report) = Engine::open(dir.path(), options()).unwrap();
    assert!(report.created);
    let got = one(&engine, command("a", claim())).await;
    assert_eq!(got.verdict, Verdict::Acquired(Reason::New));
    assert_eq!(
        one(&engine, command("a", claim())).await.verdict,
        Verdict::Busy
    );
    let token = Token::FIRST;
    let large = vec![7; 100_000];
    let complete = Verb::Complete {
        token: Some(token),
        result: result(large.clone()),
    };
    assert_eq!(
        one(&engine, command("a", complete)).await.verdict,
        Verdict::Completed
    );
    let payload = Payload::new(vec![9; 50_000].into(), "a/b".into());
    let keep = Claim {
        payload: Some(payload),
        store: true,
        ..Claim::default()
    };
    let got = one(&engine, command("b", Verb::Claim(Box::new(keep)))).await;
    assert_eq!(got.verdict, Verdict::Acquired(Reason::New));
    engine.close().unwrap();
    for _ in 0..2 {
        let (engine, report) = Engine::open(dir.path(), options()).unwrap();
        assert_eq!((report.created, report.redone), (false, 0));
        let got = one(&engine, command("a", claim())).await;
        assert_eq!(got.verdict, Verdict::Done);
        let content = got.string_value().unwrap().unwrap();
        assert_eq!(
            content.bytes().map(|bytes| bytes.to_vec()),
            Some(large.clone())
        );
        let got = one(&engine, command("b", Verb::Get)).await;
        let payload = got.record.unwrap().record.payload.clone().unwrap();
        assert_eq!(payload.content.bytes().map(Bytes::len), Some(50_000));
        engine.close().unwrap();
    }
}

#[tokio::test]
async fn decisions_that_change_nothing_are_in_the_journal_with_their_count() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(dir.path(), options()).unwrap();
    for key in ["a", "a", "b", "a", "a"] {
        one(&engine, command(key, claim())).await;
        one(&engine, command(key, Verb::Get)).await;
    }
    engine.close().unwrap();
    let data = dir.path().join(open::DATA);
    let (store, opened) = store::Store::open(data.join(open::STORE), options().store).unwrap();
    drop(store);
    let mut told = Vec::new();
    let mut visit = |_, _, bytes: &[u8]| {
        let entry = store::decode_entry(bytes).unwrap();
        let kind = match &entry.change {
            store::Change::None(key) => ("none", key.key().to_vec()),
            store::Change::Put(key, _) => ("put", key.key().to_vec()),
            other => panic!("{other:?}"),
        };
        told.push((kind, entry.decision.outcome, entry.decision.count));
        Ok(())
    };
    let disk = open::journal_disk(&data).unwrap();
    crate::journal::inspect::inspect(&*disk, &opened.store_id, None, &mut visit).unwrap();
    told.sort();
    assert_eq!(
        told,
        [
            (("none", b"a".to_vec()), "busy", 3),
            (("put", b"a".to_vec()), "acquired", 1),
            (("put", b"b".to_vec()), "acquired", 1),
        ]
    );
    let (engine, report) = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(report.redone, 0, "a clean end leaves nothing to redo");
    engine.close().unwrap();
}

#[tokio::test]
async fn what_was_read_before_a_checkpoint_decides_nothing_after_it() {
    let engine = Engine::volatile(Options::default());
    let held = one(&engine, command("a", claim())).await.record.unwrap();
    let key = RecordKey::new("default", b"b").unwrap();
    let decide = |overtaken: u64| {
        let mut core = engine.inner.core.lock();
        let found = Found {
            record: Some(held.record.clone()),
            bodies: Vec::new(),
        };
        let fetched = Fetched {
            checkpoints: core.checkpoints + overtaken,
            found: [(key.clone(), found)].into(),
        };
        let units = [command("b", claim())];
        let asked = Asked::new(&units, engine.inner.reader.hasher());
        let mut decided = core.decide(&asked, &fetched, true);
        decided.answers.remove(0).unwrap().verdict
    };
    assert_eq!(decide(0), Verdict::Busy, "it was read and holds");
    assert_eq!(decide(1), Verdict::Acquired(Reason::New), "it is void");
}

#[test]
fn writes_wait_the_longer_the_less_memory_is_left() {
    let limits = Limits::resolve(&Options::default()).unwrap();
    let quarter = limits.recent_bytes / 4;
    for (bytes, millis) in [
        (0, 0),
        (quarter * 3, 0),
        (quarter * 3 + quarter / 40, 1),
        (quarter * 3 + quarter / 2, 10),
        (quarter * 4, 20),
        (usize::MAX, 20),
    ] {
        let delay = limits.delay(bytes);
        assert_eq!(delay, Duration::from_millis(millis), "{bytes} bytes");
    }
}

#[tokio::test]
async fn ten_thousand_namespaces_come_into_being_and_no_more() {
    let engine = Engine::volatile(Options::default());
    let claim_in = |namespace: &str| {
        let key = RecordKey::new(namespace, b"k").unwrap();
        Unit::One(Command::new(key, claim()))
    };
    let names: Vec<String> = (0..MAX_NAMESPACES).map(|at| format!("n{at}")).collect();
    for some in names.chunks(1000) {
        let units = some.iter().map(|name| claim_in(name)).collect();
        assert!(engine.submit(units).await.iter().all(Result::is_ok));
    }
    let one_more = engine.submit(vec![claim_in("one-more")]).await.remove(0);
    assert_eq!(one_more.map(|_| ()), Err(Unavailable::Namespaces));
    let known = engine.submit(vec![claim_in("n0")]).await.remove(0);
    assert_eq!(known.map(|known| known.verdict), Ok(Verdict::Busy));
}

#[tokio::test]
async fn a_unit_is_stored_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(dir.path(), options()).unwrap();
    one(&engine, command("taken", claim())).await;
    let once = || {
        Verb::Claim(Box::new(Claim {
            mode: Mode::Once { result: None },
            ..Claim::default()
        }))
    };
    let all = |keys: &[&str]| {
        let one =
            |key: &&str| Command::new(RecordKey::new("default", key.as_bytes()).unwrap(), once());
        Unit::All(keys.iter().map(one).collect())
    };
    let got = engine.submit(vec![all(&["x", "taken", "y"])]).await;
    assert_eq!(got.len(), 3);
    for key in ["x", "y"] {
        assert_eq!(
            one(&engine, command(key, Verb::Get)).await.verdict,
            Verdict::NotFound
        );
    }
    let got = engine.submit(vec![all(&["x", "y"])]).await;
    assert!(
        got.iter()
            .all(|outcome| outcome.as_ref().is_ok_and(Outcome::holds))
    );
    engine.close().unwrap();
}

#[tokio::test]
async fn a_pipeline_that_is_decided_in_parts_is_answered_and_so_are_those_beside_it() {
    let mut options = options();
    options.recent_bytes = 8 << 20;
    options.body_limit = 64 << 10;
    let engine = Engine::volatile(options);
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for round in 0..5 {
                    let units = (0..3000).map(|at| command(&format!("{client}-{at}"), claim()));
                    let answers = engine.submit(units.collect()).await;
                    assert_eq!(answers.len(), 3000);
                    assert!(answers.iter().all(Result::is_ok), "round {round}");
                    one(&engine, command(&format!("beside-{client}"), claim())).await;
                }
            })
        })
        .collect();
    let all = async {
        for client in clients {
            client.await.unwrap();
        }
    };
    let all = tokio::time::timeout(Duration::from_secs(60), all).await;
    assert!(all.is_ok(), "somebody was never told");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_clients_claim_one_key_and_one_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(dir.path(), options()).unwrap();
    for round in 0..50 {
        let key = format!("k{round}");
        let clients: Vec<_> = (0..64)
            .map(|_| {
                let (engine, unit) = (engine.clone(), command(&key, claim()));
                tokio::spawn(async move { one(&engine, unit).await.verdict })
            })
            .collect();
        let mut acquired = 0;
        for client in clients {
            acquired += usize::from(matches!(client.await.unwrap(), Verdict::Acquired(_)));
        }
        assert_eq!(acquired, 1);
    }
    engine.close().unwrap();
}

#[tokio::test]
async fn a_unit_that_is_too_large_is_refused_alone() {
    // A frame of its journal holds 4 MiB, and a part of a pipeline could be 8 MiB.
    let engine = Engine::volatile(Options {
        recent_bytes: 64 << 20,
        ..Options::default()
    });
    let keep = |key: &str, bytes: usize| {
        let payload = Payload::new(vec![9; bytes].into(), "a/b".into());
        let claim = Claim {
            payload: Some(payload),
            store: true,
            ..Claim::default()
        };
        let key = RecordKey::new("default", key.as_bytes()).unwrap();
        Command::new(key, Verb::Claim(Box::new(claim)))
    };
    let large = ["a", "b", "c", "d", "e"].map(|key| keep(key, 1 << 20));
    let units = vec![
        Unit::One(keep("before", 10)),
        Unit::All(large.into()),
        Unit::One(keep("after", 10)),
    ];
    let answers = engine.submit(units).await;
    let (whole, refused) = (|at: usize| answers[at].is_ok(), &answers[1..6]);
    assert!(whole(0) && whole(6), "{answers:?}");
    let too_large = |answer: &Result<_, _>| matches!(answer, Err(Unavailable::TooLarge));
    assert!(answers.len() == 7 && refused.iter().all(too_large));
    engine.close().unwrap();
}
