//! Redis commands on records: what SPEC 7 says of them beyond Redis's own answers.

use super::Desk;
use crate::model::time::Span;
use crate::resp::{NxWithoutExpiry, Options};

#[test]
fn info_has_what_clients_ask_for() {
    let mut desk = Desk::new();
    desk.say("SET a 1\nSELECT 3\nSET a 1\nSET b 2");
    let info = desk.say("info");
    for fact in [
        "redis_version:7.2.4",
        "onced_version:",
        "redis_mode:standalone",
        "loading:0",
        "role:master",
        "db0:keys=1,",
        "db3:keys=2,",
    ] {
        assert!(info.contains(fact), "{fact} in {info}");
    }
    assert!(!desk.say("INFO replication").contains("redis_version"));
    assert_eq!(desk.say("DBSIZE\nSELECT 0\nDBSIZE"), ":2 +OK :1");
}

#[test]
fn string_commands_leave_the_records_of_claims_alone() {
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut desk = Desk::new();
    desk.say("SET s v\nONCE.CLAIM open\nONCE.CLAIM done ONCE RESULT kept RETENTION 90000");
    for line in [
        "SET done x",
        "SET open x XX",
        "SET done x NX GET",
        "GETSET done x",
        "GETDEL done",
        "GETEX done PERSIST",
        "INCR done",
        "MSET s 1 done 2",
        "DEL done",
        "DEL s open s",
        "UNLINK s done",
        "EXPIRE done 1",
        "PERSIST open",
        "GET open",
        "STRLEN open",
    ] {
        assert_eq!(desk.say(line), WRONG, "{line}");
    }
    desk.check(&[
        ("SET done x NX", "$-1"),
        ("SETNX open x", ":0"),
        ("MSETNX new 1 open 2", ":0"),
        ("MGET s done open new", "*4 $1 v $4 kept $-1 $-1"),
        ("EXISTS open done new", ":2"),
        ("TTL open", ":-1"),
        ("TTL done", ":90"),
        ("TYPE open", "+string"),
        ("STRLEN done", ":4"),
        ("DEL s s", ":1"),
        ("EXISTS s", ":0"),
    ]);
}

#[test]
fn a_set_once_without_expiry_follows_its_option() {
    let lines = "SET a 1 NX\nSETNX b 1\nMSETNX c 1 d 1\nSET e 1 NX KEEPTTL\nSET f 1 NX GET";
    let ttls = "TTL a\nTTL b\nTTL c\nTTL d\nTTL e\nTTL f";
    for (option, expected) in [
        (NxWithoutExpiry::Retention, [":259200"; 6].join(" ")),
        (NxWithoutExpiry::Forever, [":-1"; 6].join(" ")),
        (NxWithoutExpiry::Error, [":-2"; 6].join(" ")),
    ] {
        let mut desk = Desk::with(Options {
            nx_without_expiry: option,
            ..Options::default()
        });
        let answer = desk.say(lines);
        assert_eq!(
            answer.contains("nx_without_expiry is error"),
            option == NxWithoutExpiry::Error
        );
        assert_eq!(desk.say(ttls), expected, "{option:?}");
        assert_eq!(
            desk.say("SET g 1\nTTL g\nSET h 1 NX EX 5\nTTL h"),
            "+OK :-1 +OK :5"
        );
        assert_eq!(NxWithoutExpiry::parse(option.name()), Some(option));
    }
}

#[test]
fn ends_follow_the_clock() {
    let mut desk = Desk::new();
    desk.say("SET k v PX 10499");
    desk.check(&[
        ("TTL k", ":10"),
        ("EXPIRETIME k", ":1767323056"),
        ("PEXPIRETIME k", ":1767323056177"),
    ]);
    desk.clock.advance(Span::from_millis(10_498));
    desk.check(&[("PTTL k", ":1"), ("TTL k", ":0"), ("GET k", "$1 v")]);
    desk.clock.advance(Span::from_millis(1));
    desk.check(&[
        ("PTTL k", ":-2"),
        ("GET k", "$-1"),
        ("SET k w NX EX 5", "+OK"),
    ]);
    assert_eq!(desk.say("TIME"), "*2 $10 1767323056 $6 177000");
}

// Limits.

#[test]
fn limits_have_their_own_errors_and_keep_the_connection() {
    let mut options = Options::default();
    options.limits.result = 100;
    options.limits.payload = 50;
    let mut desk = Desk::with(options);
    let (long, key) = ("x".repeat(101), "k".repeat(1025));
    const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    const NO_KEY: &str = "-ERR a key has at least 1 byte";
    let long_key = "-ERR a key has at most 1024 bytes, this one has 1025; use a hash of it";
    desk.check(&[
        (&format!("SET k {long}"), TOO_LONG),
        (&format!("MSET a 1 k {long}"), TOO_LONG),
        (&format!("SETEX k 5 {long}"), TOO_LONG),
        (&format!("ONCE.CLAIM k ONCE RESULT {long}"), "-ERR RESULT has at most 100 bytes; keep it elsewhere and claim without it"),
        (&format!("ONCE.COMPLETE k 1 RESULT {long}"), "-ERR RESULT has at most 100 bytes; keep it elsewhere and complete again without it"),
        (&format!("ONCE.CLAIM k PAYLOAD {}", &long[..51]), "-ERR PAYLOAD has at most 50 bytes; keep it elsewhere and claim with an FP of it"),
        (&format!("SET k {}", &long[..100]), "+OK"),
        (&format!("GET {key}"), long_key),
        (&format!("MGET a {key}"), long_key),
        (&format!("DEL a {key}"), long_key),
        (&format!("ONCE.GET {key}"), long_key),
        ("GET ''", NO_KEY),
        ("SET '' v", NO_KEY),
        (&format!("GET {}", &key[..1024]), "$-1"),
        ("EXISTS a k", ":1"),
        (&format!("SCAN 0 MATCH {}", "a".repeat(513)), "-ERR a pattern has at most 512 bytes"),
        (&format!("CLIENT SETNAME {key}"), "-ERR a client name has at most 1024 bytes"),
        (&format!("SUBSCRIBE {key}"), "-ERR a channel name has at most 1024 bytes"),
        (
            &format!("SUBSCRIBE {}", "c ".repeat(1001)),
            "-ERR a connection has at most 1000 subscriptions; no message is ever sent to them here",
        ),
        (
            &format!("UNSUBSCRIBE {}", "c ".repeat(1001)),
            "-ERR a connection has at most 1000 subscriptions; no message is ever sent to them here",
        ),
        (
            &format!("COMMAND INFO {}", "get ".repeat(1001)),
            "-ERR at most 1000 names in one request; without names all commands are described",
        ),
        ("PING", "+PONG"),
    ]);
}

#[test]
fn a_flush_is_refused_with_or_without_the_option() {
    for allow_flush in [false, true] {
        let mut desk = Desk::with(Options {
            allow_flush,
            ..Options::default()
        });
        let answer = desk.say("SET k v\nFLUSHALL\nFLUSHDB ASYNC\nEXISTS k");
        assert!(answer.starts_with("+OK -ERR FLUSHALL is "), "{answer}");
        assert!(answer.ends_with(":1"), "{answer}");
        assert_eq!(answer.contains("--allow-flush"), !allow_flush);
    }
}

// Scans.

#[test]
fn a_scan_sees_every_key_once() {
    let mut desk = Desk::new();
    for number in 0..57 {
        desk.say(&format!("SET user:{number} v"));
    }
    desk.say("ONCE.CLAIM claim:1\nSELECT 1\nSET other 1\nSELECT 0");
    for (options, expected) in [
        ("", 58),
        ("COUNT 5", 58),
        ("MATCH user:* COUNT 3", 57),
        ("match *:1 count 1000", 2),
        ("MATCH nosuch*", 0),
        ("TYPE string", 58),
        ("TYPE hash", 0),
    ] {
        let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
        loop {
            let answer = desk.say(&format!("SCAN {cursor} {options}"));
            let parts: Vec<&str> = answer.split(' ').collect();
            assert_eq!(parts[0], "*2");
            cursor = parts[2].to_owned();
            keys.extend(parts.iter().skip(5).step_by(2).map(|key| (*key).to_owned()));
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(keys.len(), expected, "{options}");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), expected, "{options}");
    }
}

#[test]
fn a_cursor_can_be_repeated_until_the_scan_went_on_and_no_longer() {
    let mut desk = Desk::new();
    desk.say("MSET a 1 b 1 c 1 d 1");
    desk.check(&[
        ("SCAN 0 COUNT 1", "*2 $1 1 *1 $1 a"),
        ("SCAN 1 COUNT 1", "*2 $1 2 *1 $1 b"),
        ("SCAN 1 COUNT 1", "*2 $1 3 *1 $1 b"),
        ("SCAN 3 COUNT 1", "*2 $1 4 *1 $1 c"),
        ("SCAN 1 COUNT 1", "-ERR invalid cursor"),
        ("SCAN 77", "-ERR invalid cursor"),
        ("SELECT 1\nSCAN 4", "+OK -ERR invalid cursor"),
    ]);
    desk.say("SELECT 0");
    for _ in 0..1024 {
        desk.say("SCAN 0 COUNT 1");
    }
    assert_eq!(
        desk.say("SCAN 4"),
        "-ERR invalid cursor",
        "the oldest made room"
    );
}
