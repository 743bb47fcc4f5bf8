//! Reads of the store that a checkpoint overtakes before they are decided upon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use onced::model::command::{Expiry, StringVerb, Verb};
use onced::model::outcome::Verdict;
use onced::model::time::Span;

use super::rig::{acquire, ask, claim, open, overfill, set, tell, unit, value};
use crate::support::Random;

/// An increment that was decided on what the store had before a checkpoint would be lost in the sum.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_that_a_checkpoint_overtook_is_done_again_so_no_increment_is_lost() {
    const KEYS: u64 = 40;
    const TASKS: u64 = 8;
    const ROUNDS: u64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let random = Random::from_env();
    let engine = open(dir.path());
    let sums: Arc<Mutex<BTreeMap<u64, i64>>> = Arc::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (engine, sums, mut random) = (engine.clone(), sums.clone(), random.fork(task));
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let number = random.below(KEYS);
                    let counter = format!("counter-{number}");
                    let increment = Verb::String(StringVerb::Add(1));
                    let mut batch = vec![unit(&counter, increment)];
                    // Half of them bring what fills memory along: they wait for room after they have read, while
                    // the others go on.
                    if task % 2 == 0 {
                        batch.extend((0..3).map(|part| {
                            let end = Expiry::In(Span::from_secs(60 + random.below(100_000)));
                            unit(&format!("{task}-{round}-{part}"), set(&[b'x'; 3900], end))
                        }));
                    }
                    for got in engine.submit(batch).await {
                        assert!(got.unwrap().holds());
                    }
                    *sums.lock().unwrap().entry(number).or_default() += 1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let sums = sums.lock().unwrap().clone();
    for (number, sum) in &sums {
        let found = value(&engine, &format!("counter-{number}")).await.unwrap();
        assert_eq!(found, sum.to_string().as_bytes(), "counter-{number}");
    }
    engine.close().unwrap();
    let engine = open(dir.path());
    for (number, sum) in &sums {
        let found = value(&engine, &format!("counter-{number}")).await.unwrap();
        assert_eq!(
            found,
            sum.to_string().as_bytes(),
            "counter-{number}, started again"
        );
    }
    engine.close().unwrap();
}

/// A filter that says "not there" while the record is on its way to the store would grant a key twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_filter_s_not_there_is_never_believed_over_a_checkpoint_so_a_key_is_granted_once() {
    const CLIENTS: usize = 8;
    const KEYS: usize = 1500;
    let dir = tempfile::tempdir().unwrap();
    let random = Random::from_env();
    let engine = open(dir.path());
    let granted: Arc<Mutex<BTreeMap<usize, u32>>> = Arc::default();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (engine, granted) = (engine.clone(), granted.clone());
            let mut random = random.fork(client as u64);
            tokio::spawn(async move {
                // All of them go over the keys in about the same order, some ahead and some a checkpoint late.
                let mut order: Vec<usize> = (0..KEYS).collect();
                for window in order.chunks_mut(50 + client * 20) {
                    random.shuffle(window);
                }
                for number in order {
                    let got = ask(&engine, &format!("key-{number}"), claim())
                        .await
                        .unwrap();
                    if matches!(got.verdict, Verdict::Acquired(_)) {
                        *granted.lock().unwrap().entry(number).or_default() += 1;
                    } else {
                        assert_eq!(got.verdict, Verdict::Busy);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let granted = granted.lock().unwrap().clone();
    assert_eq!(granted.len(), KEYS);
    for (number, grants) in granted {
        assert_eq!(grants, 1, "key-{number}");
    }
    engine.close().unwrap();
}

/// Removals hide the store's row only while they are in memory: then it has to be gone from the store.
#[tokio::test]
async fn a_removal_stays_one_after_its_checkpoint_and_a_new_start() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    for name in ["in-store", "in-memory"] {
        acquire(&engine, name).await;
        if name == "in-store" {
            overfill(&engine).await;
        }
        let forget = Verb::Forget { force: true };
        assert_eq!(
            tell(&engine, name, forget).await.verdict,
            Verdict::Forgotten
        );
        assert_eq!(
            tell(&engine, name, Verb::Get).await.verdict,
            Verdict::NotFound
        );
    }
    overfill(&engine).await;
    for name in ["in-store", "in-memory"] {
        assert_eq!(
            tell(&engine, name, Verb::Get).await.verdict,
            Verdict::NotFound
        );
    }
    engine.close().unwrap();
    let engine = open(dir.path());
    for name in ["in-store", "in-memory"] {
        assert_eq!(
            tell(&engine, name, Verb::Get).await.verdict,
            Verdict::NotFound
        );
    }
    engine.close().unwrap();
}
