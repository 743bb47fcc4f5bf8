//! Who is let in, what each may do where, and what the history calls him.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{House, Reply};
use crate::http::Options;
use crate::http::routes::{ROUTES, Route, Segment};
use crate::model::access::{Access, Credential, Right, Rights};
use crate::model::body::sha256;

fn credential(name: &str, secret: &str, rights: &[Right], namespaces: &[&str]) -> Credential {
    let namespaces = namespaces.iter().map(|name| (*name).into()).collect();
    Credential {
        name: name.into(),
        sha256: sha256(secret.as_bytes()),
        rights: Rights::of(rights),
        namespaces: Some(namespaces).filter(|names: &Vec<_>| !names.is_empty()),
    }
}

/// A house with one credential for each kind of caller; each one's secret is its name and `!`.
fn house() -> House {
    let (claim, read) = (Right::Claim, Right::Read);
    House::with(Options {
        access: Access::new(vec![
            credential("worker", "worker!", &[claim, read], &["orders"]),
            credential("claimer", "claimer!", &[claim], &[]),
            credential("reader", "reader!", &[read], &[]),
            credential("ops", "ops!", &[read, Right::Operate], &[]),
            credential("root", "root!", &Right::ALL, &[]),
        ]),
        ..Options::default()
    })
}

/// What is asked of a route, with all that it needs.
fn target(route: &Route, namespace: &str) -> String {
    let path = route.pattern();
    let path = path.replace("{ns}", namespace).replace("{key}", "k");
    let needed = ["token", "generation"].into_iter().filter(|name| {
        let mut params = route.params.iter();
        params.any(|param| param.name == *name)
    });
    let query: Vec<String> = needed.map(|name| format!("{name}=1")).collect();
    format!("{path}?{}", query.join("&"))
}

async fn ask(house: &House, name: &str, asked: &str) -> Reply {
    let (method, target) = asked.split_once(' ').unwrap();
    let bearer = format!("Bearer {name}!");
    house
        .send(method, target, &[("authorization", &bearer)], "")
        .await
}

#[tokio::test]
async fn without_a_right_secret_nothing_but_health_is_answered_and_nothing_is_stored() {
    let house = house();
    let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
    let wrong = [
        String::new(),
        "Bearer".into(),
        "Bearer ".into(),
        "Bearer nobody".into(),
        "Bearer root!!".into(),
        "Bearer ROOT!".into(),
        "root!".into(),
        "Digest root!".into(),
        basic("root!"),
        basic(":"),
        basic("root:"),
        basic("root!:"),
        basic("worker:root!"),
        "Basic root:root!".into(),
    ];
    for authorization in &wrong {
        let headers: &[(&str, &str)] = match &**authorization {
            "" => &[],
            given => &[("authorization", given)],
        };
        let reply = house.send("POST", "/v1/claims/orders/k", headers, "").await;
        reply.assert_problem(401, "unauthorized");
        assert!(
            reply
                .header("www-authenticate")
                .starts_with("Bearer realm=\"onced\", Basic "),
            "{authorization:?}"
        );
        assert!(!reply.detail().contains("root!"), "{authorization:?}");
        for target in ["/healthz", "/readyz"] {
            let reply = house.send("GET", target, headers, "").await;
            assert_eq!(reply.status, 200, "{authorization:?}");
        }
    }
    let twice = [
        ("authorization", "Bearer root!"),
        ("authorization", "Bearer root!"),
    ];
    let reply = house.send("GET", "/v1/namespaces", &twice, "").await;
    reply.assert_problem(401, "unauthorized");
    let right = [
        "Bearer root!".to_owned(),
        "bearer   root! ".to_owned(),
        basic(":root!"),
        basic("root:root!"),
        basic("root:root!").replace("Basic", "BASIC"),
    ];
    for authorization in &right {
        let headers = [("authorization", &**authorization)];
        let reply = house.send("GET", "/v1/claims/orders/k", &headers, "").await;
        assert_eq!(reply.status, 404, "{authorization}");
    }
}

#[tokio::test]
async fn each_right_allows_its_routes_and_a_refusal_names_what_is_missing() {
    let house = house();
    for route in ROUTES {
        let Some(right) = route.right else {
            continue;
        };
        let asked = format!("{} {}", route.method, target(route, "orders"));
        // Each of them lacks something, so that each right is missed by somebody.
        for (name, rights) in [
            ("claimer", &[Right::Claim][..]),
            ("reader", &[Right::Read]),
            ("ops", &[Right::Read, Right::Operate]),
            ("root", &Right::ALL),
        ] {
            let reply = ask(&house, name, &asked).await;
            if rights.contains(&right) {
                assert!(!matches!(reply.status, 401 | 403), "{name}: {asked}");
                continue;
            }
            reply.assert_problem(403, "forbidden");
            let detail = format!("the credential {name} lacks the right {}", right.name());
            assert!(reply.detail().starts_with(&detail), "{}", reply.detail());
        }
    }
}

#[tokio::test]
async fn by_hand_needs_the_operate_right_and_a_holder_has_his_token() {
    let house = house();
    ask(&house, "root", "POST /v1/claims/orders/k").await;
    ask(&house, "root", "POST /v1/claims/orders/k/fail?token=1").await;
    for verb in ["complete", "fail"] {
        let reply = ask(
            &house,
            "worker",
            &format!("POST /v1/claims/orders/k/{verb}"),
        )
        .await;
        reply.assert_problem(403, "forbidden");
        assert!(reply.detail().contains("operate"), "{}", reply.detail());
    }
    let stale = ask(
        &house,
        "worker",
        "POST /v1/claims/orders/k/complete?token=1",
    )
    .await;
    assert_eq!(stale.outcome(), "stale");
    let done = ask(&house, "root", "POST /v1/claims/orders/k/complete").await;
    assert_eq!(done.outcome(), "completed");
}

#[tokio::test]
async fn a_credential_for_one_namespace_sees_no_other() {
    let house = house();
    ask(&house, "root", "POST /v1/claims/secret/k").await;
    ask(&house, "root", "POST /v1/claims/orders/k").await;
    for route in ROUTES {
        if !route.path.contains(&Segment::Namespace) {
            continue;
        }
        let asked = format!("{} {}", route.method, target(route, "secret"));
        ask(&house, "worker", &asked)
            .await
            .assert_problem(403, "forbidden");
    }
    let listed = ask(&house, "worker", "GET /v1/namespaces").await.json();
    let names: Vec<_> = (listed["namespaces"].as_array().unwrap().iter())
        .map(|it| it["namespace"].as_str().or(it["name"].as_str()).unwrap())
        .collect();
    assert_eq!(names, ["orders"]);
    assert_eq!(
        ask(&house, "worker", "GET /v1/claims/orders/k")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn the_history_says_who_it_was() {
    let house = house();
    ask(&house, "worker", "POST /v1/claims/orders/k").await;
    ask(
        &house,
        "root",
        "POST /v1/claims/orders/k/fail?token=1&retry_in=0",
    )
    .await;
    let batch = r#"{"claims":[{"key":"b"}]}"#;
    let headers = [("authorization", "Bearer claimer!")];
    let reply = house
        .send("POST", "/v1/claims/orders", &headers, batch)
        .await;
    assert_eq!(reply.status, 200);
    for (key, expected) in [("k", &["worker", "root"][..]), ("b", &["claimer"])] {
        let record = ask(&house, "reader", &format!("GET /v1/claims/orders/{key}")).await;
        let record = record.json();
        let history = record["history"].as_array().unwrap();
        let by: Vec<_> = history
            .iter()
            .map(|it| it["by"].as_str().unwrap())
            .collect();
        assert_eq!(by, expected, "{key}");
    }
}

#[tokio::test]
async fn credentials_that_are_changed_hold_from_the_next_request_on() {
    let house = house();
    assert_eq!(ask(&house, "root", "GET /v1/namespaces").await.status, 200);
    let only = credential("root", "other!", &[Right::Read], &[]);
    house.face.set_access(Arc::new(Access::new(vec![only])));
    assert_eq!(ask(&house, "root", "GET /v1/namespaces").await.status, 401);
    assert_eq!(ask(&house, "other", "GET /v1/namespaces").await.status, 200);
    house.face.set_access(Arc::default());
    assert_eq!(house.ask("GET", "/v1/namespaces").await.status, 200);
}

#[tokio::test]
async fn a_backup_is_of_all_namespaces_and_so_has_to_be_the_credential() {
    let house = House::with(Options {
        access: Access::new(vec![
            credential("local", "local!", &Right::ALL, &["orders"]),
            credential("ops", "ops!", &[Right::Read, Right::Operate], &[]),
            credential("root", "root!", &Right::ALL, &[]),
        ]),
        ..Options::default()
    });
    for (name, status) in [("local", 403), ("ops", 403), ("root", 200)] {
        for method in ["HEAD", "GET"] {
            let reply = ask(&house, name, &format!("{method} /v1/backup")).await;
            assert_eq!(reply.status, status, "{name} {method}");
            let is_backup = reply.body.starts_with(b"onced backup");
            assert_eq!(
                is_backup,
                (status, method) == (200, "GET"),
                "{name} {method}"
            );
        }
    }
}
