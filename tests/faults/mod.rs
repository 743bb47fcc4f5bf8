//! Faults under the real process: errors of system calls, a file system that turns read-only, foreign owners,
//! clocks that step. They need root, strace, faketime and loop devices, so `cargo test` leaves them out, and
//! says that it ignores them; `tests/faults/run` installs what they need and runs them.

mod calls;
mod clocks;
mod disks;
mod owner;
mod stalls;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Output, Server, onced};

/// Little memory for recent writes, so that a short load has checkpoints too.
fn config(folder: &Path) -> PathBuf {
    let path = folder.join("onced.toml");
    let text =
        "[limits]\nmax_payload = \"64KiB\"\nmax_result = \"64KiB\"\nrecent_memory = \"1MiB\"\n";
    std::fs::write(&path, text).unwrap();
    path
}

/// `onced serve` behind a program that runs it: `strace .. onced serve ..`.
fn behind(program: &str, arguments: &[&str], folder: &Path, data: &Path) -> Command {
    // The wall clock can be moved only for a binary that asks the C library for the time: see the script.
    let binary =
        std::env::var_os("ONCED_OF_LIBC").filter(|_| program == "env" && !arguments.is_empty());
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(binary.unwrap_or_else(|| onced().get_program().to_owned()))
        .args(["serve", "--http", "0", "--redis", "0", "--config"])
        .arg(config(folder))
        .arg("--data-dir")
        .arg(data)
        .env_remove("NOTIFY_SOCKET");
    command
}

fn start(folder: &Path, data: &Path) -> Result<Server, Output> {
    Server::spawn(behind("env", &[], folder, data))
}

fn must(command: &str, arguments: &[&str]) {
    let output = Command::new(command).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{command} {arguments:?}: {output:?}"
    );
}
