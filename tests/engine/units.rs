//! Batches and units, with the records that they are about.

use std::time::Duration;

use onced::engine::clock::{ManualClock, Source};
use onced::engine::{Engine, Unavailable, Unit};
use onced::model::command::{Claim, Command, Expiry, Mode, Payload, Verb};
use onced::model::outcome::{Outcome, Verdict};
use onced::model::policy::Policy;
use onced::model::record::Window;
use onced::model::time::Span;

use super::rig::{claim, complete, expire, key, open, options, overfill, set, tell, unit, value};

/// How long this may take; it takes far longer where each part waits for memory to be empty.
const PATIENCE: Duration = Duration::from_secs(10);

/// Memory never is empty, so what does not fit beside others would never be decided.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_duplicates_whose_records_exceed_all_memory_is_answered_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let names: Vec<String> = (0..60).map(|number| format!("key-{number}")).collect();
    for name in &names {
        let payload = Payload::new(vec![b'p'; 4000].into(), "a/b".into());
        let keep = Claim {
            payload: Some(payload),
            store: true,
            ..Claim::default()
        };
        let got = tell(&engine, name, Verb::Claim(Box::new(keep))).await;
        let token = got.record.unwrap().record.token;
        tell(&engine, name, complete(token, vec![b'r'; 4000])).await;
    }
    let (stop, stopped) = tokio::sync::watch::channel(());
    let busy: Vec<_> = (0..6)
        .map(|_| {
            let (engine, stopped) = (engine.clone(), stopped.clone());
            tokio::spawn(async move {
                while !stopped.has_changed().unwrap() {
                    overfill(&engine).await;
                }
            })
        })
        .collect();
    let batch: Vec<Unit> = names.iter().map(|name| unit(name, claim())).collect();
    let answers = tokio::time::timeout(PATIENCE, engine.submit(batch)).await;
    for (name, got) in names
        .iter()
        .zip(answers.expect("room for it came only now and then"))
    {
        let got = got.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(got.verdict, Verdict::Done, "{name}");
        let content = got.string_value().unwrap().unwrap();
        assert_eq!(content.bytes().unwrap().len(), 4000);
    }
    stop.send(()).unwrap();
    for busy in busy {
        busy.await.unwrap();
    }
    engine.close().unwrap();
}

#[tokio::test]
async fn a_unit_that_with_its_records_exceeds_a_frame_is_refused_whole_and_the_engine_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.recent_bytes = 1 << 20;
    let engine = Engine::open(dir.path(), options).unwrap().0;
    let names: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    for name in &names {
        tell(
            &engine,
            name,
            set(&[b'v'; 4000], Expiry::In(Span::from_secs(60))),
        )
        .await;
    }
    let all = |count: usize| {
        let commands = names.iter().take(count);
        Unit::All(
            commands
                .map(|name| Command::new(key(name), expire(Span::from_secs(9000))))
                .collect(),
        )
    };
    for got in engine.submit(vec![all(40)]).await {
        assert!(matches!(got, Err(Unavailable::TooLarge)), "{got:?}");
    }
    let got = engine.submit(vec![all(20)]).await;
    assert!(got.iter().all(|got| got.as_ref().is_ok_and(Outcome::holds)));
    assert_eq!(value(&engine, "key-39").await.unwrap().len(), 4000);
    engine.close().unwrap();
}

/// A duplicate restarts a sliding window, but nothing of a refused unit is stored.
#[tokio::test]
async fn a_refused_unit_shows_no_window_that_it_did_not_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(1_800_000_000_000, 5_000_000);
    let mut options = options();
    options.clock = Source::Manual(clock.clone());
    let policy = Policy {
        window: Window::Sliding,
        ..Policy::default()
    };
    options.policies = [("default".to_string(), policy)].into();
    let engine = Engine::open(dir.path(), options).unwrap().0;
    let once = || {
        Verb::Claim(Box::new(Claim {
            mode: Mode::Once { result: None },
            ..Claim::default()
        }))
    };
    let end = |outcome: Outcome| outcome.record.unwrap().record.expires_at.unwrap();
    let first = end(tell(&engine, "done", once()).await);
    clock.advance(Span::from_secs(48 * 3600));
    let commands = ["new", "done"].map(|name| Command::new(key(name), once()));
    let mut answers = engine.submit(vec![Unit::All(commands.into())]).await;
    let refused = answers.remove(1).unwrap();
    assert_eq!(refused.verdict, Verdict::Done);
    assert_eq!(end(refused), first, "as it is stored");
    assert_eq!(end(tell(&engine, "done", Verb::Get).await), first);
    assert!(end(tell(&engine, "done", once()).await) > first, "alone");
    engine.close().unwrap();
}
