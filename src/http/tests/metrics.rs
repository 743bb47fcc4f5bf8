//! The figures, as a scraper and as people read them.

use serde_json::Value;

use super::wire::Client;
use super::{House, small};
use crate::engine::{Filter, MAX_READERS};
use crate::http::metrics::Live;

#[tokio::test]
async fn what_was_answered_is_counted_by_namespace_verb_and_outcome() {
    let house = House::new();
    house.face.show(|| Live {
        connections: 3,
        in_flight: 77,
        refused: (4, 5),
        let_go: (6, 7),
    });
    let token = house.ask("POST", "/v1/claims/orders/a").await.token();
    for _ in 0..2 {
        house.ask("POST", "/v1/claims/orders/a").await;
    }
    house
        .ask(
            "POST",
            &format!("/v1/claims/orders/a/complete?token={token}"),
        )
        .await;
    house.ask("POST", "/v1/claims/orders/b?lease=1s").await;
    house.ask("GET", "/v1/claims/nowhere/x").await;
    house.advance(2000);
    house.ask("POST", "/v1/claims/orders/c?lease=1s").await;
    house.advance(2000);
    let reply = house.ask("GET", "/metrics").await;
    assert_eq!((reply.status, reply.outcome()), (200, "ok"));
    assert!(
        reply
            .header("content-type")
            .starts_with("application/openmetrics-text; version=1.0.0")
    );
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    let table = [
        (
            "onced_answers_total",
            r#"ns="orders",verb="claim",outcome="acquired""#,
            "3",
        ),
        (
            "onced_answers_total",
            r#"ns="orders",verb="claim",outcome="busy""#,
            "2",
        ),
        (
            "onced_answers_total",
            r#"ns="orders",verb="complete",outcome="completed""#,
            "1",
        ),
        (
            "onced_answers_total",
            r#"ns="(others)",verb="get",outcome="not_found""#,
            "1",
        ),
        (
            "onced_answer_seconds_count",
            r#"verb="claim",face="http""#,
            "5",
        ),
        ("onced_open_records", r#"state="pending""#, "2"),
    ];
    for (name, labels, value) in table {
        let wanted: Vec<_> = labels.split(',').collect();
        let is_it = |line: &&str| {
            line.starts_with(&format!("{name}{{"))
                && wanted.iter().all(|label| line.contains(label))
        };
        let line = text
            .lines()
            .find(is_it)
            .unwrap_or_else(|| panic!("{name} {labels}: {text}"));
        let shown: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(shown, value.parse::<f64>().unwrap(), "{line}");
    }
    for (line, value) in [
        ("onced_orphaned_records", 2.0),
        ("onced_connections", 3.0),
        ("onced_in_flight_bytes", 77.0),
        ("onced_full", 0.0),
    ] {
        let found = text
            .lines()
            .find_map(|it| it.strip_prefix(line)?.strip_prefix(' '));
        assert_eq!(found.and_then(|it| it.parse().ok()), Some(value), "{line}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert!(!text.contains("nowhere"), "a question takes up no place");
    // Every line is one of the format's: a comment, or a name, labels and one number.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("onced_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }

    let stats = house.ask("GET", "/v1/stats").await.json();
    assert_eq!(stats["orphaned_records"], 2);
    let answers = stats["answers"].as_array().unwrap();
    let busy = answers.iter().find(|it| it["outcome"] == "busy").unwrap();
    assert_eq!((&busy["ns"], &busy["value"]), (&"orders".into(), &2.into()));
    let commits = &stats["commit_seconds"];
    assert!(commits["count"].as_u64().unwrap() >= 3);
    assert!(commits["p50"].as_f64().is_some(), "{commits}");
    assert!(stats["journal_bytes"].as_u64().unwrap() >= 16 << 20);
    assert!(stats["store_bytes"].as_u64().unwrap() > 0);
    assert_ne!(stats["refusals"], Value::Null);
}

/// The figure of that line, without its prefix.
async fn figure(house: &House, line: &str) -> Option<f64> {
    let text = house.ask("GET", "/metrics").await.body;
    let text = String::from_utf8(text.to_vec()).unwrap();
    let found = text.lines().find_map(|it| {
        let (name, value) = it.strip_prefix("onced_")?.rsplit_once(' ')?;
        (name == line).then(|| value.to_owned())
    });
    found.and_then(|value| value.parse().ok())
}

#[tokio::test]
async fn limits_that_were_met_are_counted_by_face() {
    let house = House::with(small());
    house.face.show(|| Live {
        refused: (4, 5),
        let_go: (6, 7),
        ..Live::default()
    });
    house
        .send("POST", "/v1/claims/ns/k", &[], "x".repeat(11))
        .await;
    let mut readers = Vec::new();
    for _ in 0..=MAX_READERS {
        let filter = Filter {
            namespace: None,
            key: None,
        };
        readers.push(house.face.engine.events(None, filter));
    }
    assert_eq!(figure(&house, "trail_readers").await, Some(64.0));
    assert_eq!(house.ask("GET", "/v1/events").await.status, 503);
    let long = "k".repeat(20_000);
    for (bytes, closes) in [
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), true),
        ("GET / HT".to_owned(), true),
        (
            "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"
                .to_owned(),
            true,
        ),
    ] {
        let mut client = Client::of(&house);
        client.send(bytes).await;
        assert_ne!(client.rest().await.is_empty(), closes);
    }
    for (face, limit, count) in [
        ("http", "body", 1.0),
        ("http", "readers", 1.0),
        ("http", "head", 1.0),
        ("http", "head_time", 1.0),
        ("http", "body_time", 1.0),
        ("http", "body_room", 0.0),
        ("http", "write_time", 0.0),
        ("http", "connections", 4.0),
        ("redis", "connections", 5.0),
        ("redis", "body_time", 6.0),
        ("redis", "write_time", 7.0),
    ] {
        let line = format!("limits_met_total{{face=\"{face}\",limit=\"{limit}\"}}");
        assert_eq!(figure(&house, &line).await, Some(count), "{line}");
    }
}

#[tokio::test]
async fn waits_are_counted_by_what_ended_them() {
    let house = House::new();
    let ask = |path: &str| format!("POST /v1/claims/ns/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let held = async |count: f64| {
        let begun = std::time::Instant::now();
        while figure(&house, "waiting_claims").await != Some(count) {
            assert!(begun.elapsed().as_secs() < 20, "not {count}");
            tokio::task::yield_now().await;
        }
    };
    let mut tokens = Vec::new();
    for key in ["a", "b", "c"] {
        tokens.push(
            house
                .ask("POST", &format!("/v1/claims/ns/{key}"))
                .await
                .token(),
        );
    }
    let mut clients = Vec::new();
    for (at, key) in ["a", "b", "c"].into_iter().enumerate() {
        let mut client = Client::of(&house);
        client.send(ask(&format!("{key}?wait=60s"))).await;
        clients.push(client);
        held(at as f64 + 1.0).await;
    }
    house
        .ask(
            "POST",
            &format!("/v1/claims/ns/a/release?token={}", tokens[0]),
        )
        .await;
    house
        .ask(
            "POST",
            &format!("/v1/claims/ns/b/complete?token={}", tokens[1]),
        )
        .await;
    assert!(clients[0].answer().await.starts_with("HTTP/1.1 201 "));
    assert!(clients[1].answer().await.starts_with("HTTP/1.1 200 "));
    clients.pop();
    held(0.0).await;
    for (end, count) in [
        ("acquired", 1.0),
        ("settled", 1.0),
        ("gone", 1.0),
        ("in_vain", 0.0),
        ("stopped", 0.0),
    ] {
        let line = format!("waits_total{{end=\"{end}\"}}");
        assert_eq!(figure(&house, &line).await, Some(count), "{line}");
    }
}
