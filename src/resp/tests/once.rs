//! The verbs of claims, in both protocols.

use super::{Desk, request};
use crate::model::time::Span;

/// A conversation. `>` says something, `2` and `3` are what is answered in that protocol, line ends shown as
/// blanks; `~` lets so many milliseconds pass.
const TRANSCRIPT: &str = include_str!("once.txt");

#[test]
fn every_verb_answers_in_both_protocols_as_written_down() {
    for protocol in ["2", "3"] {
        let mut desk = Desk::new();
        desk.say(&format!("HELLO {protocol}"));
        let (mut said, mut answer, mut checked) = ("", String::new(), 0);
        for line in TRANSCRIPT.lines() {
            match line.split_once(' ') {
                Some((">", line)) => {
                    said = line;
                    answer = desk.say(line);
                }
                Some(("~", millis)) => {
                    let millis = millis.parse().expect("milliseconds");
                    desk.clock.advance(Span::from_millis(millis));
                }
                Some((mark, expected)) if mark == protocol => {
                    assert_eq!(answer, expected, "{said}");
                    checked += 1;
                }
                _ => {}
            }
        }
        assert!(checked > 30, "{checked}");
    }
}

#[test]
fn what_cannot_be_understood_is_an_error_that_names_it() {
    const INTEGER: &str = "-ERR value is not an integer or out of range";
    const TOKEN: &str =
        "-ERR a token is an integer from 1 to 9007199254740991: the one ONCE.CLAIM answered";
    const GENERATION: &str = "-ERR a generation is an integer of 1 or more: the one ONCE.GET shows";
    let mut desk = Desk::new();
    desk.check(&[
        ("ONCE.CLAIM", "-ERR wrong number of arguments for 'once.claim' command"),
        ("ONCE.COMPLETE k", "-ERR wrong number of arguments for 'once.complete' command"),
        ("ONCE.CLAIM k FOO", "-ERR syntax error: ONCE.CLAIM has no option 'FOO'"),
        ("ONCE.CLAIM k status 1", "-ERR syntax error: ONCE.CLAIM has no option 'status'"),
        ("once.renew k 1 RESULT x", "-ERR syntax error: ONCE.RENEW has no option 'RESULT'"),
        ("ONCE.CLAIM k LEASE 1 lease 2", "-ERR syntax error: option LEASE is given twice"),
        ("ONCE.CLAIM k ONCE once", "-ERR syntax error: option ONCE is given twice"),
        ("ONCE.CLAIM k LEASE", "-ERR syntax error: option LEASE needs a value"),
        ("ONCE.CLAIM k LEASE x", INTEGER),
        ("ONCE.CLAIM k LEASE -1", INTEGER),
        ("ONCE.CLAIM k LEASE 5s", INTEGER),
        ("ONCE.CLAIM k LEASE 0", "-ERR a lease is 1ms to 24h"),
        ("ONCE.CLAIM k LEASE 86400001", "-ERR a lease is 1ms to 24h"),
        ("ONCE.CLAIM k RETENTION never", INTEGER),
        ("ONCE.CLAIM k RETENTION 999", "-ERR a retention is 1s to 3650d, or forever"),
        ("ONCE.CLAIM k MAXATTEMPTS 1.5", INTEGER),
        ("ONCE.CLAIM k MAXATTEMPTS 4294967296", INTEGER),
        ("ONCE.CLAIM k MAXATTEMPTS 1000001", "-ERR max_attempts is 0 (no limit) to 1000000"),
        ("ONCE.CLAIM k ONLEASEEND drop", "-ERR ONLEASEEND is retry or hold"),
        ("ONCE.CLAIM k OWNER ''", "-ERR owner has 1 to 128 bytes"),
        ("ONCE.CLAIM k OWNER \"\\xff\"", "-ERR OWNER is text, in UTF-8"),
        ("ONCE.CLAIM k WAIT 60001", "-ERR wait is at most 1m"),
        ("ONCE.CLAIM k TYPE text/plain", "-ERR TYPE is the content type of PAYLOAD, and there is none"),
        ("ONCE.CLAIM k PAYLOAD x TYPE ''", "-ERR a content type has 1 to 256 printable ASCII characters"),
        (
            "ONCE.CLAIM k RESULT x",
            "-ERR RESULT is what a claim with ONCE leaves behind; add ONCE, or use ONCE.COMPLETE",
        ),
        (
            "ONCE.CLAIM k NS Orders",
            "-ERR a namespace is 1 to 64 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
        ),
        ("ONCE.COMPLETE k 0", TOKEN),
        ("ONCE.COMPLETE k abc", TOKEN),
        ("ONCE.COMPLETE k -1", TOKEN),
        ("ONCE.RENEW k 9007199254740992", TOKEN),
        ("ONCE.EFFECT k 01", TOKEN),
        ("ONCE.RELEASE k ''", TOKEN),
        ("ONCE.FAIL k 1x", TOKEN),
        ("ONCE.COMPLETE k 1 STATUS x", INTEGER),
        ("ONCE.COMPLETE k 1 STATUS 99", "-ERR a status is 100 to 599"),
        ("ONCE.COMPLETE k 1 STATUS 70000", "-ERR a status is 100 to 599"),
        ("ONCE.FAIL k 1 RETRY -1", INTEGER),
        ("ONCE.REPLAY k 0", GENERATION),
        ("ONCE.REPLAY k x", GENERATION),
        ("ONCE.REPLAY k 4294967296", GENERATION),
        ("EXISTS k", ":0"),
    ]);
    let long = "e".repeat(4097);
    let answer = desk.say(&format!("ONCE.FAIL k 1 ERROR {long}"));
    assert_eq!(answer, "-ERR an error text has at most 4096 bytes");
}

#[test]
fn bodies_and_keys_are_any_bytes() {
    let (key, body) = (b"\xff\r\n\0", b"\x00\xfe\r\n$3\r\n");
    let mut desk = Desk::new();
    let claim = request(&[b"ONCE.CLAIM", key, b"PAYLOAD", body, b"STORE"]);
    let (answer, _) = desk.talk(&claim, usize::MAX);
    assert!(answer.windows(9).any(|part| part == b"\xff\r\n\0\r\n$5\r"));
    assert!(answer.ends_with(b"$7\r\npayload\r\n$8\r\n\x00\xfe\r\n$3\r\n\r\n"));
    let complete = request(&[b"ONCE.COMPLETE", key, b"1", b"RESULT", body]);
    desk.talk(&complete, usize::MAX);
    let (answer, _) = desk.talk(&request(&[b"GET", key]), usize::MAX);
    assert_eq!(answer, b"$8\r\n\x00\xfe\r\n$3\r\n\r\n");
}

#[test]
fn a_payload_of_no_bytes_is_no_payload() {
    let mut desk = Desk::new();
    desk.say("ONCE.CLAIM k PAYLOAD '' TYPE text/plain STORE");
    let record = desk.say("ONCE.GET k");
    assert!(
        !record.contains("payload") && !record.contains("fingerprint"),
        "{record}"
    );
    assert!(desk.say("ONCE.CLAIM k PAYLOAD x").contains("busy"));
}

#[test]
fn an_error_text_that_is_not_utf_8_is_kept_all_the_same() {
    let mut desk = Desk::new();
    desk.say("ONCE.CLAIM k\nONCE.FAIL k 1 ERROR \"bad \\xff byte\"");
    assert!(
        desk.say("ONCE.GET k")
            .contains("last_error $12 bad \u{fffd} byte")
    );
}
