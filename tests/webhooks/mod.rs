//! The main job on real input: webhook deliveries, sent one to four times each, worked off by sixteen workers
//! over HTTP and the Redis protocol at once, some of which die holding claims, while the server is killed
//! twice. Each delivery's effect has to count once.

mod ledger;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use self::ledger::Ledger;
use self::worker::{Addresses, Face, Shared};
use crate::support::{Random, Server};

const WORKERS: u64 = 16;

/// One delivery of a provider.
#[derive(Debug)]
pub struct Delivery {
    /// The provider's id: the key.
    pub id: String,
    /// The request body.
    pub payload: Vec<u8>,
}

/// The deliveries, and where they came from: recorded ones where a folder with them stands beside the
/// project, else a small set of the project's own.
fn deliveries() -> (Vec<Delivery>, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recorded = root.join("../shared/data/github-webhooks.ndjson");
    let path = if recorded.exists() {
        recorded
    } else {
        root.join("tests/data/webhooks.ndjson")
    };
    let text = std::fs::read_to_string(&path).unwrap();
    let delivery = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        Delivery {
            id: line["delivery"].as_str().unwrap().to_owned(),
            payload: line["payload"].to_string().into_bytes(),
        }
    };
    (text.lines().map(delivery).collect(), path)
}

#[test]
fn every_delivery_counts_once() {
    let mut random = Random::from_env();
    let (deliveries, path) = deliveries();
    let given = deliveries.len();
    let distinct: BTreeMap<String, Arc<Delivery>> = deliveries
        .into_iter()
        .map(|delivery| (delivery.id.clone(), Arc::new(delivery)))
        .collect();
    let mut queue: Vec<Arc<Delivery>> = distinct
        .values()
        .flat_map(|delivery| vec![delivery.clone(); 1 + random.below(4) as usize])
        .collect();
    random.shuffle(&mut queue);
    let sent = queue.len();

    let dir = tempfile::tempdir().unwrap();
    let start = || Server::with(dir.path(), &["--config", "/dev/null"]);
    let mut server = start();
    let shared = Arc::new(Shared {
        addresses: RwLock::new(Addresses::of(&server)),
        queue: Mutex::new(VecDeque::from(queue)),
        ledger: Mutex::new(Ledger::default()),
        distinct: distinct.len(),
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (shared, random) = (shared.clone(), random.fork(number));
            let face = if number % 2 == 0 {
                Face::Http
            } else {
                Face::Redis
            };
            std::thread::spawn(move || worker::run(&shared, face, number, random))
        })
        .collect();
    for kill in 1..=2 {
        // The server dies when so much of the work is done.
        shared.until_completed(distinct.len() * kill / 3);
        server.kill9();
        std::thread::sleep(Duration::from_millis(random.below(50)));
        server = start();
        *shared.addresses.write().unwrap() = Addresses::of(&server);
    }
    for worker in workers {
        worker.join().unwrap();
    }

    let ledger = shared.ledger.lock().unwrap();
    let mut http = server.http();
    for id in distinct.keys() {
        let record = http.get(&format!("/v1/claims/github/{id}")).json();
        assert_eq!(record["state"], "done", "{id}: {record}");
        let token = record["token"].as_u64().unwrap();
        let result = record["result"]["body"].as_str().unwrap();
        assert_eq!(result, format!("done under token {token}"), "{id}");
        assert!(
            ledger.worked(id, token),
            "{id}: nobody did the work under token {token}"
        );
    }
    ledger.check_tokens();
    ledger.check_holders();
    drop(http);
    assert_eq!(server.term().code(), 0);
    println!(
        "webhooks: {} ({given} deliveries, {} distinct) sent {sent} times, {} acquired, {} duplicates, \
         {} workers died, {} answers lost and repeated, server killed twice: {} done, each once",
        path.file_name().unwrap().to_string_lossy(),
        distinct.len(),
        ledger.grants(),
        ledger.duplicates,
        ledger.deaths,
        ledger.repeats,
        distinct.len(),
    );
}
