//! T11: the clock, and lifetimes at the edge.

use onced::engine::clock::{ManualClock, Source};
use onced::engine::{Engine, Options, Unit};
use onced::model::command::{Claim, Command, Mode, Verb};
use onced::model::key::RecordKey;
use onced::model::outcome::Verdict;
use onced::model::record::Retention;
use onced::model::time::Span;

use super::{Case, claim, ok, token};
use crate::support::redis::Reply;

const DAY: u64 = 86_400_000;
const START: u64 = 1_700_000_000_000;

async fn verdict(engine: &Engine, key: &str, verb: Verb) -> Verdict {
    let key = RecordKey::new("default", key.as_bytes()).unwrap();
    let unit = Unit::One(Command::new(key, verb));
    engine.submit(vec![unit]).await.remove(0).unwrap().verdict
}

fn leased() -> Verb {
    let claim = Claim {
        lease: Some(Span::from_secs(60)),
        ..Claim::default()
    };
    Verb::Claim(Box::new(claim))
}

/// The wall clock jumps by a year, back by a day, or for ten seconds: leases end when they would have, also
/// over a restart, and what is done stays done.
#[tokio::test]
async fn fo_29_a_jump_of_the_wall_clock_ends_no_lease_and_forgets_nothing() {
    for (jump, back) in [
        (365 * DAY as i64, false),
        (-(DAY as i64), false),
        (25 * 3_600_000, true),
    ] {
        for restart in [false, true] {
            let what = format!("jump by {jump} ms, restart {restart}");
            let dir = tempfile::tempdir().unwrap();
            let clock = ManualClock::new(START, 5_000_000);
            let open = || {
                let options = Options {
                    clock: Source::Manual(clock.clone()),
                    ..Options::default()
                };
                Engine::open(dir.path(), options).unwrap().0
            };
            let mut engine = open();
            let done = Claim {
                mode: Mode::Once { result: None },
                retention: Some(Retention::For(Span::from_secs(24 * 3600))),
                ..Claim::default()
            };
            let done = Verb::Claim(Box::new(done));
            for (key, verb) in [("leased", leased()), ("done", done.clone())] {
                let got = verdict(&engine, key, verb).await;
                assert!(matches!(got, Verdict::Acquired(_)), "{what}: {got:?}");
            }
            let mut wall = START + 5000;
            clock.advance(Span::from_secs(5));
            wall = wall.saturating_add_signed(jump);
            clock.set_wall(wall);
            if restart {
                engine.close().unwrap();
                engine = open();
            }
            for _ in 0..54 {
                assert_eq!(
                    verdict(&engine, "leased", leased()).await,
                    Verdict::Busy,
                    "{what}"
                );
                assert_eq!(
                    verdict(&engine, "done", done.clone()).await,
                    Verdict::Done,
                    "{what}"
                );
                clock.advance(Span::from_secs(1));
                wall += 1000;
                if back {
                    // It was only for a moment.
                    wall = wall.saturating_add_signed(-jump);
                    clock.set_wall(wall);
                    wall = wall.saturating_add_signed(jump);
                }
            }
            clock.advance(Span::from_secs(1));
            let got = verdict(&engine, "leased", leased()).await;
            assert!(
                matches!(got, Verdict::Acquired(_)),
                "{what}, a minute later: {got:?}"
            );
            assert_eq!(
                verdict(&engine, "done", done.clone()).await,
                Verdict::Done,
                "{what}"
            );
            engine.close().unwrap();
        }
    }
}

/// Odd lifetimes are errors, nothing is stored, and what was there keeps its own.
#[test]
fn fo_30_an_odd_lifetime_is_an_error_and_never_success_but_gone() {
    let case = Case::start();
    let (mut http, mut redis) = (case.server().http(), case.server().redis());
    assert_eq!(redis.command("SET live v NX EX 1000"), ok());
    let kept = |redis: &mut crate::support::Redis, what: &str| {
        assert_eq!(
            redis.command("GET live"),
            Reply::Bytes(b"v".into()),
            "{what}"
        );
        match redis.command("PTTL live") {
            Reply::Integer(left) => {
                assert!((900_000..=1_000_000).contains(&left), "{what}: {left}")
            }
            other => panic!("{what}: {other:?}"),
        }
    };
    let odd = [
        "PX 0",
        "PX -1",
        "PX 1.5",
        "PX abc",
        "PX ",
        "PX 9223372036854775807",
        "PX 9223372036854775808",
        "EX 9223372036854775",
        "EX 9223372036854775807",
        "PXAT 9223372036854775808",
        "EXAT -1",
    ];
    for option in odd {
        for (key, more) in [("new", " NX"), ("live", ""), ("live", " XX")] {
            let line = format!("SET {key} other {option}{more}");
            match redis.command(&line) {
                Reply::Error(text) => assert!(text.starts_with("ERR"), "{line}: {text}"),
                other => panic!("{line}: {other:?}"),
            }
            assert_eq!(redis.command("EXISTS new"), Reply::Integer(0), "{line}");
            kept(&mut redis, &line);
        }
    }
    for line in [
        "EXPIRE live 9223372036854775807",
        "PEXPIRE live 9223372036854775808",
        "EXPIRE live 1.5",
        "EXPIRE live ",
        "SETEX live 0 other",
        "PSETEX live -5 other",
        "GETEX live EX 0",
    ] {
        assert!(matches!(redis.command(line), Reply::Error(_)), "{line}");
        kept(&mut redis, line);
    }
    // As in Redis: an expiry in the past deletes. The manual names it.
    for (number, seconds) in [(0, "0"), (1, "-1")] {
        assert_eq!(redis.command(&format!("SET past{number} v EX 100")), ok());
        let expire = redis.command(&format!("EXPIRE past{number} {seconds}"));
        assert_eq!(expire, Reply::Integer(1));
        assert_eq!(
            redis.command(&format!("EXISTS past{number}")),
            Reply::Integer(0)
        );
    }

    for name in ["lease", "retention"] {
        for value in [
            "0",
            "-1",
            "null",
            "",
            "%2230%22",
            "1.5",
            "1e30",
            "9223372036854775808",
            "0s",
        ] {
            let answer = claim(&mut http, "odd", &format!("{name}={value}"));
            assert_eq!(
                (answer.status, answer.outcome()),
                (400, "bad_input"),
                "{name}={value}"
            );
            assert_eq!(
                http.get("/v1/claims/default/odd").status,
                404,
                "{name}={value}"
            );
        }
    }
    let absent = claim(&mut http, "absent", "");
    let record = http.get("/v1/claims/default/absent").json();
    assert_eq!(
        (record["lease_ms"].as_u64(), absent.status),
        (Some(60_000), 201)
    );
    // A lease longer than what follows it is no contradiction.
    assert_eq!(
        claim(&mut http, "longer", "lease=24h&retention=1s").status,
        201
    );
    let short = token(&claim(&mut http, "short", "lease=1ms"));
    let begun = std::time::Instant::now();
    while claim(&mut http, "short", "").status != 201 {
        assert!(begun.elapsed() < crate::support::PATIENCE);
    }
    let late = http.post(
        &format!("/v1/claims/default/short/complete?token={short}"),
        b"",
    );
    assert_eq!((late.status, late.outcome()), (412, "stale"));
}
