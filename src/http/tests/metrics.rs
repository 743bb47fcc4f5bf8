//! The figures, as a scraper and as people read them.

use serde_json::Value;

use super::House;
use crate::http::metrics::Live;

#[tokio::test]
async fn what_was_answered_is_counted_by_namespace_verb_and_outcome() {
    let house = House::new();
    house.face.show(|| Live {
        connections: 3,
        in_flight: 77,
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
