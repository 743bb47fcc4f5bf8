//! A client's line to the server: the same verbs over both faces, and an end that is told apart from an answer.

use std::net::SocketAddr;

use crate::support::redis::{Reply, encode};
use crate::support::{Http, Redis, Server};

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub http: SocketAddr,
    pub redis: SocketAddr,
}

impl Addresses {
    pub fn of(server: &Server) -> Addresses {
        Addresses {
            http: server.http_address(),
            redis: server.redis_address(),
        }
    }
}

/// A connection of each face.
pub struct Line {
    http: Http,
    redis: Redis,
}

/// What a verb was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub outcome: String,
    pub token: Option<u64>,
}

/// Why there is no answer to reckon with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The connection ended.
    Gone,
    /// The server says that it cannot do it now: the text.
    Refused(String),
}

impl Line {
    pub fn open(addresses: Addresses) -> Option<Line> {
        Some(Line {
            http: Http::try_connect(addresses.http)?,
            redis: Redis::try_connect(addresses.redis)?,
        })
    }

    /// One command of the Redis protocol.
    pub fn command(&mut self, words: &[&[u8]]) -> Result<Reply, Silence> {
        sound(self.redis.try_words(words))
    }

    /// Several, sent at once; stops at the first that is not answered.
    pub fn pipeline(&mut self, commands: &[Vec<&[u8]>]) -> Vec<Result<Reply, Silence>> {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
        // What was taken before the end may be answered.
        self.redis.try_send(&bytes);
        let mut replies = Vec::new();
        for _ in commands {
            let reply = sound(self.redis.reply());
            let ended = reply == Err(Silence::Gone);
            replies.push(reply);
            if ended {
                break;
            }
        }
        replies
    }

    /// A verb, with a body or without: `complete`, `7`, `result`. A claim has no token.
    pub fn verb(
        &mut self,
        by_http: bool,
        key: &str,
        verb: &str,
        token: Option<u64>,
        body: &[u8],
    ) -> Result<Told, Silence> {
        if by_http {
            let query = match (verb, token) {
                ("claim", _) => "?lease=2h&max_attempts=0".to_owned(),
                ("fail", Some(token)) => format!("/fail?retry_in=0&token={token}"),
                (_, Some(token)) => format!("/{verb}?token={token}"),
                (_, None) => String::new(),
            };
            let method = if verb == "forget" { "DELETE" } else { "POST" };
            let path = format!("/v1/claims/default/{key}{query}");
            let answer = self.http.try_request(method, &path, body);
            let answer = answer.ok_or(Silence::Gone)?;
            if answer.status >= 500 {
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                return Err(Silence::Refused(text));
            }
            return Ok(Told {
                outcome: answer.outcome().to_owned(),
                token: answer.json()["token"].as_u64(),
            });
        }
        let name = format!("ONCE.{}", verb.to_uppercase());
        let number = token.map(|token| token.to_string()).unwrap_or_default();
        let mut words: Vec<&[u8]> = vec![name.as_bytes(), key.as_bytes()];
        if token.is_some() {
            words.push(number.as_bytes());
        }
        match verb {
            "claim" => words.extend([&b"LEASE"[..], b"7200000", b"MAXATTEMPTS", b"0"]),
            "complete" => words.extend([&b"RESULT"[..], body]),
            "fail" => words.extend([&b"RETRY"[..], b"0"]),
            _ => {}
        }
        let reply = self.command(&words)?;
        Ok(Told {
            outcome: member(&reply, "outcome"),
            token: member(&reply, "token").parse().ok(),
        })
    }

    /// The record as JSON.
    pub fn record(&mut self, key: &str) -> Result<serde_json::Value, Silence> {
        let path = format!("/v1/claims/default/{key}");
        let answer = self.http.try_request("GET", &path, b"");
        let answer = answer.ok_or(Silence::Gone)?;
        Ok(answer.json())
    }

    /// The result's bytes.
    pub fn result(&mut self, key: &str) -> Vec<u8> {
        self.http
            .get(&format!("/v1/claims/default/{key}/result"))
            .body
    }
}

/// What the server says it cannot do now is no answer; a mistake of ours ends the test.
fn sound(reply: Reply) -> Result<Reply, Silence> {
    match reply {
        Reply::End => Err(Silence::Gone),
        Reply::Error(text) => {
            let word = text.split(' ').next().unwrap_or_default();
            let known = ["MISCONF", "LOADING", "TRYAGAIN"].contains(&word);
            assert!(known, "{text}");
            Err(Silence::Refused(text))
        }
        reply => Ok(reply),
    }
}

fn member(reply: &Reply, name: &str) -> String {
    let Reply::Array(members) = reply else {
        panic!("{reply:?}");
    };
    let text = |reply: &Reply| match reply {
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Status(text) => text.clone(),
        Reply::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let mut pairs = members.chunks_exact(2);
    let found = pairs.find(|pair| text(&pair[0]) == name);
    found.map(|pair| text(&pair[1])).unwrap_or_default()
}
