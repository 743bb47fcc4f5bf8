//! What all connections share: places, and bytes in flight.

use std::time::{Duration, Instant};

use super::{data, folder};
use crate::support::redis::{Reply, encode};
use crate::support::{Http, PATIENCE, Redis, Server};

/// Small, so that a few clients reach it.
const SMALL: [&str; 6] = [
    "--max-payload",
    "64KiB",
    "--max-result",
    "64KiB",
    "--max-in-flight",
    "512KiB",
];

fn ok() -> Reply {
    Reply::Status("OK".into())
}

#[test]
fn beyond_the_connection_limit_both_faces_refuse_in_their_own_words() {
    let folder = folder();
    let server = Server::with(&data(&folder), &["--max-connections", "2"]);
    let (mut first, mut second) = (server.redis(), server.redis());
    for redis in [&mut first, &mut second] {
        assert_eq!(redis.command("PING"), Reply::Status("PONG".into()));
    }
    let mut third = server.redis();
    assert_eq!(
        third.reply(),
        Reply::Error("ERR max number of clients reached".into())
    );
    assert_eq!(third.reply(), Reply::End);
    let refused = server.http().get("/healthz");
    assert_eq!((refused.status, refused.outcome()), (503, "unavailable"));
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert!(refused.header("retry-after").is_some());

    assert_eq!(first.command("QUIT"), ok());
    drop(first);
    let begun = Instant::now();
    while server.redis().command("PING") != Reply::Status("PONG".into()) {
        assert!(begun.elapsed() < PATIENCE, "the place is not free again");
    }
    assert_eq!(second.command("PING"), Reply::Status("PONG".into()));
}

/// The two halves of a `SET` of 60 KB.
fn halves(key: &str) -> (Vec<u8>, Vec<u8>) {
    let value = vec![b'x'; 60_000];
    let whole = encode(&[b"SET", key.as_bytes(), &value, b"EX", b"100"]);
    let (first, second) = whole.split_at(whole.len() - 10);
    (first.to_vec(), second.to_vec())
}

#[test]
fn clients_that_together_hold_more_than_the_limit_are_all_answered() {
    let folder = folder();
    let server = Server::with(&data(&folder), &SMALL);
    let mut clients: Vec<Redis> = (0..40).map(|_| server.redis()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&halves(&format!("k{number}")).0);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&halves(&format!("k{number}")).1);
    }
    for client in &mut clients {
        assert_eq!(client.reply(), ok());
    }
}

#[test]
fn a_client_that_wants_no_replies_gives_its_bytes_back_all_the_same() {
    let folder = folder();
    let server = Server::with(
        &data(&folder),
        &[&SMALL[..], &["--body-timeout", "100ms"]].concat(),
    );
    let mut quiet = server.redis();
    quiet.send(&encode(&[b"CLIENT", b"REPLY", b"OFF"]));
    for number in 0..40 {
        let (first, second) = halves(&format!("k{number}"));
        quiet.send(&first);
        quiet.send(&second);
    }
    let mut other = server.redis();
    let begun = Instant::now();
    while other.command("EXISTS k39") != Reply::Integer(1) {
        assert!(
            begun.elapsed() < PATIENCE,
            "the last command was not decided"
        );
    }
    // Had it kept what it sent, it would be in the way of others by now, and be closed for that.
    let mut third = server.redis();
    assert_eq!(third.command("PING"), Reply::Status("PONG".into()));
    quiet.send(&encode(&[b"CLIENT", b"REPLY", b"ON"]));
    assert_eq!(quiet.reply(), ok());
}

#[test]
fn a_client_that_stalls_with_the_memory_of_others_is_let_go() {
    let folder = folder();
    let arguments = [&SMALL[..], &["--body-timeout", "100ms"]].concat();
    let server = Server::with(&data(&folder), &arguments);
    let mut stalled = server.redis();
    stalled.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$700000\r\n");
    stalled.send(&vec![b'x'; 600_000]);
    assert_eq!(server.redis().command("PING"), Reply::Status("PONG".into()));
    let error = "ERR the command came too slowly while memory for requests is short";
    assert_eq!(stalled.reply(), Reply::Error(error.into()));
    assert_eq!(stalled.reply(), Reply::End);
    // All of it is free again: this body alone takes an eighth.
    let body = vec![b'x'; 64 << 10];
    let claim = server.http().post("/v1/claims/default/h", &body);
    assert_eq!((claim.status, claim.outcome()), (201, "acquired"));
}

/// A line of the process's status, in KiB.
fn status(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap()
        .trim();
    line.trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_stored_value_that_a_pipeline_asks_for_many_times_is_in_memory_once() {
    let folder = folder();
    let value = vec![b'x'; 1_000_000];
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    redis.send(&encode(&[b"SET", b"k", &value, b"EX", b"1000"]));
    assert_eq!(redis.reply(), ok());
    // The next process has it in its store, not in memory.
    assert_eq!(server.term().code(), 0);
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    let before = status(&server, "VmHWM:");
    redis.send(&encode(&[b"GET", b"k"]).repeat(300));
    for _ in 0..300 {
        assert_eq!(redis.reply(), Reply::Bytes(value.clone()));
    }
    let grown = status(&server, "VmHWM:") - before;
    assert!(grown < 60_000, "grown by {grown} kB");
}

#[test]
fn stored_values_that_a_pipeline_asks_for_are_in_memory_a_few_at_a_time() {
    let folder = folder();
    let value = vec![b'x'; 1_000_000];
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    for number in 0..100 {
        let key = format!("k{number}");
        redis.send(&encode(&[b"SET", key.as_bytes(), &value, b"EX", b"1000"]));
        assert_eq!(redis.reply(), ok());
    }
    assert_eq!(server.term().code(), 0);
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    let before = status(&server, "VmHWM:");
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    for key in &keys {
        redis.send(&encode(&[b"GET", key.as_bytes()]));
    }
    for _ in 0..100 {
        assert_eq!(redis.reply(), Reply::Bytes(value.clone()));
    }
    let grown = status(&server, "VmHWM:") - before;
    assert!(grown < 50_000, "grown by {grown} kB");
    // In one command they would all be in memory at once.
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(keys.iter().map(|key| key.as_bytes()));
    redis.send(&encode(&words));
    let Reply::Error(why) = redis.reply() else {
        panic!("100 MB in one reply");
    };
    assert!(
        why.starts_with("ERR these records have more payloads and results"),
        "{why}"
    );
    redis.send(&encode(words.get(..11).unwrap()));
    assert_eq!(redis.reply(), Reply::Array(vec![Reply::Bytes(value); 10]));
}

#[test]
fn clients_that_read_nothing_keep_memory_from_others_for_a_moment_only() {
    let folder = folder();
    let server = Server::with(&data(&folder), &SMALL);
    let value = "x".repeat(60_000);
    let mut healthy = server.redis();
    assert_eq!(healthy.command(&format!("SET k {value} EX 100")), ok());
    // Each asks for more than its socket takes, and for more than there may be in flight.
    let mut deaf: Vec<Redis> = (0..10).map(|_| server.redis()).collect();
    for client in &mut deaf {
        assert_eq!(client.command("PING"), Reply::Status("PONG".into()));
    }
    let files = || {
        std::fs::read_dir(format!("/proc/{}/fd", server.pid()))
            .unwrap()
            .count()
    };
    let before = files();
    for client in &mut deaf {
        client.try_send(&encode(&[b"GET", b"k"]).repeat(1500));
    }
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    // Those who take nothing are let go, and a client that goes on is never long without an answer.
    for number in 0.. {
        let sent = Instant::now();
        assert_eq!(healthy.command(&format!("SET h{number} v EX 100")), ok());
        slowest = slowest.max(sent.elapsed());
        if files() <= before - 4 {
            break;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "they keep what others need: {before} files, now {}",
            files()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(slowest < Duration::from_secs(10), "held up for {slowest:?}");
}

#[test]
fn a_client_that_does_not_read_holds_up_only_itself() {
    let folder = folder();
    let server = Server::with(&data(&folder), &SMALL);
    let value = "x".repeat(60_000);
    assert_eq!(
        server.redis().command(&format!("SET k {value} EX 100")),
        ok()
    );
    let memory = || status(&server, "VmRSS:");
    let before = memory();
    let mut greedy = server.redis();
    greedy.send(&encode(&[b"GET", b"k"]).repeat(2000));
    // Its replies are 120 MB; while they wait, others are served.
    let mut other = server.redis();
    for _ in 0..100 {
        assert_eq!(other.command("PING"), Reply::Status("PONG".into()));
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 40_000, "grown by {grown} kB");
    for _ in 0..2000 {
        assert_eq!(greedy.reply(), Reply::Bytes(value.clone().into_bytes()));
    }
}

#[test]
fn clients_that_stall_in_the_middle_of_large_commands_hold_nobody_else_up() {
    let folder = folder();
    let server = Server::with(&data(&folder), &SMALL);
    let mut stalled: Vec<Redis> = (0..20).map(|_| server.redis()).collect();
    for (number, client) in stalled.iter_mut().enumerate() {
        client.send(&halves(&format!("k{number}")).0);
    }
    let begun = Instant::now();
    let mut healthy = server.redis();
    for number in 0..200 {
        assert_eq!(healthy.command(&format!("SET s{number} v EX 9")), ok());
    }
    // Large ones have to wait until the stalled are let go: not for their body timeout of 30 s.
    let value = "x".repeat(60_000);
    assert_eq!(healthy.command(&format!("SET large {value} EX 9")), ok());
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(healthy.command("EXISTS k0 k1"), Reply::Integer(0));
}

#[test]
fn the_largest_bodies_are_kept_where_the_configuration_says_so() {
    let folder = folder();
    let large = [
        "--max-payload",
        "32MiB",
        "--max-result",
        "32MiB",
        "--recent-memory",
        "300MiB",
        "--max-in-flight",
        "300MiB",
    ];
    // The segments of before are of the usual size.
    let server = Server::start(&data(&folder));
    assert_eq!(server.redis().command("SET before v EX 1000"), ok());
    server.kill9();
    let server = Server::with(&data(&folder), &large);
    let body = |byte: u8| vec![byte; 32 << 20];
    let claim = server
        .http()
        .post("/v1/claims/default/k?store=true", &body(1));
    assert_eq!((claim.status, claim.outcome()), (201, "acquired"));
    let token = claim.json()["token"].to_string();
    let complete = format!("/v1/claims/default/k/complete?token={token}");
    let complete = server.http().post(&complete, &body(2));
    assert_eq!((complete.status, complete.outcome()), (200, "completed"));
    server.kill9();
    let server = Server::with(&data(&folder), &large);
    let read = |what: &str| server.http().get(&format!("/v1/claims/default/k/{what}"));
    assert!(read("payload").body == body(1));
    assert!(read("result").body == body(2));
    assert_eq!(server.redis().command("EXISTS before"), Reply::Integer(1));
    assert_eq!(server.term().code(), 0);
    // And back, with segments of the larger size to be read.
    let server = Server::start(&data(&folder));
    assert_eq!(server.redis().command("EXISTS before k"), Reply::Integer(2));
}

#[test]
fn http_bodies_that_stall_hold_nobody_else_up() {
    let folder = folder();
    let server = Server::with(&data(&folder), &SMALL);
    // Eight find room at a time; which ones, nobody knows. Each eight are let go after 3 s, for those who wait.
    let mut stalled: Vec<_> = (0..24).map(|_| server.http()).collect();
    for (number, client) in stalled.iter_mut().enumerate() {
        let head = format!(
            "POST /v1/claims/default/k{number} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n"
        );
        client.send(head.as_bytes());
        client.send(&[b'x'; 30_000]);
    }
    let mut healthy = server.http();
    let begun = Instant::now();
    for number in 0..20 {
        let claim = healthy.post(&format!("/v1/claims/default/s{number}"), b"small");
        assert_eq!((claim.status, claim.outcome()), (201, "acquired"));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "small ones took {took:?}");
    // It waits behind all of them, and not for their body timeout of 30 s.
    let claim = healthy.post("/v1/claims/default/large", &[b'x'; 60_000]);
    assert_eq!((claim.status, claim.outcome()), (201, "acquired"));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(25), "a large one took {took:?}");
    // Nobody waits for the last few, so they have their time. The others were told.
    let told = |client: &mut Http| {
        let refused = client.soon()?;
        assert_eq!((refused.status, refused.outcome()), (408, "bad_input"));
        Some(())
    };
    let told = stalled.iter_mut().filter_map(told).count();
    assert!(told > 0, "nobody was told");
    drop(stalled);
    assert_eq!(healthy.get("/v1/claims/default/k0").status, 404);
}
