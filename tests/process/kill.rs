//! `kill -9` and SIGTERM, again and again, under a mixed load.

use std::path::{Path, PathBuf};

use super::Load;
use crate::support::{Random, Server, onced};

/// Little memory for recent writes, so that a round has checkpoints too.
fn config(folder: &Path) -> PathBuf {
    let path = folder.join("onced.toml");
    let text =
        "[limits]\nmax_payload = \"64KiB\"\nmax_result = \"64KiB\"\nrecent_memory = \"1MiB\"\n";
    std::fs::write(&path, text).unwrap();
    path
}

fn rounds() -> u64 {
    let rounds = std::env::var("ROUNDS").ok();
    rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(10)
}

fn start(folder: &Path) -> Server {
    let config = config(folder);
    let arguments = ["--config", config.to_str().unwrap()];
    Server::with(&folder.join("data"), &arguments)
}

fn sound(dir: &Path) {
    let output = onced()
        .args(["check", "--data-dir"])
        .arg(dir)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// `ROUNDS=n` sets how often; a failure is repeated by its seed only as far as the machine's timing allows.
#[test]
fn after_each_kill_9_everything_that_was_answered_is_there_and_nothing_by_half() {
    let mut random = Random::from_env();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let mut load = Load::new(&random);
    let rounds = rounds();
    for round in 1..=rounds {
        let server = start(folder.path());
        load.settle(&server);
        let running = load.run(&server);
        running.until(random.below(3000));
        server.kill9();
        (load, _) = running.end();
        if round % 5 == 0 {
            kill_in_recovery(folder.path(), random.below(30));
            sound(&dir);
        }
    }
    let server = start(folder.path());
    load.settle(&server);
    assert_eq!(server.term().code(), 0);
    sound(&dir);
    println!(
        "kill -9: {rounds} rounds, {} answers, none lost",
        load.answers()
    );
}

/// A server that is killed while it recovers, or soon after.
fn kill_in_recovery(folder: &Path, milliseconds: u64) {
    let mut command = onced();
    command
        .args(["serve", "--http", "0", "--redis", "0", "--config"])
        .arg(config(folder))
        .arg("--data-dir")
        .arg(folder.join("data"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn after_each_sigterm_under_load_everything_is_there_and_nobody_was_refused() {
    let mut random = Random::from_env();
    let folder = tempfile::tempdir().unwrap();
    let mut load = Load::new(&random);
    for _ in 0..5 {
        let server = start(folder.path());
        load.settle(&server);
        let running = load.run(&server);
        running.until(200 + random.below(1000));
        let output = server.term();
        assert_eq!(output.code(), 0, "{output:?}");
        assert!(!output.stderr.contains("were cut"), "{output:?}");
        (load, _) = running.end();
    }
    let server = start(folder.path());
    load.settle(&server);
}
