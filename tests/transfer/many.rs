//! A hundred thousand records, and a server that is killed in the middle.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::*;
use crate::support::PATIENCE;

const MANY: usize = 100_000;

fn fill_many(server: &Server) {
    let mut redis = server.redis();
    for first in (0..MANY).step_by(1000) {
        let sets: String = (first..first + 1000)
            .map(|at| format!("SET key:{at:06} value-of-{at} NX EX 86400\r\n"))
            .collect();
        redis.send(sets.as_bytes());
        for _ in 0..1000 {
            assert_eq!(redis.reply(), Reply::Status("OK".into()));
        }
    }
}

/// The most memory that the process had, in MiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

fn records(server: &Server) -> u64 {
    let all = server.http().get("/v1/namespaces").json();
    all["namespaces"][0]["records"].as_u64().unwrap_or(0)
}

#[test]
fn many_records_take_bounded_memory_and_an_import_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let one = server(&folder, "one");
    fill_many(&one);
    // Started anew, so that what the writes took is not counted.
    assert_eq!(one.term().code(), 0);
    let one = server(&folder, "one");
    let before = peak(one.pid());
    let path = exported(&one, &folder, "records");
    let grown = peak(one.pid()) - before;
    // Of 56 MiB of text; the cache of the store may grow by 32 MiB meanwhile.
    assert!(grown < 48, "the export took {grown} MiB more");
    drop(one);
    let two = server(&folder, "two");
    let mut importing = verb("import", &two)
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while records(&two) < 5000 {
        assert!(begun.elapsed() < PATIENCE, "nothing comes over");
        std::thread::sleep(Duration::from_millis(1));
    }
    two.kill9();
    let code = importing.wait().unwrap().code();
    assert_eq!(code, Some(75), "the server is gone, and another try helps");
    let two = server(&folder, "two");
    let there = records(&two);
    assert!((5000..MANY as u64).contains(&there), "{there}");
    let done = import(&two, &path);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.sums(), [MANY as u64 - there, there, 0, 0]);
    assert_eq!(records(&two), MANY as u64);
    let most = peak(two.pid());
    assert!(most < 256, "the import took {most} MiB");
}
