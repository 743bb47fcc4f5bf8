//! `onced backup`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::json;

use super::client::{Request, Server};
use super::progress::Progress;
use super::{Exit, Failure, show};
use crate::store::{self, Contents, Head};

/// Take a backup of the running server: a new file, read back before it gets its name
#[derive(Args, Debug)]
pub(super) struct Backup {
    /// The file; there must be none yet
    #[arg(value_name = "PATH")]
    path: PathBuf,

    #[command(flatten)]
    server: Server,
}

impl Backup {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        refuse_existing(&self.path)?;
        let part = Part::create(&self.path)?;
        let progress = Progress::of("taking a backup", Some("bytes"));
        let refused = self.fetch(&part, &progress)?;
        drop(progress);
        if let Some(refused) = refused {
            drop(part);
            return show::shown(&self.server, &refused);
        }
        let (head, contents) = store::verify_backup(&part.path).map_err(|error| {
            Failure::told(
                Exit::Failure,
                format_args!("the backup was not taken: {error}; the server's log may say more"),
            )
        })?;
        let size = part.file.metadata().map(|found| found.len());
        let size = size.map_err(|error| part.failed("look at", error))?;
        part.keep(&self.path)?;
        show::print(self.text(&head, contents, size).as_bytes())?;
        Ok(Exit::Success)
    }

    /// Writes what the server sends. An answer that is none is handed back.
    fn fetch(
        &self,
        part: &Part,
        progress: &Progress,
    ) -> Result<Option<super::client::Answer>, Failure> {
        let request = Request {
            method: "GET",
            path: "/v1/backup".to_owned(),
            query: Vec::new(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        let mut file = &part.file;
        let refused = self.server.download(&request, &mut |bytes| {
            progress.add(bytes.len() as u64);
            file.write_all(bytes)
                .map_err(|error| part.failed("write", error))
        })?;
        file.sync_all()
            .map_err(|error| part.failed("sync", error))?;
        Ok(refused)
    }

    fn text(&self, head: &Head, contents: Contents, size: u64) -> String {
        let store: String = head.store_id.iter().map(|b| format!("{b:02x}")).collect();
        let (lsn, records, policies) = (head.lsn.0, contents.records, contents.policies);
        let path = self.path.display();
        if self.server.json {
            let all = json!({
                "path": path.to_string(), "store": store, "lsn": lsn, "records": records,
                "policies": policies, "bytes": size,
            });
            return format!("{all}\n");
        }
        format!(
            "{path} is whole: records {records}, policies {policies}, bytes {size}\n\
             recovery point: LSN {lsn} of store {store}\n"
        )
    }
}

/// What is there is never written over, not even a link that leads nowhere.
fn refuse_existing(path: &Path) -> Result<(), Failure> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("look at", path, &error)),
        Ok(_) => Err(exists(path)),
    }
}

fn exists(path: &Path) -> Failure {
    Failure::new(
        Exit::Failure,
        format_args!("cannot take a backup into {}", path.display()),
        "it is there already, and nothing is written over",
        "give the name of a new file, such as with the date in it",
    )
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Failure,
        format_args!("cannot {what} {}", path.display()),
        error,
        "no backup was taken; give a file in a folder that this user may write, with space for it",
    )
}

/// The file under its first name, removed unless it is kept.
struct Part {
    path: PathBuf,
    file: File,
}

impl Part {
    fn create(path: &Path) -> Result<Part, Failure> {
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)
            .map_err(|error| failed("write", &part, &error))?;
        Ok(Part { path: part, file })
    }

    fn failed(&self, what: &str, error: io::Error) -> Failure {
        failed(what, &self.path, &error)
    }

    /// Gives it its name, for good.
    fn keep(self, path: &Path) -> Result<(), Failure> {
        match renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(exists(path)),
            // Not every file system has it.
            Err(Errno::INVAL | Errno::NOSYS) => {
                refuse_existing(path)?;
                std::fs::rename(&self.path, path).map_err(|error| self.failed("rename", error))?;
            }
            Err(error) => return Err(self.failed("rename", error.into())),
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| failed("sync the folder of", path, &error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Where it was kept there is nothing of that name; where it cannot be removed, its name says what it is.
        let _ = std::fs::remove_file(&self.path);
    }
}
