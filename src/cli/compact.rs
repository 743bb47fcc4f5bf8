//! `onced compact`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::progress::Progress;
use super::{Exit, Failure, show};
use crate::engine::{EngineError, inspect};
use crate::server::data_dir::DataDir;
use crate::server::storage;
use crate::store::CompactError;

/// Give the space of what is gone back to the file system: copies the store of a data directory that no server has
/// open, and puts the copy in its place
#[derive(Args, Debug)]
pub(super) struct Compact {
    /// The data directory
    #[arg(long, env = "ONCED_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Compact {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let dir = DataDir::hold_existing(&self.data_dir)?;
        dir.check_owner()?;
        let options = storage::offline(&dir)?;
        let progress = Progress::of("copying the store", None);
        let done = inspect::compact(dir.path(), &options, dir.free_space()?);
        drop(progress);
        let done = done.map_err(|error| explain(dir.path(), error))?;
        let text = if self.json {
            let (before, after, rows) = (done.before, done.after, done.rows);
            format!(
                "{}\n",
                json!({"before": before, "after": after, "rows": rows})
            )
        } else {
            format!(
                "the store had {} bytes on the disk and has {} now\n",
                done.before, done.after
            )
        };
        show::print(text.as_bytes())?;
        Ok(Exit::Success)
    }
}

fn explain(dir: &std::path::Path, error: CompactError) -> Failure {
    match error {
        CompactError::Store(error) => storage::failure(&EngineError::Store(error)),
        CompactError::NoSpace { .. } => Failure::told(Exit::Failure, error),
        CompactError::Differs { .. } => Failure::told(Exit::Storage, error),
        CompactError::Missing { .. } => Failure::new(
            Exit::DirectoryUnusable,
            format_args!("cannot find a store in {}", dir.display()),
            error,
            "look whether the data directory is the right one",
        ),
    }
}
