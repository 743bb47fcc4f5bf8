//! Buckets that are over are dropped whole, and nothing with them that lives on.

use std::sync::Arc;
use std::time::Duration;

use onced::engine::Engine;
use onced::engine::clock::{ManualClock, Source};
use onced::model::command::{Claim, Expiry, Verb};
use onced::model::outcome::{Reason, Verdict};
use onced::model::record::Retention;
use onced::model::time::Span;
use onced::store;

use super::rig::{claim, complete, expire, options, overfill, set, tell, value};

/// A store on a clock moved by hand.
struct Rig {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            dir: tempfile::tempdir().unwrap(),
            clock: ManualClock::new(1_800_000_000_000, 5_000_000),
        }
    }

    fn start(&self) -> Engine {
        let mut options = options();
        options.clock = Source::Manual(self.clock.clone());
        Engine::open(self.dir.path(), options).unwrap().0
    }

    /// The records of the store, which has to be sound.
    fn records(&self) -> u64 {
        let path = self.dir.path().join("data/store.redb");
        let report = store::check(&path, store::Options::default()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        report.records
    }
}

const SHORT: Span = Span::from_secs(100);

/// The record was pending when the store got it first.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_checkpointed_as_pending_and_then_completed_goes_with_its_bucket() {
    let rig = Rig::new();
    let mut engine = rig.start();
    let brief = Claim {
        retention: Some(Retention::For(SHORT)),
        ..Claim::default()
    };
    let got = tell(&engine, "finished", Verb::Claim(Box::new(brief))).await;
    let token = got.record.unwrap().record.token;
    tell(&engine, "ended", set(b"x", Expiry::In(SHORT))).await;
    let mut fillers = overfill(&engine).await;
    let done = complete(token, b"ok".to_vec());
    let got = tell(&engine, "finished", done).await;
    assert_eq!(got.verdict, Verdict::Completed);
    fillers += overfill(&engine).await;
    rig.clock.advance(Span::from_secs(400));
    let mut swept = false;
    for _ in 0..200 {
        // Sweeps come by themselves; this waits for one.
        for _ in 0..20 {
            assert_eq!(value(&engine, "ended").await, None);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        engine.close().unwrap();
        let records = rig.records();
        engine = rig.start();
        if records == fillers {
            swept = true;
            break;
        }
        assert_eq!(records, fillers + 2, "all or nothing of the bucket");
    }
    assert!(swept, "the sweep never came");
    let again = tell(&engine, "finished", claim()).await;
    assert_eq!(again.verdict, Verdict::Acquired(Reason::New));
    engine.close().unwrap();
}

/// While its new end is in memory alone, the record's body lies in a bucket that is over by now.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_moved_on_in_memory_keeps_its_body_when_its_old_bucket_is_dropped() {
    let rig = Rig::new();
    let engine = rig.start();
    let large = vec![b'v'; 9000];
    let names: Vec<String> = (0..40).map(|round| format!("moved-{round}")).collect();
    for name in &names {
        tell(&engine, name, set(&large, Expiry::In(SHORT))).await;
        overfill(&engine).await;
        rig.clock.advance(Span::from_secs(99));
        tell(&engine, name, expire(Span::from_secs(900_000))).await;
        // The next checkpoint and the next sweep are milliseconds away, either may be first.
        rig.clock.advance(Span::from_secs(300));
        for _ in 0..10 {
            assert_eq!(value(&engine, name).await.as_ref(), Some(&large), "{name}");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
    engine.close().unwrap();
    rig.records();
    let engine = rig.start();
    for name in &names {
        assert_eq!(value(&engine, name).await.as_ref(), Some(&large), "{name}");
    }
    engine.close().unwrap();
}

/// The store leaves out what lies in a bucket that is over; a new record in its place has to be counted.
#[tokio::test]
async fn a_record_in_the_place_of_one_past_its_retention_is_counted() {
    let rig = Rig::new();
    let engine = rig.start();
    for name in ["a", "b", "c"] {
        tell(&engine, name, set(b"x", Expiry::In(SHORT))).await;
    }
    engine.close().unwrap();
    let engine = rig.start();
    assert_eq!(engine.count("default").await, Ok(3));
    tell(&engine, "b", set(b"y", Expiry::Never)).await;
    assert_eq!(engine.count("default").await, Ok(3), "in its place");
    // Buckets of that retention are over after a minute more at most.
    rig.clock.advance(Span::from_secs(300));
    assert_eq!(
        engine.count("default").await,
        Ok(1),
        "all but b have passed"
    );
    tell(&engine, "c", claim()).await;
    assert_eq!(engine.count("default").await, Ok(2));
    engine.close().unwrap();
    let engine = rig.start();
    assert_eq!(engine.count("default").await, Ok(2));
    engine.close().unwrap();
}
