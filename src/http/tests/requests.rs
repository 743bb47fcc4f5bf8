//! What is asked: hosts, methods, parameters, durations (FO-18, FO-30).

use super::{Headers, House};
use crate::http::Options;

#[tokio::test]
async fn a_foreign_host_or_origin_changes_nothing() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/kept").await;
    let stopped: &[(&Headers, u16, &str)] = &[
        (&[("host", "evil.example:6623")], 421, "misdirected"),
        (&[("host", "127.0.0.1.evil.example")], 421, "misdirected"),
        (&[("host", "")], 421, "misdirected"),
        (
            &[("host", "localhost"), ("host", "localhost")],
            421,
            "misdirected",
        ),
        (
            &[("host", "evil.example"), ("x-forwarded-host", "localhost")],
            421,
            "misdirected",
        ),
        (&[("origin", "http://evil.example")], 403, "forbidden"),
        (&[("origin", "null")], 403, "forbidden"),
        (&[("sec-fetch-site", "cross-site")], 403, "forbidden"),
        (&[("sec-fetch-site", "same-site")], 403, "forbidden"),
    ];
    let asked = [
        ("POST", "/v1/claims/ns/new"),
        ("GET", "/v1/claims/ns/kept"),
        ("GET", "/v1/claims/ns?state=dead"),
        ("POST", "/v1/claims/ns/kept/replay?generation=1"),
        ("DELETE", "/v1/claims/ns/kept?force=true"),
        ("GET", "/healthz"),
        ("GET", "/nowhere"),
    ];
    for (headers, status, outcome) in stopped {
        for (method, target) in asked {
            let reply = house.send(method, target, headers, "").await;
            reply.assert_problem(*status, outcome);
            assert!(
                !reply
                    .headers
                    .keys()
                    .any(|name| name.as_str().starts_with("access-control"))
            );
        }
        let reply = house
            .send("OPTIONS", "/v1/claims/ns/new", headers, "")
            .await;
        assert_eq!(reply.status, *status, "a preflight is stopped too");
    }
    let reply = house
        .ask("POST", "http://evil.example/v1/claims/ns/new")
        .await;
    reply.assert_problem(421, "misdirected");
    assert_eq!(house.ask("GET", "/v1/claims/ns/new").await.status, 404);
    assert_eq!(house.ask("GET", "/v1/claims/ns/kept").await.token(), 1);
}

#[tokio::test]
async fn loopback_and_configured_names_are_answered() {
    let house = House::with(Options {
        hosts: vec!["onced.internal".into()],
        ..Options::default()
    });
    for host in [
        "localhost",
        "localhost.",
        "LOCALHOST:6623",
        "127.0.0.1:6623",
        "[::1]:6623",
        "onced.internal",
    ] {
        for headers in [
            vec![("host", host)],
            vec![("host", host), ("x-forwarded-host", "evil.example")],
            vec![("host", host), ("content-type", "text/plain")],
        ] {
            let reply = house.send("GET", "/healthz", &headers, "").await;
            assert_eq!(reply.status, 200, "{headers:?}");
        }
    }
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_say_what_is() {
    let house = House::new();
    let methods = [
        ("PUT", "/v1/claims/ns/k", "POST, GET, HEAD, DELETE, OPTIONS"),
        ("GET", "/v1/claims/ns/k/complete", "POST, OPTIONS"),
        ("HEAD", "/v1/claims/ns/k/complete", "POST, OPTIONS"),
        ("DELETE", "/v1/claims/ns", "GET, HEAD, POST, OPTIONS"),
        ("POST", "/v1/namespaces/ns", "GET, HEAD, PUT, OPTIONS"),
        ("POST", "/healthz", "GET, HEAD, OPTIONS"),
        (
            "claim",
            "/v1/claims/ns/k",
            "POST, GET, HEAD, DELETE, OPTIONS",
        ),
    ];
    for (method, target, allow) in methods {
        let reply = house.ask(method, target).await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, allow),
            "{method} {target}"
        );
        if method == "HEAD" {
            assert_eq!(reply.outcome(), "bad_input");
        } else {
            reply.assert_problem(405, "bad_input");
        }
        let reply = house.ask("OPTIONS", target).await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (204, allow),
            "{target}"
        );
        assert_eq!((reply.outcome(), reply.body.len()), ("ok", 0));
    }
    for target in [
        "/",
        "/v1",
        "/v1/claims",
        "/v1/claims/ns/a/b",
        "/v2/claims/ns/k",
        "/healthz/",
    ] {
        house
            .ask("GET", target)
            .await
            .assert_problem(404, "not_found");
        house
            .ask("OPTIONS", target)
            .await
            .assert_problem(404, "not_found");
    }
}

#[tokio::test]
async fn head_answers_what_get_does_without_the_body() {
    let house = House::new();
    house
        .ask("POST", "/v1/claims/ns/k?mode=once&result=hello")
        .await;
    for target in [
        "/v1/claims/ns/k",
        "/v1/claims/ns/k/result",
        "/v1/claims/ns/k/payload",
        "/v1/claims/ns",
        "/healthz",
        "/readyz",
    ] {
        let get = house.ask("GET", target).await;
        let mut head = house.ask("HEAD", target).await;
        assert_eq!(head.status, get.status, "{target}");
        assert_eq!(head.header("content-length"), get.body.len().to_string());
        assert!(head.body.is_empty());
        head.headers.remove("content-length");
        assert_eq!(head.headers, get.headers, "{target}");
        assert_eq!(get.header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn unknown_repeated_empty_and_missing_parameters_are_bad_input() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/k").await;
    let table = [
        ("POST /v1/claims/ns/n?leese=1s", "unknown parameter leese"),
        ("POST /v1/claims/ns/n?Lease=1s", "unknown parameter Lease"),
        ("POST /v1/claims/ns/n?token=1", "unknown parameter token"),
        (
            "POST /v1/claims/ns/n?lease=1s&lease=1s",
            "lease is given twice",
        ),
        ("POST /v1/claims/ns/n?owner=", "owner is empty"),
        ("POST /v1/claims/ns/n?store", "store is empty"),
        ("POST /v1/claims/ns/n?store=yes", "true or false"),
        ("POST /v1/claims/ns/n?mode=twice", "lease or once"),
        ("POST /v1/claims/ns/n?on_lease_end=kill", "retry or hold"),
        ("POST /v1/claims/ns/n?max_attempts=-1", "from 0 to 1000000"),
        (
            "POST /v1/claims/ns/n?max_attempts=1000001",
            "from 0 to 1000000",
        ),
        ("POST /v1/claims/ns/n?owner=%FF", "not UTF-8"),
        ("POST /v1/claims/ns/k/renew", "token is missing"),
        ("POST /v1/claims/ns/k/effect", "token is missing"),
        ("POST /v1/claims/ns/k/release?token=0", "a token is"),
        ("POST /v1/claims/ns/k/release?token=abc", "a token is"),
        ("POST /v1/claims/ns/k/complete?token=", "token is empty"),
        (
            "POST /v1/claims/ns/k/complete?token=1&status=99",
            "from 100 to 599",
        ),
        (
            "POST /v1/claims/ns/k/complete?token=1&status=600",
            "from 100 to 599",
        ),
        ("POST /v1/claims/ns/k/replay", "generation is missing"),
        ("POST /v1/claims/ns/k/replay?generation=0", "from 1 to"),
        (
            "GET /v1/claims/ns/k?verbose=true",
            "unknown parameter verbose",
        ),
        ("GET /v1/claims/ns?limit=0", "from 1 to 1000"),
        ("GET /v1/claims/ns?limit=1001", "from 1 to 1000"),
        ("GET /v1/claims/ns?state=open", "pending or retry"),
        ("GET /v1/claims/ns?cursor=%21", "not a cursor"),
        ("GET /healthz?x=1", "takes no parameters"),
    ];
    for (asked, expected) in table {
        let (method, target) = asked.split_once(' ').unwrap();
        let reply = house.ask(method, target).await;
        reply.assert_problem(400, "bad_input");
        assert!(
            reply.detail().contains(expected),
            "{asked}: {}",
            reply.detail()
        );
    }
    assert_eq!(house.ask("GET", "/v1/claims/ns/n").await.status, 404);
    assert_eq!(
        house.ask("GET", "/v1/claims/ns/k").await.json()["attempt"],
        1
    );
}

#[tokio::test]
async fn odd_durations_are_errors_and_never_no_limit() {
    let house = House::new();
    let odd = [
        "-1",
        "null",
        "%2230%22",
        "1.5",
        "1e30",
        "abc",
        "1S",
        "1+s",
        "1w",
        "%2B1",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999",
    ];
    let always = ["lease", "retention", "wait"];
    for name in always {
        for value in odd {
            let reply = house
                .ask("POST", &format!("/v1/claims/ns/k?{name}={value}"))
                .await;
            reply.assert_problem(400, "bad_input");
        }
    }
    let out_of_range = [
        "lease=0",
        "lease=25h",
        "lease=86400001",
        "retention=0",
        "retention=999",
        "retention=3651d",
        "wait=61s",
        "lease=forever",
    ];
    for query in out_of_range {
        let reply = house.ask("POST", &format!("/v1/claims/ns/k?{query}")).await;
        reply.assert_problem(400, "bad_input");
    }
    assert_eq!(
        house.ask("GET", "/v1/claims/ns/k").await.status,
        404,
        "nothing was stored"
    );

    // (query, lease in ms, when a record claimed so and completed at once expires)
    let fine = [
        ("", 60_000, "2026-01-05T03:04:05.678Z"),
        ("lease=1", 1, "2026-01-05T03:04:05.678Z"),
        ("lease=200ms", 200, "2026-01-05T03:04:05.678Z"),
        (
            "lease=24h&retention=1s",
            86_400_000,
            "2026-01-02T03:04:06.678Z",
        ),
        (
            "lease=15m&retention=7d",
            900_000,
            "2026-01-09T03:04:05.678Z",
        ),
        ("wait=0", 60_000, "2026-01-05T03:04:05.678Z"),
    ];
    for (at, (query, lease, expires)) in fine.into_iter().enumerate() {
        let path = format!("/v1/claims/ns/fine{at}");
        let claimed = house.ask("POST", &format!("{path}?{query}")).await;
        assert_eq!(claimed.status, 201, "{query}");
        let record = house.ask("GET", &path).await.json();
        assert_eq!(record["lease_ms"], lease, "{query}");
        let target = format!("{path}/complete?token={}", claimed.token());
        assert_eq!(
            house.ask("POST", &target).await.json()["expires_at"],
            expires,
            "{query}"
        );
    }
    let forever = house
        .ask("POST", "/v1/claims/ns/ever?mode=once&retention=forever")
        .await;
    assert!(forever.json()["expires_at"].is_null());
}

#[tokio::test]
async fn a_lease_of_a_millisecond_ends_and_its_token_gets_stale() {
    let house = House::new();
    let first = house.ask("POST", "/v1/claims/ns/k?lease=1ms").await.token();
    house.advance(1);
    let second = house.ask("POST", "/v1/claims/ns/k").await;
    assert_eq!(second.json()["reason"], "takeover");
    assert!(second.token() > first);
    let late = house
        .ask("POST", &format!("/v1/claims/ns/k/complete?token={first}"))
        .await;
    late.assert_problem(412, "stale");
}

#[tokio::test]
async fn a_retry_may_be_due_at_once_but_never_in_negative_time() {
    let house = House::new();
    let token = house.ask("POST", "/v1/claims/ns/k").await.token();
    let fail = |retry: &str| format!("/v1/claims/ns/k/fail?token={token}&{retry}");
    for retry in [
        "retry_in=-1",
        "retry_in=1.5",
        "retry_in=3651d",
        "retry_in=never",
    ] {
        house
            .ask("POST", &fail(retry))
            .await
            .assert_problem(400, "bad_input");
    }
    let failed = house
        .ask("POST", &fail("retry_in=0&error=timeout+at+step%202"))
        .await;
    assert_eq!(failed.outcome(), "failed");
    let record = house.ask("GET", "/v1/claims/ns/k").await.json();
    assert_eq!(record["last_error"], "timeout at step 2");
    let again = house.ask("POST", "/v1/claims/ns/k").await.json();
    assert_eq!(
        (&again["outcome"], &again["attempt"]),
        (&"acquired".into(), &2.into())
    );
    let long = "e".repeat(4097);
    let target = format!("/v1/claims/ns/k/fail?token=2&error={long}");
    let reply = house.ask("POST", &target).await;
    reply.assert_problem(400, "bad_input");
}

#[tokio::test]
async fn every_option_of_a_claim_reaches_the_record() {
    let house = House::new();
    let query = "claim_id=c1&owner=o&lease=5s&on_lease_end=hold&max_attempts=3&fingerprint=f&mode=lease&store=false";
    let target = format!("/v1/claims/ns/k?{query}");
    let first = house.ask("POST", &target).await;
    let again = house.ask("POST", &target).await;
    assert_eq!(again.json()["reason"], "resumed");
    assert_eq!(again.token(), first.token());
    let record = house.ask("GET", "/v1/claims/ns/k").await.json();
    for (name, value) in [("claim_id", "c1"), ("owner", "o")] {
        assert_eq!(record[name], value);
    }
    assert_eq!(record["max_attempts"], 3);
    assert_eq!(record["fingerprint"]["value"], "f");
    house.advance(5000);
    let reply = house.ask("POST", "/v1/claims/ns/k").await;
    reply.assert_problem(409, "in_doubt");
}

#[tokio::test]
async fn a_payload_that_must_be_json_and_is_not_is_bad_input() {
    let house = House::new();
    let reply = house
        .send("POST", "/v1/claims/json/k", &[], "{not json")
        .await;
    reply.assert_problem(400, "bad_input");
    assert_eq!(house.ask("GET", "/v1/claims/json/k").await.status, 404);
}
