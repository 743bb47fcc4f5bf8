//! T6 and T7: bytes of the Redis protocol and of HTTP, the right ones and the wrong ones.

use super::{Case, claim, ok, token};
use crate::support::redis::{Reply, encode};
use crate::support::{Random, Server};

fn raw(server: &Server, pieces: &[&[u8]], replies: &[u8]) {
    let mut redis = server.redis();
    for piece in pieces {
        redis.send(piece);
    }
    redis.half_close();
    let rest = redis.rest_bytes();
    assert!(
        rest == replies,
        "{} instead of {}",
        rest[..rest.len().min(300)].escape_ascii(),
        replies[..replies.len().min(300)].escape_ascii()
    );
}

/// Values that look like protocol are values: as keys too, whole, in pieces, cut anywhere.
#[test]
fn fo_15_values_that_look_like_protocol_are_values() {
    let case = Case::start();
    let mut random = Random::from_env();
    let large: Vec<u8> = (0..1 << 20).map(|_| random.next() as u8).collect();
    let values: [&[u8]; 11] = [
        b"*a*",
        b"*3",
        b"$5",
        b"+OK",
        b"-ERR x",
        b":1",
        b"",
        b"\0",
        b"\r\n",
        b"a\r\n*1\r\n$4\r\nPING\r\n",
        &large,
    ];
    for value in values {
        let key: &[u8] = if value.is_empty() || value.len() > 1024 {
            b"k"
        } else {
            value
        };
        let commands = [
            encode(&[b"SET", key, value, b"NX", b"PX", b"60000"]),
            encode(&[b"GET", key]),
            encode(&[b"DEL", key]),
        ];
        let bulk = [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
        let replies = [&b"+OK\r\n"[..], &bulk, b":1\r\n"].concat();
        let whole = commands.concat();
        let one_by_one: Vec<&[u8]> = commands.iter().map(Vec::as_slice).collect();
        raw(case.server(), &one_by_one, &replies);
        raw(case.server(), &[&whole], &replies);
        let piece = if whole.len() > 10_000 { 4093 } else { 1 };
        let pieces: Vec<&[u8]> = whole.chunks(piece).collect();
        raw(case.server(), &pieces, &replies);
        if whole.len() < 1000 {
            let two = commands[..2].concat();
            for cut in 1..two.len() {
                let (left, right) = two.split_at(cut);
                let pieces = [left, right, &commands[2]];
                raw(case.server(), &pieces, &replies);
            }
        }
    }
}

/// A lost race is a null string, in both versions of the protocol; a mistake is an error, and the line stays.
#[test]
fn fo_16_a_lost_race_is_a_null_string() {
    let case = Case::start();
    let table = [
        ("SET K a NX PX 60000", "+OK"),
        ("SET K a NX PX 60000", "NULL"),
        ("set K a px 60000 nx", "NULL"),
        ("GET none", "NULL"),
        ("SET none v XX PX 1000", "NULL"),
        ("DEL none", ":0"),
        ("EXPIRE none 5", ":0"),
        ("TTL none", ":-2"),
        ("SET K", "-ERR wrong number of arguments for 'set' command"),
        ("SET K v NX XX", "-ERR syntax error"),
        (
            "SET K v PX abc",
            "-ERR value is not an integer or out of range",
        ),
        ("TTL K", ":60"),
        ("PING", "+PONG"),
    ];
    for (version, null) in [("2", "$-1"), ("3", "_")] {
        let mut redis = case.server().redis();
        let mut bytes = encode(&[b"HELLO", version.as_bytes()]);
        let mut expected = Vec::new();
        for (line, reply) in table {
            let line = line.replace('K', &format!("k{version}"));
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            bytes.extend(encode(&words));
            expected.extend(format!("{}\r\n", reply.replace("NULL", null)).into_bytes());
        }
        redis.send(&bytes);
        redis.half_close();
        let rest = redis.rest_bytes();
        assert!(
            rest.ends_with(&expected),
            "{} does not end with {}",
            rest.escape_ascii(),
            expected.escape_ascii()
        );
    }
}

/// Each command of a handshake has one reply, known or not, and another database is another key space.
#[test]
fn fo_17_a_handshake_gets_one_reply_for_each_command() {
    let case = Case::start();
    let mut redis = case.server().redis();
    let long = "x".repeat(30 << 10);
    let lines = [
        "HELLO 2",
        "CLIENT SETINFO LIB-NAME t",
        "CLIENT SETINFO LIB-VER 1",
        "CLIENT SETNAME t",
        "SELECT 0",
        "SELECT 5",
        "INFO",
        "COMMAND",
        "CONFIG GET *",
        &long,
        "PING",
        "SET h v NX PX 9000",
    ];
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        bytes.extend(encode(&words));
    }
    redis.send(&bytes);
    let replies: Vec<Reply> = lines.iter().map(|_| redis.reply()).collect();
    for at in [1, 2, 3, 4, 5, 11] {
        assert_eq!(replies[at], ok(), "{}", lines[at]);
    }
    match &replies[9] {
        Reply::Error(text) => assert!(text.len() < 400, "the echo is long: {}", text.len()),
        other => panic!("{other:?}"),
    }
    assert_eq!(replies[10], Reply::Status("PONG".into()));
    // Nothing more came, the line stands, and `h` is in database 5 alone.
    assert_eq!(redis.command("GET h"), Reply::Bytes(b"v".into()));
    assert_eq!(redis.command("SELECT 0"), ok());
    assert_eq!(redis.command("GET h"), Reply::Null);
    assert!(matches!(redis.command("SELECT 16"), Reply::Error(_)));
    assert_eq!(case.server().http().get("/v1/claims/db5/h").status, 200);
}

/// A web page that points its own name at this machine reaches nothing.
#[test]
fn fo_18_a_foreign_host_reaches_nothing() {
    let case = Case::start();
    let held = token(&claim(&mut case.server().http(), "kept", "lease=1h"));
    let port = case.server().http_address().port();
    let ask = |line: &str, headers: &str| {
        let mut http = case.server().http();
        http.send(format!("{line}\r\n{headers}content-length: 0\r\n\r\n").as_bytes());
        http.answer().map(|answer| answer.status)
    };
    let lines = [
        "POST /v1/claims/default/new",
        "GET /v1/claims/default/kept",
        "GET /v1/claims/default?state=dead",
        "POST /v1/claims/default/kept/replay?generation=1&force=true",
        "DELETE /v1/claims/default/kept?force=true",
    ];
    let foreign = [
        format!("Host: evil.example:{port}\r\n"),
        "Host: 127.0.0.1.evil.example\r\n".to_owned(),
        "Host: localhost.evil.example\r\n".to_owned(),
        "Host:\r\n".to_owned(),
        "Host: localhost\r\nHost: evil.example\r\n".to_owned(),
        "Host: localhost\r\nHost: localhost\r\n".to_owned(),
        "Host: evil.example\r\nX-Forwarded-Host: localhost\r\n".to_owned(),
        "Host: localhost\r\nOrigin: http://evil.example\r\n".to_owned(),
    ];
    for line in lines {
        for headers in &foreign {
            let status = ask(&format!("{line} HTTP/1.1"), headers);
            assert!(
                matches!(status, Some(400 | 403 | 421)),
                "{line}, {headers:?}: {status:?}"
            );
        }
        let status = ask(&format!("{line} HTTP/1.0"), "");
        assert!(
            matches!(status, Some(400 | 421)),
            "{line}, no host: {status:?}"
        );
        let (method, path) = line.split_once(' ').unwrap();
        let absolute = format!("{method} http://evil.example{path} HTTP/1.1");
        let status = ask(&absolute, "Host: localhost\r\n");
        assert!(matches!(status, Some(400 | 421)), "{absolute}: {status:?}");
    }
    for host in [
        "localhost.".to_owned(),
        format!("LOCALHOST:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ] {
        let headers = format!("Host: {host}\r\nX-Forwarded-Host: evil.example\r\n");
        let status = ask("GET /v1/claims/default/kept HTTP/1.1", &headers);
        assert_eq!(status, Some(200), "{host}");
    }
    let mut http = case.server().http();
    assert_eq!(http.get("/v1/claims/default/new").status, 404);
    let kept = http.get("/v1/claims/default/kept").json();
    assert_eq!(
        (&kept["state"], &kept["token"]),
        (&"pending".into(), &held.into())
    );
}

/// HTTP on the Redis port, and the other way round: closed, nothing run, nothing leaked.
#[test]
fn fo_19_the_wrong_protocol_is_closed_and_runs_nothing() {
    let case = Case::start();
    let server = case.server();
    let mut redis = server.redis();
    assert_eq!(redis.command("SET lock mine EX 1000"), ok());
    let body = "SET pwn 1\r\nDEL lock\r\n";
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a client hello";
    let zeros = [0; 4096];
    let attacks: Vec<Vec<u8>> = [
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\n\r\n{body}"),
        format!("GET / HTTP/1.1\r\nHost: x\r\n\r\n{body}"),
        format!("post / HTTP/1.1\r\nhost: x\r\n\r\n{body}"),
        format!("PUT /x HTTP/1.1\r\nhost: x\r\n\r\n{body}"),
        format!("*1\r\n$4\r\nPING\r\nPOST / HTTP/1.1\r\nHost: x\r\n\r\n{body}"),
    ]
    .into_iter()
    .map(String::into_bytes)
    .collect();
    let sockets = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
        let target =
            |file: std::io::Result<std::fs::DirEntry>| std::fs::read_link(file.ok()?.path()).ok();
        let is_socket =
            |target: &std::path::PathBuf| target.to_string_lossy().starts_with("socket:");
        files.filter_map(target).filter(is_socket).count()
    };
    let before = sockets();
    for round in 0..100 {
        for attack in &attacks {
            let mut redis = server.redis();
            redis.try_send(attack);
            let rest = redis.rest();
            assert!(
                !rest.contains("+OK") && !rest.contains(":1"),
                "{round}: {rest:?}"
            );
        }
    }
    for bytes in [&hello[..], &zeros] {
        let mut redis = server.redis();
        redis.try_send(bytes);
        redis.half_close();
        let rest = redis.rest();
        assert!(rest.is_empty() || rest.starts_with("-ERR"), "{rest:?}");
        let mut http = server.http();
        http.send(bytes);
        http.send(b"\r\n\r\n");
        assert_eq!(http.answer().map(|answer| answer.status), Some(400));
        assert!(http.rest().is_empty(), "it closes");
    }
    let mut http = server.http();
    http.send(&encode(&[b"SET", b"pwn", b"1"]));
    assert_eq!(http.answer().map(|answer| answer.status), Some(400));
    drop(http);
    assert_eq!(redis.command("EXISTS pwn"), Reply::Integer(0));
    assert_eq!(redis.command("GET lock"), Reply::Bytes(b"mine".into()));
    let begun = std::time::Instant::now();
    while sockets() > before {
        assert!(
            begun.elapsed() < crate::support::PATIENCE,
            "sockets stay open"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut case = case;
    let log = case.server.take().unwrap().term().stderr;
    let told = log.matches("spoke HTTP on the Redis port").count();
    assert!((1..50).contains(&told), "{told} lines for 500 attacks");
    assert!(log.contains("127.0.0.1"), "the line names the peer: {log}");
}
