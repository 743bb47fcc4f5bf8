//! What changes nothing: `get`, `list`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use clap::Args;

use super::client::{Request, Server};
use super::holder::Key;
use super::{Exit, Failure, show};
use crate::model::key::{DEFAULT_NAMESPACE, check_namespace};

/// Show the record
#[derive(Args, Debug)]
pub(super) struct Get {
    #[command(flatten)]
    key: Key,

    /// Only the result's bytes
    #[arg(long, conflicts_with = "payload")]
    result: bool,

    /// Only the payload's bytes
    #[arg(long)]
    payload: bool,

    #[command(flatten)]
    server: Server,
}

impl Get {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let what = match (self.result, self.payload) {
            (true, _) => "/result",
            (_, true) => "/payload",
            _ => "",
        };
        let request = read(self.key.path(what)?, Vec::new());
        if what.is_empty() {
            return show::answer(&self.server, &request);
        }
        let answer = self.server.send(&request)?;
        let exit = show::exit(&answer);
        if exit == Exit::Success {
            show::page(&answer.body)?;
            return Ok(exit);
        }
        let attempt = format!("no {} to print", what.trim_start_matches('/'));
        let cause = answer.outcome.unwrap_or_else(|| answer.status.to_string());
        Err(Failure::new(
            exit,
            attempt,
            cause,
            "`onced get` shows what there is",
        ))
    }
}

/// Show the records of a namespace, in key order
#[derive(Args, Debug)]
pub(super) struct List {
    /// The namespace
    #[arg(long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    ns: String,

    /// Only records that show in this state: pending, retry, done, in_doubt, dead
    #[arg(long, value_name = "STATE")]
    state: Option<String>,

    /// Only keys that begin so
    #[arg(long, value_name = "BYTES")]
    prefix: Option<OsString>,

    /// Only what a claim would get: orphans and due retries
    #[arg(long)]
    due: bool,

    /// Where to go on, as the page before told
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,

    /// Records on a page, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,

    #[command(flatten)]
    server: Server,
}

impl List {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        check_namespace(&self.ns).map_err(|error| {
            let attempt = format!("cannot use the namespace {}", self.ns);
            Failure::new(Exit::Usage, attempt, error, "give another one")
        })?;
        let given = [
            ("state", self.state.map(String::into_bytes)),
            ("prefix", self.prefix.map(OsStringExt::into_vec)),
            ("due", self.due.then(|| b"true".to_vec())),
            ("cursor", self.cursor.map(String::into_bytes)),
            (
                "limit",
                self.limit.map(|limit| limit.to_string().into_bytes()),
            ),
        ];
        let query = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let request = read(format!("/v1/claims/{}", self.ns), query.collect());
        show::answer(&self.server, &request)
    }
}

fn read(path: String, query: Vec<(&'static str, Vec<u8>)>) -> Request {
    Request {
        method: "GET",
        path,
        query,
        body: Vec::new(),
        content_type: None,
        wait: Duration::ZERO,
    }
}
