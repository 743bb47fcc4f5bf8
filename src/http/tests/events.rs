//! The audit trail: what is told of decisions, followed, and refused once it is no longer kept.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{House, Options, Reply, request};
use crate::engine::{self, MAX_READERS};
use crate::http::stream::Reply as Outgoing;
use crate::http::{Readiness, handle};

/// Long enough to be sure that nothing comes.
const HANG: Duration = Duration::from_secs(20);

fn events(reply: &Reply) -> Vec<Value> {
    let lines = reply.body.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn names(events: &[Value]) -> Vec<String> {
    let text = |event: &Value, name: &str| event[name].as_str().unwrap_or("-").to_owned();
    let name = |event| format!("{} {}", text(event, "key"), text(event, "event"));
    events.iter().map(name).collect()
}

/// The body of an answer that goes on.
async fn open(house: &House, target: &str) -> (u16, Outgoing) {
    let response = handle(&house.face, request("GET", target, &[], Bytes::new())).await;
    (response.status().as_u16(), response.into_body())
}

/// The next piece; `None` at the end.
async fn piece(body: &mut Outgoing) -> Option<String> {
    let frame = timeout(HANG, body.frame()).await.expect("a piece")?;
    let bytes = frame.unwrap().into_data().unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

/// Asks until the answer is as wanted.
async fn until(house: &House, target: &str, is: impl Fn(&Reply) -> bool) -> Reply {
    let asked = async {
        loop {
            let reply = house.ask("GET", target).await;
            if is(&reply) {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG, asked).await.expect("it becomes so")
}

#[tokio::test]
async fn events_tell_who_decided_what_in_order_and_without_bodies() {
    let house = House::new();
    let claim = "/v1/claims/orders/a";
    let token = house
        .send(
            "POST",
            &format!("{claim}?owner=me&store=true"),
            &[],
            "secret",
        )
        .await
        .token();
    house
        .send(
            "POST",
            &format!("{claim}/complete?token={token}"),
            &[],
            "hidden",
        )
        .await;
    house
        .ask("POST", "/v1/claims/orders/-?key=%FF&owner=you")
        .await;
    house
        .send("PUT", "/v1/namespaces/orders", &[], "{\"lease\":\"5s\"}")
        .await;
    let reply = house.ask("GET", "/v1/events").await;
    assert_eq!((reply.status, reply.outcome()), (200, "ok"));
    assert_eq!(reply.header("content-type"), "application/x-ndjson");
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    assert!(!text.contains("secret") && !text.contains("hidden"));
    let told = events(&reply);
    assert_eq!(
        told[0],
        json!({"lsn": told[0]["lsn"], "at": "2026-01-02T03:04:05.678Z", "ns": "orders", "key": "a",
            "event": "acquired", "outcome": "acquired", "token": token, "attempt": 1, "generation": 1,
            "by": "me", "count": 1})
    );
    assert_eq!(
        names(&told),
        ["a acquired", "a completed", "- acquired", "- policy"]
    );
    assert_eq!(told[2]["key_base64"], "/w==");
    assert_eq!(told[3]["key"], Value::Null);
    let lsns: Vec<_> = told
        .iter()
        .map(|event| event["lsn"].as_u64().unwrap())
        .collect();
    assert!(lsns.is_sorted_by(|one, next| one < next), "{lsns:?}");

    for (query, expected) in [
        (format!("after={}", lsns[1]), &told[2..]),
        (format!("after={}&limit=1", lsns[0]), &told[1..2]),
        (format!("after={}", lsns[3]), &told[4..]),
        ("ns=orders&key=a".to_owned(), &told[..2]),
        ("key=%FF".to_owned(), &told[2..3]),
        ("ns=other".to_owned(), &told[4..]),
    ] {
        let reply = house.ask("GET", &format!("/v1/events?{query}")).await;
        assert_eq!(events(&reply), expected, "{query}");
    }
    let head = house.ask("HEAD", "/v1/events").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    for (query, word) in [
        ("after=-1", "after"),
        ("limit=0", "limit"),
        ("ns=NS", "namespace"),
        ("follow=yes", "follow"),
        ("after=99999", "another store"),
    ] {
        let reply = house.ask("GET", &format!("/v1/events?{query}")).await;
        reply.assert_problem(400, "bad_input");
        assert!(reply.detail().contains(word), "{query}: {}", reply.detail());
    }
}

#[tokio::test]
async fn duplicates_appear_with_their_count_and_who_was_refused() {
    let house = House::new();
    for _ in 0..4 {
        house.ask("POST", "/v1/claims/ns/k?owner=me").await;
    }
    let there = |reply: &Reply| names(&events(reply)).contains(&"k claim".to_owned());
    let told = events(&until(&house, "/v1/events?ns=ns", there).await);
    let busy: Vec<_> = told
        .iter()
        .filter(|event| event["outcome"] == "busy")
        .collect();
    let counts = busy.iter().map(|event| event["count"].as_u64().unwrap());
    assert!(counts.sum::<u64>() <= 3);
    assert_eq!(busy[0]["by"], "me");
}

#[tokio::test]
async fn a_follower_is_told_what_becomes_durable_until_the_server_stops() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/a").await;
    let (status, mut body) = open(&house, "/v1/events?follow=true&ns=ns").await;
    assert_eq!(status, 200);
    assert!(
        piece(&mut body)
            .await
            .unwrap()
            .contains("\"key\":\"a\",\"event\":\"acquired\"")
    );
    house.ask("POST", "/v1/claims/other/x").await;
    house.ask("POST", "/v1/claims/ns/b").await;
    let next = piece(&mut body).await.unwrap();
    assert!(
        next.contains("\"key\":\"b\"") && !next.contains("\"key\":\"x\""),
        "{next}"
    );
    let waiting = timeout(Duration::from_millis(50), body.frame()).await;
    assert!(waiting.is_err(), "nothing new, nothing told");
    house.readiness.send_replace(Readiness::Stopping);
    assert_eq!(piece(&mut body).await, None);

    house.readiness.send_replace(Readiness::Ready);
    let (_, mut body) = open(&house, "/v1/events?follow=true&limit=1").await;
    assert!(piece(&mut body).await.is_some());
    assert_eq!(piece(&mut body).await, None, "the limit ends it");
}

#[tokio::test]
async fn there_are_so_many_readers_and_no_more() {
    let house = House::new();
    let mut open_ones = Vec::new();
    for _ in 0..MAX_READERS {
        let (status, body) = open(&house, "/v1/events").await;
        assert_eq!(status, 200);
        open_ones.push(body);
    }
    let reply = house.ask("GET", "/v1/events").await;
    reply.assert_problem(503, "unavailable");
    assert!(reply.detail().contains("64 readers"));
    open_ones.pop();
    assert_eq!(house.ask("GET", "/v1/events").await.status, 200);
}

#[tokio::test]
async fn what_is_no_longer_kept_is_410_and_ends_a_reading_that_is_under_way_with_a_word() {
    let house = House::with_engine(Options::default(), |options: &mut engine::Options| {
        options.journal.audit_bytes = 0;
        options.tick = Duration::from_millis(20);
    });
    let members: Vec<_> = (0..600)
        .map(|at| json!({"key": format!("k{at}")}))
        .collect();
    let batch = json!({ "claims": members }).to_string();
    let reply = house.send("POST", "/v1/claims/ns", &[], batch).await;
    assert_eq!(reply.status, 200);
    let (status, mut body) = open(&house, "/v1/events").await;
    assert_eq!(status, 200);
    let first = piece(&mut body).await.unwrap();
    assert_eq!(first.lines().count(), 512);

    // Two segments of 16 MiB, so that the first is closed and in the store.
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    for at in 0..40 {
        let target = format!("/v1/claims/ns/large{at}?store=true");
        assert_eq!(
            house.send("POST", &target, &[], large.clone()).await.status,
            201
        );
    }
    let gone = until(&house, "/v1/events?after=0", |reply| reply.status == 410).await;
    gone.assert_problem(410, "gone");
    assert!(gone.detail().contains("begins at LSN"));
    let last = piece(&mut body).await.unwrap();
    let problem: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&problem["status"], &problem["outcome"]),
        (&json!(410), &json!("gone"))
    );
    assert_eq!(problem.get("lsn"), None);
    assert_eq!(piece(&mut body).await, None);
    // Without a position it begins with what is kept.
    assert_eq!(house.ask("GET", "/v1/events").await.status, 200);
}
