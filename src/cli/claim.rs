//! `onced claim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::client::{Request, Server};
use super::holder::{Key, read_bytes};
use super::{Exit, Failure, show};
use crate::model::time::Span;

/// Ask: am I the one who does this, or was it done already?
#[derive(Args, Debug)]
pub(super) struct Claim {
    #[command(flatten)]
    key: Key,

    /// How long the holder may work
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,

    /// How long the finished record is remembered, or forever
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,

    /// What the end of the lease means: retry or hold
    #[arg(long, value_name = "WHAT")]
    on_lease_end: Option<String>,

    /// Attempts before the record is dead; 0 is no limit
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,

    /// Fresh for each attempt: lets a claim whose answer was lost be repeated
    #[arg(long, value_name = "ID")]
    claim_id: Option<String>,

    /// Who claims; for people only
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,

    /// Identity of the request, in place of the payload's own
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,

    /// The payload
    #[arg(long, value_name = "TEXT", conflicts_with = "payload_file")]
    payload: Option<String>,

    /// A file with the payload; - is standard input
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,

    /// The payload's content type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    /// Keep the payload and hand it to every later holder
    #[arg(long)]
    store: bool,

    /// Done in the step that acquires
    #[arg(long)]
    once: bool,

    /// With --once: kept as the result
    #[arg(long, value_name = "TEXT", requires = "once")]
    result: Option<String>,

    /// How long to wait where the answer would be busy or backoff
    #[arg(long, value_name = "DURATION", value_parser = Span::parse)]
    wait: Option<Span>,

    #[command(flatten)]
    server: Server,
}

impl Claim {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let body = read_bytes(self.payload, self.payload_file.as_deref())?;
        let max_attempts = self.max_attempts.map(|number| number.to_string());
        let wait = self.wait.unwrap_or(Span::ZERO);
        let given = [
            ("lease", self.lease),
            ("retention", self.retention),
            ("on_lease_end", self.on_lease_end),
            ("max_attempts", max_attempts),
            ("claim_id", self.claim_id),
            ("owner", self.owner),
            ("fingerprint", self.fingerprint),
            ("store", self.store.then(|| "true".to_owned())),
            ("mode", self.once.then(|| "once".to_owned())),
            ("result", self.result),
            ("wait", self.wait.map(|span| span.to_string())),
        ];
        let query = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?.into_bytes())));
        let request = Request {
            method: "POST",
            path: self.key.path("")?,
            query: query.collect(),
            body,
            content_type: self.content_type,
            wait: Duration::from_millis(wait.as_millis()),
        };
        show::answer(&self.server, &request)
    }
}
