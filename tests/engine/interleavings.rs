//! The engine's lock, wait and wake logic under many schedules: real threads, clients that are dropped at any
//! point where they wait, others that rest on their entries, and an end in the middle.
//!
//! Models of it (loom, shuttle) would need every lock, condition variable and channel of the engine exchanged
//! for theirs, tokio's among them, and would then check that copy. Here the real code runs, with seeds for what
//! clients do; the simulation in the engine's own tests replays single schedules exactly, and has a build with
//! replies before the sync that must be caught.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use onced::engine::{Engine, Unavailable};
use onced::model::command::{Expiry, StringVerb, Verb};
use onced::model::outcome::Outcome;
use onced::model::time::Span;

use super::rig::{open, set, unit, value};
use crate::support::{PATIENCE, Random};

type Answers = Vec<Result<Outcome, Unavailable>>;

/// Polls so often, and drops it then; `None` where it was dropped.
async fn dropped_after(polls: u64, asked: impl Future<Output = Answers>) -> Option<Answers> {
    let mut asked = pin!(asked);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        asked.as_mut().poll(context).map(Some)
    })
    .await
}

/// What one client does; how many of its increments were answered, and how many may have counted.
async fn client(engine: Engine, number: u64, mut random: Random) -> (i64, i64) {
    let (mut answered, mut possible) = (0, 0);
    for round in 0..40 {
        let hour = Expiry::In(Span::from_secs(3600));
        let add = || Verb::String(StringVerb::Add(1));
        let mut batch = vec![unit(&format!("own-{number}"), add())];
        if random.below(3) == 0 {
            // Rests on what another client wrote, perhaps a moment ago.
            batch.push(unit(&format!("shared-{}", random.below(4)), Verb::Get));
            let value = vec![b'v'; random.below(2000) as usize];
            batch.push(unit(
                &format!("shared-{}", random.below(4)),
                set(&value, hour),
            ));
        }
        possible += 1;
        let asked = engine.submit(batch);
        let got = if random.below(4) == 0 {
            dropped_after(random.below(4), asked).await
        } else {
            let got = tokio::time::timeout(PATIENCE, asked).await;
            let late = format!("client {number} was never woken in round {round}");
            Some(got.unwrap_or_else(|_| panic!("{late}")))
        };
        match got.as_ref().and_then(|answers| answers.first()) {
            Some(Ok(_)) => answered += 1,
            Some(Err(Unavailable::Stopping)) => return (answered, possible),
            Some(Err(other)) => panic!("{other:?}"),
            None => {}
        }
        match random.below(4) {
            0 => tokio::task::yield_now().await,
            1 => tokio::time::sleep(Duration::from_micros(random.below(400))).await,
            _ => {}
        }
    }
    (answered, possible)
}

#[test]
fn whoever_waits_is_woken_and_what_was_answered_is_there_whatever_the_schedule() {
    const CLIENTS: u64 = 24;
    let random = Random::from_env();
    let rounds = std::env::var("ROUNDS").ok();
    let rounds: u64 = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(40);
    for round in 0..rounds {
        let mut own = random.fork(round);
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1 + own.below(4) as usize)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let engine = open(dir.path());
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| tokio::spawn(client(engine.clone(), number, own.fork(number))))
                .collect();
            if own.below(2) == 0 {
                tokio::time::sleep(Duration::from_micros(own.below(20_000))).await;
                let closing = engine.clone();
                let closed = tokio::task::spawn_blocking(move || closing.close()).await;
                closed.unwrap().unwrap();
            }
            let mut told = Vec::new();
            for client in clients {
                told.push(client.await.unwrap());
            }
            engine.close().unwrap();
            drop(engine);
            let engine = open(dir.path());
            for (number, (answered, possible)) in told.into_iter().enumerate() {
                let found = value(&engine, &format!("own-{number}")).await;
                let found = found.map_or(0, |text| {
                    String::from_utf8(text).unwrap().parse::<i64>().unwrap()
                });
                assert!(
                    (answered..=possible).contains(&found),
                    "round {round}, client {number}: {found}, with {answered} answered of {possible}"
                );
            }
            engine.close().unwrap();
        });
    }
    println!("interleavings: {rounds} rounds of {CLIENTS} clients, nobody forgotten");
}
