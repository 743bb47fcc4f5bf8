//! `onced man`, `onced completions`: written from the definition of the command line. What packages ship lies in
//! `packaging/`, and a test keeps it current.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Exit, Failure, show};

/// Write a man page for onced and for each of its verbs
#[derive(Args, Debug)]
pub(super) struct Man {
    /// The folder to write to; made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let written = std::fs::create_dir_all(&self.dir).and_then(|()| {
            let command = Cli::command().disable_help_subcommand(true);
            clap_mangen::generate_to(command, &self.dir)
        });
        written.map_err(|error| {
            let attempt = format!("cannot write man pages to {}", self.dir.display());
            Failure::new(Exit::Failure, attempt, error, "name another folder")
        })?;
        Ok(Exit::Success)
    }
}

/// Print the completions of a shell
#[derive(Args, Debug)]
pub(super) struct Completions {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "onced", &mut text);
        show::page(&text)?;
        Ok(Exit::Success)
    }
}
