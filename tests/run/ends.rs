//! How a run ends when something else does: the claim, the server, onced itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{House, command, lives, ran, signal, until};
use crate::support::Server;

fn stderr(run: Child) -> (Option<i32>, String) {
    let output = run.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

/// Takes the claim away.
fn forget(house: &House) {
    let gone = house
        .server
        .http()
        .request("DELETE", "/v1/claims/default/k?force=true", b"");
    assert_eq!(gone.status, 200);
}

#[test]
fn a_lost_claim_stops_the_command() {
    let house = House::new();
    let script = "trap 'echo told > told; exit 0' TERM; echo > began; while :; do sleep 0.01; done";
    let run = house.start(&["--lease", "200ms"], script);
    house.written("began");
    forget(&house);
    let (code, text) = stderr(run);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("somebody else took the claim over"), "{text}");
    assert_eq!(house.written("told"), "told");
    assert_eq!(house.server.http().get("/v1/claims/default/k").status, 404);
}

#[test]
fn a_command_that_does_not_stop_is_killed_after_the_grace() {
    let house = House::new();
    let script = "trap '' TERM; echo $$ > began; while :; do sleep 0.01; done";
    let run = house.start(&["--lease", "200ms", "--grace", "100ms"], script);
    let pid = house.written("began");
    forget(&house);
    let (code, text) = stderr(run);
    assert_eq!(code, Some(128 + 9), "{text}");
    assert!(!lives(&pid));
}

#[test]
fn signals_are_passed_on_to_the_whole_group() {
    let house = House::new();
    let script = "trap 'wait; exit 9' USR1; \
                  sh -c 'trap \"echo inner > inner; exit\" USR1; echo > ready; while :; do sleep 0.01; done' & \
                  wait; wait";
    let run = house.start(&["--retry-in", "0"], script);
    house.written("ready");
    signal(run.id(), "USR1");
    let (code, text) = stderr(run);
    assert_eq!(code, Some(9), "{text}");
    assert_eq!(house.written("inner"), "inner");
    assert_eq!(house.record()["state"], "retry");
}

#[test]
fn nothing_of_the_command_outlives_a_kill_of_onced() {
    let house = House::new();
    let script = "sleep 1000 & echo $! > child; echo $$ > began; wait";
    let mut run = house.start(&[], script);
    let (pid, child) = (house.written("began"), house.written("child"));
    assert!(lives(&pid) && lives(&child));
    run.kill().unwrap();
    run.wait().unwrap();
    until("the command and its child are gone", || {
        !lives(&pid) && !lives(&child)
    });
    assert_eq!(house.record()["state"], "pending");
}

#[test]
fn daemons_are_ended_before_the_key_is_done() {
    let house = House::new();
    // One in a session of its own, adopted when the shell in between ends.
    let script = "sh -c 'setsid sh -c \"echo \\$\\$ > daemon; exec sleep 1000\" &'; \
                  until [ -s daemon ]; do sleep 0.01; done";
    let ran = house.run(&[], script);
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    assert!(!lives(&house.written("daemon")));
    assert_eq!(house.record()["state"], "done");
}

#[test]
fn without_a_server_it_fails_runs_or_skips_as_told() {
    let folder = tempfile::tempdir().unwrap();
    // A port that nobody listens on: taken and given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", port.local_addr().unwrap());
    drop(port);
    for (choice, code, output) in [
        (&[][..], 75, ""),
        (&["--if-unavailable", "fail"], 75, ""),
        (&["--if-unavailable", "run"], 0, "ran k\n"),
        (&["--if-unavailable", "skip"], 0, ""),
    ] {
        let script = "echo ran $ONCED_KEY$ONCED_TOKEN";
        let ran = ran(command(folder.path(), &url, choice, script).env("ONCED_TOKEN", "7"));
        assert_eq!(
            (ran.code, &*ran.stdout),
            (code, output),
            "{choice:?}: {ran:?}"
        );
        assert!(
            ran.stderr.contains("cannot reach the server"),
            "{choice:?}: {ran:?}"
        );
    }
}

#[test]
fn a_server_that_comes_back_is_told_the_outcome() {
    let house = House::new();
    let address = house.server.http_address().to_string();
    let mut run = house.start(
        &["--lease", "30s"],
        "echo > began; until [ -e go ]; do sleep 0.01; done",
    );
    house.written("began");
    let House { folder, server } = house;
    server.kill9();
    std::fs::write(folder.path().join("go"), "").unwrap();
    // It keeps trying: the first words on standard error are about that.
    let mut errors = std::io::BufReader::new(run.stderr.take().unwrap());
    let mut said = String::new();
    std::io::BufRead::read_line(&mut errors, &mut said).unwrap();
    assert!(
        said.starts_with("onced: not recorded as completed"),
        "{said}"
    );
    let server = Server::with(&folder.path().join("data"), &["--http", &address]);
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let record = server.http().get("/v1/claims/default/k").json();
    assert_eq!(
        (&record["state"], &record["attempt"]),
        (&"done".into(), &1.into())
    );
}

#[test]
fn an_outcome_that_cannot_be_told_within_the_lease_is_no_success() {
    let house = House::new();
    let mut run = house.start(
        &["--lease", "900ms"],
        "echo > began; until [ -e go ]; do sleep 0.01; done",
    );
    house.written("began");
    let House { folder, server } = house;
    server.kill9();
    std::fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(75));
}

/// Something between a run and its server, as a proxy is: what it answers in the server's place, by request line.
fn proxy(server: SocketAddr, refuses: fn(&str) -> Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut client = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                client.read_line(&mut head).unwrap();
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                (name.eq_ignore_ascii_case("content-length")).then(|| value.parse().ok())?
            });
            let mut body = vec![0; length.unwrap_or(0)];
            client.read_exact(&mut body).unwrap();
            let answer = match refuses(head.lines().next().unwrap()) {
                Some(status) => {
                    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                        .into_bytes()
                }
                None => {
                    let mut up = TcpStream::connect(server).unwrap();
                    // One request a connection, so that the end of the answer is the end of it.
                    let line_end = head.find("\r\n").unwrap() + 2;
                    head.insert_str(line_end, "connection: close\r\n");
                    up.write_all(head.as_bytes()).unwrap();
                    up.write_all(&body).unwrap();
                    let mut answer = Vec::new();
                    up.read_to_end(&mut answer).unwrap();
                    answer
                }
            };
            let _ = client.get_mut().write_all(&answer);
        }
    });
    address
}

#[test]
fn what_a_proxy_says_in_the_servers_place_is_no_outcome() {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let house = House::new();
    let address = proxy(house.server.http_address(), |line| {
        let first = || TRIES.fetch_add(1, Ordering::Relaxed) < 2;
        (line.contains("/complete") && first()).then_some("502 Bad Gateway")
    });
    let url = format!("http://{address}");
    let ran = ran(&mut command(
        house.folder.path(),
        &url,
        &["--lease", "30s"],
        "true",
    ));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(house.record()["state"], "done");
}

#[test]
fn a_lease_that_was_asked_for_is_kept_where_the_record_may_not_be_read() {
    let house = House::new();
    let address = proxy(house.server.http_address(), |line| {
        line.starts_with("GET").then_some("403 Forbidden")
    });
    let url = format!("http://{address}");
    let options = ["--lease", "1s"];
    let script = "echo > began; until [ -e go ]; do sleep 0.01; done";
    let mut run = command(house.folder.path(), &url, &options, script)
        .spawn()
        .unwrap();
    house.written("began");
    // For twice as long as it holds without a renewal.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let other = house.server.http().post("/v1/claims/default/k", b"");
        assert_eq!(other.outcome(), "busy", "after {:?}", begun.elapsed());
    }
    std::fs::write(house.path("go"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_eq!(house.record()["state"], "done");
}

#[test]
fn a_signal_after_the_command_has_ended_does_not_keep_its_outcome_from_the_server() {
    let house = House::new();
    // What is left behind is asked to end, and does not: the signal comes meanwhile.
    let left = "trap \"echo > asked\" TERM; echo > left; while :; do sleep 0.05; done";
    let script = format!("sh -c '{left}' & until [ -e left ]; do sleep 0.01; done");
    let run = house.start(&["--lease", "30s", "--grace", "1s"], &script);
    house.written("asked");
    signal(run.id(), "TERM");
    let (_, text) = stderr(run);
    assert_eq!(house.record()["state"], "done", "{text}");
}
