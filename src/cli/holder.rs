//! What the holder of a claim says: `complete`, `renew`, `effect`, `fail`, `release`.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::client::{Request, Server, escape};
use super::{Exit, Failure, show};
use crate::model::key::{DEFAULT_NAMESPACE, RecordKey};

/// Which record.
#[derive(Args, Debug)]
pub(super) struct Key {
    /// The key: any bytes
    #[arg(value_name = "KEY")]
    key: OsString,

    /// The namespace
    #[arg(long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    ns: String,
}

impl Key {
    /// The namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.ns
    }

    /// The key's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Namespace and key, for people.
    pub(super) fn shown(&self) -> String {
        format!("{}/{}", self.ns, self.key.to_string_lossy())
    }

    /// A record, where the key is no argument of its own.
    pub(super) fn new(key: OsString, ns: String) -> Key {
        Key { key, ns }
    }

    /// The record's path, with `verb` behind it.
    ///
    /// # Errors
    /// [`Exit::Usage`]: no such key or namespace can exist.
    pub(super) fn path(&self, verb: &str) -> Result<String, Failure> {
        let key = self.key.as_bytes();
        RecordKey::new(&self.ns, key).map_err(|error| {
            let attempt = format!("cannot use {}/{}", self.ns, key.escape_ascii());
            Failure::new(Exit::Usage, attempt, error, "give another one")
        })?;
        Ok(format!("/v1/claims/{}/{}{verb}", self.ns, escape(key)))
    }
}

/// The bytes given, or those of the file; none if neither.
///
/// # Errors
/// [`Exit::Usage`]: the file cannot be read.
pub(super) fn read_bytes(given: Option<String>, file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let Some(file) = file else {
        return Ok(given.map(String::into_bytes).unwrap_or_default());
    };
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    read.map(|()| bytes).map_err(|error| {
        let attempt = format!("cannot read {}", file.display());
        Failure::new(
            Exit::Usage,
            attempt,
            error,
            "name a file that can be read, or - for standard input",
        )
    })
}

/// The proof of being the holder.
#[derive(Args, Debug)]
struct Held {
    #[command(flatten)]
    key: Key,

    /// The token that the claim was granted
    #[arg(long, env = "ONCED_TOKEN", value_name = "N")]
    token: u64,

    #[command(flatten)]
    server: Server,
}

/// The same, where the operate right can stand in for the token.
#[derive(Args, Debug)]
struct Settled {
    #[command(flatten)]
    key: Key,

    /// The token that the claim was granted; without one the record is resolved by hand
    #[arg(long, env = "ONCED_TOKEN", value_name = "N")]
    token: Option<u64>,

    #[command(flatten)]
    server: Server,
}

type Query = Vec<(&'static str, Vec<u8>)>;

fn request(
    key: &Key,
    verb: &str,
    token: Option<u64>,
    options: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Result<Request, Failure> {
    let token = ("token", token.map(|token| token.to_string()));
    let given = std::iter::once(token).chain(options);
    let query: Query = given
        .filter_map(|(name, value)| Some((name, value?.into_bytes())))
        .collect();
    Ok(Request {
        method: "POST",
        path: key.path(verb)?,
        query,
        body: Vec::new(),
        content_type: None,
        wait: Duration::ZERO,
    })
}

/// It is done; keep the result
#[derive(Args, Debug)]
pub(super) struct Complete {
    #[command(flatten)]
    settled: Settled,

    /// The result
    #[arg(long, value_name = "TEXT", conflicts_with = "result_file")]
    result: Option<String>,

    /// A file with the result; - is standard input
    #[arg(long, value_name = "FILE")]
    result_file: Option<PathBuf>,

    /// The result's content type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    /// An HTTP-like status kept beside the result
    #[arg(long, value_name = "N")]
    status: Option<u16>,
}

impl Complete {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Settled { key, token, server } = self.settled;
        let status = self.status.map(|status| status.to_string());
        let request = Request {
            body: read_bytes(self.result, self.result_file.as_deref())?,
            content_type: self.content_type,
            ..request(&key, "/complete", token, [("status", status)])?
        };
        show::answer(&server, &request)
    }
}

/// Let the lease run from now
#[derive(Args, Debug)]
pub(super) struct Renew {
    #[command(flatten)]
    held: Held,

    /// Replaces the record's lease
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,
}

impl Renew {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Held { key, token, server } = self.held;
        let request = request(&key, "/renew", Some(token), [("lease", self.lease)])?;
        show::answer(&server, &request)
    }
}

/// Announce that the side effect is about to happen
#[derive(Args, Debug)]
pub(super) struct Effect {
    #[command(flatten)]
    held: Held,
}

impl Effect {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Held { key, token, server } = self.held;
        show::answer(&server, &request(&key, "/effect", Some(token), [])?)
    }
}

/// This attempt failed
#[derive(Args, Debug)]
pub(super) struct Fail {
    #[command(flatten)]
    settled: Settled,

    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// When the next attempt may start; 0 is at once
    #[arg(long, value_name = "DURATION")]
    retry_in: Option<String>,

    /// No further attempt: the record is dead
    #[arg(long)]
    bury: bool,
}

impl Fail {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Settled { key, token, server } = self.settled;
        let options = [
            ("error", self.error),
            ("retry_in", self.retry_in),
            ("bury", self.bury.then(|| "true".to_owned())),
        ];
        show::answer(&server, &request(&key, "/fail", token, options)?)
    }
}

/// Nothing happened: give the claim back
#[derive(Args, Debug)]
pub(super) struct Release {
    #[command(flatten)]
    held: Held,
}

impl Release {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Held { key, token, server } = self.held;
        show::answer(&server, &request(&key, "/release", Some(token), [])?)
    }
}
