//! The load as a whole, and what its clients share: tokens, and keys that all of them want.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::client::Client;
use super::line::{Addresses, Line, Silence};
use crate::support::redis::Reply;
use crate::support::{PATIENCE, Random, Server};

const CLIENTS: u64 = 8;

/// What is known of all grants, and of the keys that are raced for.
#[derive(Debug, Default)]
pub struct Tokens {
    highest: AtomicU64,
    grants: Mutex<HashMap<u64, String>>,
    races: Mutex<BTreeMap<String, Race>>,
    next_race: AtomicU64,
    answers: AtomicU64,
}

/// A key that several clients set if it is absent, each to its own value.
#[derive(Debug, Default)]
struct Race {
    /// Who tried, answered or not.
    tried: Vec<Vec<u8>>,
    /// The value that an answer named as the winner's.
    winner: Option<Vec<u8>>,
}

impl Tokens {
    /// The highest token that anybody was told of.
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::SeqCst)
    }

    /// A grant was answered; `before` was the highest known when it was asked for.
    pub fn granted(&self, key: &str, token: u64, before: u64) {
        assert!(token > before, "{key}: token {token} after {before}");
        self.highest.fetch_max(token, Ordering::SeqCst);
        let first = self.grants.lock().unwrap().insert(token, key.to_owned());
        assert_eq!(first, None, "{key}: token {token} was granted before");
    }

    /// Tries to be the first on a key that others want too.
    pub fn race(&self, line: &mut Line, client: u64, random: &mut Random) -> Result<(), Silence> {
        let newest = self
            .next_race
            .fetch_add(u64::from(random.below(3) == 0), Ordering::SeqCst);
        let key = format!("race-{}", newest.saturating_sub(random.below(3)));
        let mine = format!("{client}-{}", random.next()).into_bytes();
        self.with(&key, |race| race.tried.push(mine.clone()));
        let words: [&[u8]; 7] = [b"SET", key.as_bytes(), &mine, b"NX", b"GET", b"EX", b"7200"];
        let winner = match line.command(&words)? {
            Reply::Null => mine,
            Reply::Bytes(winner) => winner,
            other => panic!("{key}: {other:?}"),
        };
        self.with(&key, |race| {
            assert!(
                race.tried.contains(&winner),
                "{key}: nobody sent what it holds"
            );
            let first = race.winner.get_or_insert_with(|| winner.clone());
            assert_eq!(*first, winner, "{key}: two winners");
        });
        Ok(())
    }

    fn with(&self, key: &str, look: impl FnOnce(&mut Race)) {
        look(
            self.races
                .lock()
                .unwrap()
                .entry(key.to_owned())
                .or_default(),
        );
    }

    /// Whoever won has won for good.
    fn settle(&self, line: &mut Line) {
        for (key, race) in self.races.lock().unwrap().iter_mut() {
            let found = match line.command(&[b"GET", key.as_bytes()]).unwrap() {
                Reply::Null => None,
                Reply::Bytes(bytes) => Some(bytes),
                other => panic!("{key}: {other:?}"),
            };
            if race.winner.is_some() {
                assert_eq!(found, race.winner, "{key}: the winner was answered");
            }
            let tried = found
                .as_ref()
                .is_none_or(|found| race.tried.contains(found));
            assert!(tried, "{key}: nobody sent {found:?}");
            race.winner = found;
        }
    }
}

/// Clients that go on from server to server; each knows what it was told.
pub struct Load {
    clients: Vec<Client>,
    shared: Arc<Tokens>,
}

/// A load that runs.
pub struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Client, Option<Silence>)>>,
    shared: Arc<Tokens>,
    before: u64,
}

impl Load {
    pub fn new(random: &Random) -> Load {
        let client = |number| Client::new(number, random.fork(number));
        Load {
            clients: (0..CLIENTS).map(client).collect(),
            shared: Arc::default(),
        }
    }

    /// Answers that all clients had so far.
    pub fn answers(&self) -> u64 {
        self.clients.iter().map(|client| client.answers).sum()
    }

    /// Every client sends one request after the other, until it is told to stop or is not answered.
    pub fn run(self, server: &Server) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let addresses = Addresses::of(server);
        let before = self.shared.answers.load(Ordering::SeqCst);
        let threads = self
            .clients
            .into_iter()
            .map(|mut client| {
                let (stop, shared) = (stop.clone(), self.shared.clone());
                std::thread::spawn(move || {
                    let Some(mut line) = Line::open(addresses) else {
                        return (client, Some(Silence::Gone));
                    };
                    while !stop.load(Ordering::Relaxed) {
                        if let Err(silence) = client.step(&mut line, &shared) {
                            return (client, Some(silence));
                        }
                        shared.answers.fetch_add(1, Ordering::SeqCst);
                    }
                    (client, None)
                })
            })
            .collect();
        Running {
            stop,
            threads,
            shared: self.shared,
            before,
        }
    }

    /// Compares everything with what was answered; says `what` happened before, where it differs.
    pub fn settle_as(&mut self, server: &Server, what: &str) {
        let looked = std::panic::AssertUnwindSafe(|| self.settle(server));
        if let Err(panic) = std::panic::catch_unwind(looked) {
            println!("after {what}:");
            std::panic::resume_unwind(panic);
        }
    }

    /// Compares everything with what was answered.
    pub fn settle(&mut self, server: &Server) {
        let mut line = Line::open(Addresses::of(server)).unwrap();
        for client in &mut self.clients {
            client.settle(&mut line);
        }
        self.shared.settle(&mut line);
    }
}

impl Running {
    /// Returns when so many requests were answered, or all clients have ended: how many.
    pub fn until(&self, answers: u64) -> u64 {
        let begun = Instant::now();
        loop {
            let now = self.shared.answers.load(Ordering::SeqCst) - self.before;
            if now >= answers || self.threads.iter().all(JoinHandle::is_finished) {
                return now;
            }
            assert!(
                begun.elapsed() < PATIENCE * 2,
                "the load stands still at {now}"
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits for the clients; each says why it was not answered.
    pub fn end(self) -> (Load, Vec<Silence>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut silences = Vec::new();
        let mut clients = Vec::new();
        for thread in self.threads {
            let (client, silence) = thread.join().unwrap();
            clients.push(client);
            silences.extend(silence);
        }
        let load = Load {
            clients,
            shared: self.shared,
        };
        (load, silences)
    }
}
