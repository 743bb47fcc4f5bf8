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
        "redis_version:8.4.0",
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
fn conditions_on_the_value_are_those_of_redis() {
    const SYNTAX: &str = "-ERR syntax error";
    const DIGEST: &str = "-ERR must be exactly 16 hexadecimal characters";
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const NO_STRING: &str = "-ERR Key should be of string type if conditions are specified";
    const WORDS: &str = "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE";
    let mut desk = Desk::new();
    desk.check(&[
        ("SET k v px 5000 ifeq x", "$-1"),
        ("SET k v IFNE x PX 5000", "+OK"),
        ("set k w keepttl IfEq v", "+OK"),
        ("PTTL k", ":5000"),
        ("SET k x GET IFEQ v", "$1 w"),
        ("SET k x IFEQ", SYNTAX),
        ("SET k x IFEQ w NX", SYNTAX),
        ("SET k x XX IFEQ w", SYNTAX),
        ("SET k x IFEQ w IFNE v", SYNTAX),
        ("SET k x IFDEQ 123", DIGEST),
        ("SET k x IFDEQ zzzzzzzzzzzzzzzz", DIGEST),
        ("SET k 'Hello world' IFEQ w", "+OK"),
        ("DIGEST k", "$16 b6acb9d84a38ff74"),
        ("DELEX k IFDEQ +6acb9d84a38ff74", DIGEST),
        (
            "DELEX k IFEQ",
            "-ERR wrong number of arguments for 'delex' command",
        ),
        (
            "DELEX k IFEQ a b",
            "-ERR wrong number of arguments for 'delex' command",
        ),
        ("DELEX k WHEN a", WORDS),
        ("DELEX k ifdeq B6ACB9D84A38FF74", ":1"),
        ("DIGEST k", "$-1"),
        ("SET k v\nDELEX k\nDELEX k", "+OK :1 :0"),
        ("SET k v\nDELIFEQ k w\nDELIFEQ k v", "+OK :0 :1"),
        (
            "DELIFEQ k",
            "-ERR wrong number of arguments for 'delifeq' command",
        ),
        ("GETEX k IFEQ v", SYNTAX),
    ]);
    desk.say("ONCE.CLAIM open");
    for (line, expected) in [
        ("SET open x IFEQ x", WRONG),
        ("SET open x IFNE x GET", WRONG),
        ("DELEX open", WRONG),
        ("DELEX open IFEQ x", NO_STRING),
        ("DELIFEQ open x", WRONG),
        ("DIGEST open", WRONG),
    ] {
        assert_eq!(desk.say(line), expected, "{line}");
    }
}

#[test]
fn several_keys_are_set_with_one_end_or_not_at_all() {
    const COUNT: &str = "-ERR invalid numkeys value";
    const PAIRS: &str = "-ERR wrong number of key-value pairs";
    const SYNTAX: &str = "-ERR syntax error";
    let mut desk = Desk::new();
    desk.check(&[
        ("MSETEX 2 a 1 b 2 NX PX 9000", ":1"),
        ("MSETEX 2 b 3 c 3 nx ex 9", ":0"),
        ("MSETEX 2 b 3 c 3 XX", ":0"),
        ("MGET a b c", "*3 $1 1 $1 2 $-1"),
        ("MSETEX 2 a 4 b 4 KEEPTTL XX", ":1"),
        ("PTTL b", ":9000"),
        ("MSETEX 2 a 5 a 6", ":1"),
        ("GET a", "$1 6"),
        ("TTL a", ":-1"),
        ("MSETEX 1 d 1 NX\nTTL d", ":1 :259200"),
        ("MSETEX 0 a 1", COUNT),
        ("MSETEX x a 1", COUNT),
        ("MSETEX 2147483648 a 1", COUNT),
        ("MSETEX 2147483647 a 1", PAIRS),
        ("MSETEX 2 a 1", PAIRS),
        ("MSETEX 2 a 1 b", "-ERR wrong number of key-value pairs"),
        ("MSETEX 1 a 1 FOO", SYNTAX),
        ("MSETEX 1 a 1 NX XX", SYNTAX),
        ("MSETEX 1 a 1 EX 1 PX 1", SYNTAX),
        ("MSETEX 1 a 1 GET", SYNTAX),
        ("MSETEX 1 a 1 IFEQ x", SYNTAX),
        (
            "MSETEX 1 a 1 EX 0",
            "-ERR invalid expire time in 'msetex' command",
        ),
        (
            "MSETEX 1 a",
            "-ERR wrong number of arguments for 'msetex' command",
        ),
    ]);
}

#[test]
fn a_large_value_is_compared_by_its_digest_after_a_checkpoint_too() {
    let value = vec![b'v'; 100_000];
    let digest = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&value));
    let mut desk = Desk::new();
    desk.talk(&super::request(&[b"SET", b"k", &value]), usize::MAX);
    desk.restart();
    desk.check(&[
        ("DIGEST k", &format!("$16 {digest}")),
        (
            "SET k w IFDNE 0000000000000000 GET",
            &format!("$100000 {}", "v".repeat(100_000)),
        ),
    ]);
    desk.talk(&super::request(&[b"SET", b"k", &value]), usize::MAX);
    desk.restart();
    assert_eq!(desk.say(&format!("DELEX k IFDEQ {digest}")), ":1");
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
fn a_flush_needs_its_option_and_leaves_claims_alone() {
    for allow_flush in [false, true] {
        let mut desk = Desk::with(Options {
            allow_flush,
            ..Options::default()
        });
        desk.say("SELECT 3\nSET k v\nSELECT 0\nONCE.CLAIM open\nONCE.CLAIM done ONCE RESULT r");
        for number in 0..2500 {
            desk.say(&format!("SET k{number} v"));
        }
        let answer = desk.say("FLUSHDB ASYNC");
        assert_eq!(answer == "+OK", allow_flush, "{answer}");
        assert_eq!(answer.contains("--allow-flush"), !allow_flush);
        let left = if allow_flush { ":2" } else { ":2502" };
        assert_eq!(desk.say("DBSIZE"), left);
        assert_eq!(
            desk.say("EXISTS open done\nSELECT 3\nEXISTS k"),
            ":2 +OK :1"
        );
        assert_eq!(desk.say("FLUSHALL\nEXISTS k") == "+OK :0", allow_flush);
        assert_eq!(desk.say("FLUSHALL now"), "-ERR syntax error");
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
