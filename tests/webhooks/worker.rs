//! A worker: takes deliveries as they come in, and lives with a server that dies.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use super::Delivery;
use super::ledger::Ledger;
use crate::support::redis::Reply;
use crate::support::{Http, Random, Redis, Server};

const LEASE: Duration = Duration::from_millis(400);
/// How long the work takes at most.
const WORK: u64 = 20;

/// Which face a worker speaks to.
#[derive(Clone, Copy, Debug)]
pub enum Face {
    Http,
    Redis,
}

/// Where the server is now.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    http: SocketAddr,
    redis: SocketAddr,
}

impl Addresses {
    pub fn of(server: &Server) -> Addresses {
        Addresses {
            http: server.http_address(),
            redis: server.redis_address(),
        }
    }
}

/// What the workers share.
pub struct Shared {
    pub addresses: RwLock<Addresses>,
    pub queue: Mutex<VecDeque<Arc<Delivery>>>,
    pub ledger: Mutex<Ledger>,
    pub distinct: usize,
}

impl Shared {
    /// Returns once so many deliveries are completed.
    pub fn until_completed(&self, count: usize) {
        while self.ledger.lock().unwrap().completed_count() < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn all_done(&self) -> bool {
        self.ledger.lock().unwrap().completed_count() == self.distinct
    }
}

/// What a claim was answered.
enum Claimed {
    Acquired(u64),
    Done,
    Later,
}

/// Works until every delivery is done and none waits.
pub fn run(shared: &Shared, face: Face, number: u64, mut random: Random) {
    let mut line = Line {
        shared,
        face,
        http: None,
        redis: None,
    };
    let mut claims = 0;
    loop {
        let next = shared.queue.lock().unwrap().pop_front();
        let Some(delivery) = next else {
            if shared.all_done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        claims += 1;
        let claim_id = format!("w{number}-{claims}");
        let sent = Instant::now();
        match line.claim(&delivery, &claim_id) {
            Claimed::Done => shared.ledger.lock().unwrap().duplicates += 1,
            Claimed::Later => {
                // Whoever has it may be dead: the provider sends again.
                shared.queue.lock().unwrap().push_back(delivery);
                std::thread::sleep(Duration::from_millis(2));
            }
            Claimed::Acquired(token) => {
                shared
                    .ledger
                    .lock()
                    .unwrap()
                    .granted(&delivery.id, token, &claim_id, sent, LEASE);
                if random.below(12) == 0 {
                    // Dies: the connection breaks, nothing is said, the delivery comes again.
                    (line.http, line.redis) = (None, None);
                    shared.ledger.lock().unwrap().deaths += 1;
                    shared.queue.lock().unwrap().push_back(delivery);
                    continue;
                }
                std::thread::sleep(Duration::from_millis(random.below(WORK)));
                shared.ledger.lock().unwrap().work(&delivery.id, token);
                shared
                    .ledger
                    .lock()
                    .unwrap()
                    .completing(&delivery.id, token);
                if line.complete(&delivery, token) {
                    shared.ledger.lock().unwrap().completed(&delivery.id);
                } else {
                    // Stale: somebody took over after the lease; the delivery is his now.
                    shared.queue.lock().unwrap().push_back(delivery);
                }
            }
        }
    }
}

/// A worker's line to the server, made anew whenever it breaks.
struct Line<'a> {
    shared: &'a Shared,
    face: Face,
    http: Option<Http>,
    redis: Option<Redis>,
}

impl Line<'_> {
    fn claim(&mut self, delivery: &Delivery, claim_id: &str) -> Claimed {
        let lease = LEASE.as_millis().to_string();
        match self.face {
            Face::Http => {
                let path = format!(
                    "/v1/claims/github/{}?claim_id={claim_id}&lease={lease}&max_attempts=0&store=true",
                    delivery.id
                );
                let answer = self.http(&path, &delivery.payload);
                match answer.outcome() {
                    "acquired" => Claimed::Acquired(answer.json()["token"].as_u64().unwrap()),
                    "done" => Claimed::Done,
                    "busy" => Claimed::Later,
                    other => panic!("claim: {other}: {answer:?}"),
                }
            }
            Face::Redis => {
                let words: [&[u8]; 15] = [
                    b"ONCE.CLAIM",
                    delivery.id.as_bytes(),
                    b"NS",
                    b"github",
                    b"ID",
                    claim_id.as_bytes(),
                    b"LEASE",
                    lease.as_bytes(),
                    b"MAXATTEMPTS",
                    b"0",
                    b"PAYLOAD",
                    &delivery.payload,
                    b"TYPE",
                    b"application/json",
                    b"STORE",
                ];
                let reply = self.redis(&words);
                match member(&reply, "outcome") {
                    Some(Reply::Bytes(outcome)) if outcome == b"acquired" => {
                        match member(&reply, "token") {
                            Some(Reply::Integer(token)) => Claimed::Acquired(*token as u64),
                            other => panic!("no token: {other:?}"),
                        }
                    }
                    Some(Reply::Bytes(outcome)) if outcome == b"done" => Claimed::Done,
                    Some(Reply::Bytes(outcome)) if outcome == b"busy" => Claimed::Later,
                    other => panic!("claim: {other:?}: {reply:?}"),
                }
            }
        }
    }

    /// Whether it was this token's to complete.
    fn complete(&mut self, delivery: &Delivery, token: u64) -> bool {
        let result = format!("done under token {token}");
        match self.face {
            Face::Http => {
                let path = format!("/v1/claims/github/{}/complete?token={token}", delivery.id);
                let answer = self.http(&path, result.as_bytes());
                match answer.outcome() {
                    "completed" => true,
                    "stale" => false,
                    other => panic!("complete: {other}: {answer:?}"),
                }
            }
            Face::Redis => {
                let token = token.to_string();
                let words: [&[u8]; 7] = [
                    b"ONCE.COMPLETE",
                    delivery.id.as_bytes(),
                    token.as_bytes(),
                    b"RESULT",
                    result.as_bytes(),
                    b"NS",
                    b"github",
                ];
                let reply = self.redis(&words);
                match member(&reply, "outcome") {
                    Some(Reply::Bytes(outcome)) if outcome == b"completed" => true,
                    Some(Reply::Bytes(outcome)) if outcome == b"stale" => false,
                    other => panic!("complete: {other:?}: {reply:?}"),
                }
            }
        }
    }

    /// Sends a request until it is answered: a repeated claim has the same id, a repeated complete the same
    /// result, so whichever was applied is applied once.
    fn http(&mut self, path: &str, body: &[u8]) -> crate::support::http::Answer {
        loop {
            if self.http.is_none() {
                self.http = Http::try_connect(self.shared.addresses.read().unwrap().http);
            }
            let answer = self
                .http
                .as_mut()
                .and_then(|http| http.try_request("POST", path, body));
            match answer {
                Some(answer) if answer.status != 503 => return answer,
                _ => self.http = None,
            }
            self.repeat();
        }
    }

    fn redis(&mut self, words: &[&[u8]]) -> Reply {
        loop {
            if self.redis.is_none() {
                self.redis = Redis::try_connect(self.shared.addresses.read().unwrap().redis);
            }
            let reply = self.redis.as_mut().map(|redis| redis.try_words(words));
            match reply {
                Some(Reply::End) | None => self.redis = None,
                Some(Reply::Error(text)) if text.starts_with("LOADING") => self.redis = None,
                Some(reply) => return reply,
            }
            self.repeat();
        }
    }

    fn repeat(&self) {
        self.shared.ledger.lock().unwrap().repeats += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A member of a flat map.
fn member<'a>(reply: &'a Reply, name: &str) -> Option<&'a Reply> {
    let Reply::Array(members) = reply else {
        return None;
    };
    let mut pairs = members.chunks_exact(2);
    pairs
        .find(|pair| pair[0] == Reply::Bytes(name.as_bytes().to_vec()))
        .map(|pair| &pair[1])
}
