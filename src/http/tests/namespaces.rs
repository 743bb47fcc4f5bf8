//! Namespaces: what is in them, and their policies.

use serde_json::{Value, json};

use super::House;
use crate::http::policy::MAX_POLICY;

#[tokio::test]
async fn a_policy_that_is_put_is_in_force_for_the_next_claim_and_answered_as_it_can_be_put() {
    let house = House::new();
    let unknown = house.ask("GET", "/v1/namespaces/orders").await.json();
    assert_eq!(unknown["policy_from"], "default");
    assert_eq!(unknown["policy"]["retention"], "72h");
    let body = r#"{"lease":"90s","retention":"forever","window":"sliding","max_attempts":2,
        "on_lease_end":"hold","backoff":"200ms","backoff_max":"7d","fingerprint":"json",
        "forget_open_after":"30d"}"#;
    let put = house.send("PUT", "/v1/namespaces/orders", &[], body).await;
    assert_eq!((put.status, put.outcome()), (200, "ok"), "{put:?}");
    let mut expected: Value = serde_json::from_str(body).unwrap();
    for (name, _) in expected.clone().as_object().unwrap() {
        let shown = put.json()["policy"][name].clone();
        if let Some(text) = shown
            .as_str()
            .filter(|text| text.ends_with(['s', 'm', 'h']))
        {
            let millis = crate::model::time::Span::parse(text).unwrap();
            let sent = expected[name].as_str().unwrap();
            assert_eq!(Ok(millis), crate::model::time::Span::parse(sent), "{name}");
            expected[name] = shown;
        }
    }
    assert_eq!(put.json()["policy"], expected);
    assert_eq!(put.json()["policy_from"], "put");
    let again = expected.to_string();
    let again = house.send("PUT", "/v1/namespaces/orders", &[], again).await;
    assert_eq!(again.json(), put.json(), "what is shown can be put");

    house.ask("POST", "/v1/claims/orders/k").await;
    let record = house.ask("GET", "/v1/claims/orders/k").await.json();
    assert_eq!(record["lease_ms"], 90_000);
    assert_eq!(record["max_attempts"], 2);
    // The whole is replaced: what is absent is the default again.
    let put = house.send("PUT", "/v1/namespaces/orders", &[], "{}").await;
    assert_eq!(put.json()["policy"], unknown["policy"]);
    assert_eq!(put.json()["policy_from"], "put");
}

#[tokio::test]
async fn counts_tell_states_as_they_show() {
    let house = House::new();
    let claim = |key: &str, rest: &str| format!("/v1/claims/ns/{key}{rest}");
    for (key, options) in [
        ("a", "?lease=1h"),
        ("b", "?lease=1s"),
        ("c", "?lease=1s&on_lease_end=hold"),
        ("d", "?mode=once"),
    ] {
        house.ask("POST", &claim(key, options)).await;
    }
    for (key, end) in [("e", ""), ("f", "&bury=true")] {
        let token = house.ask("POST", &claim(key, "")).await.token();
        let rest = format!("/fail?token={token}{end}");
        house.ask("POST", &claim(key, &rest)).await;
    }
    house.advance(2000);
    let shown = house.ask("GET", "/v1/namespaces/ns").await.json();
    let states = json!({"pending": 2, "retry": 1, "done": 1, "in_doubt": 1, "dead": 1});
    assert_eq!(shown["states"], states);
    assert_eq!(
        (&shown["orphaned"], &shown["records"]),
        (&json!(1), &json!(6))
    );
    let all = house.ask("GET", "/v1/namespaces").await.json();
    let names: Vec<_> = all["namespaces"].as_array().unwrap().iter().collect();
    let names: Vec<_> = names.iter().map(|it| &it["namespace"]).collect();
    assert_eq!(
        names,
        ["json", "ns"],
        "one by the configuration, one by use"
    );
    assert_eq!(all["namespaces"][0]["policy_from"], "configuration");
}

#[tokio::test]
async fn a_policy_that_is_not_in_order_is_refused_by_name_and_changes_nothing() {
    let house = House::new();
    let table = [
        ("", "not a policy"),
        ("[]", "an object"),
        (r#"{"leese":"1s"}"#, "leese"),
        (r#"{"lease":"1s","lease":"2s"}"#, "lease"),
        (r#"{"retention":null}"#, "null"),
        (r#"{"lease":5}"#, "string"),
        (r#"{"lease":"0"}"#, "lease"),
        (r#"{"lease":"25h"}"#, "24h"),
        (r#"{"retention":"1ms"}"#, "retention"),
        (r#"{"retention":"never"}"#, "retention"),
        (r#"{"backoff":"0s"}"#, "backoff"),
        (r#"{"backoff_max":"4000d"}"#, "backoff_max"),
        (r#"{"max_attempts":-1}"#, "max_attempts|-1"),
        (r#"{"max_attempts":1000001}"#, "max_attempts"),
        (r#"{"window":"open"}"#, "sliding"),
        (r#"{"on_lease_end":"x"}"#, "hold"),
        (r#"{"fingerprint":"md5"}"#, "json"),
        (r#"{"forget_open_after":"x"}"#, "forget_open_after"),
    ];
    for (body, word) in table {
        let put = house.send("PUT", "/v1/namespaces/ns", &[], body).await;
        put.assert_problem(400, "bad_input");
        let told = word.split('|').any(|word| put.detail().contains(word));
        assert!(told, "{body}: {}", put.detail());
    }
    let long = " ".repeat(MAX_POLICY + 1);
    let put = house.send("PUT", "/v1/namespaces/ns", &[], long).await;
    put.assert_problem(413, "too_large");
    let put = house.send("PUT", "/v1/namespaces/NS", &[], "{}").await;
    put.assert_problem(400, "bad_input");
    let all = house.ask("GET", "/v1/namespaces").await.json();
    assert_eq!(all["namespaces"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_the_configuration_says_is_not_put_over() {
    let house = House::new();
    let put = house.send("PUT", "/v1/namespaces/json", &[], "{}").await;
    put.assert_problem(409, "conflict");
    assert!(put.detail().contains("configuration"));
}
