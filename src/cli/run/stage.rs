//! The two small processes beside a command that `onced run` started. Both are this very binary under a name of
//! their own, which also tells people what they are.
//!
//! * The stage becomes the command, after it has asked the system to be killed when onced is.
//! * The guard kills the command's process group when onced ends without having said good-bye.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal};

use super::{NOT_FOUND, NOT_RUNNABLE, tell};

/// This binary, also when another one lies under its name by now.
const SELF: &str = "/proc/self/exe";
const STAGE: &str = "onced-run-stage";
const GUARD: &str = "onced-run-guard";

/// What to do where this process is one of the two.
pub(in crate::cli) fn named() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    match name.to_str()? {
        STAGE => Some(become_command(number(words.next())?, words)),
        GUARD => Some(guard(number(words.next())?)),
        _ => None,
    }
}

fn number(word: Option<OsString>) -> Option<i32> {
    word?.to_str()?.parse().ok()
}

/// The stage for `command`, under this process; in a group of its own.
pub(super) fn stage(command: &[OsString]) -> Command {
    let mut stage = Command::new(SELF);
    let parent = std::process::id().to_string();
    stage.arg0(STAGE).arg(parent).args(command).process_group(0);
    stage
}

/// `parent` is the process that has to live.
fn become_command(parent: i32, mut command: impl Iterator<Item = OsString>) -> ExitCode {
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if let Err(error) = bound {
        tell(format_args!("the command may outlive onced: {error}"));
    }
    // It may have died before it was asked for.
    if rustix::process::getppid().map(Pid::as_raw_pid) != Some(parent) {
        return ExitCode::from(NOT_RUNNABLE);
    }
    let Some(name) = command.next() else {
        return ExitCode::from(NOT_FOUND);
    };
    // Returns only where it fails.
    let error = Command::new(&name).args(command).exec();
    tell(format_args!(
        "cannot run {}: {error}",
        OsStr::display(&name)
    ));
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUNNABLE })
}

/// A guard of that group.
pub(super) fn start_guard(group: Pid) -> std::io::Result<Child> {
    let mut guard = Command::new(SELF);
    guard.arg0(GUARD).arg(group.as_raw_pid().to_string());
    guard
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // In a group of its own: what the terminal says to onced's is not for it.
    guard.process_group(0).current_dir("/").spawn()
}

/// Says good-bye: the group is gone, or is somebody else's by now.
pub(super) fn dismiss(guard: &mut Child) {
    if let Some(mut line) = guard.stdin.take() {
        let _ = line.write_all(b".");
    }
    let _ = guard.wait();
}

fn guard(group: i32) -> ExitCode {
    let mut said = Vec::new();
    let read = std::io::stdin().take(1).read_to_end(&mut said);
    let good_bye = read.is_ok() && !said.is_empty();
    // 1 and below are no groups of ours.
    if let (false, Some(group)) = (good_bye, Pid::from_raw(group.max(2))) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}
