//! Claims that wait, under schedules of real threads: one key goes from hand to hand, and some of those who
//! wait go away at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onced::engine::Engine;
use onced::model::command::{Claim, Verb};
use onced::model::outcome::Verdict;
use onced::model::time::Span;

use super::rig::{ask, open};
use crate::support::{PATIENCE, Random};

const CLIENTS: u64 = 16;
const ROUNDS: u64 = 30;

fn waiting() -> Verb {
    Verb::Claim(Box::new(Claim {
        wait: Span::from_secs(60),
        lease: Some(Span::from_millis(400)),
        max_attempts: Some(0),
        ..Claim::default()
    }))
}

/// Takes the key so often, whatever it waits for it. Some do not wait to the end, and leave what they may have
/// got by then to the end of its lease.
async fn client(engine: Engine, mut random: Random, holders: Arc<AtomicU64>) {
    let mut had = 0;
    while had < ROUNDS {
        let asked = ask(&engine, "k", waiting());
        if random.below(30) == 0 {
            let _ = tokio::time::timeout(Duration::from_micros(random.below(3000)), asked).await;
            continue;
        }
        let got = tokio::time::timeout(PATIENCE, asked).await;
        let got = got.expect("nobody told it").unwrap();
        assert!(matches!(got.verdict, Verdict::Acquired(_)), "{got:?}");
        let token = got.record.unwrap().record.token;
        had += 1;
        holders.fetch_add(1, Ordering::Relaxed);
        let release = ask(&engine, "k", Verb::Release { token }).await.unwrap();
        // On a slow machine the lease may be over, and another one has the key.
        assert!(matches!(
            release.verdict,
            Verdict::Released | Verdict::Stale
        ));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_goes_from_hand_to_hand_comes_to_all_who_wait() {
    let random = Random::from_env();
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let holders = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(client(engine.clone(), random.fork(number), holders.clone())))
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(holders.load(Ordering::Relaxed), CLIENTS * ROUNDS);
    engine.close().unwrap();
}
