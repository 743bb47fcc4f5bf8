//! Requests at the edges of RFC 9112, over a raw connection: what two readers could take for different things is
//! refused, or answered and the connection closed.

use super::wire::{Client, claim};
use super::{House, small};

/// All that the server says to these bytes, after which the client sends no more.
async fn said(house: &House, bytes: impl AsRef<[u8]>) -> String {
    let mut client = Client::of(house);
    client.send(bytes).await;
    client.stream_end().await;
    client.rest().await
}

/// The statuses of all answers, in order.
fn statuses(answers: &str) -> Vec<&str> {
    let all = answers.split("HTTP/1.").skip(1);
    all.filter_map(|answer| answer.get(2..5)).collect()
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused_and_the_connection_closed() {
    let house = House::new();
    let post = "POST /v1/claims/ns/framed HTTP/1.1\r\n";
    // (what it is, header lines and body, status)
    let table = [
        (
            "two lengths",
            "Host: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "400",
        ),
        (
            "a list of lengths",
            "Host: localhost\r\nContent-Length: 1, 2\r\n\r\nab",
            "400",
        ),
        (
            "a signed length",
            "Host: localhost\r\nContent-Length: +1\r\n\r\na",
            "400",
        ),
        (
            "a negative length",
            "Host: localhost\r\nContent-Length: -1\r\n\r\na",
            "400",
        ),
        (
            "a length beyond all",
            "Host: localhost\r\nContent-Length: 99999999999999999999\r\n\r\na",
            "400",
        ),
        (
            "a folded header",
            "Host: localhost\r\nX-A: b\r\n c\r\n\r\n",
            "400",
        ),
        (
            "a blank before the colon",
            "Host : localhost\r\n\r\n",
            "400",
        ),
        (
            "NUL in a value",
            "Host: localhost\r\nX-A: b\0c\r\n\r\n",
            "400",
        ),
        (
            "CR in a value",
            "Host: localhost\r\nX-A: b\rX-B: c\r\n\r\n",
            "400",
        ),
        (
            "a NUL in a name",
            "Host: localhost\r\nX\0A: b\r\n\r\n",
            "400",
        ),
        (
            "a chunk size that is none",
            "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\nx\r\na\r\n0\r\n\r\n",
            "400",
        ),
        (
            "a signed chunk size",
            "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n",
            "400",
        ),
        (
            "a chunk size beyond all",
            "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na\r\n",
            "400",
        ),
        (
            "a chunk longer than it says",
            "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            "400",
        ),
        (
            "a chunked body cut short",
            "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "400",
        ),
        (
            "chunked not last",
            "Host: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "400",
        ),
    ];
    for (what, rest, status) in table {
        let answers = said(&house, format!("{post}{rest}{}", claim("smuggled"))).await;
        assert_eq!(statuses(&answers), [status], "{what}: {answers}");
        assert!(
            answers.contains("connection: close\r\n"),
            "{what}: {answers}"
        );
        assert!(
            answers.contains("onced-outcome: bad_input\r\n"),
            "{what}: {answers}"
        );
    }
    let cut = format!("{post}Host: localhost\r\nContent-Length: 5\r\n\r\nab");
    assert_eq!(statuses(&said(&house, cut).await), ["400"]);
    for key in ["framed", "smuggled"] {
        let path = format!("/v1/claims/ns/{key}");
        assert_eq!(house.ask("GET", &path).await.status, 404, "{key}");
    }
}

#[tokio::test]
async fn of_a_length_and_chunks_the_chunks_count_and_the_connection_closes() {
    let house = House::new();
    for (at, headers) in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
    ]
    .iter()
    .enumerate()
    {
        let request = format!(
            "POST /v1/claims/ns/both{at} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n2\r\nab\r\n0\r\n\r\n{}",
            claim("behind")
        );
        let answers = said(&house, request).await;
        assert_eq!(statuses(&answers), ["201"], "{answers}");
        assert!(answers.contains("connection: close\r\n"), "{answers}");
    }
    assert_eq!(house.ask("GET", "/v1/claims/ns/behind").await.status, 404);
}

#[tokio::test]
async fn a_host_given_twice_or_not_at_all_is_no_host_of_ours() {
    let house = House::new();
    for hosts in [
        "",
        "Host: localhost\r\nHost: localhost\r\n",
        "Host: localhost\r\nHost: a.example\r\n",
    ] {
        let request = format!("POST /v1/claims/ns/hosts HTTP/1.1\r\n{hosts}\r\n");
        assert_eq!(statuses(&said(&house, request).await), ["421"], "{hosts:?}");
    }
    assert_eq!(house.ask("GET", "/v1/claims/ns/hosts").await.status, 404);
}

#[tokio::test]
async fn a_target_may_be_absolute_and_its_host_counts() {
    let house = House::new();
    for (target, status) in [
        ("http://localhost/healthz", "200"),
        ("http://localhost:6623/healthz", "200"),
        ("http://evil.example/healthz", "421"),
        ("localhost:6623", "404"),
        ("*", "404"),
        ("/", "404"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answers = said(&house, request).await;
        assert_eq!(statuses(&answers), [status], "{target}: {answers}");
    }
}

#[tokio::test]
async fn a_target_beyond_the_head_is_414_and_headers_beyond_it_are_431() {
    let house = House::new();
    let long = "k".repeat(20 * 1024);
    let answers = said(&house, claim(&long)).await;
    assert_eq!(statuses(&answers), ["414"], "{answers}");
    assert!(
        answers.contains("onced-outcome: bad_input\r\n"),
        "{answers}"
    );
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    assert_eq!(statuses(&said(&house, request).await), ["431"]);
    // Not the whole of it has to be there.
    let mut client = Client::of(&house);
    client.send(format!("GET /{long}")).await;
    assert_eq!(statuses(&client.rest().await), ["414"]);
}

#[tokio::test]
async fn a_head_is_the_same_for_head_and_get_and_has_no_body() {
    let house = House::new();
    house.ask("POST", "/v1/claims/ns/k").await;
    for target in [
        "/v1/claims/ns/k",
        "/v1/claims/ns/none",
        "/healthz",
        "/openapi.json",
        "/manual",
    ] {
        let ask = |method: &str| format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, get) = (
            said(&house, ask("HEAD")).await,
            said(&house, ask("GET")).await,
        );
        let lines = |answer: &str| -> Vec<String> {
            let (head, _) = answer.split_once("\r\n\r\n").unwrap();
            let mut lines: Vec<_> = head.lines().map(str::to_owned).collect();
            lines.retain(|line| !line.starts_with("date: "));
            lines.sort();
            lines
        };
        assert_eq!(lines(&head), lines(&get), "{target}");
        assert!(
            head.ends_with("\r\n\r\n") && head.matches("\r\n\r\n").count() == 1,
            "{head}"
        );
    }
}

#[tokio::test]
async fn a_method_that_is_not_taken_is_told_those_that_are_and_no_page_is_told_it_may() {
    let house = House::new();
    let ask = |method: &str| {
        format!(
            "{method} /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nAccess-Control-Request-Method: POST\r\n\r\n"
        )
    };
    for (method, status) in [
        ("PATCH", "405"),
        ("PUT", "405"),
        ("TRACE", "405"),
        ("BREW", "405"),
        ("OPTIONS", "204"),
    ] {
        let mut client = Client::of(&house);
        client.send(ask(method) + &claim("after")).await;
        let answer = client.answer().await;
        assert_eq!(statuses(&answer), [status], "{method}: {answer}");
        assert!(
            answer.contains("allow: POST, GET, HEAD, DELETE, OPTIONS\r\n"),
            "{answer}"
        );
        assert!(!answer.contains("access-control"), "{answer}");
        let after = client.answer().await;
        assert!(
            !after.starts_with("HTTP/1.1 4") || after.contains("busy"),
            "{after}"
        );
    }
    assert_eq!(
        statuses(
            &said(
                &house,
                "CONNECT localhost:6623 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
            .await
        )
        .len(),
        1
    );
}

#[tokio::test]
async fn who_waits_to_be_told_to_send_a_body_is_not_told_to_where_it_is_refused() {
    let house = House::with(small());
    // (target, headers, status)
    for (target, headers, status) in [
        ("/v1/claims/ns/k?nonsense=1", "Content-Length: 5", "400"),
        ("/v1/claims/NS/k", "Content-Length: 5", "400"),
        ("/v1/nothing", "Content-Length: 5", "404"),
        ("/v1/claims/ns/k", "Content-Length: 11", "413"),
        (
            "/v1/claims/ns/k",
            "Content-Length: 5\r\nContent-Encoding: gzip",
            "415",
        ),
        (
            "/v1/claims/ns/k",
            "Content-Length: 5\r\nOrigin: http://a.example",
            "403",
        ),
        ("/v1/claims/ns/k/renew?token=1", "Content-Length: 5", "400"),
    ] {
        let mut client = Client::of(&house);
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n{headers}\r\n\r\n"
        );
        client.send(request).await;
        let answers = client.rest().await;
        assert_eq!(statuses(&answers), [status], "{target}: {answers}");
        // What the client sends now would be read as a request.
        assert!(
            answers.contains("connection: close\r\n"),
            "{target}: {answers}"
        );
    }
    let mut client = Client::of(&house);
    let head = "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n";
    client.send(head).await;
    assert_eq!(client.answer().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello").await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test]
async fn compressed_bodies_are_refused_with_what_to_do() {
    let house = House::new();
    for coding in ["gzip", "br", "deflate", "identity, gzip"] {
        let request = format!(
            "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\nxy"
        );
        let mut client = Client::of(&house);
        client.send(request + &claim("after")).await;
        let answer = client.answer().await;
        assert_eq!(statuses(&answer), ["415"], "{coding}: {answer}");
        assert!(answer.contains("send the plain bytes"), "{answer}");
        // The few bytes were read away, and the connection goes on.
        assert!(client.answer().await.contains("\"key\":\"after\""));
    }
}

#[tokio::test]
async fn a_client_that_asks_for_it_is_the_last_to_be_answered() {
    let house = House::new();
    let last = "POST /v1/claims/ns/last HTTP/1.1\r\nHost: localhost\r\nConnection: Close\r\n\r\n";
    let answers = said(&house, claim("first") + last + &claim("never")).await;
    assert_eq!(statuses(&answers), ["201", "201"], "{answers}");
    assert_eq!(house.ask("GET", "/v1/claims/ns/never").await.status, 404);
    // The older version closes unless it asks for more.
    let old = "GET /healthz HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n";
    let answers = said(&house, old.repeat(2)).await;
    assert_eq!(statuses(&answers), ["200", "200"], "{answers}");
    let old = "POST /v1/claims/ns/k HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(statuses(&said(&house, old).await), ["400"]);
}

#[tokio::test]
async fn refusals_among_pipelined_requests_keep_their_place() {
    let house = House::new();
    let bad = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc")
    };
    let all = [
        claim("a"),
        bad("/v1/claims/ns/b?x=1"),
        bad("/nowhere"),
        bad("/v1/claims/ns/c/renew?token=1"),
        claim("d"),
    ];
    let answers = said(&house, all.concat()).await;
    assert_eq!(
        statuses(&answers),
        ["201", "400", "404", "400", "201"],
        "{answers}"
    );
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_an_answer_is_given_up() {
    let house = House::with(small());
    // A follower that is far behind, and a body: each larger than what lies between server and client.
    let token = house.ask("POST", "/v1/claims/ns/k").await.token();
    let complete = format!("/v1/claims/ns/k/complete?token={token}");
    house.send("POST", &complete, &[], "result").await;
    for number in 0..1500 {
        house.ask("POST", &format!("/v1/claims/ns/{number}")).await;
    }
    for target in [
        "/v1/events?follow=true",
        "/v1/events",
        "/v1/claims/ns?limit=1000",
        "/openapi.json",
    ] {
        let mut client = Client::of(&house);
        client
            .send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .await;
        client.server_gone().await;
    }
    // Its place among the readers is free, and it may go on where it was.
    let reply = house.ask("GET", "/v1/events?limit=1").await;
    assert_eq!(reply.status, 200);
}
