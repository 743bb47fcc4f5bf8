//! Credentials: who is let in, and what each may do.

use super::Desk;
use crate::model::access::{Access, Credential, Right, Rights};
use crate::model::body::sha256;
use crate::resp::Options;

const NO_AUTH: &str = "-NOAUTH Authentication required.";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
const NO_KEY: &str = "-NOPERM No permissions to access a key";

fn desk() -> Desk {
    let credential =
        |name: &str, secret: &str, rights: &[Right], namespaces: Option<&[&str]>| Credential {
            name: name.into(),
            sha256: sha256(secret.as_bytes()),
            rights: Rights::of(rights),
            namespaces: namespaces.map(|names| names.iter().map(|name| (*name).into()).collect()),
        };
    Desk::with(Options {
        access: Access::new(vec![
            credential(
                "root",
                "r00t",
                &[Right::Claim, Right::Read, Right::Operate, Right::Admin],
                None,
            ),
            credential(
                "worker",
                "w0rk",
                &[Right::Claim, Right::Read],
                Some(&["default", "db1"]),
            ),
            credential("reader", "r3ad", &[Right::Read], None),
            credential("operator", "0per", &[Right::Operate], None),
        ]),
        allow_flush: true,
        ..Options::default()
    })
}

#[test]
fn nothing_is_answered_before_a_secret_was_given() {
    let mut desk = desk();
    desk.check(&[
        ("GET a", NO_AUTH),
        ("PING", NO_AUTH),
        (
            "NOSUCH",
            "-ERR unknown command 'NOSUCH', with args beginning with:",
        ),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("CLIENT ID", NO_AUTH),
        ("ONCE.CLAIM k", NO_AUTH),
        ("EVAL 'return 1' 0", NO_AUTH),
        ("AUTH wrong", WRONG),
        ("AUTH worker r00t", WRONG),
        ("AUTH nobody w0rk", WRONG),
        ("HELLO 3 AUTH default wrong", WRONG),
        ("AUTH a b c", "-ERR syntax error"),
        ("RESET", "+RESET"),
        (
            "AUTH w0rk\nPING\nRESET\nPING",
            "+OK +PONG +RESET -NOAUTH Authentication required.",
        ),
        ("AUTH default w0rk\nPING", "+OK +PONG"),
        ("AUTH worker w0rk\nPING", "+OK +PONG"),
    ]);
    assert!(desk.say("CLIENT INFO").contains(" user=worker "));
    // A failed one keeps who it was.
    assert_eq!(desk.say("AUTH wrong\nPING"), format!("{WRONG} +PONG"));
    desk.reconnect();
    assert!(
        desk.say("HELLO 3")
            .starts_with("-NOAUTH HELLO must be called with the client already")
    );
    assert!(
        desk.say("HELLO 3 AUTH default w0rk")
            .starts_with("%7 $6 server")
    );
    assert_eq!(desk.say("PING\nQUIT"), "+PONG +OK closed");
    desk.reconnect();
    assert_eq!(desk.say("QUIT"), "+OK closed");
}

#[test]
fn a_transaction_of_somebody_unknown_runs_nothing() {
    let mut desk = desk();
    desk.say("AUTH r00t\nSET lock mine");
    desk.reconnect();
    let answer = desk.say("MULTI\nAUTH r00t\nDEL lock\nEXEC\nGET lock");
    assert!(answer.starts_with(NO_AUTH), "{answer}");
    assert!(
        answer.ends_with("EXECABORT Transaction discarded because of previous errors. $4 mine")
    );
}

#[test]
fn counts_of_keys_are_shown_to_those_who_may_read_them() {
    let mut desk = desk();
    desk.say("AUTH r00t\nSET a 1\nSELECT 1\nSET a 1\nSELECT 2\nSET a 1");
    for (secret, databases) in [
        ("r00t", &[0, 1, 2][..]),
        ("w0rk", &[0, 1]),
        ("r3ad", &[0, 1, 2]),
        ("0per", &[]),
    ] {
        for info in ["INFO", "INFO keyspace"] {
            let answer = desk.say(&format!("AUTH {secret}\n{info}"));
            let (_, counts) = answer.split_once("# Keyspace").unwrap();
            for database in 0..3 {
                let there = counts.contains(&format!("db{database}:keys=1,"));
                assert_eq!(there, databases.contains(&database), "{secret}: {answer}");
            }
        }
    }
}

#[test]
fn a_credential_does_what_its_rights_say_where_it_may_go() {
    let mut desk = desk();
    let refused = |user: &str, command: &str| {
        format!("-NOPERM User {user} has no permissions to run the '{command}' command")
    };
    desk.say("AUTH w0rk");
    desk.check(&[
        ("SET a 1\nGET a", "+OK $1 1"),
        (
            "SELECT 1\nSET a 1\nSELECT 2\nSET a 1",
            &format!("+OK +OK +OK {NO_KEY}"),
        ),
        ("GET a", NO_KEY),
        ("DBSIZE", NO_KEY),
        ("SCAN 0", NO_KEY),
        ("WATCH a", NO_KEY),
        ("EVAL \"return redis.call('get', KEYS[1])\" 1 a", NO_KEY),
        ("MULTI\nGET a\nEXEC", &format!("+OK +QUEUED *1 {NO_KEY}")),
        ("SELECT 0\nONCE.GET k NS other", &format!("+OK {NO_KEY}")),
        ("ONCE.FORGET k", &refused("worker", "once.forget")),
        ("ONCE.REPLAY k 1", &refused("worker", "once.replay")),
        ("FLUSHDB", &refused("worker", "flushdb")),
        ("CONFIG SET save x", &refused("worker", "config|set")),
        (
            "MULTI\nFLUSHALL\nEXEC",
            &format!(
                "+OK {} -EXECABORT Transaction discarded because of previous errors.",
                refused("worker", "flushall")
            ),
        ),
    ]);
    desk.say("AUTH r3ad");
    desk.check(&[
        ("GET a", "$1 1"),
        ("SET a 2", &refused("reader", "set")),
        ("ONCE.CLAIM k", &refused("reader", "once.claim")),
        ("EVAL 'return 1' 0", &refused("reader", "eval")),
        ("SCRIPT FLUSH", &refused("reader", "script|flush")),
        ("EVAL_RO \"return redis.call('get', KEYS[1])\" 1 a", "$1 1"),
    ]);
    let write = desk.say("EVAL_RO \"return redis.call('set', KEYS[1], 2)\" 1 a");
    assert!(write.starts_with(&refused("reader", "set")), "{write}");
    assert_eq!(
        desk.say("AUTH r00t\nGET a\nFLUSHALL\nGET a"),
        "+OK $1 1 +OK $-1"
    );
}

#[test]
fn somebody_unknown_sends_little_or_is_closed() {
    let many = "*11\r\n".to_owned() + &"$1\r\na\r\n".repeat(11);
    for (sent, expected) in [
        (
            &*many,
            "-ERR Protocol error: unauthenticated multibulk length\r\n",
        ),
        (
            "*2\r\n$4\r\nECHO\r\n$16385\r\n",
            "-ERR Protocol error: unauthenticated bulk length\r\n",
        ),
    ] {
        let (answer, closed) = desk().talk(sent.as_bytes(), usize::MAX);
        assert_eq!(
            (String::from_utf8_lossy(&answer).as_ref(), closed),
            (expected, true)
        );
        let mut desk = desk();
        desk.say("AUTH r3ad");
        assert!(
            !desk.talk(sent.as_bytes(), usize::MAX).1,
            "it may send more"
        );
    }
}

#[test]
fn the_history_says_who_it_was() {
    let mut desk = desk();
    desk.say("AUTH w0rk\nONCE.CLAIM k\nMULTI\nONCE.FAIL k 1\nEXEC");
    let record = desk.say("ONCE.GET k");
    assert_eq!(record.matches("by $6 worker").count(), 2, "{record}");
}

#[test]
fn credentials_that_are_changed_hold_for_open_connections_too() {
    let mut desk = desk();
    desk.say("AUTH w0rk");
    assert_eq!(desk.say("SET a 1"), "+OK");
    let credential = |secret: &str, right| Credential {
        name: "worker".into(),
        sha256: sha256(secret.as_bytes()),
        rights: Rights::of(&[right]),
        namespaces: None,
    };
    let set = |desk: &Desk, credentials| {
        let access = Access::new(credentials);
        desk.face.set_access(std::sync::Arc::new(access));
    };
    set(&desk, vec![credential("w0rk", Right::Read)]);
    desk.check(&[
        (
            "SET a 2",
            "-NOPERM User worker has no permissions to run the 'set' command",
        ),
        ("GET a", "$1 1"),
    ]);
    set(&desk, vec![credential("else", Right::Claim)]);
    desk.check(&[
        ("GET a", NO_AUTH),
        ("AUTH w0rk", WRONG),
        ("AUTH else\nSET a 2", "+OK +OK"),
    ]);
    set(&desk, Vec::new());
    desk.check(&[("GET a", "$1 2")]);
}
