//! `onced run`: the real binary around real commands.

mod ends;
mod waits;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{PATIENCE, Server, onced};

/// A server, a folder for what commands leave, and runs of `onced run` at it.
struct House {
    folder: tempfile::TempDir,
    server: Server,
}

/// How a run ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl House {
    fn new() -> House {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"));
        House { folder, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `onced run --key k OPTIONS -- sh -c SCRIPT`, in the folder.
    fn command(&self, options: &[&str], script: &str) -> Command {
        let url = format!("http://{}", self.server.http_address());
        command(self.folder.path(), &url, options, script)
    }

    fn run(&self, options: &[&str], script: &str) -> Ran {
        ran(&mut self.command(options, script))
    }

    /// The same, and does not wait for its end.
    fn start(&self, options: &[&str], script: &str) -> Child {
        let mut command = self.command(options, script);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn record(&self) -> serde_json::Value {
        self.server.http().get("/v1/claims/default/k").json()
    }

    /// Waits until a command wrote this file, and tells what.
    fn written(&self, name: &str) -> String {
        let path = self.path(name);
        let read = || std::fs::read_to_string(&path).ok();
        until(name, || read().is_some_and(|text| text.ends_with('\n')));
        read().unwrap().trim().to_owned()
    }
}

fn command(folder: &Path, url: &str, options: &[&str], script: &str) -> Command {
    let mut command = onced();
    command.current_dir(folder).env("ONCED_URL", url);
    command.args(["run", "--key", "k"]).args(options);
    command.args(["--", "sh", "-c", script]);
    command
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Waits for what has to become true.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let step = Duration::from_millis(10);
    let mut left = PATIENCE;
    while !holds() {
        left = left
            .checked_sub(step)
            .unwrap_or_else(|| panic!("not in time: {what}"));
        std::thread::sleep(step);
    }
}

/// Whether a process of that id is there and has not ended.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn signal(pid: u32, name: &str) {
    let kill = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
}

#[test]
fn the_first_run_runs_and_completes_and_the_next_does_not_run() {
    let house = House::new();
    let script = "echo ran >> log; echo result";
    let ran = house.run(&["--capture", "--owner", "me"], script);
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (0, "result\n", ""));
    let record = house.record();
    assert_eq!(record["state"], "done");
    assert_eq!(record["owner"], "me");
    let result = house.server.http().get("/v1/claims/default/k/result");
    assert_eq!(result.body, b"result\n");
    assert_eq!(
        result.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let again = house.run(&[], script);
    assert_eq!((again.code, &*again.stdout, &*again.stderr), (0, "", ""));
    let again = house.run(&["--exit-codes", "onced"], script);
    assert_eq!(again.code, 3);
    assert_eq!(house.written("log"), "ran");
}

#[test]
fn the_command_knows_its_key_token_and_attempt() {
    let house = House::new();
    let script = "echo $ONCED_KEY/$ONCED_TOKEN/$ONCED_ATTEMPT";
    assert_eq!(house.run(&[], script).stdout, "k/1/1\n");
}

#[test]
fn a_failed_command_fails_the_attempt_and_its_exit_code_is_passed_on() {
    let house = House::new();
    let ran = house.run(&["--retry-in", "0"], "exit 7");
    assert_eq!((ran.code, &*ran.stderr), (7, ""));
    let record = house.record();
    assert_eq!(record["state"], "retry");
    assert_eq!(record["last_error"], "the command exited with 7");
    let ran = house.run(&["--retry-in", "0", "--exit-codes", "onced"], "exit 7");
    assert_eq!(ran.code, 1);
    assert_eq!(house.record()["attempt"], 2);
    let ran = house.run(&["--on-failure", "bury"], "kill -9 $$");
    assert_eq!(ran.code, 128 + 9);
    let record = house.record();
    assert_eq!(record["state"], "dead");
    assert_eq!(record["last_error"], "the command was ended by signal 9");
    let ran = house.run(&[], "echo ran");
    assert_eq!((ran.code, &*ran.stdout), (77, ""));
    assert!(ran.stderr.contains("not run: dead"), "{}", ran.stderr);
}

#[test]
fn a_key_that_somebody_works_on_is_not_run() {
    let house = House::new();
    let held = house.server.http().post("/v1/claims/default/k", b"");
    assert_eq!(held.status, 201);
    let ran = house.run(&[], "echo ran");
    assert_eq!((ran.code, &*ran.stdout), (75, ""));
    assert!(ran.stderr.contains("not run: busy"), "{}", ran.stderr);
}

#[test]
fn a_command_longer_than_its_lease_keeps_its_claim() {
    let house = House::new();
    // Four leases; and others ask all the time.
    let mut run = house.start(&["--lease", "300ms"], "echo > began; sleep 1.2");
    house.written("began");
    let mut asked = 0;
    let ended = loop {
        if let Some(status) = run.try_wait().unwrap() {
            break status;
        }
        let answer = house.server.http().post("/v1/claims/default/k", b"");
        assert_ne!(answer.outcome(), "acquired");
        asked += 1;
    };
    assert!(
        ended.success() && asked > 1,
        "{ended:?}, {asked} times asked"
    );
    let record = house.record();
    assert_eq!(
        (&record["state"], &record["attempt"]),
        (&"done".into(), &1.into())
    );
}

#[test]
fn at_most_once_announces_first_and_a_failure_is_final() {
    let house = House::new();
    let mut run = house.start(
        &["--at-most-once"],
        "echo > began; until [ -e go ]; do sleep 0.01; done",
    );
    house.written("began");
    assert_eq!(house.record()["effect_announced"], true);
    signal(run.id(), "TERM");
    assert_eq!(run.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(house.record()["state"], "dead");
}

#[test]
fn a_program_that_is_not_there_claims_nothing() {
    let house = House::new();
    let url = format!("http://{}", house.server.http_address());
    let mut command = onced();
    command
        .env("ONCED_URL", url)
        .args(["run", "--key", "k", "--"]);
    let ran = ran(command.arg("no-such-program"));
    assert_eq!(ran.code, 127);
    assert!(ran.stderr.contains("nothing was claimed"), "{}", ran.stderr);
    assert_eq!(house.server.http().get("/v1/claims/default/k").status, 404);
}

#[test]
fn a_flood_of_output_takes_no_memory() {
    let house = House::new();
    let script = "head -c 200000000 /dev/zero; grep VmHWM /proc/$PPID/status >&2; echo end";
    let mut command = house.command(&["--capture"], script);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let kilobytes = text
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok());
    let kilobytes: u64 = kilobytes.unwrap_or_else(|| panic!("{text:?}"));
    assert!(kilobytes < 64 * 1024, "{text}");
    let result = house.server.http().get("/v1/claims/default/k/result");
    assert_eq!(result.body.len(), 64 * 1024);
    assert!(result.body.ends_with(b"\0end\n"));
}
