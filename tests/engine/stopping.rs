//! The end of an engine while commands come in.

use onced::engine::Unavailable;
use onced::model::command::{Expiry, Verb};
use onced::model::time::Span;

use super::rig::{open, overfill, set, tell, unit};

/// A polite stop is none of the storage's failures, whatever is being read at that moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_that_the_end_overtakes_are_refused_and_the_end_is_a_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    for number in 0..200 {
        let hour = Expiry::In(Span::from_secs(3600));
        tell(&engine, &format!("key-{number}"), set(&[b'v'; 9000], hour)).await;
    }
    overfill(&engine).await;
    engine.close().unwrap();
    for round in 0..30 {
        let engine = open(dir.path());
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    for number in 0.. {
                        let at = |part| (client * 31 + number * 7 + part) % 200;
                        let batch =
                            (0..10).map(|part| unit(&format!("key-{}", at(part)), Verb::Get));
                        for answer in engine.submit(batch.collect()).await {
                            match answer {
                                Ok(_) => {}
                                Err(Unavailable::Stopping) => return number,
                                Err(other) => panic!("{other:?}"),
                            }
                        }
                    }
                    0
                })
            })
            .collect();
        tokio::time::sleep(std::time::Duration::from_millis(round % 7)).await;
        let closing = engine.clone();
        let closed = tokio::task::spawn_blocking(move || closing.close())
            .await
            .unwrap();
        for client in clients {
            client.await.unwrap();
        }
        // Also what a read reports after the end counts for nothing.
        assert!(
            closed.is_ok() && engine.close().is_ok(),
            "round {round}: {closed:?}"
        );
    }
}
