//! Claims that wait, through the real faces.

use std::time::{Duration, Instant};

use super::{data, folder};
use crate::support::redis::{Reply, encode};
use crate::support::{PATIENCE, Redis, Server};

fn pong() -> Reply {
    Reply::Status("PONG".into())
}

/// A member of an answer: names and values in turn.
fn member(reply: &Reply, name: &str) -> Option<Reply> {
    let Reply::Array(members) = reply else {
        panic!("{reply:?}");
    };
    let pair = members.chunks(2).find(|pair| match pair {
        [Reply::Bytes(known), _] => known == name.as_bytes(),
        [Reply::Status(known), _] => known == name,
        _ => false,
    });
    pair.and_then(|pair| pair.get(1)).cloned()
}

fn outcome(reply: &Reply) -> String {
    match member(reply, "outcome") {
        Some(Reply::Bytes(text)) => String::from_utf8(text).unwrap(),
        Some(Reply::Status(text)) => text,
        other => panic!("{other:?} in {reply:?}"),
    }
}

/// Claims the key; its token.
fn claimed(redis: &mut Redis, key: &str) -> i64 {
    let reply = redis.command(&format!("ONCE.CLAIM {key} LEASE 3600000"));
    match member(&reply, "token") {
        Some(Reply::Integer(token)) => token,
        other => panic!("{other:?} in {reply:?}"),
    }
}

/// A client whose claim waits: it has the reply before it, and nothing else stands between.
fn waiting(server: &Server, key: &str) -> Redis {
    let mut redis = server.redis();
    let claim = [b"ONCE.CLAIM", key.as_bytes(), b"WAIT", b"60000"];
    redis.send(&[encode(&[b"PING"]), encode(&claim)].concat());
    assert_eq!(redis.reply(), pong());
    redis
}

/// Everything that has come to the server by now was looked at.
fn settled(server: &Server) {
    for _ in 0..3 {
        assert_eq!(server.redis().command("PING"), pong());
    }
}

#[test]
fn whoever_waits_is_answered_when_the_key_is_done_on_every_face() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut holder = server.redis();
    let token = claimed(&mut holder, "k");
    let mut redis = waiting(&server, "k");
    // What is sent behind it waits with it; others do not.
    redis.send(&encode(&[b"PING"]));
    let mut http = server.http();
    http.send(b"POST /v1/claims/default/k?wait=60s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    settled(&server);
    holder.command(&format!("ONCE.COMPLETE k {token} RESULT r"));
    assert_eq!(outcome(&redis.reply()), "done");
    assert_eq!(redis.reply(), pong());
    let answer = http.answer().unwrap();
    assert_eq!((answer.status, answer.outcome()), (200, "done"));
    assert_eq!(answer.json()["result"]["body"], "r");
}

#[test]
fn the_end_of_a_lease_and_the_end_of_a_wait_come_in_time() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    redis.command("ONCE.CLAIM k LEASE 300");
    let begun = Instant::now();
    let got = redis.command("ONCE.CLAIM k LEASE 3600000 WAIT 60000");
    assert_eq!(outcome(&got), "acquired");
    assert!(begun.elapsed() < PATIENCE / 2);
    let begun = Instant::now();
    let busy = server.http().post("/v1/claims/default/k?wait=200ms", b"");
    assert_eq!((busy.status, busy.outcome()), (409, "busy"));
    assert!(busy.header("retry-after").is_some());
    assert!(begun.elapsed() >= Duration::from_millis(200));
    let refused = server.http().post("/v1/claims/default/k?wait=61s", b"");
    assert_eq!((refused.status, refused.outcome()), (400, "bad_input"));
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "wait is at most 1m");
}

#[test]
fn clients_that_are_gone_are_handed_nothing() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut holder = server.redis();
    let token = claimed(&mut holder, "k");
    // One that goes at once, one with more behind its claim, one that only closes its sending side.
    drop(waiting(&server, "k"));
    let mut more = waiting(&server, "k");
    more.send(&encode(&[b"PING"]).repeat(100));
    drop(more);
    let mut half = waiting(&server, "k");
    half.half_close();
    let mut http = server.http();
    http.send(b"POST /v1/claims/default/k?wait=60s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    settled(&server);
    drop(http);
    let mut last = waiting(&server, "k");
    settled(&server);
    holder.command(&format!("ONCE.RELEASE k {token}"));
    assert_eq!(outcome(&last.reply()), "acquired");
    assert_eq!(half.rest(), "");
}

#[test]
fn in_a_transaction_nobody_waits() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    claimed(&mut redis, "k");
    redis.command("MULTI");
    redis.command("ONCE.CLAIM k WAIT 60000");
    let begun = Instant::now();
    let Reply::Array(answers) = redis.command("EXEC") else {
        panic!("no answers");
    };
    assert_eq!(outcome(&answers[0]), "busy");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn a_server_that_stops_answers_busy_to_whoever_waits() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    claimed(&mut server.redis(), "k");
    let mut redis = waiting(&server, "k");
    let mut http = server.http();
    http.send(b"POST /v1/claims/default/k?wait=60s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    settled(&server);
    let begun = Instant::now();
    server.signal("TERM");
    assert_eq!(outcome(&redis.reply()), "busy");
    assert_eq!(http.answer().unwrap().outcome(), "busy");
    drop((redis, http));
    assert_eq!(server.wait().code(), 0);
    assert!(begun.elapsed() < PATIENCE / 2, "it waited for no one");
}
