//! Directories as released versions wrote them, taken from under a running server: they open and answer.
//!
//! `tests/data/format-1/` is made by the ignored test below, by the version that writes that format. Once that
//! version is released it is never made again; a new format gets a folder of its own beside it.

use std::path::{Path, PathBuf};

use crate::support::{Server, SmallDisk};

/// What does not change by age: a record's members that are compared.
const MEMBERS: [&str; 12] = [
    "namespace",
    "key",
    "kind",
    "token",
    "attempt",
    "generation",
    "fingerprint",
    "claim_id",
    "owner",
    "last_error",
    "payload",
    "result",
];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else if ![Some("lock"), Some("reserve"), Some("reserve.last")]
            .contains(&path.file_name().unwrap().to_str())
            && path.extension().is_none_or(|it| it != "tmp")
        {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

/// What the fixture's keys are, as far as age does not change it.
fn shown(server: &Server) -> serde_json::Value {
    let mut http = server.http();
    let mut all = Vec::new();
    for ns in ["default", "orders", "db3"] {
        let list = http.get(&format!("/v1/claims/{ns}?limit=1000")).json();
        for record in list["records"].as_array().unwrap() {
            let mut kept = serde_json::Map::new();
            for name in MEMBERS {
                // That a lease ended is told by the clock, not by the file.
                let by_age = *name == *"last_error"
                    && [Some("pending"), Some("in_doubt")].contains(&record["state"].as_str());
                if let (Some(value), false) = (record.get(name), by_age) {
                    kept.insert(name.to_owned(), value.clone());
                }
            }
            let path = match record["key"].as_str() {
                Some(key) => format!("/v1/claims/{ns}/{key}/result"),
                None => format!("/v1/claims/{ns}/%FF%00/result"),
            };
            let body = http.get(&path);
            let text = if body.status == 200 {
                format!("{} bytes, sum {}", body.body.len(), sum(&body.body))
            } else {
                "none".to_owned()
            };
            kept.insert("body".into(), text.into());
            all.push(serde_json::Value::Object(kept));
        }
    }
    serde_json::Value::Array(all)
}

fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
    bytes.iter().fold(7, step)
}

#[test]
fn a_directory_of_format_1_opens_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    copy(&fixture().join("dir"), &data);
    let text = std::fs::read_to_string(fixture().join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    for round in ["opened", "opened again"] {
        let server = Server::start(&data);
        let found = shown(&server);
        let (found, expected) = (found.as_array().unwrap(), expected.as_array().unwrap());
        assert_eq!(found.len(), expected.len(), "{round}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found, expected, "{round}");
        }
        let highest = expected
            .iter()
            .filter_map(|record| record["token"].as_u64())
            .max();
        let next = server
            .http()
            .post(&format!("/v1/claims/other/{}", round.len()), b"");
        assert!(
            next.json()["token"].as_u64() > highest,
            "tokens go on, {round}"
        );
        assert_eq!(server.term().code(), 0);
    }
    let output = crate::support::onced()
        .args(["check", "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Makes the fixture: records of every state, in the store, in the journal, and in both.
#[test]
#[ignore = "makes a fixture that is kept"]
fn make_the_fixture_of_format_1() {
    let into = fixture();
    assert!(!into.exists(), "a fixture is never made again");
    // On a small file system segments are small.
    let disk = SmallDisk::new(12);
    let limits = "max_payload = \"10KiB\"\nmax_result = \"10KiB\"\nrecent_memory = \"1MiB\"\n";
    let start = || {
        disk.serve_with(limits)
            .unwrap_or_else(|output| panic!("{output:?}"))
    };
    let server = start();
    write(&server, "stored");
    assert_eq!(server.term().code(), 0);
    let server = start();
    write(&server, "journaled");
    let expected = shown(&server);
    server.kill9();
    copy(&disk.outside().join("data"), &into.join("dir"));
    let text = serde_json::to_string_pretty(&expected).unwrap();
    std::fs::write(into.join("expected.json"), text + "\n").unwrap();
}

fn write(server: &Server, name: &str) {
    let (mut http, mut redis) = (server.http(), server.redis());
    let mut ask = |path: String, body: &[u8]| {
        let answer = http.post(&format!("/v1/claims/{path}"), body);
        assert!([200, 201].contains(&answer.status), "{path}: {answer:?}");
        answer.json()["token"].as_u64().unwrap_or(0)
    };
    ask(
        format!("default/{name}-pending?lease=24h&owner=me&claim_id=first&store=true"),
        b"a payload",
    );
    let token = ask(format!("orders/{name}-retry?fingerprint=fp-1"), b"");
    ask(
        format!("orders/{name}-retry/fail?token={token}&error=no+luck&retry_in=24h"),
        b"",
    );
    let token = ask(format!("orders/{name}-dead"), b"");
    ask(
        format!("orders/{name}-dead/fail?token={token}&error=buried&bury=true"),
        b"",
    );
    let token = ask(
        format!("default/{name}-in-doubt?lease=1ms&on_lease_end=hold"),
        b"",
    );
    ask(format!("default/{name}-in-doubt/effect?token={token}"), b"");
    for (size, kind) in [(0, "empty"), (100, "small"), (9000, "large")] {
        let token = ask(
            format!("default/{name}-done-{kind}?retention=forever"),
            b"{\"n\":1}",
        );
        let result: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let path = format!("default/{name}-done-{kind}/complete?token={token}&status=201");
        ask(path, &result);
    }
    let token = ask(format!("default/{name}-replayed?retention=forever"), b"");
    ask(
        format!("default/{name}-replayed/complete?token={token}"),
        b"before",
    );
    ask(
        format!("default/{name}-replayed/replay?generation=1&force=true"),
        b"",
    );
    for command in [
        format!("SET {name}-string value"),
        format!("SET {name}-counter 41"),
        format!("INCR {name}-counter"),
        format!("SET {name}-gone value"),
        format!("DEL {name}-gone"),
    ] {
        let reply = redis.command(&command);
        assert!(
            !matches!(reply, crate::support::redis::Reply::Error(_)),
            "{command}: {reply:?}"
        );
    }
    redis.command("SELECT 3");
    redis.send(&crate::support::redis::encode(&[
        b"SET",
        b"\xff\0",
        b"any bytes",
    ]));
    assert_eq!(
        redis.reply(),
        crate::support::redis::Reply::Status("OK".into())
    );
}
