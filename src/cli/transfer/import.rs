//! `onced import`.

use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::file::{self, Found, Next};
use crate::cli::client::{Answer, Request, Server};
use crate::cli::progress::Progress;
use crate::cli::{Exit, Failure, show};

/// Lines and bytes after which a request is sent.
const LINES: usize = 1000;
const BYTES: usize = 1 << 20;
/// Records that differ are named up to so many.
const NAMED: usize = 100;

/// Store the records of an export in the running server: each once, and none over another one
#[derive(Args, Debug)]
pub(in crate::cli) struct Import {
    /// The export
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Also a file without its end: one that was cut, up to its last whole line, or made by hand
    #[arg(long)]
    partial: bool,

    #[command(flatten)]
    server: Server,
}

/// What came of it so far.
#[derive(Debug, Default)]
struct Sums {
    imported: u64,
    there: u64,
    expired: u64,
    in_doubt: u64,
    differ: u64,
    named: Vec<Value>,
}

impl Import {
    pub(in crate::cli) fn run(self) -> Result<Exit, Failure> {
        let failed = |error: io::Error| self.failed(&error);
        let mut file = File::open(&self.path).map_err(failed)?;
        // Nothing is sent of a file that is not whole: so it is read twice.
        let found = self.look(&file)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let granted = found.end.as_ref().map_or(1, |end| end.granted);
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut line, mut body) = (Vec::new(), Vec::new());
        file::next(&mut reader, &mut line).map_err(failed)?;
        let mut sums = Sums::default();
        let progress = Progress::through("importing", found.records);
        // The head is line 1.
        let (mut first, mut lines) = (2_u64, 0_usize);
        let mut left = found.records;
        while left > 0 {
            if file::next(&mut reader, &mut line).map_err(failed)? != Next::Line {
                break;
            }
            body.extend_from_slice(&line);
            lines += 1;
            left -= 1;
            if left > 0 && lines < LINES && body.len() < BYTES {
                continue;
            }
            let sent = self
                .server
                .send(&request(std::mem::take(&mut body), granted, first));
            let answer = sent.map_err(|failure| again(&failure))?;
            if show::exit(&answer) != Exit::Success {
                drop(progress);
                self.show(&sums)?;
                return show::shown(&self.server, &answer);
            }
            sums.add(&answer);
            progress.add(lines as u64);
            first += lines as u64;
            lines = 0;
        }
        drop(progress);
        self.show(&sums)?;
        Ok(match sums.differ {
            0 => Exit::Success,
            _ => Exit::Failure,
        })
    }

    fn look(&self, file: &File) -> Result<Found, Failure> {
        let progress = Progress::of("looking through the file", Some("records"));
        let bad = |why: String| {
            Failure::new(
                Exit::Damaged,
                format_args!("cannot import {}", self.path.display()),
                why,
                "nothing was imported; take the export again",
            )
        };
        let found = file::look(file, |count| progress.add(count)).map_err(bad)?;
        if found.end.is_none() && !self.partial {
            let line = found.records + 1;
            return Err(Failure::new(
                Exit::Damaged,
                format_args!("cannot import {}", self.path.display()),
                format_args!("it has no end: it was cut after line {line}"),
                "nothing was imported; go on with it by `onced export --continue`, or import what is there with --partial",
            ));
        }
        Ok(found)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let attempt = format!("cannot read {}", self.path.display());
        Failure::new(Exit::Failure, attempt, error, "give the file of an export")
    }

    fn show(&self, sums: &Sums) -> Result<(), Failure> {
        let text = match self.server.json {
            true => sums.json(&self.path),
            false => sums.text(),
        };
        show::print(text.as_bytes())
    }
}

/// What was sent is there or will be there: it does no harm to send it again.
fn again(failure: &Failure) -> Failure {
    Failure::told(
        failure.exit,
        format_args!("{failure}; run the import again: it goes on where it ended"),
    )
}

fn request(body: Vec<u8>, granted: u64, first: u64) -> Request {
    Request {
        method: "POST",
        path: "/v1/import".to_owned(),
        query: vec![
            ("granted", granted.to_string().into_bytes()),
            ("first", first.to_string().into_bytes()),
        ],
        body,
        content_type: Some("application/x-ndjson".to_owned()),
        wait: Duration::ZERO,
    }
}

impl Sums {
    fn add(&mut self, answer: &Answer) {
        let page: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let number = |name: &str| page[name].as_u64().unwrap_or(0);
        self.imported += number("imported");
        self.there += number("there");
        self.expired += number("expired");
        self.in_doubt += number("in_doubt");
        for differs in page["differ"].as_array().into_iter().flatten() {
            self.differ += 1;
            if self.named.len() < NAMED {
                self.named.push(differs.clone());
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for it in &self.named {
            let key = it.get("key").unwrap_or(&it["key_base64"]);
            let (namespace, key) = (show::plain(&it["namespace"]), show::plain(key));
            let line = &it["line"];
            text.push_str(&format!(
                "line {line}: {namespace}/{key}: another record is there, and it stays\n"
            ));
        }
        if self.differ > self.named.len() as u64 {
            let more = self.differ - self.named.len() as u64;
            text.push_str(&format!("and {more} more\n"));
        }
        let Sums {
            imported,
            there,
            expired,
            in_doubt,
            differ,
            ..
        } = self;
        text.push_str(&format!(
            "imported {imported} ({in_doubt} that were pending are in doubt), there already {there}, past their \
             retention {expired}, left out because they differ {differ}\n"
        ));
        text
    }

    fn json(&self, path: &Path) -> String {
        let all = json!({
            "path": path.display().to_string(), "imported": self.imported, "there": self.there,
            "expired": self.expired, "in_doubt": self.in_doubt, "differ": self.differ,
            "named": self.named,
        });
        format!("{all}\n")
    }
}
