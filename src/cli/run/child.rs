//! The processes of a command: the first one, its process group, and what it leaves to us when it ends.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{sleep, timeout};

use super::held::{Captured, Grant};
use super::stage::{dismiss, stage, start_guard};
use super::tail::Tail;
use super::{Exit, Failure, tell};
use crate::model::time::Span;

/// How often processes that were left to us and have ended are cleared away.
pub(super) const REAP: Duration = Duration::from_secs(5);
/// How often to look whether a process has gone that was told to.
const LOOK: Duration = Duration::from_millis(10);

/// The signals that are passed on.
#[derive(Debug)]
pub(super) struct Signals([(unix::Signal, Signal); 6]);

impl Signals {
    /// Takes the signals over.
    ///
    /// # Errors
    /// The system has no room for them.
    pub(super) fn listen() -> Result<Signals, Failure> {
        let listen = |kind: SignalKind, signal| io::Result::Ok((unix::signal(kind)?, signal));
        let all = || -> io::Result<_> {
            Ok([
                listen(SignalKind::hangup(), Signal::HUP)?,
                listen(SignalKind::interrupt(), Signal::INT)?,
                listen(SignalKind::quit(), Signal::QUIT)?,
                listen(SignalKind::terminate(), Signal::TERM)?,
                listen(SignalKind::user_defined1(), Signal::USR1)?,
                listen(SignalKind::user_defined2(), Signal::USR2)?,
            ])
        };
        all().map(Signals).map_err(|error| {
            let next = "raise the limits on files and processes";
            Failure::new(Exit::Failure, "cannot take signals", error, next)
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        let [hup, int, quit, term, usr1, usr2] = &mut self.0;
        let signal = tokio::select! {
            _ = hup.0.recv() => hup.1,
            _ = int.0.recv() => int.1,
            _ = quit.0.recv() => quit.1,
            _ = term.0.recv() => term.1,
            _ = usr1.0.recv() => usr1.1,
            _ = usr2.0.recv() => usr2.1,
        };
        signal
    }
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    /// Of the first process and of the group that it leads.
    pid: Pid,
    guard: Option<process::Child>,
    tail: Option<Tail>,
}

impl Child {
    /// Starts it, and all that watches it. To be called on the main thread: when the thread that started it ends,
    /// the system kills it.
    ///
    /// # Errors
    /// There is no room for another process.
    pub(super) fn start(
        command: &[OsString],
        key: &OsString,
        grant: Option<&Grant>,
        capture: bool,
    ) -> Result<Child, Failure> {
        // Daemons that it leaves behind become ours, and not init's.
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            tell(format_args!(
                "daemons of the command may outlive it: {error}"
            ));
        }
        let mut stage = stage(command);
        stage.env("ONCED_KEY", key);
        match grant {
            Some(grant) => stage
                .env("ONCED_TOKEN", grant.token.to_string())
                .env("ONCED_ATTEMPT", grant.attempt.to_string()),
            // Those of somebody else's claim mean nothing here.
            None => stage.env_remove("ONCED_TOKEN").env_remove("ONCED_ATTEMPT"),
        };
        if capture {
            stage.stdout(Stdio::piped());
        }
        let failed = |error: io::Error| {
            let next = "raise the limits on processes; the claim ends with its lease";
            Failure::new(Exit::Failure, "cannot start the command", error, next)
        };
        let mut process = stage.spawn().map_err(failed)?;
        let pid = Pid::from_child(&process);
        let guard = start_guard(pid);
        if let Err(error) = &guard {
            tell(format_args!(
                "children of the command may outlive onced: {error}"
            ));
        }
        foreground(pid);
        let stdout = process.stdout.take();
        Ok(Child {
            process,
            pid,
            guard: guard.ok(),
            tail: stdout.map(|from| Tail::copy(from, io::stdout())),
        })
    }

    /// Returns when the first process has ended. Its id stays taken until [`Child::finish`].
    pub(super) fn ended(
        &self,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<ExitStatus, Failure>>>> {
        let pid = self.pid;
        let failed = |error: io::Error| {
            let next = "the claim ends with its lease";
            Failure::new(Exit::Failure, "cannot wait for the command", error, next)
        };
        Box::pin(async move {
            let waited = tokio::task::spawn_blocking(move || {
                let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                let status = loop {
                    match rustix::process::waitid(WaitId::Pid(pid), how) {
                        Err(rustix::io::Errno::INTR) => {}
                        other => break other?,
                    }
                };
                // As wait(2) packs it.
                Ok(status.and_then(|status| {
                    let exited = status.exit_status().map(|code| (code & 0xff) << 8);
                    exited.or_else(|| status.terminating_signal())
                }))
            });
            let waited = waited.await.map_err(io::Error::other).map_err(failed)?;
            let raw: Option<i32> = waited.map_err(failed)?;
            Ok(ExitStatus::from_raw(raw.unwrap_or(1 << 8)))
        })
    }

    /// Passes a signal on to the process group.
    pub(super) fn signal(&self, signal: Signal) {
        // A group that is gone needs none.
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// Clears away what was left to us and has ended.
    pub(super) fn reap(&self) {
        for left in self.others() {
            if left.ended {
                let _ = rustix::process::waitpid(Some(left.pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Ends everything that the command left behind, and tells the end of its output if that was kept.
    pub(super) async fn finish(mut self, grace: Span) -> Option<Captured> {
        let running = |child: &Child| {
            child.reap();
            let left = child.others().into_iter();
            left.filter(|left| !left.ended).collect::<Vec<_>>()
        };
        let grace = Duration::from_millis(grace.as_millis());
        for (signal, within) in [(Signal::TERM, grace), (Signal::KILL, REAP)] {
            let mut told = BTreeSet::new();
            let gone = async {
                loop {
                    let left = running(&self);
                    if left.is_empty() {
                        return;
                    }
                    // In rounds: ending one may leave its children to us.
                    for left in left {
                        if told.insert(left.pid.as_raw_pid()) {
                            let _ = rustix::process::kill_process(left.pid, signal);
                        }
                    }
                    sleep(LOOK).await;
                }
            };
            if timeout(within, gone).await.is_ok() {
                break;
            }
        }
        if let Some(guard) = &mut self.guard {
            dismiss(guard);
        }
        let _ = self.process.wait();
        match self.tail {
            Some(tail) => Some(tail.end().await),
            None => None,
        }
    }

    /// The processes of the command's group and those left to us, but for the first one and the guard.
    fn others(&self) -> Vec<Left> {
        let own = rustix::process::getpid();
        let guard = self.guard.as_ref().map(Pid::from_child);
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let known = processes.filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            let (ended, parent, group) = parse(&stat)?;
            let pid = Pid::from_raw(pid)?;
            let ours = parent == own.as_raw_pid() || group == self.pid.as_raw_pid();
            let apart = pid == self.pid || Some(pid) == guard || pid == own;
            (ours && !apart).then_some(Left { pid, ended })
        });
        known.collect()
    }
}

/// A process that the command left.
struct Left {
    pid: Pid,
    /// It only waits to be cleared away.
    ended: bool,
}

/// Whether it has ended, its parent and its group, of `/proc/PID/stat` (proc(5)): after the name, which may hold
/// anything, and its bracket.
fn parse(stat: &[u8]) -> Option<(bool, i32, i32)> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((
        ended,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    ))
}

/// On a terminal the command's group has to be the one in front: others are stopped when they read from it.
fn foreground(pid: Pid) {
    let stdin = io::stdin();
    if stdin.is_terminal() && rustix::termios::tcsetpgrp(&stdin, pid).is_ok() {
        // Should it have been quicker.
        let _ = rustix::process::kill_process_group(pid, Signal::CONT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_of_a_process_is_read_past_any_name() {
        assert_eq!(
            parse(b"7 (a) b) Z 1 (c) S 42 43 44 0"),
            Some((false, 42, 43))
        );
        assert_eq!(parse(b"7 (x) Z 42 43 44"), Some((true, 42, 43)));
        assert_eq!(parse(b"7 (x"), None);
        assert_eq!(parse(b"7 (x) S"), None);
    }
}
