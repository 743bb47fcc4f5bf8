//! Stopping: politely, at once, and from the client's side.

use super::{data, folder};
use crate::support::Server;
use crate::support::redis::{Reply, encode};

/// Begins a claim whose body is not sent yet; the server has its head when this returns.
fn half_a_request(server: &Server, key: &str) -> crate::support::Http {
    let mut http = server.http();
    let head = format!(
        "POST /v1/claims/default/{key} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\
         expect: 100-continue\r\n\r\n"
    );
    http.send(head.as_bytes());
    assert_eq!(http.answer().unwrap().status, 100);
    http
}

#[test]
fn sigterm_answers_what_is_in_hand_and_exits_0() {
    let folder = folder();
    let dir = data(&folder);
    let server = Server::start(&dir);
    let mut in_hand = half_a_request(&server, "held");
    let mut idle = server.redis();
    assert_eq!(idle.command("PING"), Reply::Status("PONG".into()));
    server.signal("TERM");
    // Idle connections end, which shows that the end has begun.
    assert_eq!(idle.reply(), Reply::End);
    in_hand.send(b"body");
    let answer = in_hand.answer().unwrap();
    assert_eq!((answer.status, answer.outcome()), (201, "acquired"));
    drop(in_hand);
    let output = server.wait();
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.stderr.contains("stopped"), "{output:?}");
    let again = Server::start(&dir)
        .http()
        .post("/v1/claims/default/held", b"body");
    assert_eq!(again.outcome(), "busy");
}

#[test]
fn sigterm_under_load_loses_no_acknowledged_answer() {
    let folder = folder();
    let dir = data(&folder);
    let server = Server::start(&dir);
    let (begun, running) = std::sync::mpsc::channel();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (mut redis, begun) = (server.redis(), begun.clone());
            std::thread::spawn(move || {
                let mut acknowledged = 0;
                loop {
                    let key = format!("c{client}-{acknowledged}");
                    if !redis.try_send(&encode(&[
                        b"SET",
                        key.as_bytes(),
                        b"v",
                        b"NX",
                        b"EX",
                        b"900",
                    ])) {
                        return acknowledged;
                    }
                    match redis.reply() {
                        Reply::Status(_) => acknowledged += 1,
                        Reply::End => return acknowledged,
                        other => panic!("{other:?}"),
                    }
                    if acknowledged == 20 {
                        begun.send(()).unwrap();
                    }
                }
            })
        })
        .collect();
    for _ in &clients {
        running.recv().unwrap();
    }
    let output = server.term();
    assert_eq!(output.code(), 0, "{output:?}");
    let server = Server::start(&dir);
    let mut redis = server.redis();
    for (client, acknowledged) in clients.into_iter().enumerate() {
        for number in 0..acknowledged.join().unwrap() {
            let key = format!("c{client}-{number}");
            assert_eq!(
                redis.command(&format!("GET {key}")),
                Reply::Bytes(b"v".into()),
                "{key}"
            );
        }
    }
}

#[test]
fn a_second_signal_stops_at_once() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let in_hand = half_a_request(&server, "held");
    let mut idle = server.redis();
    assert_eq!(idle.command("PING"), Reply::Status("PONG".into()));
    server.signal("TERM");
    assert_eq!(idle.reply(), Reply::End);
    server.signal("INT");
    assert_eq!(server.wait().code(), 130);
    drop(in_hand);
}

#[test]
fn a_client_that_closes_its_sending_side_is_still_answered() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    let mut bytes = Vec::new();
    for number in 0..100 {
        let key = format!("k{number}");
        bytes.extend(encode(&[b"SET", key.as_bytes(), b"v", b"EX", b"100"]));
    }
    // A part of a command is none.
    bytes.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$4\r\npart");
    redis.send(&bytes);
    redis.half_close();
    assert_eq!(redis.rest(), "+OK\r\n".repeat(100));
    assert_eq!(server.redis().command("EXISTS part"), Reply::Integer(0));
}
