//! `onced selftest` and `onced bench`: the real binary, with servers of its own and of the test's.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use crate::support::{Server, onced};

#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The result of each trial of that name.
    fn results(&self, name: &str) -> Vec<String> {
        let all = self.json();
        let trials = all["trials"].as_array().unwrap().iter();
        trials
            .filter(|trial| trial["name"] == name)
            .map(|trial| trial["result"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn is_empty(folder: &tempfile::TempDir) -> bool {
    std::fs::read_dir(folder.path()).unwrap().next().is_none()
}

#[test]
fn the_selftest_tries_what_is_promised_and_leaves_nothing_behind() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(&data.path().join("data"));
    let url = format!("http://localhost:{}", server.http_address().port());
    let done = ran(onced()
        .args(["selftest", "--json", "--url", &url, "--dir"])
        .arg(folder.path()));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.json()["held"], true);
    for name in ["one winner", "kill -9", "full disk"] {
        assert_eq!(done.results(name), ["held"], "{done:?}");
    }
    // What the disk of whoever runs the test is worth is not the test's to say.
    for name in ["sync", "clock"] {
        let result = done.results(name);
        assert!(result == ["held"] || result == ["warning"], "{done:?}");
    }
    // `--http 0` takes one port of 127.0.0.1 and ::1 where there are both.
    assert_eq!(done.results("server")[0], "held", "{done:?}");
    assert_eq!(
        done.stderr, "",
        "no progress where nobody looks at a terminal"
    );
    assert!(is_empty(&folder), "its folder is gone");
}

#[test]
fn a_trial_that_fails_is_told_and_so_is_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let somebody_else = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            let answer = b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).unwrap();
        }
    });
    let done = ran(onced()
        .args(["selftest", "--url", &url, "--dir"])
        .arg(folder.path()));
    somebody_else.join().unwrap();
    assert_eq!(done.code, 1, "{done:?}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("failed   server: ") && line.contains("500")),
        "{lines:?}"
    );
    assert_eq!(lines.last(), Some(&"1 of 6 did not hold on this machine"));
}

#[test]
fn a_folder_that_cannot_be_written_is_told_before_anything_is_tried() {
    let done = ran(onced().args(["selftest", "--dir", "/proc"]));
    assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:?}");
    assert!(done.stderr.contains("--dir"), "{done:?}");
}

#[test]
fn a_bench_measures_both_faces_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let done = ran(onced()
        .args(["bench", "--json", "--seconds", "1", "--dir"])
        .arg(folder.path()));
    assert_eq!(done.code, 0, "{done:?}");
    let turns = done.json()["turns"].as_array().unwrap().clone();
    assert_eq!(turns.len(), 6);
    for turn in &turns {
        assert!(turn["claims"].as_u64().unwrap() > 0, "{turn}");
        assert!(
            turn["p50_us"].as_u64() <= turn["p999_us"].as_u64(),
            "{turn}"
        );
    }
    assert!(is_empty(&folder), "its folder is gone");
}

#[test]
fn a_running_server_is_measured_in_a_namespace_that_nobody_uses() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let url = format!("http://{}", server.http_address());
    let redis = server.redis_address().to_string();
    let bench = |ns: &str| {
        let arguments = [
            "bench",
            "--running",
            "--seconds",
            "1",
            "--url",
            &url,
            "--ns",
            ns,
        ];
        ran(onced().args(arguments).args(["--redis", &redis]))
    };
    assert_eq!(server.http().post("/v1/claims/mine/k", b"").status, 201);
    let refused = bench("mine");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("it has 1 records"), "{refused:?}");
    let done = bench("spare");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.lines().count(), 7, "{done:?}");
    // Nothing of it is pending, and all of it goes by itself.
    let spare = server.http().get("/v1/namespaces/spare").json();
    assert_eq!(spare["states"]["pending"], 0, "{spare}");
    assert_eq!(server.http().get("/v1/claims/mine/k").status, 200);
}
