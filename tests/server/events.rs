//! The audit trail from the command line: shown, kept in a file, and told as a story.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{data, folder, text};
use crate::support::{Server, onced};

fn command(server: &Server, arguments: &[&str]) -> Command {
    let mut command = onced();
    let url = format!("http://{}", server.http_address());
    command.env("ONCED_URL", url).args(arguments);
    command
}

fn run(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(server, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn lsns(lines: &str) -> Vec<u64> {
    let lsn = |line: &str| serde_json::from_str::<Value>(line).unwrap()["lsn"].as_u64();
    lines.lines().map(|line| lsn(line).unwrap()).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_trail_is_kept_in_a_file_that_goes_on_behind_its_last_whole_line() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let file = folder.path().join("audit.ndjson");
    let keep = ["events", "--ns", "orders", "--to", text(&file)];
    for key in ["a", "b"] {
        assert_eq!(run(&server, &["claim", key, "--ns", "orders"]).0, 0);
    }
    assert_eq!(run(&server, &["claim", "c", "--ns", "others"]).0, 0);
    assert_eq!(run(&server, &keep), (0, String::new(), String::new()));
    let first = read(&file);
    assert_eq!(lsns(&first).len(), 2);
    // As a crash in the middle of a line leaves it.
    fs::write(&file, format!("{first}{{\"lsn\":99,\"a")).unwrap();
    assert_eq!(run(&server, &keep).0, 0);
    assert_eq!(read(&file), first, "nothing new, and nothing twice");
    assert_eq!(run(&server, &["claim", "d", "--ns", "orders"]).0, 0);
    assert_eq!(run(&server, &keep).0, 0);
    let all = read(&file);
    assert!(all.starts_with(&first));
    assert_eq!(lsns(&all).len(), 3);
    assert!(lsns(&all).is_sorted());

    fs::write(&file, "my diary\n").unwrap();
    let (code, _, told) = run(&server, &keep);
    assert_eq!((code, &*read(&file)), (2, "my diary\n"), "{told}");
    fs::write(&file, "{\"lsn\":99999}\n").unwrap();
    let (code, _, told) = run(&server, &keep);
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("another store"), "{told}");
}

#[test]
fn a_follower_prints_what_comes_and_ends_with_the_server_by_a_code_that_restarts_it() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut follower = command(&server, &["events", "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for key in ["a", "b", "c"] {
        assert_eq!(run(&server, &["claim", key]).0, 0);
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(
            (&line["key"], &line["event"]),
            (&key.into(), &"acquired".into())
        );
    }
    assert!(server.term().status.success());
    assert_eq!(follower.wait().unwrap().code(), Some(75));
}

#[test]
fn a_key_is_explained_in_sentences() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    assert_eq!(run(&server, &["explain", "k"]).0, 1, "nothing to tell");
    for arguments in [
        &["claim", "k", "--owner", "worker-1"][..],
        &["effect", "k", "--token", "1"],
        &[
            "fail",
            "k",
            "--token",
            "1",
            "--error",
            "no",
            "--retry-in",
            "0",
        ],
        &["claim", "k", "--owner", "worker-2"],
        &["complete", "k", "--token", "2"],
    ] {
        assert_eq!(run(&server, arguments).0, 0, "{arguments:?}");
    }
    let (code, told, _) = run(&server, &["explain", "k"]);
    assert_eq!(code, 0);
    let told: Vec<_> = told.lines().collect();
    let expected = [
        "default/k: done; claims are duplicates until ",
        "worker-1 acquired it as new (attempt 1, token 1).",
        "worker-1 announced that the side effect was about to happen",
        "worker-1 said that the attempt failed (token 1).",
        "worker-2 acquired it for another attempt (attempt 2, token 2).",
        "worker-2 completed it (token 2).",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (line, expected) in told.iter().zip(expected) {
        assert!(line.contains(expected), "{line}: {expected}");
    }
    let (_, json, _) = run(&server, &["explain", "k", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["record"]["state"], "done");
    assert_eq!(json["events"].as_array().unwrap().len(), 5);
    // What the record no longer tells, the trail does.
    assert_eq!(run(&server, &["forget", "k"]).0, 0);
    let (code, told, _) = run(&server, &["explain", "k"]);
    assert_eq!(code, 0);
    assert!(
        told.contains("there is no record") && told.contains("removed the record"),
        "{told}"
    );
}

#[test]
fn figures_are_shown_for_people_and_for_scripts() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    for code in [0, 75, 75] {
        assert_eq!(run(&server, &["claim", "k"]).0, code);
    }
    let (code, told, _) = run(&server, &["stats"]);
    assert_eq!(code, 0);
    let busy = "answers ns=default outcome=busy verb=claim: 2";
    assert!(told.lines().any(|line| line == busy), "{told}");
    let (_, json, _) = run(&server, &["stats", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["connections"].as_u64().is_some_and(|count| count >= 1));
    assert_eq!(json["full"], 0);
}
