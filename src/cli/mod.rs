//! The command line: what was typed, and the exit code of what came of it (SPEC 8).
//!
//! * [`serve`]: the server.
//! * [`claim`], [`holder`], [`operate`], [`read`]: the verbs, over HTTP like any other client.
//! * [`events`], [`explain`]: the audit trail, read by [`stream`] while it comes; [`stats`]: the figures.
//! * [`run`]: a command, once per key.
//! * [`check`], [`compact`], [`restore`]: the tools for a data directory that no server has.
//! * [`backup`]: of one that a server has; [`transfer`]: its records as lines, out and in.
//! * [`selftest`]: what is promised, tried on this machine, and [`bench`], measured; with a server of their [`own`].
//! * [`config`]: what is in force; [`token`]: secrets for it.
//! * [`manual`]; [`generated`]: man pages and completions, from the same definition as the verbs.
//! * [`progress`]: how far long work has come, on a terminal.
//! * [`client`]: one request and its answer; [`show`]: the answer for people, and its exit code.

mod backup;
mod bench;
mod check;
mod claim;
mod client;
mod compact;
mod config;
mod events;
mod explain;
mod generated;
mod holder;
mod manual;
mod operate;
mod own;
mod progress;
mod read;
mod restore;
mod run;
mod selftest;
mod serve;
mod show;
mod stats;
mod stream;
mod token;
mod transfer;

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::error::{Exit, Failure};

/// One atomic, durable answer to the question: am I the one who does this, or was it done already?
#[derive(Debug, Parser)]
#[command(name = "onced", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Serve(serve::Serve),
    Claim(claim::Claim),
    Complete(holder::Complete),
    Renew(holder::Renew),
    Effect(holder::Effect),
    Fail(holder::Fail),
    Release(holder::Release),
    Get(read::Get),
    List(read::List),
    Explain(explain::Explain),
    Events(events::Events),
    Stats(stats::Stats),
    Replay(operate::Replay),
    Forget(operate::Forget),
    Run(Box<run::Run>),
    Check(check::Check),
    Compact(compact::Compact),
    Config(config::Config),
    Token(token::Token),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Export(transfer::export::Export),
    Import(transfer::import::Import),
    Selftest(selftest::Selftest),
    Bench(bench::Bench),
    Manual(manual::Manual),
    Man(generated::Man),
    Completions(generated::Completions),
}

/// Does what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = run::stage::named() {
        return code;
    }
    // Beside what was said, how it was.
    let parsed = Cli::command().try_get_matches();
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    let done = match cli.verb {
        Verb::Serve(verb) => verb.run(),
        Verb::Claim(verb) => verb.run(),
        Verb::Complete(verb) => verb.run(),
        Verb::Renew(verb) => verb.run(),
        Verb::Effect(verb) => verb.run(),
        Verb::Fail(verb) => verb.run(),
        Verb::Release(verb) => verb.run(),
        Verb::Get(verb) => verb.run(),
        Verb::List(verb) => verb.run(),
        Verb::Explain(verb) => verb.run(),
        Verb::Events(verb) => verb.run(),
        Verb::Stats(verb) => verb.run(),
        Verb::Replay(verb) => verb.run(),
        Verb::Forget(verb) => verb.run(),
        Verb::Check(verb) => verb.run(),
        Verb::Compact(verb) => verb.run(),
        Verb::Config(verb) => verb.run(&matches),
        Verb::Token(verb) => verb.run(),
        Verb::Backup(verb) => verb.run(),
        Verb::Restore(verb) => verb.run(),
        Verb::Export(verb) => verb.run(),
        Verb::Import(verb) => verb.run(),
        Verb::Selftest(verb) => verb.run(),
        Verb::Bench(verb) => verb.run(),
        Verb::Manual(verb) => verb.run(),
        Verb::Man(verb) => verb.run(),
        Verb::Completions(verb) => verb.run(),
        // Its exit code may be the command's.
        Verb::Run(verb) => return ended(verb.run()),
    };
    ended(done)
}

fn ended(done: Result<impl Into<ExitCode>, Failure>) -> ExitCode {
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // Nobody is there to tell if this fails; the exit code still says it.
            let _ = writeln!(std::io::stderr(), "onced: {failure}");
            failure.exit.into()
        }
    }
}

/// Help and version go to standard output and are no error.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if let Some(name) = environment_name(error) {
        let _ = writeln!(
            std::io::stderr(),
            "\nThe value comes from {name} in the environment."
        );
    }
    if error.use_stderr() {
        Exit::Usage.into()
    } else {
        Exit::Success.into()
    }
}

/// The name in the environment that a refused value came from: clap tells only the flag.
fn environment_name(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // Such as `--threads <N>` and `--allow-flush[=<BOOL>]`.
    let shown = context(ContextKind::InvalidArg)?;
    let flag = shown.strip_prefix("--")?.split([' ', '[']).next();
    let value = context(ContextKind::InvalidValue)?;
    let command = Cli::command();
    let mut arguments = command
        .get_subcommands()
        .flat_map(clap::Command::get_arguments);
    let name = arguments
        .find(|argument| argument.get_long() == flag)?
        .get_env()?;
    let typed = std::env::args().any(|typed| typed.contains(value));
    let set = std::env::var_os(name)?;
    (!typed && set.to_string_lossy().contains(value)).then(|| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }
}
