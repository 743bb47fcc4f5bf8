//! The claim of `onced run`: asked for, kept by renewals, and ended.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::super::client::{Answer, Request, Server};
use super::super::holder::Key;
use super::super::{Exit, Failure, show};
use super::tell;
use crate::engine::random;
use crate::model::time::Span;

/// How long one request may take where no lease says less.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries at a server that does not answer.
const RETRY: Duration = Duration::from_millis(500);
/// How long the server may take to tell the record's lease: the command waits for it.
const TOLD: Duration = Duration::from_secs(1);
/// The lease that is kept to where it is not known: so short that renewals come in time for any but the shortest.
const UNKNOWN: Duration = Duration::from_millis(1500);

/// What the claim asks for, as it was typed.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) lease: Option<String>,
    pub(super) retention: Option<String>,
    pub(super) max_attempts: Option<u32>,
    pub(super) owner: String,
    pub(super) fingerprint: Option<String>,
    pub(super) wait: Span,
}

/// What was granted.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) token: u64,
    pub(super) attempt: u64,
    lease: Duration,
}

/// The answer to the claim.
#[derive(Debug)]
pub(super) enum Claimed {
    Acquired(Grant),
    /// Somebody was told why.
    Refused(Exit),
}

/// Why there is nothing to renew any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The token has ended.
    Stale,
    /// The command completed it by itself, with this very token.
    Settled,
}

/// The result's content type and bytes.
pub(super) type Captured = (&'static str, Vec<u8>);

/// A record at a server.
#[derive(Debug)]
pub(super) struct Held {
    server: Arc<Server>,
    key: Key,
}

impl Held {
    pub(super) fn new(server: Arc<Server>, key: Key) -> Held {
        Held { server, key }
    }

    /// Claims. A claim whose answer was lost is asked once more with the same claim id: it may have been granted.
    pub(super) async fn claim(&self, options: &Options) -> Result<Claimed, Failure> {
        let wait = Duration::from_millis(options.wait.as_millis());
        let waited = (options.wait > Span::ZERO).then(|| options.wait.to_string());
        let given = [
            ("lease", options.lease.clone()),
            ("retention", options.retention.clone()),
            ("max_attempts", options.max_attempts.map(|n| n.to_string())),
            ("claim_id", Some(claim_id()?)),
            ("owner", Some(options.owner.clone())),
            ("fingerprint", options.fingerprint.clone()),
            ("wait", waited),
        ];
        let mut request = self.request("POST", "", given)?;
        request.wait = wait;
        let patience = PATIENCE.saturating_add(wait);
        let answer = match self.ask_onced(request.clone(), patience).await {
            Err(failure) if failure.exit == Exit::Unavailable => {
                sleep(RETRY).await;
                self.ask_onced(request, patience).await
            }
            other => other,
        }?;
        let exit = show::exit(&answer);
        if exit == Exit::Unavailable && !matches!(outcome(&answer), "busy" | "backoff") {
            let next = "try again when it can";
            return Err(Failure::new(exit, "cannot claim", outcome(&answer), next));
        }
        if exit != Exit::Success {
            // A duplicate is what this is for: no news for anybody.
            if exit != Exit::Duplicate {
                tell(format_args!("not run: {}", said(&answer)));
            }
            return Ok(Claimed::Refused(exit));
        }
        let number = |name| json(&answer).get(name).and_then(Value::as_u64);
        let (Some(token), Some(attempt)) = (number("token"), number("attempt")) else {
            let next = "look at what answers there";
            return Err(Failure::new(
                Exit::Failure,
                "cannot claim",
                said(&answer),
                next,
            ));
        };
        let asked = options.lease.as_deref().map(Span::parse);
        let lease = match asked {
            Some(Ok(span)) => Duration::from_millis(span.as_millis()),
            _ => self.lease().await.unwrap_or(UNKNOWN),
        };
        Ok(Claimed::Acquired(Grant {
            token,
            attempt,
            lease,
        }))
    }

    /// The lease of the record, which a policy has set. Who may claim may not always read.
    async fn lease(&self) -> Option<Duration> {
        let request = self.request("GET", "", []).ok()?;
        let answer = self.ask(request, TOLD).await.ok()?;
        let lease = json(&answer).get("lease_ms")?.as_u64()?;
        Some(Duration::from_millis(lease))
    }

    /// Announces the side effect.
    ///
    /// # Errors
    /// It is not announced, as far as is known: the command must not run.
    pub(super) async fn announce(&self, grant: &Grant) -> Result<(), Failure> {
        let request = self.about("/effect", grant, [])?;
        // The same announcement again changes nothing.
        let answer = match self.ask(request.clone(), grant.lease.min(PATIENCE)).await {
            Err(_) => self.ask(request, grant.lease.min(PATIENCE)).await?,
            Ok(answer) => answer,
        };
        match show::exit(&answer) {
            Exit::Success => Ok(()),
            exit => {
                let next = "the command was not run";
                let attempt = "cannot announce the side effect";
                Err(Failure::new(exit, attempt, said(&answer), next))
            }
        }
    }

    /// Renews at a third of the lease until there is nothing to renew.
    pub(super) async fn keep(&self, grant: &Grant) -> Lost {
        let third = (grant.lease / 3).max(Duration::from_millis(1));
        let mut pause = third;
        let mut reachable = true;
        loop {
            sleep(pause).await;
            let renewed = match self.about("/renew", grant, []) {
                Ok(request) => self.ask(request, third.max(RETRY)).await,
                Err(failure) => Err(failure),
            };
            let problem = match &renewed {
                Ok(answer) => match show::exit(answer) {
                    Exit::Success => None,
                    Exit::Stale if self.completed_by(grant).await => return Lost::Settled,
                    Exit::Stale => return Lost::Stale,
                    _ => Some(said(answer)),
                },
                Err(failure) => Some(failure.to_string()),
            };
            pause = if problem.is_some() {
                third.min(RETRY)
            } else {
                third
            };
            if let (Some(problem), true) = (&problem, reachable) {
                tell(format_args!("cannot renew, trying on: {problem}"));
            }
            reachable = problem.is_none();
        }
    }

    /// Whether the record is done under this very token: the command may say so itself.
    async fn completed_by(&self, grant: &Grant) -> bool {
        let Ok(request) = self.request("GET", "", []) else {
            return false;
        };
        let Ok(answer) = self.ask(request, PATIENCE).await else {
            return false;
        };
        let record = json(&answer);
        record.get("state").and_then(Value::as_str) == Some("done")
            && record.get("token").and_then(Value::as_u64) == Some(grant.token)
    }

    /// Completes, trying until the lease is over.
    pub(super) async fn complete(&self, grant: &Grant, captured: Option<Captured>) -> Exit {
        let request = self.about("/complete", grant, []).map(|request| {
            let (content_type, body) = captured.unzip();
            Request {
                body: body.unwrap_or_default(),
                content_type: content_type.map(str::to_owned),
                ..request
            }
        });
        let exit = self.settle("completed", grant, request).await;
        if exit == Exit::Failure && self.completed_by(grant).await {
            // By the command itself, with a result of its own: the first one stays.
            return Exit::Success;
        }
        exit
    }

    /// Says that this attempt failed, trying until the lease is over.
    pub(super) async fn fail(
        &self,
        grant: &Grant,
        why: String,
        retry_in: Option<String>,
        bury: bool,
    ) -> Exit {
        let options = [
            ("error", Some(why)),
            ("retry_in", retry_in.filter(|_| !bury)),
            ("bury", bury.then(|| "true".to_owned())),
        ];
        let request = self.about("/fail", grant, options);
        self.settle("failed", grant, request).await
    }

    async fn settle(&self, what: &str, grant: &Grant, request: Result<Request, Failure>) -> Exit {
        let request = match request {
            Ok(request) => request,
            Err(failure) => {
                tell(format_args!("{failure}"));
                return failure.exit;
            }
        };
        let tries = async {
            let mut told = false;
            loop {
                let problem = match self.ask(request.clone(), PATIENCE).await {
                    // What is between here and the server may answer in its place, and has decided nothing.
                    Ok(answer) if is_decided(&answer) => return answer,
                    Ok(answer) => said(&answer),
                    Err(failure) => failure.to_string(),
                };
                if !told {
                    tell(format_args!(
                        "not recorded as {what} yet, trying on: {problem}"
                    ));
                    told = true;
                }
                sleep(RETRY.min(grant.lease / 3)).await;
            }
        };
        // At least one try and its answer, however short the lease is.
        let until = grant.lease.max(Duration::from_secs(2));
        let Ok(answer) = timeout(until, tries).await else {
            tell(format_args!(
                "the command ended, but the key is not recorded as {what}"
            ));
            return Exit::Unavailable;
        };
        let exit = show::exit(&answer);
        if exit != Exit::Success {
            let said = said(&answer);
            tell(format_args!(
                "the command ended, but the key is not recorded as {what}: {said}"
            ));
        }
        exit
    }

    fn about<const N: usize>(
        &self,
        verb: &str,
        grant: &Grant,
        options: [(&'static str, Option<String>); N],
    ) -> Result<Request, Failure> {
        let mut request = self.request("POST", verb, options)?;
        let token = grant.token.to_string().into_bytes();
        request.query.insert(0, ("token", token));
        Ok(request)
    }

    fn request<const N: usize>(
        &self,
        method: &'static str,
        verb: &str,
        options: [(&'static str, Option<String>); N],
    ) -> Result<Request, Failure> {
        let query = options.into_iter();
        Ok(Request {
            method,
            path: self.key.path(verb)?,
            query: query
                .filter_map(|(name, value)| Some((name, value?.into_bytes())))
                .collect(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        })
    }

    /// The same as [`Held::ask`], and what a proxy says of a server that it does not reach is no answer.
    async fn ask_onced(&self, request: Request, within: Duration) -> Result<Answer, Failure> {
        let answer = self.ask(request, within).await?;
        if answer.outcome.is_none() && (answer.status >= 500 || answer.status == 429) {
            return Err(unanswered(format_args!("HTTP {}", answer.status)));
        }
        Ok(answer)
    }

    /// One request, on a thread of its own: what is asked blocks.
    async fn ask(&self, request: Request, within: Duration) -> Result<Answer, Failure> {
        let server = Arc::clone(&self.server);
        let asked = tokio::task::spawn_blocking(move || server.send(&request));
        match timeout(within, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Err(unanswered(error)),
            Err(_) => Err(unanswered("it did not answer in time")),
        }
    }
}

fn unanswered(cause: impl std::fmt::Display) -> Failure {
    let next = "whether it was decided is not known";
    Failure::new(Exit::Unavailable, "no answer from the server", cause, next)
}

/// Whether the server said what became of it.
fn is_decided(answer: &Answer) -> bool {
    answer.outcome.is_some() && show::exit(answer) != Exit::Unavailable
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

fn outcome(answer: &Answer) -> &str {
    answer.outcome.as_deref().unwrap_or("not onced's answer")
}

/// The outcome, and what the server says about it.
fn said(answer: &Answer) -> String {
    match json(answer).get("detail").and_then(Value::as_str) {
        Some(detail) => format!("{}: {detail}", outcome(answer)),
        None => outcome(answer).to_owned(),
    }
}

/// A claim id of this attempt alone.
fn claim_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes).map_err(|error| {
        let attempt = "cannot take random bytes from the system";
        let next = "try again once the machine has started";
        Failure::new(Exit::Failure, attempt, error, next)
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Who runs it, for people: the host and the process.
pub(super) fn owner() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // The limit on owners holds for any name that a host may have (64 bytes).
    format!("{} pid {}", host.trim(), std::process::id())
}
