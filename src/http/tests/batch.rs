//! Batch claims: decided one by one, or all or nothing.

use serde_json::{Value, json};

use super::{House, Reply, small};
use crate::http::batch::{MAX_BATCH, MAX_CLAIMS};

async fn batch(house: &House, namespace: &str, body: &Value) -> Reply {
    let path = format!("/v1/claims/{namespace}");
    house.send("POST", &path, &[], body.to_string()).await
}

#[tokio::test]
async fn members_are_decided_one_by_one_and_answered_in_order() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/busy").await;
    house
        .ask("POST", "/v1/claims/ns/done?mode=once&result=r")
        .await;
    let sent = json!({"claims": [
        {"key": "new", "lease": "90s", "owner": "me", "payload": "p", "content_type": "text/plain", "store": true},
        {"key": "busy", "wait": "30s"},
        {"key": "done"},
        {"key_base64": "/w==", "mode": "once", "result_base64": "AAE=", "lease": 5000},
    ]});
    let answer = batch(&house, "ns", &sent).await;
    assert_eq!((answer.status, answer.outcome()), (200, "ok"), "{answer:?}");
    let results = answer.json()["results"].clone();
    let outcomes: Vec<_> = results.as_array().unwrap().iter().collect();
    let outcomes: Vec<_> = outcomes.iter().map(|it| &it["outcome"]).collect();
    assert_eq!(outcomes, ["acquired", "busy", "done", "acquired"]);
    assert_eq!(results[0]["token"], 3);
    assert_eq!(results[1].get("token"), None, "never the holder's token");
    assert_eq!(results[2]["result"]["body"], "r");
    assert_eq!(results[3]["key_base64"], "/w==");
    let record = house.ask("GET", "/v1/claims/ns/new").await.json();
    assert_eq!(record["lease_ms"], 90_000);
    let payload = house.ask("GET", "/v1/claims/ns/new/payload").await;
    assert_eq!(
        (&*payload.body, payload.header("content-type")),
        (&b"p"[..], "text/plain")
    );
    let result = house.ask("GET", "/v1/claims/ns/%FF/result").await;
    assert_eq!(&*result.body, b"\0\x01");
}

#[tokio::test]
async fn an_atomic_batch_is_stored_whole_or_not_at_all_and_names_what_was_in_the_way() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/done?mode=once").await;
    house.ask("POST", "/v1/claims/ns/busy").await;
    for (key, outcome) in [("done", "done"), ("busy", "busy")] {
        let sent = json!({"atomic": true, "claims": [{"key": "a"}, {"key": key}, {"key": "b"}]});
        let answer = batch(&house, "ns", &sent).await;
        answer.assert_problem(409, outcome);
        assert_eq!(answer.json()["key"], key);
        let left = house.ask("GET", "/v1/claims/ns/a").await;
        left.assert_problem(404, "not_found");
    }
    let sent = json!({"atomic": true, "claims": [{"key": "a", "claim_id": "1"}, {"key": "b", "claim_id": "2"}]});
    for reason in ["new", "resumed"] {
        let answer = batch(&house, "ns", &sent).await.json();
        assert_eq!(answer["results"][0]["reason"], reason);
        assert_eq!(answer["results"][1]["reason"], reason);
    }
}

#[tokio::test]
async fn one_invalid_member_refuses_all_by_its_index_and_nothing_is_stored() {
    let house = House::with(small());
    let table = [
        (json!({}), "key is missing"),
        (json!({"key": ""}), "at least 1 byte"),
        (json!({"key": "k", "key_base64": "aw=="}), "not both"),
        (json!({"key_base64": "?"}), "not base64"),
        (json!({"key": "good"}), "already"),
        (json!({"key": "k", "lease": "25h"}), "24h"),
        (json!({"key": "k", "lease": 1.5}), "whole milliseconds"),
        (json!({"key": "k", "lease": null}), "duration"),
        (json!({"key": "k", "mode": "twice"}), "lease or once"),
        (json!({"key": "k", "result": "r"}), "mode once"),
        (json!({"key": "k", "on_lease_end": "x"}), "retry or hold"),
        (json!({"key": "k", "owner": ""}), "owner"),
        (json!({"key": "k", "leese": "1s"}), "leese"),
        (
            json!({"key": "k", "payload": "12345678901"}),
            "at most 10 bytes",
        ),
        (
            json!({"key": "k", "mode": "once", "result": "123456789012345678901"}),
            "at most 20 bytes",
        ),
        (json!({"key": "k", "payload": "{"}), "member name"),
        (json!("k"), "an object"),
        (json!(["k"]), "an object"),
    ];
    for (member, word) in table {
        for atomic in [false, true] {
            let sent = json!({"atomic": atomic, "claims": [{"key": "good"}, member]});
            let answer = batch(&house, "json", &sent).await;
            answer.assert_problem(400, "bad_input");
            let detail = answer.detail();
            let told = detail.contains("claims[1]") && detail.contains(word);
            assert!(told, "{member}: {detail}");
        }
    }
    let left = house.ask("GET", "/v1/claims/json").await.json();
    assert_eq!(left["records"], json!([]));
}

#[tokio::test]
async fn each_bound_of_a_batch_is_refused_with_its_own_words() {
    let house = House::new();
    let many = |count: usize| -> Value {
        let claims: Vec<_> = (0..count).map(|n| json!({"key": n.to_string()})).collect();
        json!({ "claims": claims })
    };
    let table = [
        (many(0).to_string(), 400, "bad_input", "1 to 1000"),
        (
            many(MAX_CLAIMS + 1).to_string(),
            400,
            "bad_input",
            "more than 1000",
        ),
        (
            " ".repeat(MAX_BATCH + 1),
            413,
            "too_large",
            "several batches",
        ),
        ("{}".into(), 400, "bad_input", "claims"),
        (
            r#"{"claims":[{"key":"k"}],"atomc":true}"#.into(),
            400,
            "bad_input",
            "atomc",
        ),
        (String::new(), 400, "bad_input", "not a batch"),
    ];
    for (body, status, outcome, word) in table {
        let answer = house.send("POST", "/v1/claims/ns", &[], body).await;
        answer.assert_problem(status, outcome);
        assert!(answer.detail().contains(word), "{}", answer.detail());
    }
    let answer = batch(&house, "ns", &many(MAX_CLAIMS)).await;
    assert_eq!(
        answer.json()["results"].as_array().unwrap().len(),
        MAX_CLAIMS
    );
}
