//! `onced serve`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::{Exit, Failure};
use crate::config::{self, Settings};
use crate::server::{self, reload::Source};

/// Serve HTTP and the Redis protocol
#[derive(Args, Debug)]
pub(super) struct Serve {
    /// The configuration file [default: /etc/onced/onced.toml, if there is one]
    #[arg(long, env = "ONCED_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

impl Serve {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let source: Source =
            Arc::new(move || config::resolve(self.settings.clone(), self.config.as_deref()));
        server::run(&source)?;
        Ok(Exit::Success)
    }
}
