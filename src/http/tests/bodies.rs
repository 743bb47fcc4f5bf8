//! Payloads and results come back as they went in (FO-02), within their limits.

use bytes::Bytes;
use serde_json::json;

use super::{Headers, House, small};

#[tokio::test]
async fn a_result_is_answered_byte_for_byte_with_type_and_status() {
    let all: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let large: Bytes = (0..1024 * 1024_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    // (body, content type, status, how it stands in JSON)
    let table: &[(Bytes, &str, Option<u16>, &str)] = &[
        (all, "application/octet-stream", None, "body_base64"),
        (
            r#"{"declined":true}"#.into(),
            "application/json",
            Some(402),
            "body",
        ),
        ("".into(), "text/plain", Some(204), "body"),
        (large, "application/gzip", Some(200), "size alone"),
        (
            Bytes::from_static(b"caf\xe9"),
            "text/plain; charset=utf-8",
            None,
            "body_base64",
        ),
        (vec![b'x'; 64 * 1024].into(), "text/plain", None, "body"),
        (
            vec![b'x'; 64 * 1024 + 1].into(),
            "text/plain",
            None,
            "size alone",
        ),
        (
            vec![0xff; 64 * 1024].into(),
            "image/png",
            None,
            "body_base64",
        ),
        ("\u{1f980}\"\\\n\u{0}".into(), "text/plain", None, "body"),
    ];
    let house = House::new();
    for (at, (body, content_type, status, form)) in table.iter().enumerate() {
        let path = format!("/v1/claims/ns/k{at}");
        let token = house.ask("POST", &path).await.token();
        let status_param = status.map(|it| format!("&status={it}")).unwrap_or_default();
        let target = format!("{path}/complete?token={token}{status_param}");
        let typed = [("content-type", *content_type)];
        let completed = house.send("POST", &target, &typed, body.clone()).await;
        assert_eq!(completed.outcome(), "completed", "{at}");

        let mut expected = json!({"content_type": content_type, "size": body.len()});
        if let Some(status) = status {
            expected["status"] = json!(status);
        }
        match *form {
            "body" => expected["body"] = json!(std::str::from_utf8(body).unwrap()),
            "body_base64" => {
                use base64::Engine as _;
                let text = base64::engine::general_purpose::STANDARD.encode(body);
                expected["body_base64"] = json!(text);
            }
            _ => {}
        }
        for _ in 0..2 {
            let duplicate = house.ask("POST", &path).await;
            assert_eq!(duplicate.header("idempotent-replayed"), "true");
            assert!(duplicate.json()["result"] == expected, "{at}");
        }
        assert!(
            house.ask("GET", &path).await.json()["result"] == expected,
            "{at}"
        );

        let raw = house.ask("GET", &format!("{path}/result")).await;
        assert_eq!((raw.status, raw.outcome()), (200, "ok"));
        assert!(raw.body == *body, "{at}");
        assert_eq!(raw.header("content-type"), *content_type);
        assert_eq!(raw.header("x-content-type-options"), "nosniff");
        let kept = status.map(|it| it.to_string()).unwrap_or_default();
        assert_eq!(raw.header("onced-result-status"), kept);
    }
}

#[tokio::test]
async fn a_stored_payload_is_handed_on_and_an_empty_one_is_none() {
    let house = House::new();
    let typed = [("content-type", "application/x-www-form-urlencoded")];
    let claimed = house
        .send("POST", "/v1/claims/ns/k?store=true", &typed, "a=1&b=2")
        .await;
    assert_eq!(
        (claimed.status, &claimed.json()["payload"]),
        (201, &json!(true))
    );
    let raw = house.ask("GET", "/v1/claims/ns/k/payload").await;
    assert_eq!(raw.body, "a=1&b=2");
    assert_eq!(
        raw.header("content-type"),
        "application/x-www-form-urlencoded"
    );
    assert_eq!(raw.header("onced-result-status"), "");

    let claimed = house
        .send("POST", "/v1/claims/ns/e?store=true", &typed, "")
        .await;
    assert_eq!(claimed.json()["payload"], false);
    house
        .ask("GET", "/v1/claims/ns/e/payload")
        .await
        .assert_problem(404, "not_found");

    house
        .send(
            "POST",
            "/v1/claims/ns/f",
            &typed,
            "kept only as a fingerprint",
        )
        .await;
    let reply = house.ask("GET", "/v1/claims/ns/f/payload").await;
    reply.assert_problem(404, "not_found");
    assert_eq!(reply.detail(), "the record is pending and has no payload");
    house
        .ask("GET", "/v1/claims/ns/f/result")
        .await
        .assert_problem(404, "not_found");
    house
        .ask("GET", "/v1/claims/ns/none/result")
        .await
        .assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_payload_is_compared_and_a_given_fingerprint_wins() {
    let house = House::new();
    // (target, body, outcome)
    let table = [
        ("/v1/claims/ns/k", "one", "acquired"),
        ("/v1/claims/ns/k", "one", "busy"),
        ("/v1/claims/ns/k", "two", "mismatch"),
        ("/v1/claims/ns/k", "", "busy"),
        ("/v1/claims/ns/k?fingerprint=f", "one", "mismatch"),
        ("/v1/claims/ns/f?fingerprint=f", "one", "acquired"),
        ("/v1/claims/ns/f?fingerprint=f", "two", "busy"),
    ];
    for (target, body, outcome) in table {
        let reply = house.send("POST", target, &[], body).await;
        assert_eq!(reply.outcome(), outcome, "{target} {body}");
    }
}

#[tokio::test]
async fn a_result_of_mode_once_is_text() {
    let house = House::new();
    house
        .ask("POST", "/v1/claims/ns/k?mode=once&result=caf%C3%A9+1")
        .await;
    let raw = house.ask("GET", "/v1/claims/ns/k/result").await;
    assert_eq!(raw.body, "café 1");
    assert_eq!(raw.header("content-type"), "text/plain; charset=utf-8");
    let reply = house.ask("POST", "/v1/claims/ns/l?result=r").await;
    reply.assert_problem(400, "bad_input");
    assert!(reply.detail().contains("mode=once"));
}

#[tokio::test]
async fn more_than_the_limit_is_refused_and_says_how_to_go_on() {
    let house = House::with(small());
    let fits = house
        .send("POST", "/v1/claims/ns/k", &[], "1234567890")
        .await;
    assert_eq!(fits.status, 201);
    let reply = house
        .send("POST", "/v1/claims/ns/l", &[], "12345678901")
        .await;
    reply.assert_problem(413, "too_large");
    assert!(
        reply.detail().contains("at most 10 bytes"),
        "{}",
        reply.detail()
    );
    assert_eq!(house.ask("GET", "/v1/claims/ns/l").await.status, 404);

    let complete = "/v1/claims/ns/k/complete?token=1";
    let reply = house.send("POST", complete, &[], vec![b'x'; 21]).await;
    reply.assert_problem(413, "too_large");
    assert!(reply.detail().contains("complete again without the body"));
    let held = house.ask("GET", "/v1/claims/ns/k").await;
    assert_eq!(
        held.json()["state"],
        "pending",
        "the holder may complete again"
    );
    assert_eq!(
        house
            .send("POST", complete, &[], vec![b'x'; 20])
            .await
            .status,
        200
    );

    let long = "r".repeat(21);
    let target = format!("/v1/claims/ns/m?mode=once&result={long}");
    let reply = house.ask("POST", &target).await;
    reply.assert_problem(413, "too_large");
}

#[tokio::test]
async fn only_plain_bodies_with_one_readable_type_are_taken() {
    let house = House::new();
    // (headers, body, status)
    let table: &[(&Headers, &str, u16)] = &[
        (&[("content-encoding", "gzip")], "x", 415),
        (&[("content-encoding", "identity")], "x", 201),
        (
            &[("content-type", "a/b"), ("content-type", "a/b")],
            "x",
            400,
        ),
        (&[("content-type", "")], "x", 400),
        (&[("content-type", "a/\tb")], "x", 400),
        (&[("content-type", "caf\u{e9}")], "x", 400),
        (&[("content-type", "no slash is fine")], "x", 201),
        (&[], "x", 201),
    ];
    for (at, (headers, body, status)) in table.iter().enumerate() {
        let reply = house
            .send("POST", &format!("/v1/claims/ns/k{at}"), headers, *body)
            .await;
        assert_eq!(reply.status, *status, "{headers:?}");
        if *status != 201 {
            reply.assert_problem(*status, "bad_input");
        }
    }
    let typed = [("content-type", "t".repeat(257))];
    let typed = typed
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let reply = house.send("POST", "/v1/claims/ns/t", &typed, "x").await;
    reply.assert_problem(400, "bad_input");
}

#[tokio::test]
async fn a_route_that_takes_no_body_refuses_one() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/k").await;
    for asked in [
        "POST /v1/claims/ns/k/renew?token=1",
        "POST /v1/claims/ns/k/release?token=1",
        "DELETE /v1/claims/ns/k?force=true",
        "GET /v1/claims/ns/k",
        "GET /v1/claims/ns",
    ] {
        let (method, target) = asked.split_once(' ').unwrap();
        let reply = house.send(method, target, &[], r#"{"token":1}"#).await;
        reply.assert_problem(400, "bad_input");
        assert!(reply.detail().contains("query"), "{}", reply.detail());
    }
    assert_eq!(house.ask("GET", "/v1/claims/ns/k").await.json()["token"], 1);
}
