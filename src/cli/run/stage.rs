//! The two small processes beside a command that `onced run` started. Both are this very binary.
//!
//! * [`Stage`] becomes the command, after it has asked the system to be killed when onced is.
//! * [`Guard`] kills the command's process group when onced ends without having said good-bye.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Args;
use rustix::process::{Pid, Signal};

use super::super::Failure;
use super::{NOT_FOUND, NOT_RUNNABLE, tell};

/// This binary, also when another one lies under its name by now.
const SELF: &str = "/proc/self/exe";

/// Becomes the command
#[derive(Args, Debug)]
pub(crate) struct Stage {
    /// The process that has to live
    #[arg(long)]
    parent: i32,

    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Stage {
    /// The stage for `command`, under this process; in a group of its own.
    pub(super) fn command(command: &[OsString]) -> Command {
        let mut stage = Command::new(SELF);
        let parent = std::process::id().to_string();
        stage
            .arg0("onced")
            .args(["run-stage", "--parent", &parent, "--"]);
        stage.args(command).process_group(0);
        stage
    }

    pub(in crate::cli) fn run(self) -> Result<ExitCode, Failure> {
        let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        if let Err(error) = bound {
            tell(format_args!("the command may outlive onced: {error}"));
        }
        // It may have died before it was asked for.
        if rustix::process::getppid().map(Pid::as_raw_pid) != Some(self.parent) {
            return Ok(ExitCode::from(NOT_RUNNABLE));
        }
        let Some((name, arguments)) = self.command.split_first() else {
            return Ok(ExitCode::from(NOT_FOUND));
        };
        // Returns only where it fails.
        let error = Command::new(name).args(arguments).exec();
        tell(format_args!("cannot run {}: {error}", name.display()));
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        Ok(ExitCode::from(if missing {
            NOT_FOUND
        } else {
            NOT_RUNNABLE
        }))
    }
}

/// Kills a process group when standard input ends
#[derive(Args, Debug)]
pub(crate) struct Guard {
    /// The process group
    #[arg(long)]
    group: i32,
}

impl Guard {
    /// A guard of that group.
    pub(super) fn start(group: Pid) -> std::io::Result<Child> {
        let mut guard = Command::new(SELF);
        let group = group.as_raw_pid().to_string();
        guard.arg0("onced").args(["run-guard", "--group", &group]);
        // In a group of its own: what the terminal says to onced's is not for it.
        guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        guard.process_group(0).current_dir("/").spawn()
    }

    /// Says good-bye: the group is gone, or is somebody else's by now.
    pub(super) fn dismiss(guard: &mut Child) {
        if let Some(mut line) = guard.stdin.take() {
            let _ = line.write_all(b".");
        }
        let _ = guard.wait();
    }

    pub(in crate::cli) fn run(self) -> Result<ExitCode, Failure> {
        let mut said = [0];
        let good_bye = std::io::stdin()
            .read(&mut said)
            .is_ok_and(|count| count > 0);
        // 1 and below are no groups of ours.
        if let (false, Some(group)) = (good_bye, Pid::from_raw(self.group.max(2))) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        Ok(ExitCode::SUCCESS)
    }
}
