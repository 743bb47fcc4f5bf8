//! `onced run`: a command, once per key (SPEC 8).
//!
//! * [`held`]: the claim, its renewal and its end, asked of the server.
//! * [`child`]: the command's processes: started, told signals, ended with all they leave behind.
//! * [`stage`]: the two small processes beside it that see to it that nothing outlives onced.
//! * [`tail`]: the end of what the command writes.

mod child;
mod held;
pub(super) mod stage;
mod tail;

use std::ffi::OsString;
use std::future::pending;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::sleep;

use self::child::Child;
use self::held::{Claimed, Held, Lost, Options};
use super::client::Server;
use super::holder::Key;
use super::{Exit, Failure};
use crate::model::key::DEFAULT_NAMESPACE;
use crate::model::time::Span;

/// What the shell's tools exit with for a command that is not there, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
/// What telling the server the outcome has at least, whatever signals come.
const AT_LEAST: Duration = Duration::from_secs(1);

/// Run a command once per key
#[derive(Args, Debug)]
pub(super) struct Run {
    /// The key: any bytes
    #[arg(long, value_name = "KEY")]
    key: OsString,

    /// The namespace
    #[arg(long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    ns: String,

    /// How long the claim holds without a renewal; it is renewed at a third of it
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,

    /// How long the finished record is remembered, or forever
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,

    /// Attempts before the record is dead; 0 is no limit
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,

    /// Who claims; for people only [default: the host's name and the process]
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,

    /// Identity of what is asked for: the key with another one is refused
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,

    /// How long to wait where the key is busy or backs off
    #[arg(long, value_name = "DURATION", value_parser = Span::parse)]
    wait: Option<Span>,

    /// Keep the last 64 KiB of the command's standard output as the result
    #[arg(long)]
    capture: bool,

    /// Announce the side effect first: after a crash a person decides, nobody runs it again
    #[arg(long)]
    at_most_once: bool,

    /// What a failed command means [default: retry; bury with --at-most-once]
    #[arg(long, value_name = "WHAT")]
    on_failure: Option<OnFailure>,

    /// When the next attempt after a failure may start, in place of the policy's backoff
    #[arg(long, value_name = "DURATION")]
    retry_in: Option<String>,

    /// Between TERM and KILL, for a command that has to stop
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = Span::parse)]
    grace: Span,

    /// Where the server cannot be reached: fail, run without a claim, or skip
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    if_unavailable: IfUnavailable,

    /// Whose exit code: the command's where it ran, or onced's own
    #[arg(long, value_name = "WHOSE", default_value = "command")]
    exit_codes: ExitCodes,

    #[command(flatten)]
    server: Server,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFailure {
    Retry,
    Bury,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IfUnavailable {
    Fail,
    Run,
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExitCodes {
    Command,
    Onced,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        if let Some(code) = missing(&self.command) {
            let shown = self.command.first().map(|name| name.display().to_string());
            let what = format!("cannot run {}", shown.unwrap_or_default());
            tell(format_args!(
                "{what}: there is no such program; nothing was claimed"
            ));
            return Ok(ExitCode::from(code));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                let next = "raise the limits on files and processes";
                Failure::new(Exit::Failure, "cannot start", error, next)
            })?;
        // On this thread, which lives as long as the process: the child's life hangs on it.
        let done = runtime.block_on(self.all());
        // A request that nobody waits for any more shall not hold the end up.
        runtime.shutdown_background();
        done
    }

    async fn all(self) -> Result<ExitCode, Failure> {
        let mut signals = child::Signals::listen()?;
        let key = Key::new(self.key.clone(), self.ns.clone());
        let held = Held::new(Arc::new(self.server), key);
        let options = Options {
            lease: self.lease,
            retention: self.retention,
            max_attempts: self.max_attempts,
            owner: self.owner.unwrap_or_else(held::owner),
            fingerprint: self.fingerprint,
            wait: self.wait.unwrap_or(Span::ZERO),
        };
        let claimed = tokio::select! {
            claimed = held.claim(&options) => claimed,
            signal = signals.next() => return Ok(ended_by(signal)),
        };
        let claimed = match claimed {
            Ok(Claimed::Acquired(grant)) => Some(grant),
            Ok(Claimed::Refused(exit)) => {
                return Ok(match (exit, self.exit_codes) {
                    (Exit::Duplicate, ExitCodes::Command) => ExitCode::SUCCESS,
                    (exit, _) => exit.into(),
                });
            }
            Err(failure) if failure.exit == Exit::Unavailable => match self.if_unavailable {
                IfUnavailable::Fail => return Err(failure),
                IfUnavailable::Skip => {
                    tell(format_args!("{failure}; the command is skipped"));
                    return Ok(ExitCode::SUCCESS);
                }
                IfUnavailable::Run => {
                    tell(format_args!("{failure}; the command runs without a claim"));
                    None
                }
            },
            Err(failure) => return Err(failure),
        };
        if let (Some(grant), true) = (&claimed, self.at_most_once) {
            held.announce(grant).await?;
        }
        let mut child = Child::start(&self.command, &self.key, claimed.as_ref(), self.capture)?;
        let supervised = supervise(
            &mut child,
            &held,
            claimed.as_ref(),
            &mut signals,
            self.grace,
        );
        let (status, mut lost) = supervised.await?;
        // What it left behind may take its time to end: the claim is kept as long.
        let finishing = child.finish(self.grace);
        tokio::pin!(finishing);
        let captured = match &claimed {
            Some(grant) if lost.is_none() => tokio::select! {
                captured = &mut finishing => captured,
                what = held.keep(grant) => {
                    lost = Some(what);
                    finishing.await
                }
            },
            _ => finishing.await,
        };
        let bury = match self.on_failure {
            Some(what) => what == OnFailure::Bury,
            None => self.at_most_once,
        };
        let settled = match (&claimed, lost) {
            (_, Some(Lost::Stale)) => Exit::Stale,
            (Some(_), Some(Lost::Settled)) | (None, _) => Exit::Success,
            (Some(grant), None) => {
                let settle = async {
                    if status.success() {
                        held.complete(grant, captured).await
                    } else {
                        let why = describe(status);
                        held.fail(grant, why, self.retry_in, bury).await
                    }
                };
                tokio::pin!(settle);
                // The command has ended: to stop now, for this signal or one that came since, would have it run again.
                tokio::select! {
                    settled = &mut settle => settled,
                    signal = signals.next() => {
                        let again = async {
                            sleep(AT_LEAST).await;
                            signals.next().await
                        };
                        let grace = Duration::from_millis(self.grace.as_millis());
                        let told = tokio::select! {
                            settled = &mut settle => Some(settled),
                            () = sleep(grace.max(AT_LEAST)) => None,
                            _ = again => None,
                        };
                        let Some(settled) = told else {
                            tell(format_args!("stopped before the server knew the outcome"));
                            return Ok(ended_by(signal));
                        };
                        settled
                    }
                }
            }
        };
        Ok(self.exit_codes.code(status, settled))
    }
}

impl ExitCodes {
    /// The exit code, `settled` being what became of telling the server. Success is only what is recorded.
    fn code(self, status: ExitStatus, settled: Exit) -> ExitCode {
        match (self, status.success()) {
            (_, true) => settled.into(),
            (ExitCodes::Onced, false) if settled == Exit::Success => Exit::Failure.into(),
            (ExitCodes::Onced, false) => settled.into(),
            (ExitCodes::Command, false) => ExitCode::from(code(status)),
        }
    }
}

/// Waits for the command, passes signals on and stops it when its claim is lost.
async fn supervise(
    child: &mut Child,
    held: &Held,
    grant: Option<&held::Grant>,
    signals: &mut child::Signals,
    grace: Span,
) -> Result<(ExitStatus, Option<Lost>), Failure> {
    let mut lost = None;
    let keeping = async {
        match grant {
            Some(grant) => held.keep(grant).await,
            None => pending().await,
        }
    };
    tokio::pin!(keeping);
    let mut kill = Box::pin(sleep(Duration::ZERO));
    let mut killing = false;
    let mut ended = child.ended();
    loop {
        tokio::select! {
            status = &mut ended => return Ok((status?, lost)),
            signal = signals.next() => child.signal(signal),
            what = &mut keeping, if lost.is_none() => {
                if what == Lost::Stale {
                    tell(format_args!("somebody else took the claim over; the command is stopped"));
                    child.signal(rustix::process::Signal::TERM);
                    kill.set(sleep(Duration::from_millis(grace.as_millis())));
                    killing = true;
                }
                lost = Some(what);
            }
            () = &mut kill, if killing => {
                child.signal(rustix::process::Signal::KILL);
                killing = false;
            }
            () = sleep(child::REAP) => child.reap(),
        }
    }
}

/// Says something on standard error, which is there for that.
fn tell(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "onced: {what}");
}

fn ended_by(signal: rustix::process::Signal) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
}

/// As the shell tells of it.
fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("the command was ended by signal {signal}"),
        None => format!("the command exited with {}", code(status)),
    }
}

/// The exit code for a command that cannot be started, found out before anything is claimed.
fn missing(command: &[OsString]) -> Option<u8> {
    let name = Path::new(command.first()?);
    let runnable = |path: &Path| {
        let access = rustix::fs::access(path, rustix::fs::Access::EXEC_OK);
        path.is_file() && access.is_ok()
    };
    if name.as_os_str().as_bytes().contains(&b'/') {
        return match (name.exists(), runnable(name)) {
            (_, true) => None,
            (true, false) => Some(NOT_RUNNABLE),
            (false, _) => Some(NOT_FOUND),
        };
    }
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).any(|dir| runnable(&dir.join(name)));
    (!found).then_some(NOT_FOUND)
}
