//! `onced restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::progress::Progress;
use super::{Exit, Failure, show};
use crate::engine::restore::{self, RestoreError, Restored};
use crate::model::record::Token;
use crate::server::data_dir::DataDir;
use crate::server::storage;

/// Make the store of an empty data directory from a backup
#[derive(Args, Debug)]
pub(super) struct Restore {
    /// The backup
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// The data directory: empty, or not there yet
    #[arg(long, env = "ONCED_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,

    /// A token that is known to have been granted: new ones are above it
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    after: Option<Token>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn token(text: &str) -> Result<Token, String> {
    let number = text.parse().ok();
    number
        .and_then(Token::new)
        .ok_or_else(|| format!("a token is a number from 1 to {}", Token::MAX))
}

impl Restore {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let dir = &self.data_dir;
        let progress = Progress::of("restoring, and checking what was restored", None);
        // Before the directory is made, or its lock.
        restore::check(&self.path, dir).map_err(|error| in_use(dir).unwrap_or(explain(error)))?;
        let dir = DataDir::hold(dir)?;
        dir.check_owner()?;
        let options = storage::offline(&dir)?;
        let restored = restore::restore(&self.path, dir.path(), &options, self.after);
        drop(progress);
        let restored = restored.map_err(explain)?;
        let text = if self.json {
            json_of(&restored)
        } else {
            text_of(&restored, dir.path())
        };
        show::print(text.as_bytes())?;
        Ok(Exit::Success)
    }
}

/// The better reason, where a server runs on the directory.
fn in_use(dir: &Path) -> Option<Failure> {
    if !dir.join("lock").exists() {
        return None;
    }
    let held = DataDir::hold_existing(dir).err()?;
    (held.exit == Exit::DirectoryInUse).then_some(held)
}

fn explain(error: RestoreError) -> Failure {
    let exit = match &error {
        RestoreError::Engine(error) => return storage::failure(error),
        RestoreError::Backup(error) if error.is_damage() => Exit::Damaged,
        RestoreError::NotEmpty { .. } => Exit::DirectoryUnusable,
        RestoreError::Differs(_) => Exit::Storage,
        RestoreError::Backup(_) | RestoreError::ClockBehind { .. } | RestoreError::OutOfTokens => {
            Exit::Failure
        }
    };
    Failure::told(exit, error)
}

fn text_of(restored: &Restored, dir: &Path) -> String {
    let Restored {
        from,
        store,
        lsn,
        taken,
        restored: now,
        contents,
        in_doubt,
        next_token,
    } = restored;
    let taken = taken.map_or_else(|| "a time it does not know".to_owned(), |at| at.to_string());
    format!(
        "restored and checked: records {}, policies {}, in {}\n\
         recovery point: LSN {} of store {from}, {taken}\n\
         may run twice: what was claimed or finished after that, at the latest {now}\n\
         in doubt: {in_doubt} that were pending; `onced list --state in_doubt` shows them\n\
         tokens go on from {next_token}, in the new store {store}\n",
        contents.records,
        contents.policies,
        dir.display(),
        lsn.0,
    )
}

fn json_of(restored: &Restored) -> String {
    let all = json!({
        "from": restored.from, "store": restored.store, "lsn": restored.lsn.0,
        "recovery_point": restored.taken.map(|at| at.to_string()),
        "may_run_twice_until": restored.restored.to_string(),
        "records": restored.contents.records, "policies": restored.contents.policies,
        "in_doubt": restored.in_doubt, "next_token": restored.next_token.get(),
    });
    format!("{all}\n")
}
