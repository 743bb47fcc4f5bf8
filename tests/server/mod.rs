//! The real process: how it starts, what it refuses, and how it ends.

mod access;
mod config;
mod events;
mod faces;
mod full;
mod limits;
mod log;
mod reload;
mod sockets;
mod start;
mod stop;
mod verbs;
mod waiting;

use std::path::Path;

/// A fresh folder, gone with the test.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The data directory in it, not made yet.
fn data(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("data")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
