//! `onced export`.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use clap::Args;
use serde_json::{Value, json};

use super::file::{self, End, FORMAT, Head, Sum};
use crate::cli::client::{Answer, Request, Server};
use crate::cli::progress::Progress;
use crate::cli::{Exit, Failure, show};
use crate::model::key::check_namespace;

/// Write all records of the running server as lines of JSON, with their payloads and results
#[derive(Args, Debug)]
pub(in crate::cli) struct Export {
    /// The file; there must be none yet [default: standard output]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Only this namespace
    #[arg(long, value_name = "NS")]
    ns: Option<String>,

    /// Go on with a file that was cut, behind its last whole line
    #[arg(long = "continue", requires = "path", conflicts_with = "ns")]
    go_on: bool,

    #[command(flatten)]
    server: Server,
}

impl Export {
    pub(in crate::cli) fn run(self) -> Result<Exit, Failure> {
        if let Some(ns) = &self.ns {
            check_namespace(ns).map_err(|error| {
                let attempt = format!("cannot use the namespace {ns}");
                Failure::new(Exit::Usage, attempt, error, "give another one")
            })?;
        }
        let path = self.path.as_deref().filter(|path| *path != Path::new("-"));
        let mut writing = match (path, self.go_on) {
            (Some(path), true) => Writing::go_on(path)?,
            (Some(path), false) => Writing::create(path, self.ns.clone())?,
            (None, _) => Writing::to_stdout(self.ns.clone()),
        };
        let progress = Progress::of("exported", Some("records"));
        progress.add(writing.records);
        loop {
            let answer = self.server.send(&writing.request());
            let answer = answer.map_err(|failure| writing.hint(failure))?;
            if show::exit(&answer) != Exit::Success {
                drop(progress);
                return self.refused(&writing, &answer);
            }
            let before = writing.records;
            let more = writing.page(&answer)?;
            progress.add(writing.records - before);
            if !more {
                break;
            }
        }
        drop(progress);
        writing.end()?;
        if let Some(path) = path {
            show::print(self.text(path, &writing).as_bytes())?;
        }
        Ok(Exit::Success)
    }

    /// What was written stays, and can be gone on with.
    fn refused(&self, writing: &Writing, answer: &Answer) -> Result<Exit, Failure> {
        if writing.began {
            return Err(writing.hint(Failure::new(
                show::exit(answer),
                "the export ended before its end",
                String::from_utf8_lossy(&answer.body),
                "look at what the server says",
            )));
        }
        writing.forget();
        show::shown(&self.server, answer)
    }

    fn text(&self, path: &Path, writing: &Writing) -> String {
        let (path, records) = (path.display().to_string(), writing.records);
        if self.server.json {
            let (granted, sha256) = (writing.granted, writing.sum.hex());
            let all = json!({
                "path": path, "records": records, "granted": granted, "sha256": sha256,
            });
            return format!("{all}\n");
        }
        format!("{path} is whole: records {records}\n")
    }
}

/// An export on its way.
struct Writing {
    /// Its path, unless it is standard output.
    path: Option<PathBuf>,
    out: Box<dyn Write>,
    file: Option<File>,
    namespace: Option<String>,
    cursor: Option<String>,
    /// The id of the store whose records are in the file already.
    store: Option<String>,
    /// The head is written.
    began: bool,
    records: u64,
    granted: u64,
    sum: Sum,
}

impl Writing {
    fn to_stdout(namespace: Option<String>) -> Writing {
        Writing {
            path: None,
            out: Box::new(io::stdout()),
            file: None,
            namespace,
            cursor: None,
            store: None,
            began: false,
            records: 0,
            granted: 1,
            sum: Sum::default(),
        }
    }

    fn of(path: &Path, file: File, namespace: Option<String>) -> Result<Writing, Failure> {
        let failed = |error: io::Error| failed("write", path, &error);
        Ok(Writing {
            path: Some(path.to_owned()),
            out: Box::new(file.try_clone().map_err(failed)?),
            file: Some(file),
            ..Writing::to_stdout(namespace)
        })
    }

    fn create(path: &Path, namespace: Option<String>) -> Result<Writing, Failure> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        match file {
            Ok(file) => Writing::of(path, file, namespace),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Failure::new(
                Exit::Failure,
                format_args!("cannot export into {}", path.display()),
                "it is there already, and nothing is written over",
                "give the name of a new file, or --continue if it is an export that was cut",
            )),
            Err(error) => Err(failed("write", path, &error)),
        }
    }

    /// Behind the last whole line of a file that was cut.
    fn go_on(path: &Path) -> Result<Writing, Failure> {
        let io_failed = |error: io::Error| failed("read", path, &error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(io_failed)?;
        let bad = |why: String| {
            Failure::new(
                Exit::Failure,
                format_args!("cannot go on with {}", path.display()),
                why,
                "export into a new file",
            )
        };
        if file.metadata().map_err(io_failed)?.len() == 0 {
            // It was cut before its first line.
            return Writing::of(path, file, None);
        }
        let found = file::look(&file, |_| {}).map_err(bad)?;
        if found.end.is_some() {
            return Err(bad("it is whole already".to_owned()));
        }
        let cursor = match found.records {
            0 => None,
            _ => Some(
                cursor_of(&found.last)
                    .ok_or_else(|| bad(format!("line {}: it names no key", found.records + 1)))?,
            ),
        };
        file.set_len(found.bytes).map_err(io_failed)?;
        file.seek(SeekFrom::Start(found.bytes)).map_err(io_failed)?;
        Ok(Writing {
            cursor,
            store: Some(found.head.store),
            began: true,
            records: found.records,
            sum: found.sum,
            ..Writing::of(path, file, found.head.namespace)?
        })
    }

    fn request(&self) -> Request {
        let given = [("ns", &self.namespace), ("cursor", &self.cursor)];
        Request {
            method: "GET",
            path: "/v1/export".to_owned(),
            query: given
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.clone()?.into_bytes())))
                .collect(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        }
    }

    /// Writes a page; whether there are more.
    fn page(&mut self, answer: &Answer) -> Result<bool, Failure> {
        let broken = || {
            Failure::new(
                Exit::Failure,
                "cannot understand the server's answer",
                "it is no page of an export",
                "use the onced of the server's version",
            )
        };
        let body = answer.body.strip_suffix(b"\n").ok_or_else(broken)?;
        let at = body.iter().rposition(|byte| *byte == b'\n');
        let (lines, last) = body.split_at(at.map_or(0, |at| at + 1));
        let last: Value = serde_json::from_slice(last).map_err(|_| broken())?;
        self.granted = last["granted"].as_u64().ok_or_else(broken)?;
        let store = last["store"].as_str().ok_or_else(broken)?;
        if self.store.as_deref().is_some_and(|begun| begun != store) {
            return Err(Failure::new(
                Exit::Failure,
                "nothing was added to the export",
                "it is of another store than this server's, or of before a restore",
                "give the --url of the server it was begun with, or export into a new file",
            ));
        }
        self.store = Some(store.to_owned());
        if !self.began {
            self.began = true;
            let head = Head {
                onced_export: FORMAT,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                store: store.to_owned(),
                at: last["at"].as_str().ok_or_else(broken)?.to_owned(),
                namespace: self.namespace.clone(),
            };
            self.write(&file::head_line(&head))?;
        }
        self.write(lines)?;
        self.records += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.cursor = last["next"].as_str().map(str::to_owned);
        Ok(self.cursor.is_some())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.out.write_all(bytes);
        written.map_err(|error| self.lost(&error))?;
        self.sum.add(bytes);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        let end = End {
            records: self.records,
            granted: self.granted,
            sha256: self.sum.hex(),
        };
        let ended = self.out.write_all(&file::end_line(end));
        let ended = ended.and_then(|()| self.out.flush());
        let synced = ended.and_then(|()| self.file.as_ref().map_or(Ok(()), File::sync_all));
        synced.map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &io::Error) -> Failure {
        let path = self.path.as_deref().unwrap_or(Path::new("standard output"));
        self.hint(failed("write", path, error))
    }

    /// How to go on with what is there.
    fn hint(&self, failure: Failure) -> Failure {
        match &self.path {
            Some(path) if self.began => Failure::told(
                failure.exit,
                format_args!(
                    "{failure}; {} holds what came until then: `onced export --continue {}` goes on",
                    path.display(),
                    path.display()
                ),
            ),
            _ => {
                self.forget();
                failure
            }
        }
    }

    /// Removes a file that nothing was written into.
    fn forget(&self) {
        if let (Some(path), false) = (&self.path, self.began) {
            // Left behind, it is refused by its emptiness.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where the server goes on behind the record of that line.
fn cursor_of(line: &[u8]) -> Option<String> {
    let record: Value = serde_json::from_slice(line).ok()?;
    let key = match (record["key"].as_str(), record["key_base64"].as_str()) {
        (Some(key), None) => key.as_bytes().to_vec(),
        (None, Some(key)) => STANDARD.decode(key).ok()?,
        _ => return None,
    };
    let namespace = record["namespace"].as_str()?;
    let joined = [namespace.as_bytes(), b"\0", &key].concat();
    Some(URL_SAFE_NO_PAD.encode(joined))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Failure,
        format_args!("cannot {what} {}", path.display()),
        error,
        "give a file in a folder that this user may write, with space for it",
    )
}
