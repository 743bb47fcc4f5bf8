//! The command line: what was typed, and the exit code of what came of it (SPEC 8).
//!
//! * [`serve`]: the server.
//! * [`claim`], [`holder`], [`operate`], [`read`]: the verbs, over HTTP like any other client.
//! * [`events`], [`explain`]: the audit trail, read by [`stream`] while it comes; [`stats`]: the figures.
//! * [`check`], [`compact`]: the tools for a data directory that no server has.
//! * [`client`]: one request and its answer; [`show`]: the answer for people, and its exit code.

mod check;
mod claim;
mod client;
mod compact;
mod events;
mod explain;
mod holder;
mod operate;
mod read;
mod serve;
mod show;
mod stats;
mod stream;

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

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
    Check(check::Check),
    Compact(compact::Compact),
}

/// Does what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
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
    };
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
