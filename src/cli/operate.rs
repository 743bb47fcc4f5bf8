//! What operators do: `replay`, `forget`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::client::{Answer, Request, Server};
use super::holder::Key;
use super::progress::Progress;
use super::{Exit, Failure, show};
use crate::model::key::{DEFAULT_NAMESPACE, check_namespace};

/// Another round, in a new generation
#[derive(Args, Debug)]
pub(super) struct Replay {
    /// The key: any bytes
    #[arg(
        value_name = "KEY",
        required_unless_present = "state",
        conflicts_with = "state"
    )]
    key: Option<OsString>,

    /// The namespace
    #[arg(long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    ns: String,

    /// The generation that was seen: the record is left alone if there is another by now
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "state",
        conflicts_with = "state"
    )]
    generation: Option<u32>,

    /// Also a record that is done
    #[arg(long)]
    force: bool,

    /// The records that show in this state: dead, in_doubt, retry, or done with --force
    #[arg(long, value_name = "STATE")]
    state: Option<String>,

    /// Of them only keys that begin so
    #[arg(long, value_name = "BYTES", conflicts_with = "key")]
    prefix: Option<OsString>,

    /// Page after page, up to the last
    #[arg(long, conflicts_with = "key")]
    all: bool,

    /// Where to go on, as the page before told
    #[arg(long, value_name = "CURSOR", conflicts_with = "key")]
    cursor: Option<String>,

    /// Records of a page, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N", conflicts_with = "key")]
    limit: Option<u32>,

    #[command(flatten)]
    server: Server,
}

impl Replay {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let force = self.force.then(|| ("force", b"true".to_vec()));
        let mut query: Vec<_> = force.into_iter().collect();
        if let Some(key) = self.key {
            let generation = self
                .generation
                .map(|number| number.to_string().into_bytes());
            query.extend(generation.map(|number| ("generation", number)));
            let request = post(Key::new(key, self.ns).path("/replay")?, query);
            return show::answer(&self.server, &request);
        }
        check_namespace(&self.ns).map_err(|error| {
            let attempt = format!("cannot use the namespace {}", self.ns);
            Failure::new(Exit::Usage, attempt, error, "give another one")
        })?;
        let limit = self.limit.map(|limit| limit.to_string().into_bytes());
        let filter = [
            ("state", self.state.map(String::into_bytes)),
            ("prefix", self.prefix.map(OsStringExt::into_vec)),
            ("limit", limit),
        ];
        query.extend(
            filter
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let pages = Pages {
            server: &self.server,
            path: format!("/v1/namespaces/{}/replay", self.ns),
            query,
        };
        match self.all {
            false => show::answer(&self.server, &pages.request(self.cursor)),
            true => pages.all(self.cursor),
        }
    }
}

/// A bulk replay, in pages.
struct Pages<'a> {
    server: &'a Server,
    path: String,
    query: Vec<(&'static str, Vec<u8>)>,
}

impl Pages<'_> {
    fn request(&self, cursor: Option<String>) -> Request {
        let cursor = cursor.map(|cursor| ("cursor", cursor.into_bytes()));
        let query = self.query.iter().cloned().chain(cursor).collect();
        post(self.path.clone(), query)
    }

    /// Replays them all. What was done is told also where a page is refused, with the cursor to go on from.
    fn all(&self, mut cursor: Option<String>) -> Result<Exit, Failure> {
        let (mut replayed, mut skipped) = (0, BTreeMap::<String, u64>::new());
        let mut done_by = |page: &Value| {
            replayed += page["replayed"].as_u64().unwrap_or(0);
            for (why, count) in page["skipped"].as_object().into_iter().flatten() {
                *skipped.entry(why.clone()).or_default() += count.as_u64().unwrap_or(0);
            }
            json!({"replayed": replayed, "skipped": skipped})
        };
        let progress = Progress::of("replaying", Some("records"));
        let mut sum = done_by(&Value::Null);
        let (mut refusal, mut lost) = (None, None);
        loop {
            let answer = match self.server.send(&self.request(cursor.clone())) {
                Ok(answer) => answer,
                Err(failure) => {
                    lost = Some(failure);
                    break;
                }
            };
            if show::exit(&answer) != Exit::Success {
                refusal = Some(answer);
                break;
            }
            let page: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let before = sum["replayed"].as_u64().unwrap_or(0);
            sum = done_by(&page);
            progress.add(sum["replayed"].as_u64().unwrap_or(0).saturating_sub(before));
            cursor = page["next"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        drop(progress);
        sum["next"] = json!(cursor);
        let body = sum.to_string().into_bytes();
        let outcome = Some("ok".to_owned());
        let (status, server) = (200, self.server);
        let exit = show::shown(
            server,
            &Answer {
                status,
                outcome,
                body,
            },
        )?;
        match (lost, refusal) {
            (Some(failure), _) => Err(failure),
            (None, Some(refusal)) => show::shown(server, &refusal),
            (None, None) => Ok(exit),
        }
    }
}

fn post(path: String, query: Vec<(&'static str, Vec<u8>)>) -> Request {
    Request {
        method: "POST",
        path,
        query,
        body: Vec::new(),
        content_type: None,
        wait: Duration::ZERO,
    }
}

/// Remove the record
#[derive(Args, Debug)]
pub(super) struct Forget {
    #[command(flatten)]
    key: Key,

    /// Also while a lease runs
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    server: Server,
}

impl Forget {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = Request {
            method: "DELETE",
            path: self.key.path("")?,
            query: self
                .force
                .then(|| ("force", b"true".to_vec()))
                .into_iter()
                .collect(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        show::answer(&self.server, &request)
    }
}
