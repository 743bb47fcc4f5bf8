//! Whole sessions: bytes in, bytes out, in front of an engine in memory.

use std::sync::Arc;

use bytes::BytesMut;

use super::{Face, Flow, NxWithoutExpiry, Options, Session};
use crate::engine::clock::{ManualClock, Source};
use crate::engine::{self, Engine};
use crate::model::time::Span;

/// 2026-01-02T03:04:05.678Z.
const START: u64 = 1_767_323_045_678;

/// An engine with a clock that is moved by hand, and one connection to it.
pub(super) struct Desk {
    clock: Arc<ManualClock>,
    engine: Engine,
    face: Arc<Face>,
    session: Session,
}

impl Desk {
    pub(super) fn new() -> Desk {
        Desk::with(Options::default())
    }

    fn with(options: Options) -> Desk {
        let clock = ManualClock::new(START, 5_000_000);
        let engine = Engine::volatile(engine::Options {
            clock: Source::Manual(clock.clone()),
            ..engine::Options::default()
        });
        let face = Arc::new(Face::new(options));
        let session = Session::new(face.clone(), "peer".to_owned());
        Desk {
            clock,
            engine,
            face,
            session,
        }
    }

    /// Another connection in place of this one.
    fn reconnect(&mut self) {
        self.session = Session::new(self.face.clone(), "peer".to_owned());
    }

    /// Everything that comes back when the bytes arrive in pieces of that size, and whether the connection
    /// is then closed.
    pub(super) fn talk(&mut self, bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        self.talk_in(&pieces)
    }

    fn talk_in(&mut self, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let (mut input, mut all) = (BytesMut::new(), Vec::new());
            for piece in pieces {
                input.extend_from_slice(piece);
                loop {
                    let mut output = BytesMut::new();
                    let serve = self.session.serve(&self.engine, &mut input, &mut output);
                    let flow = serve.await;
                    all.extend_from_slice(&output);
                    match flow {
                        Flow::More => {}
                        Flow::Continue => break,
                        Flow::Close => return (all, true),
                    }
                }
            }
            (all, false)
        })
    }

    /// Sends lines of inline commands; the answer, its line ends shown as blanks between its parts.
    fn say(&mut self, lines: &str) -> String {
        let lines: String = lines
            .lines()
            .map(|line| format!("{}\r\n", line.trim()))
            .collect();
        let (answer, closed) = self.talk(lines.as_bytes(), usize::MAX);
        let text = String::from_utf8_lossy(&answer).replace("\r\n", " ");
        format!("{}{}", text.trim_end(), if closed { " closed" } else { "" })
    }

    #[track_caller]
    fn check(&mut self, table: &[(&str, &str)]) {
        for (line, expected) in table {
            assert_eq!(self.say(line), *expected, "{line}");
        }
    }
}

/// A request as clients send it.
fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

// Field case FO-15: values that look like protocol.

fn tricky() -> Vec<Vec<u8>> {
    let mut random = 7_u64;
    let large = (0..1 << 20).map(|_| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 56) as u8
    });
    let mut all: Vec<Vec<u8>> = [
        &b"*a*"[..],
        b"*3",
        b"$5",
        b"+OK",
        b"-ERR x",
        b":1",
        b"",
        b"\0",
        b"\r\n",
        b"a\r\n*1\r\n$4\r\nPING\r\n",
    ]
    .into_iter()
    .map(<[u8]>::to_vec)
    .collect();
    all.push(large.collect());
    all
}

#[test]
fn values_that_look_like_protocol_come_back_as_they_went_in() {
    for value in tricky() {
        let mut desk = Desk::new();
        let key_fits = (1..=1024).contains(&value.len());
        let key: &[u8] = if key_fits { &value } else { b"k" };
        let requests = [
            request(&[b"SET", key, &value, b"NX", b"PX", b"60000"]),
            request(&[b"GET", key]),
            request(&[b"DEL", key]),
            request(&[b"GET", key]),
        ];
        let expected = [
            b"+OK\r\n".to_vec(),
            bulk(&value),
            b":1\r\n".to_vec(),
            b"$-1\r\n".to_vec(),
        ];
        for (request, expected) in requests.iter().zip(&expected) {
            assert_eq!(desk.talk(request, usize::MAX), (expected.clone(), false));
        }
        let (requests, expected) = (requests.concat(), expected.concat());
        let piece = if requests.len() > 10_000 { 4093 } else { 1 };
        for piece in [usize::MAX, piece] {
            let answer = Desk::new().talk(&requests, piece);
            assert_eq!(answer, (expected.clone(), false), "{}", key.escape_ascii());
        }
    }
}

#[test]
fn a_cut_at_any_offset_makes_no_difference() {
    for value in tricky().into_iter().filter(|value| value.len() < 100) {
        let requests = [
            request(&[b"SET", b"k", &value, b"nx", b"px", b"60000"]),
            request(&[b"GET", b"k"]),
        ]
        .concat();
        let expected = [b"+OK\r\n".to_vec(), bulk(&value)].concat();
        for cut in 1..requests.len() {
            let answer = Desk::new().talk_in(&[&requests[..cut], &requests[cut..]]);
            assert_eq!(answer, (expected.clone(), false), "cut at {cut}");
        }
    }
}

// Field case FO-16: a lost race is a null string.

#[test]
fn a_lost_race_is_a_null_string() {
    let table = [
        ("SET k a NX PX 60000", "+OK"),
        ("SET k a NX PX 60000", "NULL"),
        ("set k a px 60000 nx", "NULL"),
        ("GET none", "NULL"),
        ("SET none v XX PX 1000", "NULL"),
        ("DEL none", ":0"),
        ("EXPIRE none 5", ":0"),
        ("TTL none", ":-2"),
        ("PTTL k", ":60000"),
        ("SET k", "-ERR wrong number of arguments for 'set' command"),
        ("SET k v NX XX", "-ERR syntax error"),
        (
            "SET k v PX abc",
            "-ERR value is not an integer or out of range",
        ),
        ("PING", "+PONG"),
    ];
    for (hello, null) in [("HELLO 2", "$-1"), ("HELLO 3", "_")] {
        let mut desk = Desk::new();
        desk.say(hello);
        for (line, expected) in table {
            assert_eq!(
                desk.say(line),
                expected.replace("NULL", null),
                "{line} after {hello}"
            );
        }
    }
}

// Field case FO-17: handshakes.

#[test]
fn a_handshake_gets_one_reply_for_each_command() {
    let long = [b'x'; 30 << 10];
    let requests = [
        request(&[b"HELLO", b"3"]),
        request(&[b"CLIENT", b"SETINFO", b"LIB-NAME", b"t"]),
        request(&[b"client", b"setinfo", b"lib-ver", b"1"]),
        request(&[b"CLIENT", b"SETNAME", b"t"]),
        request(&[b"SELECT", b"0"]),
        request(&[b"SELECT", b"5"]),
        request(&[b"INFO"]),
        request(&[b"COMMAND"]),
        request(&[b"CONFIG", b"GET", b"*"]),
        request(&[&long]),
        request(&[b"nosuch", &long, &long]),
        request(&[b"PING"]),
        request(&[b"SET", b"h", b"v", b"NX", b"PX", b"9000"]),
    ];
    let mut desk = Desk::new();
    let mut one_by_one = Vec::new();
    for request in &requests {
        let (answer, closed) = desk.talk(request, usize::MAX);
        assert!(
            !closed && replies(&answer) == 1,
            "{}",
            answer.escape_ascii()
        );
        assert!(!answer.starts_with(b"-") || answer.len() < 400);
        one_by_one.extend(answer);
    }
    let all = requests.concat();
    for piece in [usize::MAX, 1] {
        let mut desk = Desk::new();
        assert_eq!(desk.talk(&all, piece), (one_by_one.clone(), false));
        assert_eq!(desk.say("EXISTS h"), ":1");
        assert_eq!(desk.say("SELECT 0\nEXISTS h"), "+OK :0");
    }
}

/// How many replies these bytes are; panics where they are none.
fn replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let mut missing = 1_usize;
        while missing > 0 {
            let end = bytes.iter().position(|b| *b == b'\n').expect("a line end");
            let (line, rest) = bytes.split_at(end + 1);
            let number = || -> i64 {
                let text = std::str::from_utf8(&line[1..end - 1]).expect("a number");
                text.parse().expect("a number")
            };
            missing -= 1;
            bytes = rest;
            match line[0] {
                b'+' | b'-' | b':' | b'_' | b'#' => {}
                b'$' | b'=' => bytes = &bytes[usize::try_from(number() + 2).unwrap_or(0)..],
                b'*' | b'~' | b'>' => missing += usize::try_from(number()).unwrap_or(0),
                b'%' => missing += 2 * usize::try_from(number()).expect("a size"),
                other => panic!("no reply begins with {other}"),
            }
        }
        count += 1;
    }
    count
}

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

// What must not happen.

#[test]
fn after_a_refused_multi_nothing_runs_by_itself() {
    for multi in [
        "MULTI",
        "multi",
        "MULTI x",
        "SUBSCRIBE c\nMULTI",
        "CLIENT REPLY OFF\nMULTI",
    ] {
        let mut desk = Desk::new();
        desk.say("SET lock mine");
        let answer = desk.say(&format!("{multi}\nDEL lock\nEXEC"));
        assert!(answer.ends_with("closed"), "{multi}: {answer}");
        assert_eq!(desk.say("DEL lock"), " closed");
        desk.reconnect();
        assert_eq!(desk.say("GET lock"), "$4 mine", "{multi}");
    }
    assert_eq!(
        Desk::new().say("MULTI"),
        "-ERR unknown command 'MULTI', with args beginning with: closed"
    );
    assert_eq!(
        Desk::new().say("WATCH a\nEXEC\nPING"),
        "-ERR unknown command 'WATCH', with args beginning with: 'a'  \
         -ERR unknown command 'EXEC', with args beginning with:  +PONG"
    );
}

#[test]
fn http_is_closed_without_a_word_and_runs_nothing() {
    for http in [
        "POST / HTTP/1.1\r\nHost: x\r\n\r\nSET pwn 1\r\nDEL lock\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\n\r\nSET pwn 1\r\nDEL lock\r\n",
    ] {
        let mut desk = Desk::new();
        desk.say("SET lock mine");
        assert_eq!(desk.talk(http.as_bytes(), usize::MAX), (vec![], true));
        desk.reconnect();
        let (_, closed) = desk.talk(http.as_bytes(), 1);
        assert!(closed);
        desk.reconnect();
        assert_eq!(desk.say("MGET lock pwn"), "*2 $4 mine $-1");
    }
}

#[test]
fn nothing_after_quit_is_run() {
    let mut desk = Desk::new();
    assert_eq!(desk.say("SET a 1\nQUIT\nSET b 1"), "+OK +OK closed");
    desk.reconnect();
    assert_eq!(desk.say("EXISTS a b"), ":1");
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
        (&format!("ONCE.CLAIM k ONCE RESULT {long}"), TOO_LONG),
        (&format!("ONCE.COMPLETE k 1 RESULT {long}"), TOO_LONG),
        (&format!("ONCE.CLAIM k PAYLOAD {}", &long[..51]), TOO_LONG),
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

#[test]
fn a_long_pipeline_is_answered_whole_in_bounded_steps() {
    let mut options = Options::default();
    options.limits.pipeline = 7;
    let value = vec![b'v'; 300 << 10];
    let mut requests = request(&[b"SET", b"k", &value]);
    let mut expected = b"+OK\r\n".to_vec();
    for number in 1..=40_u8 {
        requests.extend(request(&[b"GET", b"k"]));
        requests.extend(request(&[b"ECHO", &[number]]));
        expected.extend([bulk(&value), bulk(&[number])].concat());
    }
    let mut desk = Desk::with(options);
    let (mut input, mut all, mut longest) = (BytesMut::from(&requests[..]), Vec::new(), 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        loop {
            let mut output = BytesMut::new();
            let flow = desk
                .session
                .serve(&desk.engine, &mut input, &mut output)
                .await;
            longest = longest.max(output.len());
            all.extend_from_slice(&output);
            if flow == Flow::Continue {
                break;
            }
        }
    });
    assert!(all == expected && input.is_empty());
    assert!(
        longest < (1 << 20) + value.len() + 100,
        "{longest} bytes at once"
    );
}

#[test]
fn a_claim_that_may_wait_lets_earlier_replies_go_first() {
    let mut desk = Desk::new();
    let lines = b"SET a 1\r\nONCE.CLAIM k WAIT 1000\r\nSET b 2\r\n";
    let (mut input, mut output) = (BytesMut::from(&lines[..]), BytesMut::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let flow = desk
            .session
            .serve(&desk.engine, &mut input, &mut output)
            .await;
        assert_eq!((flow, &output[..]), (Flow::More, &b"+OK\r\n"[..]));
        output.clear();
        let flow = desk
            .session
            .serve(&desk.engine, &mut input, &mut output)
            .await;
        assert_eq!(flow, Flow::Continue);
        assert_eq!(replies(&output), 2);
        assert!(output.ends_with(b"+OK\r\n"));
    });
}

#[test]
fn a_selection_holds_for_the_rest_of_its_pipeline() {
    let mut desk = Desk::new();
    desk.check(&[
        ("SET k 0\nSELECT 2\nGET k\nSET k 2\nSELECT 99\nGET k\nSELECT 0\nGET k",
         "+OK +OK $-1 +OK -ERR DB index is out of range $1 2 +OK $1 0"),
        ("GET none\nHELLO 3 SETNAME x\nGET none\nHELLO 2\nGET none",
         "$-1 %7 $6 server $5 redis $7 version $5 7.2.4 $5 proto :3 $2 id :1 $4 mode $10 standalone \
          $4 role $6 master $7 modules *0 _ *14 $6 server $5 redis $7 version $5 7.2.4 $5 proto :2 \
          $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0 $-1"),
        ("ONCE.GET k NS db2", "*42"),
    ][..2]);
    assert!(
        desk.say("ONCE.GET k NS db2")
            .contains("$9 namespace $3 db2 $3 key $1 k")
    );
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
