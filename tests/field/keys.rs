//! T3 and keys on the way in (T7): what is the same request, and what is the same key.

use std::collections::BTreeSet;

use super::{Case, claim, escaped, ok, send};
use crate::support::redis::{Reply, encode};
use crate::support::{Http, Random, Redis};

/// Raw bytes count (the default); the same table before and after a restart.
#[test]
fn fo_06_a_payload_spelled_otherwise_is_a_mismatch_and_the_same_bytes_never_are() {
    const ORIGINAL: &str =
        r#"{"amount": 9007199254740993, "items": [1, 2], "to": {"a": 1, "name": "é"}}"#;
    let spelled = [
        ("the same bytes", ORIGINAL.to_owned(), "busy", "busy"),
        (
            "members in another order",
            r#"{"items": [1, 2], "amount": 9007199254740993, "to": {"a": 1, "name": "é"}}"#
                .to_owned(),
            "mismatch",
            "busy",
        ),
        (
            "nested members in another order",
            r#"{"amount": 9007199254740993, "items": [1, 2], "to": {"name": "é", "a": 1}}"#
                .to_owned(),
            "mismatch",
            "busy",
        ),
        (
            "whitespace",
            ORIGINAL.replace(": ", ":"),
            "mismatch",
            "busy",
        ),
        (
            "an array in another order",
            ORIGINAL.replace("1, 2", "2, 1"),
            "mismatch",
            "mismatch",
        ),
        (
            "1 as 1.0",
            ORIGINAL.replace("\"a\": 1", "\"a\": 1.0"),
            "mismatch",
            "busy",
        ),
        (
            "a letter escaped",
            ORIGINAL.replace('é', "\\u00e9"),
            "mismatch",
            "busy",
        ),
        (
            "the next large integer",
            ORIGINAL.replace("40993", "40992"),
            "mismatch",
            "mismatch",
        ),
        (
            "a member repeated",
            ORIGINAL.replace("\"a\": 1,", "\"a\": 2, \"a\": 1,"),
            "mismatch",
            "bad_input",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("onced.toml");
    std::fs::write(&config, "[namespace.json]\nfingerprint = \"json\"\n").unwrap();
    let dir = folder.path().join("data");
    let start = || crate::support::Server::with(&dir, &["--config", config.to_str().unwrap()]);
    let claim = |http: &mut Http, ns: &str, payload: &str| {
        let path = format!("/v1/claims/{ns}/k");
        let kind = "content-type: application/json\r\n";
        let answer = send(http, "POST", &path, kind, payload.as_bytes());
        answer.outcome().to_owned()
    };
    let mut server = start();
    for ns in ["default", "json"] {
        assert_eq!(claim(&mut server.http(), ns, ORIGINAL), "acquired");
    }
    for round in ["before", "after"] {
        let mut http = server.http();
        for (what, payload, raw, json) in &spelled {
            for (ns, expected) in [("default", raw), ("json", json)] {
                let got = claim(&mut http, ns, payload);
                assert_eq!(got, *expected, "{what} in {ns}, {round} the restart");
            }
        }
        if round == "before" {
            server.kill9();
            server = start();
        }
    }
}

/// Asks for a key over every entrance that takes one, and gives each answer.
fn everywhere(http: &mut Http, redis: &mut Redis, key: &[u8]) -> [String; 4] {
    let key_in_path = escaped(key);
    let by_path = http.get(&format!("/v1/claims/default/{key_in_path}"));
    let by_query = http.get(&format!("/v1/claims/default/-?key={key_in_path}"));
    redis.send(&encode(&[b"ONCE.GET", key]));
    let by_word = told(&redis.reply());
    redis.send(&encode(&[b"EXISTS", key]));
    let by_string = told(&redis.reply());
    [
        by_path.outcome().to_owned(),
        by_query.outcome().to_owned(),
        by_word,
        by_string,
    ]
}

fn told(reply: &Reply) -> String {
    match reply {
        Reply::Array(members) if members.contains(&Reply::Bytes(b"not_found".into())) => {
            "not_found".to_owned()
        }
        Reply::Array(_) => "ok".to_owned(),
        Reply::Integer(number) => number.to_string(),
        Reply::Error(text) => text.clone(),
        other => panic!("{other:?}"),
    }
}

/// Up to the limit a key works everywhere and is never cut; above it every entrance says which limit.
#[test]
fn fo_07_a_key_is_taken_whole_or_refused_with_the_limit() {
    let case = Case::start();
    let mut random = Random::from_env();
    let (mut http, mut redis) = (case.server().http(), case.server().redis());
    for length in [1, 40, 255, 256, 511, 512, 1024] {
        let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        for key in [vec![b'k'; length], noise] {
            let words: [&[u8]; 6] = [b"SET", &key, b"v", b"NX", b"PX", b"60000"];
            redis.send(&encode(&words));
            assert_eq!(redis.reply(), ok(), "{length}: {}", key.escape_ascii());
            let there = ["ok", "ok", "ok", "1"];
            assert_eq!(everywhere(&mut http, &mut redis, &key), there, "{length}");
        }
    }
    for length in [1025, 4000] {
        let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        for key in [vec![b'k'; length], noise] {
            for path in ["/v1/claims/default/", "/v1/claims/default/-?key="] {
                let answer = http.post(&format!("{path}{}", escaped(&key)), b"");
                assert_eq!((answer.status, answer.outcome()), (400, "bad_input"));
                let text = answer.json()["detail"].to_string();
                assert!(text.contains("1024"), "{text}");
            }
        }
    }
    // Longer than a head may be: still no 5xx.
    let answer = case.server().http().try_request(
        "POST",
        &format!("/v1/claims/default/{}", "k".repeat(64 << 10)),
        b"",
    );
    assert_eq!(answer.map(|answer| answer.status), Some(414));
    for length in [1025, 64 << 10, 1 << 20] {
        redis.send(&encode(&[
            b"SET",
            &vec![b'k'; length],
            b"v",
            b"NX",
            b"PX",
            b"60000",
        ]));
        match redis.reply() {
            Reply::Error(text) => assert!(text.contains("at most 1024 bytes"), "{text}"),
            other => panic!("{length}: {other:?}"),
        }
    }
    // Keys that share all but their end are two.
    for shared in [40, 255, 512, 1023] {
        for end in ["1", "2"] {
            let key = format!("{}{end}", "p".repeat(shared));
            let claimed = claim(&mut http, &key, "");
            assert_eq!(claimed.outcome(), "acquired", "{shared} bytes shared");
        }
    }
    assert_eq!(http.post("/v1/claims/default/", b"").status, 400);
    assert_eq!(http.post("/v1/claims/default/-?key=", b"").status, 400);
    assert!(matches!(
        redis.command("SET  v NX PX 60000"),
        Reply::Error(_)
    ));
    assert_eq!(redis.command("PING"), Reply::Status("PONG".into()));
}

/// Names are opaque and namespaces apart: no zero, no separator and no letter's case makes two keys one.
#[test]
fn fo_08_only_the_exact_key_in_its_namespace_is_the_same() {
    let case = Case::start();
    let mut http = case.server().http();
    let names: [(&str, &[u8]); 14] = [
        ("capi", b"Purchase,000001"),
        ("capi", b"Lead,000001"),
        ("capi", b"Purchase,1"),
        ("capi", b"Purchase,01"),
        ("capi", b"purchase,1"),
        ("capi", b"a:b:c"),
        ("capi", b"a:b\0c"),
        ("capi", b"a\0b:c"),
        ("capi", b"a/b|c"),
        ("capi", b"a|b/c"),
        ("capi", b"1"),
        ("capi", b"\"1\""),
        ("capi.a", b"b"),
        ("capi", b"a.b"),
    ];
    let mut tokens = BTreeSet::new();
    for (ns, key) in names {
        let answer = http.post(&format!("/v1/claims/{ns}/{}", escaped(key)), b"");
        assert_eq!(answer.outcome(), "acquired", "{ns} {}", key.escape_ascii());
        assert!(tokens.insert(super::token(&answer)));
    }
    for (ns, key) in names {
        let answer = http.post(&format!("/v1/claims/{ns}/{}", escaped(key)), b"");
        assert_eq!(answer.outcome(), "busy", "{ns} {}", key.escape_ascii());
    }
    let held = super::token(&http.post("/v1/claims/t-a/x", b""));
    let complete = format!("/v1/claims/t-a/x/complete?token={held}");
    assert_eq!(http.post(&complete, b"secret of a").outcome(), "completed");
    let other = http.post("/v1/claims/t-b/x", b"");
    assert_eq!(other.outcome(), "acquired");
    let text = String::from_utf8_lossy(&other.body).into_owned();
    assert!(!text.contains("secret"), "{text}");
    // A token of one namespace does nothing in the other.
    let stale = http.post(&format!("/v1/claims/t-b/x/complete?token={held}"), b"");
    assert_eq!(stale.outcome(), "stale");
}

/// Decoded exactly once, the same over every entrance, and a bad escape is answered at once.
#[test]
fn fo_20_slashes_percent_signs_and_bad_escapes_in_keys() {
    let case = Case::start();
    let (mut http, mut redis) = (case.server().http(), case.server().redis());
    let keys: [&[u8]; 17] = [
        b"a/b",
        b"a%2Fb",
        b"a%252Fb",
        b"a%2fb",
        b".",
        b"..",
        b"a//b",
        b"a?b#c",
        b"a b",
        b"a+b",
        b"%",
        "é".as_bytes(),
        "\u{1f980}".as_bytes(),
        b"a\nb",
        b"\xff",
        b"a",
        b"b",
    ];
    for (number, key) in keys.into_iter().enumerate() {
        assert_eq!(
            everywhere(&mut http, &mut redis, key),
            ["not_found", "not_found", "not_found", "0"],
            "{} is one of those before it",
            key.escape_ascii()
        );
        if number % 2 == 0 {
            let answer = http.post(
                &format!("/v1/claims/default/{}?mode=once", escaped(key)),
                b"",
            );
            assert_eq!(answer.outcome(), "acquired");
        } else {
            redis.send(&encode(&[b"SET", key, b"v", b"NX", b"PX", b"60000"]));
            assert_eq!(redis.reply(), ok());
        }
        let there = ["ok", "ok", "ok", "1"];
        assert_eq!(
            everywhere(&mut http, &mut redis, key),
            there,
            "{}",
            key.escape_ascii()
        );
    }
    assert_eq!(redis.command("DBSIZE"), Reply::Integer(keys.len() as i64));
    // Bad escapes are answered, and the connection goes on. `%FF` is a byte like any other.
    for (end, status) in [
        ("%", 400),
        ("%z", 400),
        ("%zz", 400),
        ("%4", 400),
        ("%FF", 200),
    ] {
        let answer = http.get(&format!("/v1/claims/default/{end}"));
        assert_eq!(answer.status, status, "{end}");
    }
    assert_eq!(http.get("/healthz").status, 200);
    let mut raw = case.server().http();
    raw.send(b"GET /v1/claims/default/a\0b HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(raw.answer().unwrap().status, 400);
    // What a key holds never reaches a log as it is.
    drop((http, redis, raw));
    let mut case = case;
    let log = case.server.take().unwrap().term().stderr;
    assert!(!log.contains("a\nb"), "{log}");
}
