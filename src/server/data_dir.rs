//! The data directory: made if it is missing, and held by one process (SPEC 8, 9).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Exit, Failure};
use crate::journal::disk::is_full;

/// The file whose lock says that the directory is held; it names the holder's process.
const LOCK: &str = "lock";
/// A restart may meet the lock of the process it replaces, so a held lock is tried again for this long.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// A data directory that this process holds until the value is dropped, or the process is gone: the lock
/// belongs to the open file, so that even a killed process leaves none behind.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory where it is missing (readable for its owner only) and takes its lock.
    ///
    /// # Errors
    /// [`Exit::DirectoryInUse`] with the holder, [`Exit::DirectoryUnusable`] with the cause.
    pub fn hold(path: &Path) -> Result<DataDir, Failure> {
        create(path)?;
        DataDir::lock(path)
    }

    /// Takes the lock of a directory that is there: a tool makes none.
    ///
    /// # Errors
    /// As [`DataDir::hold`].
    pub fn hold_existing(path: &Path) -> Result<DataDir, Failure> {
        match path.metadata() {
            Ok(found) if found.is_dir() => DataDir::lock(path),
            Ok(_) => Err(unusable(path, "it is not a directory")),
            Err(error) => Err(unusable(path, &error.to_string())),
        }
    }

    fn lock(path: &Path) -> Result<DataDir, Failure> {
        let name = path.join(LOCK);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)
            .map_err(|error| unusable(path, &format!("cannot open {}: {error}", name.display())))?;
        wait_for(path, &mut lock)?;
        // What the file says is for people; that it is locked is what counts, also on a full disk.
        match write_holder(&mut lock) {
            Err(error) if is_full(&error) => {
                tracing::warn!("cannot note the process in {}: {error}", name.display());
            }
            other => other.map_err(|error| {
                unusable(path, &format!("cannot write {}: {error}", name.display()))
            })?,
        }
        Ok(DataDir {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes its file system has, used or not.
    ///
    /// # Errors
    /// [`Exit::DirectoryUnusable`].
    pub fn file_system_size(&self) -> Result<u64, Failure> {
        let found = self.file_system()?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    /// How many bytes of its file system this user may still fill.
    ///
    /// # Errors
    /// [`Exit::DirectoryUnusable`].
    pub fn free_space(&self) -> Result<u64, Failure> {
        let found = self.file_system()?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Refuses to write as another user than the one the directory belongs to: what a tool writes, the server
    /// has to be able to open.
    ///
    /// # Errors
    /// [`Exit::DirectoryUnusable`] with the user to be.
    pub fn check_owner(&self) -> Result<(), Failure> {
        let found = self
            .path
            .metadata()
            .map_err(|error| unusable(&self.path, &format!("cannot look at it: {error}")))?;
        let (owner, user) = (found.uid(), rustix::process::geteuid().as_raw());
        if owner == user {
            return Ok(());
        }
        Err(Failure::new(
            Exit::DirectoryUnusable,
            format_args!("cannot write to the data directory {}", self.path.display()),
            format_args!("it belongs to user {owner}, and this is user {user}"),
            format_args!("run this as that user, such as with `sudo -u '#{owner}'`"),
        ))
    }

    fn file_system(&self) -> Result<rustix::fs::StatVfs, Failure> {
        rustix::fs::statvfs(&self.path).map_err(|error| {
            let cause = format!("cannot ask for the size of its file system: {error}");
            unusable(&self.path, &cause)
        })
    }
}

fn create(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| unusable(path, &format!("cannot create it: {error}")))?;
    let found = path
        .metadata()
        .map_err(|error| unusable(path, &format!("cannot look at it: {error}")))?;
    if found.mode() & 0o077 != 0 {
        tracing::warn!(
            "other users may look into the data directory {}; `chmod 700` closes it",
            path.display()
        );
    }
    Ok(())
}

fn wait_for(path: &Path, lock: &mut File) -> Result<(), Failure> {
    let mut waited = Duration::ZERO;
    loop {
        match flock(&*lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if waited < PATIENCE => {
                std::thread::sleep(PAUSE);
                waited = waited.saturating_add(PAUSE);
            }
            Err(Errno::WOULDBLOCK) => return Err(in_use(path, &holder(lock))),
            Err(error) => {
                return Err(unusable(
                    path,
                    &format!("cannot lock it: {error} (it has to be on a local disk)"),
                ));
            }
        }
    }
}

fn write_holder(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let mut start = lock.take(32);
    match start
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| text.trim().parse::<u32>().ok())
    {
        Some(pid) => format!("process {pid} holds it"),
        None => "another process holds it".to_owned(),
    }
}

fn in_use(path: &Path, holder: &str) -> Failure {
    Failure::new(
        Exit::DirectoryInUse,
        format_args!("the data directory {} is in use", path.display()),
        holder,
        "stop that one, or give another directory with --data-dir",
    )
}

fn unusable(path: &Path, cause: &str) -> Failure {
    let attempt = format!("cannot use the data directory {}", path.display());
    // What a unit with ProtectSystem= meets where its state directory is elsewhere.
    let read_only = std::io::Error::from(Errno::ROFS).to_string();
    let next = match cause.contains(&read_only) {
        true => format!(
            "in a systemd unit write StateDirectory=onced, or ReadWritePaths={} (`systemctl edit onced`), or give \
             another with --data-dir",
            path.display()
        ),
        false => {
            "make it a directory that this user may write, or give another with --data-dir".into()
        }
    };
    Failure::new(Exit::DirectoryUnusable, attempt, cause, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_made_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let held = DataDir::hold(&path).unwrap();
        for made in [held.path(), &dir.path().join("a")] {
            assert_eq!(
                made.metadata().unwrap().mode() & 0o777,
                0o700,
                "{}",
                made.display()
            );
        }
        let text = std::fs::read_to_string(path.join(LOCK)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_lock_that_is_let_go_meanwhile_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::hold(dir.path()).unwrap();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            gone.recv().unwrap();
            drop(first);
        });
        go.send(()).unwrap();
        DataDir::hold(dir.path()).unwrap();
        holder.join().unwrap();
    }

    #[test]
    fn a_read_only_file_system_names_the_line_of_the_unit() {
        let error = std::io::Error::from(Errno::ROFS);
        let failure = unusable(Path::new("/data"), &format!("cannot create it: {error}"));
        let text = failure.to_string();
        assert!(text.contains("ReadWritePaths=/data"), "{text}");
        let other = unusable(Path::new("/data"), "it is not a directory").to_string();
        assert!(!other.contains("ReadWritePaths"), "{other}");
    }

    #[test]
    fn what_is_not_a_directory_is_unusable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for path in [file.path().to_owned(), file.path().join("below")] {
            let failure = DataDir::hold(&path).unwrap_err();
            assert_eq!(failure.exit, Exit::DirectoryUnusable, "{failure}");
            assert!(
                failure.to_string().contains(&path.display().to_string()),
                "{failure}"
            );
        }
    }
}
