//! Status, headers and body of each outcome (SPEC 6).

use hyper::StatusCode;
use serde_json::json;

use super::House;
use crate::engine::Unavailable;
use crate::http::answer::Answer;
use crate::http::problem::Refusal;

#[tokio::test]
async fn each_outcome_has_its_status_and_headers() {
    let house = House::new();
    // (what time passes before, request, status, outcome, Retry-After, Idempotent-Replayed)
    let table = [
        (
            0,
            "POST /v1/claims/ns/k?lease=30s&owner=me",
            201,
            "acquired",
            "",
            "",
        ),
        (0, "POST /v1/claims/ns/k", 409, "busy", "30", ""),
        (29_500, "POST /v1/claims/ns/k", 409, "busy", "1", ""),
        (
            0,
            "POST /v1/claims/ns/k/renew?token=1",
            200,
            "renewed",
            "",
            "",
        ),
        (
            0,
            "POST /v1/claims/ns/k/renew?token=2",
            412,
            "stale",
            "",
            "",
        ),
        (0, "DELETE /v1/claims/ns/k", 409, "busy", "30", ""),
        (
            0,
            "POST /v1/claims/ns/k/fail?token=1&retry_in=1500",
            200,
            "failed",
            "",
            "",
        ),
        (0, "POST /v1/claims/ns/k", 409, "backoff", "2", ""),
        (
            1500,
            "POST /v1/claims/ns/k?fingerprint=f",
            201,
            "acquired",
            "",
            "",
        ),
        (
            0,
            "POST /v1/claims/ns/k/complete?token=2",
            200,
            "completed",
            "",
            "",
        ),
        (
            0,
            "POST /v1/claims/ns/k?fingerprint=g",
            422,
            "mismatch",
            "",
            "",
        ),
        (
            0,
            "POST /v1/claims/ns/k?fingerprint=f",
            200,
            "done",
            "",
            "true",
        ),
        (
            0,
            "POST /v1/claims/ns/k/complete?token=2&status=500",
            409,
            "conflict",
            "",
            "",
        ),
        (0, "POST /v1/claims/ns/k/fail?token=2", 412, "stale", "", ""),
        (
            0,
            "POST /v1/claims/ns/k/replay?generation=1",
            200,
            "done",
            "",
            "",
        ),
        (
            0,
            "POST /v1/claims/ns/k/replay?generation=1&force=true",
            200,
            "replayed",
            "",
            "",
        ),
        (
            0,
            "POST /v1/claims/ns/k/replay?generation=9",
            409,
            "conflict",
            "",
            "",
        ),
        (0, "GET /v1/claims/ns/k", 200, "ok", "", ""),
        (0, "DELETE /v1/claims/ns/k", 200, "forgotten", "", ""),
        (0, "DELETE /v1/claims/ns/k", 404, "not_found", "", ""),
        (0, "GET /v1/claims/ns/k", 404, "not_found", "", ""),
        (0, "POST /v1/claims/ns/r", 201, "acquired", "", ""),
        (
            0,
            "POST /v1/claims/ns/r/release?token=3",
            200,
            "released",
            "",
            "",
        ),
        (0, "POST /v1/claims/ns/e?lease=1s", 201, "acquired", "", ""),
        (
            0,
            "POST /v1/claims/ns/e/effect?token=4",
            200,
            "announced",
            "",
            "",
        ),
        (
            0,
            "POST /v1/claims/ns/e/release?token=4",
            409,
            "conflict",
            "",
            "",
        ),
        (1000, "POST /v1/claims/ns/e", 409, "in_doubt", "", ""),
        (0, "POST /v1/claims/ns/e/complete", 200, "completed", "", ""),
        (0, "POST /v1/claims/ns/d", 201, "acquired", "", ""),
        (
            0,
            "POST /v1/claims/ns/d/fail?token=5&bury=true",
            200,
            "failed",
            "",
            "",
        ),
        (0, "POST /v1/claims/ns/d", 409, "dead", "", ""),
        (
            0,
            "POST /v1/claims/ns/o?mode=once&result=r",
            201,
            "acquired",
            "",
            "",
        ),
        (0, "POST /v1/claims/ns/o?mode=once", 200, "done", "", "true"),
        (0, "GET /v1/claims/ns", 200, "ok", "", ""),
        (0, "GET /healthz", 200, "ok", "", ""),
        (0, "POST /v1/claims/ns/k?lease=0", 400, "bad_input", "", ""),
        (0, "POST /v1/claims/NS/k", 400, "bad_input", "", ""),
    ];
    for (passed, asked, status, outcome, retry_after, replayed) in table {
        house.advance(passed);
        let (method, target) = asked.split_once(' ').unwrap();
        let reply = house.ask(method, target).await;
        assert_eq!(
            (reply.status, reply.outcome()),
            (status, outcome),
            "{asked}"
        );
        assert_eq!(reply.header("retry-after"), retry_after, "{asked}");
        assert_eq!(reply.header("idempotent-replayed"), replayed, "{asked}");
        if status < 300 {
            assert_eq!(reply.header("content-type"), "application/json", "{asked}");
            assert!(reply.json().is_object());
        } else {
            reply.assert_problem(status, outcome);
        }
    }
}

#[tokio::test]
async fn answers_are_written_as_the_contract_shows_them() {
    let house = House::new();
    let reply = house.ask("POST", "/v1/claims/orders/evt_1?lease=1s").await;
    assert_eq!(
        reply.body,
        r#"{"outcome":"acquired","reason":"new","namespace":"orders","key":"evt_1","token":1,"attempt":1,"generation":1,"lease_expires_at":"2026-01-02T03:04:06.678Z","payload":false}"#
    );
    let json = [("content-type", "application/json")];
    let target = "/v1/claims/orders/evt_1/complete?token=1&status=200";
    let reply = house.send("POST", target, &json, r#"{"ok":true}"#).await;
    assert_eq!(
        reply.body,
        r#"{"outcome":"completed","namespace":"orders","key":"evt_1","state":"done","token":1,"attempt":1,"generation":1,"expires_at":"2026-01-05T03:04:05.678Z"}"#
    );
    let reply = house.ask("POST", "/v1/claims/orders/evt_1").await;
    assert_eq!(
        reply.body,
        r#"{"outcome":"done","namespace":"orders","key":"evt_1","token":1,"attempt":1,"generation":1,"completed_at":"2026-01-02T03:04:05.678Z","expires_at":"2026-01-05T03:04:05.678Z","result":{"content_type":"application/json","status":200,"size":11,"body":"{\"ok\":true}"}}"#
    );
}

#[tokio::test]
async fn a_record_shows_every_member() {
    let house = House::new();
    let text = [("content-type", "text/plain")];
    let target =
        "/v1/claims/ns/k?store=true&owner=w%201&claim_id=c&retention=forever&max_attempts=0";
    let claimed = house.send("POST", target, &text, "hello").await;
    assert_eq!(claimed.json()["payload"], true);
    house.advance(10_000);
    let reply = house.ask("GET", "/v1/claims/ns/k").await;
    let fingerprint = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let expected = json!({
        "namespace": "ns", "key": "k", "state": "pending", "kind": "claim", "orphaned": false,
        "token": 1, "attempt": 1, "max_attempts": 0, "generation": 1,
        "fingerprint": {"kind": "raw", "value": fingerprint},
        "claim_id": "c", "owner": "w 1", "claimed_at": "2026-01-02T03:04:05.678Z",
        "lease_ms": 60_000, "lease_expires_at": "2026-01-02T03:05:05.678Z", "lease_left_ms": 50_000,
        "effect_announced": false, "not_before": null, "completed_at": null, "expires_at": null,
        "last_error": null, "payload": {"content_type": "text/plain", "size": 5, "body": "hello"},
        "result": null,
        "history": [{"at": "2026-01-02T03:04:05.678Z", "event": "acquired", "token": 1, "attempt": 1, "by": "w 1"}],
    });
    assert_eq!(reply.json(), expected);
}

#[tokio::test]
async fn a_refusal_tells_public_facts_and_what_to_do() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/k?owner=me").await;
    house.advance(100);
    let reply = house.ask("POST", "/v1/claims/ns/k").await;
    reply.assert_problem(409, "busy");
    let expected = json!({
        "type": "/manual/problems/busy", "title": "Another holder works on this key", "status": 409,
        "outcome": "busy", "namespace": "ns", "key": "k", "detail": reply.detail(),
        "state": "pending", "owner": "me", "attempt": 1, "generation": 1,
        "lease_left_ms": 59_900, "retry_after_ms": 59_900,
    });
    assert_eq!(reply.json(), expected);
}

#[tokio::test]
async fn what_the_store_cannot_do_now_says_when_to_ask_again() {
    let table = [
        (Unavailable::Full, 507, "full", "10"),
        (Unavailable::Overloaded, 503, "unavailable", "1"),
        (Unavailable::Waiters, 503, "unavailable", "1"),
        (Unavailable::Stopping, 503, "unavailable", "1"),
        (Unavailable::TooLarge, 413, "too_large", ""),
    ];
    for (unavailable, status, outcome, retry_after) in table {
        let answer = Answer::from(Refusal::from(unavailable));
        let response = answer.into_response(Default::default(), &hyper::Method::POST);
        let reply = super::Reply::of(response).await;
        reply.assert_problem(status, outcome);
        assert_eq!(reply.header("retry-after"), retry_after);
    }
}

#[tokio::test]
async fn readiness_is_told_apart_from_health() {
    use crate::http::Readiness;
    let house = House::new();
    for (readiness, status) in [
        (Readiness::Starting, StatusCode::SERVICE_UNAVAILABLE),
        (Readiness::Ready, StatusCode::OK),
        (Readiness::Stopping, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        house.readiness.send_replace(readiness);
        assert_eq!(house.ask("GET", "/readyz").await.status, status.as_u16());
        assert_eq!(house.ask("GET", "/healthz").await.status, 200);
    }
    house.readiness.send_replace(Readiness::Starting);
    let reply = house.ask("GET", "/readyz").await;
    reply.assert_problem(503, "unavailable");
}
