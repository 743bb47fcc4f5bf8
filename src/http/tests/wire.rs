//! The face over a connection: what hyper and the stream below it do together.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{House, small};
use crate::http::{Options, connection};

/// Long enough to be sure of a hang, and never waited for otherwise.
const HANG: Duration = Duration::from_secs(10);

pub(super) struct Client {
    stream: DuplexStream,
    received: Vec<u8>,
    server: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Client {
    pub(super) fn of(house: &House) -> Client {
        let (stream, there) = duplex(64 * 1024);
        let (stop, shutdown) = watch::channel(false);
        let server = tokio::spawn(connection::serve(there, house.face.clone(), shutdown));
        Client {
            stream,
            received: Vec::new(),
            server,
            stop,
        }
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that has closed already has said why.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// The client sends no more.
    pub(super) async fn stream_end(&mut self) {
        // A server that has closed already has said why.
        let _ = self.stream.shutdown().await;
    }

    /// Waits until the connection's task has ended, without reading a byte.
    pub(super) async fn server_gone(self) {
        timeout(HANG, self.server)
            .await
            .expect("the task ends")
            .unwrap();
        drop(self.stream);
    }

    /// Everything until the server closes, and the connection's task with it.
    pub(super) async fn rest(mut self) -> String {
        let read = self.stream.read_to_end(&mut self.received);
        timeout(HANG, read)
            .await
            .expect("the server closes")
            .unwrap();
        // From here on there is nobody to linger for.
        drop(self.stream);
        timeout(HANG, self.server)
            .await
            .expect("the task ends")
            .unwrap();
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Everything up to and with that text.
    async fn until(&mut self, text: &str) -> String {
        loop {
            let received = String::from_utf8_lossy(&self.received);
            if let Some(at) = received.find(text) {
                let all = received[..at + text.len()].to_owned();
                self.received.drain(..all.len());
                return all;
            }
            let read = self.stream.read_buf(&mut self.received);
            let size = timeout(HANG, read).await.expect("more").unwrap();
            assert_ne!(size, 0, "closed after {}", self.received.escape_ascii());
        }
    }

    /// The next answer, head and body, and leaves the connection open.
    pub(super) async fn answer(&mut self) -> String {
        loop {
            if let Some(size) = whole(&self.received) {
                let answer = self.received.drain(..size).collect();
                return String::from_utf8(answer).unwrap();
            }
            let read = self.stream.read_buf(&mut self.received);
            let size = timeout(HANG, read).await.expect("an answer").unwrap();
            assert_ne!(size, 0, "closed after {}", self.received.escape_ascii());
        }
    }
}

/// The length of the answer that `bytes` begin with, once it is whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    (body.len() >= length).then_some(head.len() + 4 + length)
}

pub(super) fn claim(key: &str) -> String {
    format!("POST /v1/claims/ns/{key} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Asserts a bare-bones but whole refusal, and that nothing else was said.
fn assert_refused(answers: &str, status: &str, outcome: &str) {
    assert!(
        answers.starts_with(&format!("HTTP/1.1 {status}")),
        "{answers}"
    );
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    assert!(
        answers.contains(&format!("onced-outcome: {outcome}\r\n")),
        "{answers}"
    );
    assert!(answers.contains("content-type: application/problem+json\r\n"));
    assert!(answers.contains("connection: close\r\n"));
    let (_, body) = answers.split_once("\r\n\r\n").unwrap();
    let json: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(json["outcome"], outcome);
    assert_eq!(json["type"], format!("/manual/problems/{outcome}"));
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection_and_may_be_pipelined() {
    let house = House::new();
    let mut client = Client::of(&house);
    for key in ["a", "b"] {
        client.send(claim(key)).await;
        assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
    }
    let all: String = (0..100).map(|n| claim(&format!("p{n}"))).collect();
    client.send(all).await;
    for n in 0..100 {
        let answer = client.answer().await;
        assert!(
            answer.contains(&format!("\"key\":\"p{n}\"")),
            "in order: {answer}"
        );
    }
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_is_still_answered() {
    let house = House::new();
    let mut client = Client::of(&house);
    client.send(claim("a") + &claim("b")).await;
    client.stream.shutdown().await.unwrap();
    let answers = client.rest().await;
    assert_eq!(
        answers.matches("HTTP/1.1 201 Created\r\n").count(),
        2,
        "{answers}"
    );
}

#[tokio::test]
async fn http_1_0_is_answered_and_closed_and_needs_a_host_too() {
    let house = House::new();
    let mut client = Client::of(&house);
    client
        .send("GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .await;
    let answers = client.rest().await;
    assert!(answers.starts_with("HTTP/1.0 200 OK\r\n"), "{answers}");

    let mut client = Client::of(&house);
    client.send("GET /healthz HTTP/1.0\r\n\r\n").await;
    let answers = client.rest().await;
    assert!(answers.starts_with("HTTP/1.0 421 "), "{answers}");
    assert!(answers.contains("onced-outcome: misdirected\r\n"));
}

#[tokio::test]
async fn bytes_that_are_no_http_are_answered_once_and_the_connection_closes() {
    let house = House::new();
    let table: &[&[u8]] = &[
        b"*1\r\n$4\r\nPING\r\n",
        b"PING\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh",
        &[0; 4096],
        b"GET /v1/claims/ns/a\0b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for bytes in table {
        let mut client = Client::of(&house);
        client.send(bytes).await;
        client.stream.shutdown().await.unwrap();
        assert_refused(&client.rest().await, "400 Bad Request\r\n", "bad_input");
    }
}

#[tokio::test]
async fn bytes_that_are_no_http_after_a_request_are_answered_after_it() {
    let house = House::new();
    let mut client = Client::of(&house);
    client.send(claim("a")).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
    client.send("*1\r\n$4\r\nPING\r\n").await;
    assert_refused(&client.rest().await, "400 Bad Request\r\n", "bad_input");
}

#[tokio::test]
async fn bad_escapes_leave_the_connection_usable() {
    let house = House::new();
    let mut client = Client::of(&house);
    for key in ["%", "%zz"] {
        client.send(claim(key)).await;
        assert!(client.answer().await.starts_with("HTTP/1.1 400 "));
    }
    let refused =
        "POST /v1/claims/ns/k?x=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
    client.send(refused).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 400 "));
    client.send(claim("%FF")).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test]
async fn a_key_is_not_cut_at_a_number_sign() {
    let house = House::new();
    for sent in ["k#1", "k#", "k?lease=1s#x", "k%23#x"] {
        let mut client = Client::of(&house);
        client.send(claim("other")).await;
        client.answer().await;
        // What is pipelined behind it is not answered either.
        let request = claim(sent) + &claim("behind");
        let (first, second) = request.split_at(request.find('#').unwrap());
        client.send(first).await;
        tokio::task::yield_now().await;
        client.send(second).await;
        assert_refused(&client.rest().await, "400 ", "bad_input");
    }
    for key in ["k", "k%23", "behind"] {
        let path = format!("/v1/claims/ns/{key}");
        assert_eq!(house.ask("GET", &path).await.status, 404, "{key}");
    }
    // A body may say what it likes.
    let mut client = Client::of(&house);
    let body = "GET /v1/claims/ns/elsewhere#1 HTTP/1.1";
    let head = "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: ";
    client
        .send(format!("{head}{}\r\n\r\n{body}", body.len()))
        .await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
    client.send(claim("k%23")).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test]
async fn a_body_in_another_transfer_coding_is_refused_unread() {
    let house = House::new();
    for coding in ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked"] {
        let mut client = Client::of(&house);
        let head = "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: ";
        client
            .send(format!("{head}{coding}\r\n\r\n1\r\nx\r\n0\r\n\r\n"))
            .await;
        assert_refused(&client.rest().await, "415 ", "bad_input");
    }
    assert_eq!(house.ask("GET", "/v1/claims/ns/k").await.status, 404);
}

#[tokio::test]
async fn a_head_over_its_limit_is_431() {
    let house = House::new();
    let padded = |size: usize| {
        let head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Padding: ";
        format!("{head}{}\r\n\r\n", "x".repeat(size - head.len() - 4))
    };
    let mut client = Client::of(&house);
    client.send(padded(16 * 1024)).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 200 "));
    client.send(padded(16 * 1024 + 1)).await;
    assert_refused(&client.rest().await, "431 ", "bad_input");

    let mut client = Client::of(&house);
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    client.send(format!("GET / HTTP/1.1\r\n{many}\r\n")).await;
    assert_refused(&client.rest().await, "431 ", "bad_input");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_at_once_and_the_connection_closes_cleanly() {
    let house = House::with(small());
    let announced =
        "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    let expects = "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\
                   Content-Length: 11\r\n\r\n";
    let chunked = "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
                   6\r\n123456\r\n5\r\n78901\r\n";
    for head in [announced, expects, chunked] {
        let mut client = Client::of(&house);
        client.send(head).await;
        let answer = client.answer().await;
        assert_refused(&answer, "413 ", "too_large");
        // The client is still writing: that must not cost it the answer.
        client.send("x".repeat(100_000)).await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.rest().await, "");
    }
    assert_eq!(house.ask("GET", "/v1/claims/ns/k").await.status, 404);
}

#[tokio::test]
async fn a_small_refused_body_is_read_away() {
    let house = House::with(small());
    let mut client = Client::of(&house);
    client.send("POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n12345678901").await;
    assert!(client.answer().await.starts_with("HTTP/1.1 413 "));
    client.send(claim("k")).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test]
async fn a_chunked_body_within_the_limit_is_taken_also_when_it_waits_to_be_wanted() {
    let house = House::with(small());
    let mut client = Client::of(&house);
    client.send("POST /v1/claims/ns/k?store=true HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\
                 Transfer-Encoding: chunked\r\n\r\n").await;
    assert_eq!(client.answer().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("5\r\n12345\r\n5\r\n67890\r\n0\r\n\r\n").await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
    client
        .send("GET /v1/claims/ns/k/payload HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert!(client.answer().await.ends_with("\r\n\r\n1234567890"));
}

#[tokio::test]
async fn silence_ends_a_connection_in_its_head_its_body_and_between_requests() {
    let house = House::with(small());
    // (what is sent, the status of the last answer)
    let table = [
        ("", ""),
        ("POST /v1/claims/ns/a HT", "408 Request Timeout\r\n"),
        (
            "POST /v1/claims/ns/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1234",
            "408 Request Timeout\r\n",
        ),
    ];
    for (bytes, status) in table {
        let mut client = Client::of(&house);
        client.send(bytes).await;
        let answers = client.rest().await;
        if status.is_empty() {
            assert_eq!(answers, "");
        } else {
            assert_refused(&answers, status, "bad_input");
        }
    }
    let mut client = Client::of(&house);
    client.send(claim("idle")).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
    assert_eq!(
        client.rest().await,
        "",
        "idle for long enough, it is closed without a word"
    );

    let mut client = Client::of(&house);
    client.send(claim("begun")).await;
    assert!(client.answer().await.starts_with("HTTP/1.1 201 "));
    client.send("POST /v1").await;
    assert_refused(&client.rest().await, "408 Request Timeout\r\n", "bad_input");
    let records = house.ask("GET", "/v1/claims/ns?prefix=a").await.json();
    assert_eq!(records["records"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_answers_what_is_in_hand() {
    let house = House::with(Options {
        header_timeout: HANG * 3,
        idle_timeout: HANG * 3,
        body_timeout: HANG * 3,
        ..Options::default()
    });
    let fresh = Client::of(&house);
    fresh.stop.send_replace(true);
    assert_eq!(fresh.rest().await, "");

    let mut idle = Client::of(&house);
    idle.send(claim("a")).await;
    idle.answer().await;
    idle.stop.send_replace(true);
    assert_eq!(idle.rest().await, "");

    let mut busy = Client::of(&house);
    busy.send("POST /v1/claims/ns/b HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").await;
    assert_eq!(
        busy.answer().await,
        "HTTP/1.1 100 Continue\r\n\r\n",
        "it is in hand"
    );
    busy.stop.send_replace(true);
    busy.send("ab").await;
    let answer = busy.rest().await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_too_many_is_told_so() {
    let (mut stream, there) = duplex(4096);
    let server = tokio::spawn(connection::refuse(there));
    stream.write_all(claim("a").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(HANG, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_refused(&answer, "503 Service Unavailable\r\n", "unavailable");
    assert!(answer.contains("retry-after: 1\r\n"));
    server.await.unwrap();
}

#[tokio::test]
async fn head_and_large_answers_keep_the_connection_in_step() {
    let house = House::new();
    let token = house.ask("POST", "/v1/claims/ns/k").await.token();
    let target = format!("/v1/claims/ns/k/complete?token={token}");
    house
        .send("POST", &target, &[], vec![b'x'; 1024 * 1024])
        .await;
    let mut client = Client::of(&house);
    client
        .send("HEAD /v1/claims/ns/k/result HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    client
        .send("GET /v1/claims/ns/k/result HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    client
        .send("OPTIONS /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await;
    client.stream.shutdown().await.unwrap();
    let answers = client.rest().await;
    assert_eq!(answers.matches("content-length: 1048576\r\n").count(), 2);
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 2);
    assert!(answers.matches('x').count() >= 1024 * 1024);
    assert!(answers.contains("HTTP/1.1 204 No Content\r\n") && answers.ends_with("\r\n\r\n"));
}
#[tokio::test]
async fn an_upload_that_is_refused_over_tcp_does_not_cost_the_client_its_answer() {
    let house = House::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (there, _) = listener.accept().await.unwrap();
    let (_stop, shutdown) = watch::channel(false);
    let server = tokio::spawn(connection::serve(there, house.face.clone(), shutdown));
    // A plain client: it sends all it has before it looks for an answer.
    let size = 8 * 1024 * 1024;
    let head = format!(
        "POST /v1/claims/ns/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let upload = vec![b'x'; size];
    timeout(HANG, client.write_all(&upload))
        .await
        .unwrap()
        .unwrap();
    let mut answer = String::new();
    let read = client.read_to_string(&mut answer);
    timeout(HANG, read).await.unwrap().unwrap();
    assert_refused(&answer, "413 ", "too_large");
    drop(client);
    timeout(HANG, server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_ends_and_the_connection_goes_on_and_one_that_is_left_ends_with_its_client() {
    let house = House::new();
    let stopped = |client: Client| async {
        drop(client.stream);
        timeout(HANG, client.server).await.unwrap().unwrap();
    };
    let mut client = Client::of(&house);
    let ask = |target: &str| format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for _ in 0..2 {
        client
            .send("POST /v1/claims/ns/a HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        assert!(client.answer().await.contains("onced-outcome"));
        client.send(ask("/v1/events")).await;
        let text = client.until("\r\n0\r\n\r\n").await;
        assert!(text.contains("transfer-encoding: chunked"), "{text}");
        assert!(text.contains("\"event\":\"acquired\""), "{text}");
    }
    client.send(ask("/v1/events?follow=true")).await;
    client.until("\"event\":\"acquired\"").await;
    stopped(client).await;
}
