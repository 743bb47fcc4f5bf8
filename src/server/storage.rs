//! The engine's start and end, and what its failures mean for the process.

use std::error::Error;
use std::io::ErrorKind;
use std::sync::Arc;

use super::data_dir::DataDir;
use super::limits::Budget;
use crate::config::Config;
use crate::engine::{self, Engine, EngineError};
use crate::error::{Exit, Failure};
use crate::journal::writer;
use crate::store;

/// Opens the store in the data directory: recovers what a crash left, or makes a new one. What it reads for answers
/// is in flight.
///
/// # Errors
/// [`Exit::Damaged`], [`Exit::Storage`], [`Exit::DirectoryUnusable`]; nothing is lost by them.
pub fn open(config: &Config, dir: &DataDir, in_flight: &Budget) -> Result<Engine, Failure> {
    let file_system = dir.file_system_size()?;
    let body_limit = config.limits.payload.max(config.limits.result);
    let journal = writer::Options::for_file_system(file_system);
    let options = engine::Options {
        policies: config.policies.clone(),
        recent_bytes: config.limits.recent_memory,
        body_limit,
        reserve: engine::reserve_size(file_system),
        in_flight: in_flight.bytes(),
        journal: journal.holding(engine::frame_for(body_limit), file_system),
        store: store::Options {
            cache: config.limits.cache,
            ..store::Options::default()
        },
        ..engine::Options::default()
    };
    let (engine, report) = Engine::open(dir.path(), options).map_err(|error| failure(&error))?;
    if report.created {
        tracing::info!("made a new store in {}", dir.path().display());
    } else {
        let (records, redone) = (report.records, report.redone);
        tracing::info!("the store has {records} records; {redone} entries came from the journal");
    }
    if let Some(torn) = report.torn {
        tracing::warn!(
            "the end of the journal was not written whole, so nobody was told of it: {torn}"
        );
    }
    Ok(engine)
}

/// How tools open the store of a directory that they hold.
///
/// # Errors
/// [`Exit::DirectoryUnusable`].
pub fn offline(dir: &DataDir) -> Result<engine::Options, Failure> {
    Ok(engine::Options {
        journal: writer::Options::for_file_system(dir.file_system_size()?),
        ..engine::Options::default()
    })
}

/// Brings everything to the store and ends the engine.
///
/// # Errors
/// Storage failed. What was acknowledged is in the journal; the next start recovers it.
pub async fn close(engine: Engine) -> Result<(), Failure> {
    match tokio::task::spawn_blocking(move || engine.close()).await {
        Ok(closed) => closed.map_err(|error| failure(&error)),
        Err(error) => Err(Failure::new(
            Exit::Storage,
            "cannot close the store",
            error,
            "the next start recovers it",
        )),
    }
}

/// Returns when storage failed while running.
pub async fn failed(engine: &Engine) -> Failure {
    let error: Arc<EngineError> = engine.failed().await;
    failure(&error)
}

/// The exit code of a storage failure, and its text: each of them says what to do.
#[must_use]
pub fn failure(error: &EngineError) -> Failure {
    let exit = match error {
        EngineError::Limits(_) => Exit::Configuration,
        EngineError::Store(store::StoreError::InUse { .. }) => Exit::DirectoryInUse,
        EngineError::Directory { source, .. } if is_about_the_directory(source.kind()) => {
            Exit::DirectoryUnusable
        }
        error if error.is_damage() => Exit::Damaged,
        _ => Exit::Storage,
    };
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let cause = source.to_string();
        // Some errors tell their cause themselves.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = source.source();
    }
    Failure::told(exit, text)
}

fn is_about_the_directory(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PermissionDenied
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::ReadOnlyFilesystem
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::PathBuf;

    #[test]
    fn each_kind_of_failure_has_its_code() {
        let directory = |kind: ErrorKind| EngineError::Directory {
            operation: "open",
            path: PathBuf::from("/data"),
            source: io::Error::from(kind),
        };
        let path = PathBuf::from("/data/store");
        let table = [
            (
                directory(ErrorKind::PermissionDenied),
                Exit::DirectoryUnusable,
            ),
            (directory(ErrorKind::StorageFull), Exit::Storage),
            (directory(ErrorKind::Other), Exit::Storage),
            (EngineError::Limits("too much".into()), Exit::Configuration),
            (EngineError::Mixed { path: path.clone() }, Exit::Damaged),
            (
                EngineError::Store(store::StoreError::InUse { path }),
                Exit::DirectoryInUse,
            ),
        ];
        for (error, exit) in table {
            assert_eq!(failure(&error).exit, exit, "{error:?}");
        }
        let text = failure(&directory(ErrorKind::StorageFull)).to_string();
        assert!(
            text.starts_with("cannot open /data: no storage space"),
            "{text}"
        );
    }
}
