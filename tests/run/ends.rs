//! How a run ends when something else does: the claim, the server, onced itself.

use std::process::Child;

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
