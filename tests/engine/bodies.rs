//! Large bodies lie beside their records: they are there for as long as a record refers to them.

use onced::model::body::{Body, Content};
use onced::model::command::{Claim, Expiry, Mode, Payload, Verb};
use onced::model::outcome::Verdict;
use onced::model::record::KeptResult;
use onced::model::time::Span;

use super::rig::{complete, expire, open, overfill, set, tell, value};

/// Over the 4 KiB up to which a body lies in its record.
const LARGE: usize = 9000;

#[tokio::test]
async fn a_body_moves_with_its_record_through_checkpoints_and_starts() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path());
    let payload = Payload::new(vec![b'p'; LARGE].into(), "a/b".into());
    let keep = Claim {
        payload: Some(payload),
        store: true,
        ..Claim::default()
    };
    let got = tell(&engine, "a", Verb::Claim(Box::new(keep))).await;
    let token = got.record.unwrap().record.token;
    overfill(&engine).await;
    // Into memory and out again, without its payload's bytes; then done, in another table, with a result.
    let renew = Verb::Renew { token, lease: None };
    assert_eq!(tell(&engine, "a", renew).await.verdict, Verdict::Renewed);
    overfill(&engine).await;
    let done = complete(token, vec![b'r'; LARGE]);
    assert_eq!(tell(&engine, "a", done).await.verdict, Verdict::Completed);
    overfill(&engine).await;
    // Open again, in a third generation of tables, with the earlier result beside it.
    let replay = Verb::Replay {
        generation: Some(1),
        force: true,
    };
    assert_eq!(tell(&engine, "a", replay).await.verdict, Verdict::Replayed);
    for _ in 0..2 {
        overfill(&engine).await;
        engine.close().unwrap();
        engine = open(dir.path());
        let got = tell(&engine, "a", Verb::Get)
            .await
            .record
            .unwrap()
            .record
            .clone();
        let bytes = |content: &Content| content.bytes().unwrap().to_vec();
        assert_eq!(bytes(&got.payload.as_ref().unwrap().content), [b'p'; LARGE]);
        let earlier = &got.earlier_result.as_ref().unwrap().body.content;
        assert_eq!(bytes(earlier), [b'r'; LARGE]);
    }
    engine.close().unwrap();
}

#[tokio::test]
async fn a_value_whose_end_moves_again_and_again_keeps_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let large = vec![b'v'; LARGE];
    tell(&engine, "v", set(&large, Expiry::In(Span::from_secs(100)))).await;
    for round in 1..20_u64 {
        let end = Span::from_secs(100 * round * round);
        tell(&engine, "v", expire(end)).await;
        if round % 3 == 0 {
            overfill(&engine).await;
        }
        assert_eq!(value(&engine, "v").await.unwrap(), large, "round {round}");
    }
    engine.close().unwrap();
    let report = onced::store::check(
        dir.path().join("data/store.redb"),
        onced::store::Options::default(),
    )
    .unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let engine = open(dir.path());
    assert_eq!(value(&engine, "v").await.unwrap(), large);
    engine.close().unwrap();
}

/// Payload and result came with one entry, so their LSN is the same.
#[tokio::test]
async fn two_bodies_of_one_entry_are_not_taken_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path());
    let body = Body {
        content_type: "a/b".into(),
        content: Content::new(vec![b'r'; LARGE].into()),
    };
    let once = Claim {
        payload: Some(Payload::new(vec![b'p'; LARGE].into(), "a/b".into())),
        store: true,
        mode: Mode::Once {
            result: Some(KeptResult { body, status: None }),
        },
        ..Claim::default()
    };
    tell(&engine, "both", Verb::Claim(Box::new(once))).await;
    for _ in 0..3 {
        let got = tell(&engine, "both", Verb::Get).await.record.unwrap();
        let bytes = |body: &Body| body.content.bytes().unwrap().to_vec();
        let record = &got.record;
        assert_eq!(bytes(record.payload.as_ref().unwrap()), [b'p'; LARGE]);
        assert_eq!(bytes(&record.result.as_ref().unwrap().body), [b'r'; LARGE]);
        overfill(&engine).await;
        engine.close().unwrap();
        engine = open(dir.path());
    }
    engine.close().unwrap();
}
