//! Bytes on the wrong port, over real sockets: an answer that says so, nothing stored, nobody harmed.

use super::{data, folder};
use crate::support::Server;
use crate::support::redis::{Reply, encode};

#[test]
fn the_redis_protocol_on_the_http_port_gets_a_problem_document() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut unharmed = server.http();
    assert_eq!(unharmed.get("/healthz").status, 200);
    let table: [&[u8]; 3] = [
        &encode(&[b"SET", b"k", b"v", b"EX", b"100"]),
        b"PING\r\n",
        b"ONCE.CLAIM k\r\n",
    ];
    for bytes in table {
        let mut http = server.http();
        http.send(bytes);
        let answer = http
            .answer()
            .unwrap_or_else(|| panic!("{}", bytes.escape_ascii()));
        assert_eq!(
            (answer.status, answer.outcome()),
            (400, "bad_input"),
            "{answer:?}"
        );
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        assert!(http.rest().is_empty());
    }
    assert_eq!(unharmed.get("/v1/claims/default/k").status, 404);
}

#[test]
fn http_on_the_redis_port_runs_nothing() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut unharmed = server.redis();
    assert_eq!(unharmed.command("PING"), Reply::Status("PONG".into()));
    // What a web page could send: lines of the body would be commands.
    let posts = [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\nSET k v EX 100\r\nSET k v EX 100\r\n",
        "GET /SET HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v EX 100\r\n",
    ];
    for post in posts {
        let mut redis = server.redis();
        redis.send(post.as_bytes());
        let rest = redis.rest();
        assert!(!rest.contains("+OK"), "{rest:?}");
    }
    assert_eq!(unharmed.command("EXISTS k"), Reply::Integer(0));
    let stderr = server.term().stderr;
    assert!(stderr.contains("spoke HTTP on the Redis port"), "{stderr}");
}

#[test]
fn both_faces_have_one_key_space() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    assert_eq!(
        server.redis().command("SET k v NX EX 100"),
        Reply::Status("OK".into())
    );
    let again = server.http().post("/v1/claims/default/k", b"");
    assert_eq!((again.status, again.outcome()), (200, "done"));
    assert_eq!(again.json()["result"]["body"], "v");
    assert_eq!(server.http().post("/v1/claims/default/c", b"").status, 201);
    assert_eq!(server.redis().command("SET c v NX EX 100"), Reply::Null);
}
