//! Replay in bulk, by a filter.

use serde_json::{Value, json};

use super::House;

/// Buried records of these keys.
async fn dead(house: &House, keys: &[&str]) {
    for key in keys {
        let claim = format!("/v1/claims/ns/{key}");
        let token = house.ask("POST", &claim).await.token();
        let fail = format!("{claim}/fail?token={token}&bury=true");
        assert_eq!(house.ask("POST", &fail).await.outcome(), "failed");
    }
}

async fn replay(house: &House, query: &str) -> Value {
    let path = format!("/v1/namespaces/ns/replay?{query}");
    let reply = house.ask("POST", &path).await;
    assert_eq!((reply.status, reply.outcome()), (200, "ok"), "{reply:?}");
    reply.json()
}

#[tokio::test]
async fn the_dead_are_replayed_page_by_page_and_a_page_sent_again_does_no_harm() {
    let house = House::new();
    dead(&house, &["a1", "a2", "a3", "b1"]).await;
    house.ask("POST", "/v1/claims/ns/a0").await;
    let first = replay(&house, "state=dead&prefix=a&limit=2").await;
    let cursor = first["next"].as_str().unwrap().to_owned();
    assert_eq!(
        (&first["replayed"], &first["skipped"]),
        (&json!(2), &json!({}))
    );
    let rest = format!("state=dead&prefix=a&limit=2&cursor={cursor}");
    let expected = json!({"namespace": "ns", "replayed": 1, "skipped": {}, "next": null});
    assert_eq!(replay(&house, &rest).await, expected);
    let nothing = json!({"namespace": "ns", "replayed": 0, "skipped": {}, "next": null});
    assert_eq!(replay(&house, &rest).await, nothing);
    // As retries they show with what was done to them already.
    let again = replay(&house, "state=retry").await;
    assert_eq!(
        (&again["replayed"], &again["skipped"]),
        (&json!(0), &json!({"unchanged": 3}))
    );
    for (key, state, generation) in [("a1", "retry", 2), ("a3", "retry", 2), ("b1", "dead", 1)] {
        let record = house
            .ask("GET", &format!("/v1/claims/ns/{key}"))
            .await
            .json();
        assert_eq!(
            (&record["state"], &record["generation"]),
            (&json!(state), &json!(generation))
        );
    }
    let claimed = house.ask("POST", "/v1/claims/ns/a1").await.json();
    assert_eq!(claimed["reason"], "replay");
}

#[tokio::test]
async fn done_records_need_force() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/d?mode=once").await;
    let refused = house
        .ask("POST", "/v1/namespaces/ns/replay?state=done")
        .await;
    refused.assert_problem(400, "bad_input");
    assert!(refused.detail().contains("force=true"), "{refused:?}");
    let forced = replay(&house, "state=done&force=true").await;
    assert_eq!(forced["replayed"], 1);
}

#[tokio::test]
async fn what_cannot_be_replayed_is_bad_input() {
    let house = House::new();
    for query in [
        "",
        "?state=pending",
        "?state=dead&limit=0",
        "?state=dead&limit=1001",
    ] {
        let path = format!("/v1/namespaces/ns/replay{query}");
        house
            .ask("POST", &path)
            .await
            .assert_problem(400, "bad_input");
    }
}
