//! T1: the claim and the saved result.

use std::collections::BTreeMap;

use super::{Case, at_once, claim, ok, send, token};
use crate::support::redis::{Reply, encode};

/// The second request arrives before the first one finishes: one winner, calm answers for the others.
#[test]
fn fo_01_of_requests_that_overlap_one_wins_and_the_others_are_told_so() {
    let case = Case::start();
    let server = case.server();
    let race = |key: &'static str| {
        let outcomes = at_once(64, |_| {
            let mut http = server.http();
            Box::new(move || {
                let answer = claim(&mut http, key, "lease=30s");
                (answer.status, answer.outcome().to_owned())
            })
        });
        let mut counts = BTreeMap::new();
        for outcome in outcomes {
            *counts.entry(outcome).or_insert(0) += 1;
        }
        counts
    };
    let one_of_64 = [
        ((201, "acquired".to_owned()), 1),
        ((409, "busy".to_owned()), 63),
    ];
    assert_eq!(race("ord-1"), BTreeMap::from(one_of_64));

    // Many keys, four clients on each.
    const KEYS: usize = 2000;
    let grants = at_once(4, |_| {
        let mut http = server.http();
        Box::new(move || {
            let won = |key: &usize| match claim(&mut http, &format!("many-{key}"), "lease=30s") {
                answer if answer.outcome() == "acquired" => true,
                answer => {
                    assert_eq!(answer.outcome(), "busy", "{answer:?}");
                    false
                }
            };
            (0..KEYS).filter(won).collect::<Vec<_>>()
        })
    });
    let mut won: Vec<usize> = grants.into_iter().flatten().collect();
    won.sort_unstable();
    assert_eq!(
        won,
        (0..KEYS).collect::<Vec<_>>(),
        "each key once, none twice"
    );

    // By SET NX, and then both faces on one key: one key space, one winner.
    let by_set = at_once(64, |number| {
        let mut redis = server.redis();
        Box::new(move || redis.command(&format!("SET ord-r client-{number} NX PX 30000")))
    });
    assert_eq!(by_set.iter().filter(|reply| **reply == ok()).count(), 1);
    assert_eq!(
        by_set.iter().filter(|reply| **reply == Reply::Null).count(),
        63
    );
    let by_both = at_once(64, |number| {
        let (mut http, mut redis) = (server.http(), server.redis());
        Box::new(move || match number % 2 {
            0 => claim(&mut http, "both", "lease=30s").status == 201,
            _ => match redis.command("SET both me NX PX 30000") {
                Reply::Status(_) => true,
                other => {
                    assert_eq!(other, Reply::Null);
                    false
                }
            },
        })
    });
    assert_eq!(by_both.iter().filter(|won| **won).count(), 1);

    // While the winner holds it, and when it is done.
    let mut http = server.http();
    let held = claim(&mut http, "held", "lease=30s");
    let busy = BTreeMap::from([((409, "busy".to_owned()), 64)]);
    assert_eq!(race("held"), busy);
    let complete = format!("/v1/claims/default/held/complete?token={}", token(&held));
    assert_eq!(http.post(&complete, b"R\r\n\0").outcome(), "completed");
    let done = BTreeMap::from([((200, "done".to_owned()), 64)]);
    assert_eq!(race("held"), done);
    assert_eq!(http.get("/v1/claims/default/held/result").body, b"R\r\n\0");
}

/// What is replayed is what was saved: bytes, type and status, also after a crash, and marked as a replay.
#[test]
fn fo_02_a_replayed_result_is_the_original_to_the_byte_and_marked() {
    let mut case = Case::start();
    let every_byte: Vec<u8> = (0..=255).collect();
    // Looks like what gzip writes; nobody may take the head of it for a transfer coding.
    let packed: Vec<u8> = [0x1f, 0x8b, 8, 0]
        .into_iter()
        .chain((0..1_048_572_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8))
        .collect();
    assert_eq!(packed.len(), 1 << 20);
    let results: [(&str, &str, Option<u16>, Vec<u8>); 5] = [
        ("a", "application/octet-stream", None, every_byte),
        (
            "b",
            "application/json",
            Some(402),
            b"{\"paid\": false}".to_vec(),
        ),
        ("c", "text/plain", Some(204), Vec::new()),
        ("d", "application/json", Some(200), packed),
        ("e", "text/plain", None, b"caf\xe9 \xff\xfe".to_vec()),
    ];
    let mut http = case.server().http();
    for (key, kind, status, body) in &results {
        let token = token(&claim(&mut http, key, ""));
        let status = status.map_or(String::new(), |status| format!("&status={status}"));
        let path = format!("/v1/claims/default/{key}/complete?token={token}{status}");
        let kind = format!("content-type: {kind}\r\n");
        let answer = send(&mut http, "POST", &path, &kind, body);
        assert_eq!(answer.outcome(), "completed", "{key}: {answer:?}");
    }
    for round in ["before", "after"] {
        let mut http = case.server().http();
        for (key, kind, status, body) in &results {
            for _ in 0..2 {
                let answer = claim(&mut http, key, "");
                assert_eq!((answer.status, answer.outcome()), (200, "done"), "{key}");
                assert_eq!(answer.header("idempotent-replayed"), Some("true"), "{key}");
                let result = &answer.json()["result"];
                assert_eq!(result["content_type"], *kind, "{key}, {round} the crash");
                assert_eq!(result["size"], body.len(), "{key}, {round} the crash");
                assert_eq!(result["status"].as_u64(), status.map(u64::from), "{key}");
            }
            let raw = http.get(&format!("/v1/claims/default/{key}/result"));
            assert!(raw.body == *body, "{key}, {round} the crash: other bytes");
            assert_eq!(raw.header("content-type"), Some(*kind), "{key}");
            let shown = raw.header("onced-result-status").map(str::to_owned);
            assert_eq!(shown, status.map(|status| status.to_string()), "{key}");
        }
        // The same bytes over the other face.
        let mut redis = case.server().redis();
        for (key, _, _, body) in &results {
            redis.send(&encode(&[b"GET", key.as_bytes()]));
            assert!(redis.reply() == Reply::Bytes(body.clone()), "GET {key}");
        }
        if round == "before" {
            case.crash();
        }
    }
    // A failure that was given back is no outcome: the next one works.
    let mut http = case.server().http();
    let held = token(&claim(&mut http, "f", ""));
    let fail = format!("/v1/claims/default/f/fail?token={held}&error=timeout&retry_in=0");
    assert_eq!(http.post(&fail, b"").outcome(), "failed");
    let again = claim(&mut http, "f", "");
    assert_eq!(again.outcome(), "acquired");
    assert_eq!(again.json()["attempt"], 2);
    assert_eq!(again.header("idempotent-replayed"), None);
}
