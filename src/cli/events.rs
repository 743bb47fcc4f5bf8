//! `events`: the audit trail, shown, followed, or kept in a file for longer than the server keeps it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::{Answer, Request, Server};
use super::stream::Lines;
use super::{Exit, Failure, show};
use crate::model::key::check_namespace;

/// How long the server may say nothing where the trail is not followed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where it is: as long as nothing happens.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// So much of the end of a file is read for its last line.
const TAIL: u64 = 64 << 10;

/// Show the audit trail: who decided what, and when
#[derive(Args, Debug)]
pub(super) struct Events {
    /// Only those of this namespace
    #[arg(long, value_name = "NS")]
    ns: Option<String>,

    /// Only those of this key
    #[arg(long, value_name = "KEY")]
    key: Option<OsString>,

    /// Only those behind this LSN
    #[arg(long, value_name = "LSN")]
    after: Option<u64>,

    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Go on with those to come
    #[arg(long)]
    follow: bool,

    /// Append them to this file, durably, behind its last whole line
    #[arg(long, value_name = "FILE", conflicts_with = "after")]
    to: Option<PathBuf>,

    #[command(flatten)]
    server: Server,
}

impl Events {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if let Some(ns) = &self.ns {
            check_namespace(ns).map_err(|error| {
                let attempt = format!("cannot use the namespace {ns}");
                Failure::new(Exit::Usage, attempt, error, "give another one")
            })?;
        }
        let mut kept = self.to.as_deref().map(Kept::open).transpose()?;
        let after = kept.as_ref().map_or(self.after, |kept| kept.last);
        let wanted = Wanted {
            ns: self.ns,
            key: self.key.map(OsStringExt::into_vec),
            after,
            limit: self.limit,
            follow: self.follow,
        };
        let mut lines = match self.server.stream(&wanted.request(), wanted.patience())? {
            Ok(lines) => lines,
            Err(answer) => return refused(&answer),
        };
        while let Some(line) = next(&mut lines)? {
            let Some(lsn) = lsn(&line) else {
                // The server says why it ends here: nothing that belongs to a trail.
                return refused(&problem(line));
            };
            match &mut kept {
                Some(kept) => {
                    kept.push(&line, lsn);
                    if !lines.has_more() {
                        kept.write()?;
                    }
                }
                None => {
                    let shown = match self.server.json {
                        true => [&*line, b"\n"].concat(),
                        false => text(&line).into_bytes(),
                    };
                    if !show::more(&shown)? {
                        return Ok(Exit::Success);
                    }
                }
            }
        }
        if let Some(kept) = &mut kept {
            kept.write()?;
        }
        if self.follow && self.limit.is_none() {
            return Err(Failure::new(
                Exit::Unavailable,
                "the trail is followed no further",
                "the server is stopping",
                "run it again once the server is back; with --to it goes on where it was",
            ));
        }
        Ok(Exit::Success)
    }
}

/// Which events are asked for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) ns: Option<String>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) after: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) follow: bool,
}

impl Wanted {
    pub(super) fn request(&self) -> Request {
        let number = |value: u64| value.to_string().into_bytes();
        let given = [
            ("ns", self.ns.clone().map(String::into_bytes)),
            ("key", self.key.clone()),
            ("after", self.after.map(number)),
            ("limit", self.limit.map(number)),
            ("follow", self.follow.then(|| b"true".to_vec())),
        ];
        let query = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        Request {
            method: "GET",
            path: "/v1/events".to_owned(),
            query: query.collect(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        }
    }

    pub(super) fn patience(&self) -> Duration {
        if self.follow { FOREVER } else { PATIENCE }
    }
}

/// The next line of the trail.
pub(super) fn next(lines: &mut Lines) -> Result<Option<Vec<u8>>, Failure> {
    lines.next().map_err(|error| {
        let next = "run it again; with --to it goes on where it was";
        Failure::new(Exit::Unavailable, "the trail broke off", error, next)
    })
}

/// The LSN of a line of the trail; none where it says why the trail ends.
pub(super) fn lsn(line: &[u8]) -> Option<u64> {
    let line: Value = serde_json::from_slice(line).ok()?;
    line.get("lsn")?.as_u64()
}

/// The last line of a trail that ends early, as the answer that it is.
pub(super) fn problem(line: Vec<u8>) -> Answer {
    let facts: Option<Value> = serde_json::from_slice(&line).ok();
    let fact = |name: &str| facts.as_ref().and_then(|facts| facts.get(name)).cloned();
    let status = fact("status").and_then(|status| status.as_u64());
    Answer {
        status: status
            .and_then(|status| status.try_into().ok())
            .unwrap_or(0),
        outcome: fact("outcome").and_then(|outcome| outcome.as_str().map(str::to_owned)),
        body: line,
    }
}

/// The server's own words.
pub(super) fn refused(answer: &Answer) -> Result<Exit, Failure> {
    let facts: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let detail = facts
        .as_ref()
        .and_then(|facts| facts.get("detail")?.as_str());
    let exit = match show::exit(answer) {
        Exit::Success => Exit::Failure,
        exit => exit,
    };
    let outcome = answer.outcome.as_deref().unwrap_or("not onced's answer");
    let detail = detail.unwrap_or("is --url right?");
    Err(Failure::told(exit, format_args!("{outcome}: {detail}")))
}

/// An event for people: one line.
fn text(line: &[u8]) -> String {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    let fact = |name: &str| match event.get(name) {
        Some(Value::Null) | None => None,
        Some(value) => Some(show::plain(value)),
    };
    let of = |name: &str| fact(name).unwrap_or_default();
    let key = fact("key").or_else(|| fact("key_base64"));
    let mut out = format!(
        "{}  {}  {}  {}",
        of("lsn"),
        of("at"),
        of("ns"),
        key.as_deref().unwrap_or("-")
    );
    let (event, outcome) = (of("event"), of("outcome"));
    out.push_str(&format!("  {event}"));
    if event != outcome {
        out.push_str(&format!(" {outcome}"));
    }
    for name in ["token", "attempt", "generation"] {
        if let Some(value) = fact(name).filter(|value| value != "0") {
            out.push_str(&format!("  {name} {value}"));
        }
    }
    if let Some(by) = fact("by") {
        out.push_str(&format!("  by {by}"));
    }
    if let Some(count) = fact("count").filter(|count| count != "1") {
        out.push_str(&format!("  {count} times"));
    }
    out.push('\n');
    out
}

/// The file that a trail is kept in.
struct Kept {
    path: PathBuf,
    file: File,
    /// The LSN of the last line in it.
    last: Option<u64>,
    /// Lines that are not written yet.
    fresh: Vec<u8>,
}

impl Kept {
    /// Opens or makes the file; a last line that was cut is taken off: it was never said to be there.
    fn open(path: &Path) -> Result<Kept, Failure> {
        let failed = |error: io::Error| failed(path, error);
        let is_new = !path.exists();
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(failed)?;
        file.try_lock().map_err(|error| {
            let attempt = format!("cannot keep the trail in {}", path.display());
            let next = "end the other one, or name another file";
            Failure::new(Exit::Failure, attempt, error, next)
        })?;
        let (whole, last) = end(&mut file).map_err(failed)?;
        let last = last.map(|line| {
            lsn(&line).ok_or_else(|| {
                Failure::new(
                    Exit::Usage,
                    format_args!("cannot go on in {}", path.display()),
                    "its last line is no event",
                    "name another file",
                )
            })
        });
        let last = last.transpose()?;
        file.set_len(whole).map_err(failed)?;
        file.seek(SeekFrom::Start(whole)).map_err(failed)?;
        if is_new {
            // The name has to be durable too.
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let folder = File::open(parent.unwrap_or(Path::new("."))).map_err(failed)?;
            folder.sync_all().map_err(failed)?;
        }
        Ok(Kept {
            path: path.to_owned(),
            file,
            last,
            fresh: Vec::new(),
        })
    }

    fn push(&mut self, line: &[u8], lsn: u64) {
        self.fresh.extend_from_slice(line);
        self.fresh.push(b'\n');
        self.last = Some(lsn);
    }

    /// What was pushed is durable after this.
    fn write(&mut self) -> Result<(), Failure> {
        let written = self
            .file
            .write_all(&self.fresh)
            .and_then(|()| self.file.sync_data());
        self.fresh.clear();
        written.map_err(|error| failed(&self.path, error))
    }
}

fn failed(path: &Path, error: io::Error) -> Failure {
    let attempt = format!("cannot keep the trail in {}", path.display());
    let next = "make room, or name another file; what is in it stays";
    Failure::new(Exit::Failure, attempt, error, next)
}

/// Where the last whole line of a file ends, and that line if there is one.
fn end(file: &mut File) -> io::Result<(u64, Option<Vec<u8>>)> {
    let len = file.metadata()?.len();
    let from = len.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else {
        // A line of an event is far shorter.
        let is_short = from == 0;
        return if is_short {
            Ok((0, None))
        } else {
            Err(io::Error::other("it has no lines"))
        };
    };
    let whole = tail.get(..end).unwrap_or_default();
    let begin = whole.iter().rposition(|byte| *byte == b'\n');
    let line = whole
        .get(begin.map_or(0, |at| at.saturating_add(1))..)
        .unwrap_or_default();
    let end = from.saturating_add(end as u64).saturating_add(1);
    Ok((end, Some(line.to_vec())))
}
