//! Bytes on the wire: pieces, handshakes, pipelines, and what must never run.

use bytes::BytesMut;

use super::{Desk, bulk, replies, request};
use crate::resp::{Flow, Options};

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
        let mut desk = Desk::new();
        for cut in 1..requests.len() {
            let answer = desk.talk_in(&[&requests[..cut], &requests[cut..]]);
            assert_eq!(answer, (expected.clone(), false), "cut at {cut}");
            assert_eq!(desk.say("DEL k"), ":1");
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
        desk.say(&format!("{multi}\nDEL lock\nGET lock"));
        desk.say("DEL lock\nCLIENT REPLY ON\nEXEC\nRESET");
        assert_eq!(desk.say("GET lock"), "$4 mine", "{multi}");
        assert_eq!(
            desk.say("DEL lock"),
            ":1",
            "{multi}: the transaction is over"
        );
    }
    let refused = "-ERR MULTI was refused, so this command of its transaction was not run; send DISCARD, \
                   or reconnect";
    let arity = "-ERR wrong number of arguments for 'multi' command";
    assert_eq!(
        Desk::new().say("MULTI x\nPING\nEXEC\nPING\nMULTI x\nDISCARD\nPING"),
        format!(
            "{arity} {refused} -EXECABORT Transaction discarded because of previous errors. +PONG \
             {arity} +OK +PONG"
        )
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
fn short_requests_with_long_replies_are_not_gathered_without_end() {
    let mut desk = Desk::new();
    let mut input = BytesMut::from(&"COMMAND\r\n".repeat(1000).into_bytes()[..]);
    let batch = desk.session.read(&mut input);
    let mut output = BytesMut::new();
    desk.session.answer(batch, Vec::new(), &mut output);
    assert!(
        output.len() < (1 << 20) + (64 << 10),
        "{} bytes",
        output.len()
    );
    assert!(replies(&output) > 1 && !input.is_empty());
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
         "$-1 %7 $6 server $5 redis $7 version $5 8.4.0 $5 proto :3 $2 id :1 $4 mode $10 standalone \
          $4 role $6 master $7 modules *0 _ *14 $6 server $5 redis $7 version $5 8.4.0 $5 proto :2 \
          $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0 $-1"),
        ("ONCE.GET k NS db2", "*42"),
    ][..2]);
    assert!(
        desk.say("ONCE.GET k NS db2")
            .contains("$9 namespace $3 db2 $3 key $1 k")
    );
}

#[test]
fn whatever_the_arguments_each_request_gets_one_reply() {
    let seed: u64 = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(5);
    println!("SEED={seed}");
    let mut random = seed;
    let mut next = move |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    let pool: Vec<&[u8]> = "a b c NX XX GT GET EX PX KEEPTTL MATCH COUNT AUTH SETNAME INFO GETNAME ID LIST \
                            SETINFO DOCS LEASE ONCE NS PAYLOAD RESULT FORCE BURY WAIT 0 1 2 -1 3 16 1000 \
                            9223372036854775807 -9223372036854775808 * [ \\ x=y"
        .split(' ')
        .map(str::as_bytes)
        .chain([&b""[..], b"\0", b"\xff\r\n", &[b'k'; 2000]])
        .collect();
    let names = Desk::new().say("COMMAND LIST");
    let names: Vec<&str> = names.split(' ').skip(2).step_by(2).collect();
    assert!(names.len() > 60);
    // Those that answer another number of times, or end the connection.
    let names: Vec<&str> = names
        .into_iter()
        .filter(|name| !name.ends_with("subscribe") && *name != "quit")
        .collect();
    // Two engines that are asked the same, one of them byte by byte.
    let (mut desk, mut bytewise) = (Desk::new(), Desk::new());
    for _ in 0..300 {
        desk.reconnect();
        bytewise.reconnect();
        let (mut requests, mut count) = (Vec::new(), 0);
        for _ in 0..30 {
            let mut args = vec![names[next(names.len())].as_bytes()];
            args.extend((0..next(7)).map(|_| pool[next(pool.len())]));
            requests.extend(request(&args));
            count += 1;
        }
        let (answer, closed) = desk.talk(&requests, usize::MAX);
        assert_eq!(
            (replies(&answer), closed),
            (count, false),
            "{}",
            requests.escape_ascii()
        );
        let (pieces, _) = bytewise.talk(&requests, 1);
        assert!(pieces == answer, "{}", requests.escape_ascii());
    }
}

#[test]
fn a_batch_can_be_decided_by_another_hand() {
    let mut desk = Desk::new();
    let mut input =
        BytesMut::from(&b"SET k v\r\nPING\r\nGET k\r\nHELLO 3\r\nGET no\r\nQUIT\r\nPING\r\n"[..]);
    let mut batch = desk.session.read(&mut input);
    let units = batch.units();
    assert_eq!(units.len(), 3);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let decisions = runtime.block_on(desk.engine.submit(units));
    let mut output = BytesMut::new();
    desk.session.answer(batch, decisions, &mut output);
    assert!(output.starts_with(b"+OK\r\n+PONG\r\n$1\r\nv\r\n%7\r\n"));
    assert!(output.ends_with(b"_\r\n+OK\r\n"));
}
