//! Backup and restore: the real binary, and clients that know what they were told.

mod backup;
mod load;
mod manual;
mod restore;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::redis::Reply;
use crate::support::{Http, Server, onced};

/// What a tool printed and how it ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
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

fn url(server: &Server) -> String {
    format!("http://{}", server.http_address())
}

fn backup(server: &Server, path: &Path) -> Ran {
    let mut command = onced();
    ran(command
        .args(["backup", "--json", "--url", &url(server)])
        .arg(path))
}

fn restore(path: &Path, dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = onced();
    command.arg("restore").arg("--json").arg(path);
    ran(command.arg("--data-dir").arg(dir).args(arguments))
}

fn check(dir: &Path) -> Ran {
    ran(onced().args(["check", "--data-dir"]).arg(dir))
}

/// A backup that has to come about.
fn taken(server: &Server, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let done = backup(server, &path);
    assert_eq!(done.code, 0, "{done:?}");
    path
}

/// A restore that has to come about, proved by `check`.
fn restored(path: &Path, dir: &Path) -> serde_json::Value {
    let done = restore(path, dir, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    let clean = check(dir);
    assert_eq!(clean.code, 0, "{clean:?}");
    done.json()
}

/// Claims a key and tells the token.
fn claim(http: &mut Http, key: &str) -> u64 {
    let answer = http.post(&format!("/v1/claims/default/{key}"), b"");
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["token"].as_u64().unwrap()
}

/// So many strings, for an hour.
fn fill(server: &Server, count: usize) {
    let mut redis = server.redis();
    for at in 0..count {
        let set = redis.command(&format!(
            "SET s{at} {} NX EX 3600",
            "v".repeat(at % 900 + 1)
        ));
        assert_eq!(set, Reply::Status("OK".into()));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
