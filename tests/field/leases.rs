//! T2 and what the end of a lease means (T9): leases, tokens, locks, crash loops.

use std::time::{Duration, Instant};

use super::{Case, at_once, claim, ok, token};
use crate::support::redis::Reply;
use crate::support::{Http, PATIENCE, Server, onced};

/// How late a machine with other work may be.
const TOLERANCE: Duration = Duration::from_millis(250);

fn act(http: &mut Http, key: &str, verb: &str, token: u64, more: &str) -> String {
    let path = format!("/v1/claims/default/{key}/{verb}?token={token}{more}");
    http.post(&path, b"").outcome().to_owned()
}

/// A lease as its holder knows it: between these instants it began.
#[derive(Clone, Copy)]
struct Lease {
    sent: Instant,
    answered: Instant,
    span: Duration,
}

impl Lease {
    /// Whatever claims with a lease, timed.
    fn of<T>(span: Duration, claims: impl FnOnce() -> T) -> (Lease, T) {
        let sent = Instant::now();
        let got = claims();
        let answered = Instant::now();
        let lease = Lease {
            sent,
            answered,
            span,
        };
        (lease, got)
    }

    /// Claims again and again: refused while the lease runs, acquired when it is over, neither early nor late.
    /// The token and the attempt.
    fn taken_over(self, http: &mut Http, key: &str, options: &str) -> (u64, u64) {
        let mut left = u64::MAX;
        loop {
            let asked = Instant::now();
            let answer = claim(http, key, options);
            let json = answer.json();
            match answer.outcome() {
                "acquired" => {
                    let early = self.sent + self.span;
                    assert!(Instant::now() >= early, "taken over while the lease ran");
                    return (token(&answer), json["attempt"].as_u64().unwrap());
                }
                "busy" => {
                    let end = self.answered + self.span + TOLERANCE;
                    assert!(asked < end, "still busy after the lease");
                    let now = json["retry_after_ms"].as_u64().unwrap();
                    assert!(now <= left, "the time left grows: {left}, then {now}");
                    left = now;
                }
                other => panic!("{key}: {other}: {json}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The late owner's release is refused and frees nothing, over both faces.
#[test]
fn fo_03_a_late_owner_does_not_free_its_successors_lock() {
    let case = Case::start();
    let (mut a, mut b) = (case.server().http(), case.server().http());
    let span = Duration::from_millis(300);
    let (lease, first) = Lease::of(span, || claim(&mut a, "k", "lease=300ms&owner=a"));
    let first = token(&first);
    let (second, _) = lease.taken_over(&mut b, "k", "lease=30s&owner=b");
    assert!(second > first);
    assert_eq!(act(&mut a, "k", "release", first, ""), "stale");
    let left = |http: &mut Http| http.get("/v1/claims/default/k").json()["lease_left_ms"].as_u64();
    assert!(left(&mut a).unwrap() > 20_000);
    assert_eq!(claim(&mut a, "k", "").outcome(), "busy");
    // While the late one insists, the holder goes on.
    let attacks = std::thread::spawn(move || {
        for verb in ["release", "renew", "complete", "fail", "effect"].repeat(20) {
            assert_eq!(act(&mut a, "k", verb, first, ""), "stale", "{verb}");
        }
        a
    });
    while !attacks.is_finished() {
        assert_eq!(act(&mut b, "k", "renew", second, "&lease=30s"), "renewed");
    }
    let mut a = attacks.join().unwrap();
    let record = a.get("/v1/claims/default/k").json();
    assert_eq!(
        (&record["state"], &record["owner"]),
        (&"pending".into(), &"b".into())
    );
    assert_eq!(record["token"], second);

    // By SET NX, the value is the token; until scripts compare it, nothing may delete by accident.
    let mut redis = case.server().redis();
    assert_eq!(redis.command("SET r A NX PX 200"), ok());
    let begun = Instant::now();
    while redis.command("SET r B NX PX 30000") != ok() {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(redis.command("SET r C NX PX 1000"), Reply::Null);
    assert_eq!(
        redis.command("SET r C NX GET PX 1000"),
        Reply::Bytes(b"B".into())
    );
    // And a cache's delete does not reach a claim.
    assert!(matches!(redis.command("DEL k"), Reply::Error(text) if text.starts_with("WRONGTYPE")));
}

/// A worker that is killed loses its key when its lease is over; one that renews keeps it; both over a crash.
#[test]
fn fo_04_a_lease_ends_without_its_owner_and_not_while_it_is_renewed() {
    let mut case = Case::start();
    // The worker is a process that ends without a word.
    let work = |server: &Server, key: &str, span: Duration| {
        let url = format!("http://{}", server.http_address());
        let lease = format!("{}ms", span.as_millis());
        let (lease, worker) = Lease::of(span, || {
            onced()
                .args(["claim", key, "--url", &url, "--lease", &lease, "--json"])
                .output()
                .unwrap()
        });
        let json: serde_json::Value = serde_json::from_slice(&worker.stdout).unwrap();
        assert_eq!(json["outcome"], "acquired");
        (lease, json["token"].as_u64().unwrap())
    };
    let (lease, dead) = work(case.server(), "dead", Duration::from_millis(1000));
    let (next, attempt) = lease.taken_over(&mut case.server().http(), "dead", "");
    assert!(next > dead);
    assert_eq!(attempt, 2);

    // The job takes ten times its lease, and nobody else gets it.
    let (mut holder, mut other) = (case.server().http(), case.server().http());
    let held = token(&claim(&mut holder, "long", "lease=1500ms"));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        assert_eq!(act(&mut holder, "long", "renew", held, ""), "renewed");
        assert_eq!(claim(&mut other, "long", "").outcome(), "busy");
        std::thread::sleep(Duration::from_millis(100));
    }

    // The server dies too: the lease survives it, and ends on time.
    let (lease, dead) = work(case.server(), "both-dead", Duration::from_millis(2500));
    case.crash();
    let (next, attempt) = lease.taken_over(&mut case.server().http(), "both-dead", "");
    assert!(next > dead);
    assert_eq!(attempt, 2);
}

/// Old habits do not make immortal locks.
#[test]
fn fo_05_a_lock_set_without_an_expiry_has_one_all_the_same() {
    let case = Case::start();
    let left = |key: &str| match case.server().redis().command(&format!("PTTL {key}")) {
        Reply::Integer(left) => left,
        other => panic!("{key}: {other:?}"),
    };
    let retention = 72 * 3600 * 1000;
    for set in ["SET k w1 NX", "SETNX k2 w1"] {
        let mut redis = case.server().redis();
        assert!([ok(), Reply::Integer(1)].contains(&redis.command(set)));
        drop(redis);
        let key = set.split(' ').nth(1).unwrap();
        let left = left(key);
        assert!(left > 0 && left <= retention, "{key}: {left}");
    }
    let mut redis = case.server().redis();
    // As in Redis: a plain SET takes the expiry away. The manual warns of it.
    assert_eq!(redis.command("SET k3 v NX PX 5000"), ok());
    assert!((1..=5000).contains(&left("k3")));
    assert_eq!(redis.command("SET k3 v2"), ok());
    assert_eq!(left("k3"), -1);
    assert_eq!(redis.command("GET k3"), Reply::Bytes(b"v2".into()));
    let syntax = Reply::Error("ERR syntax error".into());
    assert_eq!(redis.command("SET k4 v EX 10 KEEPTTL"), syntax);
    assert_eq!(redis.command("EXISTS k4"), Reply::Integer(0));
}

/// Attempts count when the work is handed out: who kills its worker uses them up too.
#[test]
fn fo_25_a_crash_loop_ends_in_the_dead_letters() {
    let mut case = Case::start();
    const OPTIONS: &str = "max_attempts=3&lease=150ms";
    let span = Duration::from_millis(150);
    let ended = |http: &mut Http, key: &str| {
        // The fourth claim is refused, whether it comes at the end of the lease or later.
        let begun = Instant::now();
        loop {
            let answer = claim(http, key, OPTIONS);
            match answer.outcome() {
                "dead" => return answer,
                "busy" => assert!(begun.elapsed() < PATIENCE),
                other => panic!("{key}: {other}: a fourth run"),
            }
        }
    };
    // c: the worker crashes. f: it says that it failed. s: the server is stopped politely meanwhile.
    for (key, life) in [("a", "ccc"), ("b", "fff"), ("c", "cfc"), ("d", "csc")] {
        let mut http = case.server().http();
        let (mut lease, first) = Lease::of(span, || claim(&mut http, key, OPTIONS));
        let mut held = (token(&first), 1);
        for (attempt, event) in life.chars().enumerate() {
            assert_eq!(held.1, attempt as u64 + 1, "{key}: {life}");
            if event == 'f' {
                let more = "&error=refused&retry_in=0";
                assert_eq!(act(&mut http, key, "fail", held.0, more), "failed");
            }
            if event == 's' {
                case.restart();
                http = case.server().http();
            }
            if attempt < 2 {
                let (next, got) = if event == 'f' {
                    Lease::of(span, || {
                        let answer = claim(&mut http, key, OPTIONS);
                        (token(&answer), answer.json()["attempt"].as_u64().unwrap())
                    })
                } else {
                    let sent = lease;
                    // The new lease began at the latest now.
                    let got = sent.taken_over(&mut http, key, OPTIONS);
                    let now = Instant::now();
                    let lease = Lease {
                        sent: now.checked_sub(TOLERANCE).unwrap(),
                        answered: now,
                        span,
                    };
                    (lease, got)
                };
                (lease, held) = (next, got);
            }
        }
        let refused = ended(&mut http, key);
        assert_eq!(refused.status, 409);
        assert_eq!(refused.header("retry-after"), None);
        let list = http.get("/v1/claims/default?state=dead").json();
        let records = list["records"].as_array().unwrap();
        let record = records.iter().find(|record| record["key"] == key).unwrap();
        assert_eq!(record["attempt"], 3, "{record}");
        let error = if life.ends_with('f') {
            "refused"
        } else {
            "lease ended"
        };
        assert_eq!(record["last_error"], error, "{record}");
        assert!(record["claimed_at"].is_string());
    }

    // Six clients claim at the instant of the third end: nobody runs it a fourth time.
    let mut http = case.server().http();
    for attempt in 1..=3 {
        let begun = Instant::now();
        loop {
            let answer = claim(&mut http, "e", OPTIONS);
            if answer.outcome() == "acquired" {
                assert_eq!(answer.json()["attempt"], attempt);
                break;
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    }
    let server = case.server();
    let refused = at_once(6, |_| {
        let mut http = server.http();
        Box::new(move || ended(&mut http, "e").json()["attempt"].clone())
    });
    assert_eq!(refused, vec![serde_json::json!(3); 6]);
}
