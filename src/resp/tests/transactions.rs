//! Transactions: what SPEC 7 and Redis say of them beyond Redis's own answers.

use super::Desk;
use crate::model::time::Span;
use crate::resp::Session;

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

impl Desk {
    /// Another connection besides; what it says changes places with the first.
    fn second(&mut self) -> Session {
        let other = Session::new(self.face.clone(), "other".to_owned());
        std::mem::replace(&mut self.session, other)
    }

    /// Lines of another connection.
    fn aside(&mut self, lines: &str) -> String {
        let first = self.second();
        let answer = self.say(lines);
        self.session = first;
        answer
    }
}

#[test]
fn a_watched_key_that_changed_in_any_way_stops_the_transaction() {
    let changes = [
        "SET k 2",
        "SET k 2\nSET k 1",
        "SET k 1",
        "DEL k",
        "DEL k\nSET k 1",
        "EXPIRE k 100",
        "PERSIST k",
        "INCR k\nDECR k",
        "MULTI\nSET k 1\nEXEC",
        "EVAL \"return redis.call('set',KEYS[1],1)\" 1 k",
        "ONCE.FORGET k",
    ];
    for change in changes {
        let mut desk = Desk::new();
        desk.say("SET k 1 EX 50\nWATCH other k\nMULTI\nSET won 1");
        desk.aside(change);
        assert_eq!(desk.say("EXEC"), "*-1", "{change}");
        assert_eq!(desk.say("EXISTS won"), ":0", "{change}");
        // It is over: the same again holds.
        assert_eq!(desk.say("MULTI\nSET won 1\nEXEC"), "+OK +QUEUED *1 +OK");
    }
}

#[test]
fn a_watched_key_that_did_not_change_does_not_stop_it() {
    let no_changes = [
        "GET k",
        "SET k 2 NX",
        "SET k 2 IFEQ nosuch",
        "EXPIRE k 100 LT",
        "DEL none",
        "SET other 1",
        "SELECT 1\nSET k 1",
        "MSETNX k 1 new 1",
        "EVAL \"redis.call('set',KEYS[1],1) error('no')\" 1 k",
        "MULTI\nSET k 1\nDISCARD",
        "ONCE.CLAIM k",
    ];
    for change in no_changes {
        let mut desk = Desk::new();
        desk.say("SET k 1 EX 50\nWATCH k none\nMULTI\nSET won 1");
        desk.aside(change);
        assert_eq!(desk.say("EXEC"), "*1 +OK", "{change}");
    }
}

#[test]
fn a_watched_key_that_comes_to_its_end_has_changed_and_one_that_had_not() {
    let mut desk = Desk::new();
    desk.say("SET k 1 PX 1000\nWATCH k");
    desk.clock.advance(Span::from_millis(999));
    assert_eq!(desk.say("MULTI\nGET k\nEXEC"), "+OK +QUEUED *1 $1 1");
    desk.say("WATCH k");
    desk.clock.advance(Span::from_millis(1));
    assert_eq!(desk.say("MULTI\nGET k\nEXEC"), "+OK +QUEUED *-1");
    desk.say("WATCH k");
    desk.clock.advance(Span::from_millis(1000));
    assert_eq!(desk.say("MULTI\nGET k\nEXEC"), "+OK +QUEUED *1 $-1");
}

#[test]
fn what_is_watched_is_told_after_a_checkpoint_and_the_end_of_the_other_too() {
    let mut desk = Desk::new();
    desk.say("SET k 1");
    desk.restart();
    desk.say("WATCH k\nMULTI\nSET won 1");
    assert_eq!(desk.aside("DEL k\nQUIT"), ":1 +OK closed");
    assert_eq!(desk.say("EXEC"), "*-1");
    // Watching ends with the connection, and with it what it costs.
    desk.say("WATCH k");
    desk.reconnect();
    assert_eq!(
        desk.say("SET k 2\nMULTI\nGET k\nEXEC"),
        "+OK +OK +QUEUED *1 $1 2"
    );
}

#[test]
fn commands_of_a_transaction_see_each_other_and_no_one_else_sees_them_half() {
    let mut desk = Desk::new();
    desk.check(&[
        ("MULTI\nSET a 1 PX 1000\nINCR a\nPTTL a\nMSET b 1 c 1\nDEL b a\nMGET a b c\nEXEC",
         "+OK +QUEUED +QUEUED +QUEUED +QUEUED +QUEUED +QUEUED *6 +OK :2 :1000 +OK :2 *3 $-1 $-1 $1 1"),
        // What fails does not undo the others, and a unit that fails is undone whole.
        ("MULTI\nSET s 'Hello world'\nMSETNX new 1 s 1\nINCR s\nGET new\nGET s\nEXEC",
         "+OK +QUEUED +QUEUED +QUEUED +QUEUED +QUEUED *5 +OK :0 \
          -ERR value is not an integer or out of range $-1 $11 Hello world"),
        ("MULTI\nDIGEST s\nDELEX s IFEQ 'Hello world'\nDELEX s\nEXEC",
         "+OK +QUEUED +QUEUED +QUEUED *3 $16 b6acb9d84a38ff74 :1 :0"),
        ("MULTI\nTIME\nDBSIZE\nEXEC", "+OK +QUEUED +QUEUED *2 *2 $10 1767323045 $6 678000 :1"),
        ("DBSIZE", ":1"),
    ]);
    desk.restart();
    desk.check(&[("MGET a b c s", "*4 $-1 $-1 $1 1 $-1")]);
}

#[test]
fn claims_can_be_part_of_a_transaction() {
    let mut desk = Desk::new();
    let answer = desk.say(
        "MULTI\nONCE.CLAIM k LEASE 5000 PAYLOAD body STORE WAIT 1000\nONCE.CLAIM k WAIT 1000\nSET seen 1\nEXEC",
    );
    for part in ["*3 *", "$8 acquired", "$4 busy", "+OK"] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    // Tokens go on from there, each given once.
    let token = |answer: &str| -> u64 {
        let rest = answer.split("$5 token :").nth(1).expect("a token");
        rest.split(' ')
            .next()
            .and_then(|token| token.parse().ok())
            .expect("a number")
    };
    let (first, next) = (token(&answer), token(&desk.say("ONCE.CLAIM other")));
    assert!(next > first, "{first} {next}");
    assert!(
        desk.say(&format!("ONCE.COMPLETE k {first}"))
            .contains("completed")
    );
}

#[test]
fn what_cannot_be_queued_aborts_and_runs_nothing() {
    for bad in [
        "NOSUCH",
        "SET a",
        "CLIENT NOSUCH",
        "SUBSCRIBE c",
        "HELLO 3",
        "AUTH x",
        "CLIENT REPLY OFF",
    ] {
        let mut desk = Desk::new();
        let answer = desk.say(&format!("MULTI\nSET a 1\n{bad}\nSET b 1\nEXEC"));
        assert!(answer.starts_with("+OK +QUEUED -ERR "), "{bad}: {answer}");
        assert!(
            answer.ends_with(&format!("+QUEUED {ABORTED}")),
            "{bad}: {answer}"
        );
        assert_eq!(desk.say("EXISTS a b"), ":0", "{bad}");
    }
    let mut desk = Desk::new();
    desk.check(&[
        ("MULTI\nSET a 1\nDISCARD\nEXISTS a", "+OK +QUEUED +OK :0"),
        (
            "MULTI\nSET a 1\nRESET\nEXISTS a\nEXEC",
            "+OK +QUEUED +RESET :0 -ERR EXEC without MULTI",
        ),
        ("MULTI\nSET a 1\nQUIT", "+OK +QUEUED +OK closed"),
    ]);
    desk.reconnect();
    assert_eq!(desk.say("EXISTS a"), ":0");
    desk.say("WATCH a\nSET a 1\nMULTI\nSELECT 3\nCLIENT SETNAME n\nEXEC");
    desk.check(&[("CLIENT GETNAME", "$-1"), ("EXISTS a", ":1")]);
}

#[test]
fn a_transaction_that_ends_with_its_connection_runs_nothing() {
    let mut desk = Desk::new();
    desk.say("SET lock mine\nMULTI\nDEL lock");
    desk.reconnect();
    // What a client that connects again by itself sends on is refused, or was never meant to run alone.
    assert_eq!(
        desk.say("EXEC\nGET lock"),
        "-ERR EXEC without MULTI $4 mine"
    );
}

#[test]
fn a_transaction_has_limits_each_with_its_own_error() {
    let mut desk = Desk::new();
    desk.say("MULTI");
    let answer = desk.say(&"SET a 1\n".repeat(10_001));
    assert!(answer.ends_with("-ERR a transaction has at most 10000 commands"));
    assert_eq!(desk.say("EXEC"), ABORTED);
    desk.say("MULTI");
    let value = vec![b'v'; 1 << 20];
    let mut last = Vec::new();
    for number in 0..17_u8 {
        last = desk
            .talk(&super::request(&[b"SET", &[number], &value]), usize::MAX)
            .0;
    }
    assert!(last.starts_with(b"-ERR a transaction has at most 16 MiB of arguments"));
    assert_eq!(desk.say("EXEC"), ABORTED);
    // More than one entry of the journal may hold: its own error, and nothing is stored.
    desk.say("MULTI");
    for number in 0..12_u8 {
        desk.talk(&super::request(&[b"SET", &[number], &value]), usize::MAX);
    }
    let answer = desk.say("EXEC");
    assert!(
        answer.contains("-ERR more than may be written in one step"),
        "{answer}"
    );
    let mset = |desk: &mut Desk, from: u32, to: u32| {
        let keys: Vec<String> = (from..to).map(|n| format!("k{n}")).collect();
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        words.extend(keys.iter().flat_map(|key| [key.as_bytes(), b"1"]));
        assert_eq!(
            desk.talk(&super::request(&words), usize::MAX).0,
            b"+QUEUED\r\n"
        );
    };
    desk.say("MULTI");
    mset(&mut desk, 0, 1250);
    mset(&mut desk, 0, 1250);
    let answer = desk.say("EXEC");
    assert!(
        answer.starts_with("*2 +OK -ERR more than 2000 changes"),
        "{answer}"
    );
    desk.say("MULTI");
    mset(&mut desk, 0, 1250);
    mset(&mut desk, 1250, 10_001);
    desk.check(&[
        (
            "EXEC",
            "-ERR more than 10000 keys in one transaction or script",
        ),
        ("MGET k0 k1249 k1250", "*3 $1 1 $1 1 $-1"),
    ]);
    let keys = (0..1001).map(|n| format!("k{n} ")).collect::<String>();
    desk.check(&[
        (
            &format!("WATCH {keys}"),
            "-ERR a connection watches at most 1000 keys",
        ),
        ("MULTI\nGET a\nEXEC", "+OK +QUEUED *1 $-1"),
    ]);
}
