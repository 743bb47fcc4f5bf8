//! Clients that cannot be run here: their handshakes and locks as they are on the wire, each whole and byte by
//! byte. One reply for each request, in order, or the client loses count.

use super::{Desk, replies, request};

/// What a client sends in one go, and how each reply begins.
type Talk = &'static [(&'static [&'static str], &'static str)];

const OK: &str = "+OK";
const HELLO: &str = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion";
const NO_MAINT: &str = "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.";
const RELEASE: &str = "if redis.call(\"GET\", KEYS[1]) == ARGV[1] then return redis.call(\"DEL\", KEYS[1]) else return 0 end";
const EXTEND: &str = "if redis.call(\"GET\", KEYS[1]) == ARGV[1] then return redis.call(\"PEXPIRE\", KEYS[1], ARGV[2]) else return 0 end";

const GO_REDIS: Talk = &[
    (&["hello", "3"], HELLO),
    (&["select", "2"], OK),
    (&["client", "setname", "app"], OK),
    (
        &[
            "client",
            "maint_notifications",
            "on",
            "moving-endpoint-type",
            "internal-ip",
        ],
        "-ERR unknown subcommand",
    ),
    (&["client", "setinfo", "LIB-NAME", "go-redis(,go1.22)"], OK),
    (&["client", "setinfo", "LIB-VER", "9.22.0"], OK),
    (&["set", "lock", "t1", "px", "8000", "nx"], OK),
    (&["set", "lock", "t2", "px", "8000", "nx"], "_"),
    // redsync, over it.
    (
        &[
            "evalsha",
            "00583931c4e4d483f6233879c133c71ed5393f9d",
            "1",
            "lock",
            "t1",
        ],
        "-NOSCRIPT ",
    ),
    (&["eval", EXTEND, "1", "lock", "t1", "9000"], ":1"),
    (&["eval", RELEASE, "1", "lock", "t2"], ":0"),
    (&["eval", RELEASE, "1", "lock", "t1"], ":1"),
    (&["get", "lock"], "_"),
];

const JEDIS: Talk = &[
    (&["HELLO", "3", "SETNAME", "app"], HELLO),
    (&["CLIENT", "SETINFO", "LIB-NAME", "jedis"], OK),
    (&["CLIENT", "SETINFO", "LIB-VER", "8.0.0"], OK),
    (&["SELECT", "1"], OK),
    (&["PING"], "+PONG"),
    (&["SET", "lock", "t1", "NX", "PX", "8000"], OK),
    (&["MULTI"], OK),
    (&["GET", "lock"], "+QUEUED"),
    (&["DEL", "lock"], "+QUEUED"),
    (&["EXEC"], "*2\r\n$2\r\nt1\r\n:1"),
];

const LETTUCE: Talk = &[
    (&["HELLO", "3", "SETNAME", "app"], HELLO),
    (
        &[
            "CLIENT",
            "MAINT_NOTIFICATIONS",
            "on",
            "moving-endpoint-type",
            "none",
        ],
        NO_MAINT,
    ),
    (&["CLIENT", "SETINFO", "lib-name", "Lettuce"], OK),
    (&["CLIENT", "SETINFO", "lib-ver", "7.8.0"], OK),
    (&["SELECT", "3"], OK),
    (&["SET", "lock", "t1", "PX", "8000", "NX"], OK),
    // ShedLock and Spring's registry, over it.
    (&["SET", "lock", "t1", "PX", "9000", "XX"], OK),
    (
        &[
            "EVALSHA",
            "0000000000000000000000000000000000000000",
            "1",
            "lock",
            "t1",
        ],
        "-NOSCRIPT ",
    ),
    (&["EVAL", RELEASE, "1", "lock", "t1"], ":1"),
];

const STACK_EXCHANGE: Talk = &[
    (&["HELLO", "3"], HELLO),
    (&["CLIENT", "SETNAME", "host(SE.Redis-v3.1.0)"], OK),
    (&["CLIENT", "SETINFO", "LIB-NAME", "SE.Redis"], OK),
    (&["CLIENT", "SETINFO", "LIB-VER", "3.1.0"], OK),
    (&["CLIENT", "ID"], ":1"),
    (&["CONFIG", "GET", "replica-read-only"], "%0"),
    (
        &["CONFIG", "GET", "databases"],
        "%1\r\n$9\r\ndatabases\r\n$2\r\n16",
    ),
    (&["CONFIG", "GET", "timeout"], "%1"),
    (&["SENTINEL", "MASTERS"], "-ERR unknown command 'SENTINEL'"),
    (&["INFO", "replication"], "="),
    (&["INFO", "server"], "="),
    (
        &["CLUSTER", "NODES"],
        "-ERR This instance has cluster support disabled",
    ),
    (&["GET", "__Booksleeve_TieBreak"], "_"),
    (&["ECHO", "\u{1}\0\u{7f}\r\n 0123456789"], "$"),
    (&["SET", "lock", "t1", "EX", "8", "NX"], OK),
    // LockExtend and LockRelease below Redis 8.4, then as they are above.
    (&["WATCH", "lock"], OK),
    (&["GET", "lock"], "$2\r\nt1"),
    (&["MULTI"], OK),
    (&["EXPIRE", "lock", "9"], "+QUEUED"),
    (&["EXEC"], "*1\r\n:1"),
    (&["SET", "lock", "t1", "IFEQ", "t1", "PX", "9000"], OK),
    (&["DELEX", "lock", "IFEQ", "t2"], ":0"),
    (&["DELEX", "lock", "IFEQ", "t1"], ":1"),
    (&["SUBSCRIBE", "__Booksleeve_MasterChanged"], ">3"),
    (&["PING"], "+PONG"),
    (&["UNSUBSCRIBE", "__Booksleeve_MasterChanged"], ">3"),
];

const REDIS_CLIENT: Talk = &[
    (&["HELLO", "3"], HELLO),
    (&["SELECT", "0"], OK),
    (&["SET", "lock", "t1", "NX", "PX", "8000"], OK),
    (&["SCRIPT", "LOAD", RELEASE], "$40"),
    (&["WATCH", "lock"], OK),
    (&["UNWATCH"], OK),
    (&["PING"], "+PONG"),
];

/// Of version 2, as older clients open: no HELLO at all.
const OLD: Talk = &[
    (&["CLIENT", "SETINFO", "LIB-NAME", "redis-py"], OK),
    (&["CLIENT", "SETINFO", "LIB-VER", "5.3.1"], OK),
    (&["SELECT", "0"], OK),
    (&["SET", "lock", "t1", "NX", "EX", "8"], OK),
    (&["SET", "lock", "t2", "NX", "EX", "8"], "$-1"),
    (&["WATCH", "lock"], OK),
    (&["SET", "lock", "t3"], OK),
    (&["MULTI"], OK),
    (&["DEL", "lock"], "+QUEUED"),
    (&["EXEC"], "*-1"),
    (&["GET", "lock"], "$2\r\nt3"),
];

#[test]
fn clients_that_cannot_be_run_here_find_what_they_expect() {
    for (client, talk) in [
        ("go-redis", GO_REDIS),
        ("jedis", JEDIS),
        ("lettuce", LETTUCE),
        ("StackExchange.Redis", STACK_EXCHANGE),
        ("redis-client", REDIS_CLIENT),
        ("an old one", OLD),
    ] {
        let sent: Vec<Vec<u8>> = talk
            .iter()
            .map(|(words, _)| {
                request(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
            })
            .collect();
        let mut desk = Desk::new();
        let mut one_by_one = Vec::new();
        for (request, (words, expected)) in sent.iter().zip(talk) {
            let (answer, closed) = desk.talk(request, usize::MAX);
            let begins = answer.starts_with(expected.as_bytes());
            assert!(
                begins && !closed,
                "{client}: {words:?}: {}",
                answer.escape_ascii()
            );
            assert_eq!(replies(&answer), 1, "{client}: {words:?}");
            one_by_one.extend(answer);
        }
        for piece in [usize::MAX, 1] {
            let (answer, closed) = Desk::new().talk(&sent.concat(), piece);
            assert!(answer == one_by_one && !closed, "{client} in {piece}");
        }
    }
}
