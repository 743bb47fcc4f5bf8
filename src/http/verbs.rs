//! From a request to a command, and from an outcome to an answer. Nothing is decided here.

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use super::answer::Answer;
use super::body::{BodyError, Taken, Upload};
use super::credentials::{self, lacking};
use super::events::{self, Lines};
use super::link::{Link, Stage};
use super::metrics::Limit;
use super::params::Params;
use super::percent::{Plus, decode};
use super::pieces::Pieces;
use super::problem::Refusal;
use super::routes::{Action, BodyUse, Captured, Found, Route, find};
use super::{Face, Readiness, TEXT, batch, json, manual, metrics, openapi, policy, transfer};
use crate::engine::{Filter, Unavailable, Unit};
use crate::model::access::{Caller, Right};
use crate::model::body::{Body as Kept, Content, DEFAULT_CONTENT_TYPE};
use crate::model::command::{Claim, Command, List, Mode, Payload, Verb};
use crate::model::key::{DEFAULT_NAMESPACE, RecordKey, check_namespace};
use crate::model::outcome::{Outcome, Verdict};
use crate::model::record::{KeptResult, Lsn, OnLeaseEnd, State};
use crate::model::time::Span;

/// Records on a page where the request does not say.
const PAGE: usize = 100;

/// Answers a request. In this order: the guard, route, credentials, parameters, key, body, decision.
pub(super) async fn answer<B>(
    face: &Face,
    parts: &Parts,
    body: &mut Upload<B>,
    link: &Link,
) -> Result<Answer, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
{
    face.hosts.check(parts)?;
    let (route, captured) = match find(&parts.method, parts.uri.path()) {
        Found::Route(route, captured) => (route, captured),
        Found::Path(allow) if parts.method == Method::OPTIONS => {
            return Ok(Answer::options(allow));
        }
        Found::Path(allow) => return Err(Refusal::method(allow)),
        Found::Nothing => {
            return Err(Refusal::not_found(
                "there is no such path; a slash inside a key is written %2F",
            ));
        }
    };
    let caller = match route.right {
        None => Caller::ANYBODY,
        Some(right) => {
            let caller = credentials::caller(&face.access(), &parts.headers)?;
            if !caller.may(right) {
                return Err(lacking(&caller, right));
            }
            caller
        }
    };
    let request = Asked {
        face,
        caller,
        route,
        captured,
        params: Params::parse(route.params, parts.uri.query())?,
        parts,
    };
    match route.action {
        Action::Healthz => Ok(Answer::json(&b"{\"status\":\"ok\"}"[..])),
        Action::Readyz => ready(*face.readiness.borrow()),
        Action::OpenApi => Ok(Answer::json(openapi::document())),
        Action::Manual | Action::Chapter | Action::Problem => {
            manual::answer(route.action, captured.name, parts)
        }
        Action::List => {
            let list = request.list()?;
            request.body(body).await?;
            link.set(Stage::Deciding);
            let page = face.engine.list(list).await?;
            Ok(Answer::json(json::page(&page)))
        }
        Action::Batch => request.batch(body, link).await,
        Action::Namespaces => {
            request.body(body).await?;
            link.set(Stage::Deciding);
            let mut all = face.engine.namespaces().await?;
            // What a credential is not for is not shown to its holder either.
            all.retain(|namespace| request.caller.reaches(&namespace.name));
            Ok(Answer::json(json::namespaces(&all)))
        }
        Action::Namespace => {
            let name = request.namespace()?;
            request.body(body).await?;
            request.answer_namespace(&name, link).await
        }
        Action::PutNamespace => {
            let name = request.namespace()?;
            let (bytes, _room) = request.body(body).await?;
            let policy = policy::parse(&bytes)?;
            link.set(Stage::Deciding);
            let by = request.caller.name().map(Box::from);
            face.engine.set_policy(&name, policy, by).await?;
            request.answer_namespace(&name, link).await
        }
        Action::Events => {
            let asked = request.events()?;
            request.body(body).await?;
            link.set(Stage::Deciding);
            let follow = asked.follow;
            let lines = Lines::begin(face, asked).await?;
            Ok(Answer::lines(Pieces::new(lines, follow)))
        }
        Action::Stats | Action::Metrics => {
            request.body(body).await?;
            link.set(Stage::Deciding);
            if !request.caller.reaches_all() {
                return Err(Refusal::forbidden(
                    "this credential is for some namespaces only, and the figures are of all; use another",
                ));
            }
            let figures = metrics::figures(face).await?;
            Ok(match route.action {
                Action::Stats => Answer::json(metrics::document(&figures)),
                _ => Answer::metrics(metrics::openmetrics(figures)),
            })
        }
        Action::ReplayPage => request.replay_page(body, link).await,
        Action::Backup => {
            credentials::check_reaches_all(&request.caller)?;
            request.body(body).await?;
            if parts.method == Method::HEAD {
                return Ok(Answer::stream(None));
            }
            link.set(Stage::Deciding);
            Ok(Answer::stream(Some(face.engine.backup().await?)))
        }
        Action::Export => {
            credentials::check_reaches_all(&request.caller)?;
            let only = request.params.text("ns");
            only.map(check_namespace).transpose()?;
            let after = transfer::after(&request.params)?;
            request.body(body).await?;
            link.set(Stage::Deciding);
            let page = face.engine.export_page(only, after.as_ref()).await?;
            Ok(Answer::page_of_lines(transfer::lines(&page)?))
        }
        Action::Import => {
            credentials::check_reaches_all(&request.caller)?;
            let (bytes, _room) = request.body(body).await?;
            link.set(Stage::Deciding);
            let by = request.caller.name().map(Box::from);
            let imported = transfer::import(face, &request.params, &bytes, by).await?;
            Ok(Answer::json(imported))
        }
        _ => request.about_a_record(body, link).await,
    }
}

fn ready(readiness: Readiness) -> Result<Answer, Refusal> {
    match readiness {
        Readiness::Ready => Ok(Answer::json(&b"{\"status\":\"ready\"}"[..])),
        Readiness::Starting => Err(Refusal::unavailable("the server is starting; try again")),
        Readiness::Stopping => Err(Refusal::unavailable("the server is stopping; try again")),
    }
}

/// A request whose route is known and whose parameters are what the route takes.
struct Asked<'r> {
    face: &'r Face,
    caller: Caller,
    route: &'static Route,
    captured: Captured<'r>,
    params: Params<'r>,
    parts: &'r Parts,
}

impl Asked<'_> {
    async fn about_a_record<B>(&self, body: &mut Upload<B>, link: &Link) -> Result<Answer, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let key = self.key()?;
        // Before the body: what is refused anyway needs no upload.
        self.check_by_hand()?;
        let (bytes, _room) = self.body(body).await?;
        let verb = self.verb(bytes)?;
        link.set(match &verb {
            Verb::Claim(claim) if claim.wait > Span::ZERO => Stage::Waiting,
            _ => Stage::Deciding,
        });
        let mut command = Command::new(key.clone(), verb);
        command.by = self.caller.name().map(Box::from);
        // The record tells of its bodies without their bytes.
        command.with_bodies = self.route.action != Action::Get;
        let outcome = self.submit(command).await?;
        match self.route.action {
            Action::Claim => Ok(Answer::claimed(&outcome, &key)),
            Action::GetResult | Action::GetPayload => self.bytes(&outcome, &key),
            _ => Ok(Answer::decided(&outcome, &key)),
        }
    }

    async fn answer_namespace(&self, name: &str, link: &Link) -> Result<Answer, Refusal> {
        link.set(Stage::Deciding);
        let engine = &self.face.engine;
        let states = engine.states(name).await?;
        let namespace = engine.namespace(name).await?;
        Ok(Answer::json(json::namespace(&namespace, &states)))
    }

    async fn replay_page<B>(&self, body: &mut Upload<B>, link: &Link) -> Result<Answer, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (list, force) = (self.list()?, self.params.flag("force"));
        match list.state {
            Some(State::Done) if !force => {
                return Err(Refusal::bad_input(
                    "records that are done are replayed only with force=true",
                ));
            }
            Some(State::Pending) => {
                return Err(Refusal::bad_input(
                    "a pending record is in somebody's hands, or a claim gets it anyway; state is dead, in_doubt, retry or done",
                ));
            }
            _ => {}
        }
        self.body(body).await?;
        link.set(Stage::Deciding);
        let namespace = list.namespace.clone();
        let by = self.caller.name().map(Box::from);
        let replays = self.face.engine.replay_page(list, force, by).await?;
        Ok(Answer::json(json::replays(&namespace, &replays)))
    }

    async fn batch<B>(&self, body: &mut Upload<B>, link: &Link) -> Result<Answer, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let namespace = self.namespace()?;
        let (bytes, _room) = self.body(body).await?;
        let face = self.face;
        let policy = face.engine.policy(&namespace)?;
        let mut batch = batch::parse(&bytes, &namespace, &policy, &face.options)?;
        for claim in &mut batch.claims {
            claim.by = self.caller.name().map(Box::from);
        }
        drop(bytes);
        link.set(Stage::Deciding);
        let keys: Vec<_> = batch.claims.iter().map(|claim| claim.key.clone()).collect();
        let units = match batch.atomic {
            true => vec![Unit::All(batch.claims)],
            false => batch.claims.into_iter().map(Unit::One).collect(),
        };
        let mut results = json::Results::of(keys.len());
        let (mut units, mut keys) = (units.as_slice(), keys.iter());
        // The refusal, as long as nothing else came.
        let mut refused = None;
        let mut is_refused = true;
        while !units.is_empty() {
            // In parts, each written down before the next: together their results may be more than memory has room for.
            let some = face.engine.submit_some(units).await;
            units = units.get(some.units..).unwrap_or_default();
            for (answer, key) in some.answers.into_iter().zip(&mut keys) {
                if batch.atomic {
                    match &answer {
                        Ok(outcome) if outcome.holds() => {}
                        Ok(outcome) => return Ok(Answer::refused_member(outcome, key)),
                        Err(unavailable) => return Err((*unavailable).into()),
                    }
                }
                let answer = answer.map_err(Refusal::from);
                is_refused &= answer.is_err();
                results.push(key, &answer);
                refused = answer.err();
            }
        }
        // Where none was decided, the batch was refused.
        match refused {
            Some(refusal) if is_refused => Err(refusal),
            _ => Ok(Answer::json(results.end())),
        }
    }

    async fn submit(&self, command: Command) -> Result<Outcome, Refusal> {
        let mut outcomes = self.face.engine.submit(vec![Unit::One(command)]).await;
        // One command, one outcome; an engine that gives none has stopped.
        match outcomes.pop().unwrap_or(Err(Unavailable::Stopping)) {
            Ok(outcome) => Ok(outcome),
            Err(unavailable) => Err(unavailable.into()),
        }
    }

    /// The key of the path, or the parameter `key` where the path says `-`.
    fn key(&self) -> Result<RecordKey, Refusal> {
        let namespace = self.namespace()?;
        let key = decode(self.captured.key, Plus::Plus)?;
        match self.params.bytes("key") {
            Some(given) if *key == *b"-" => Ok(RecordKey::new(&namespace, given)?),
            Some(_) => Err(Refusal::bad_input(
                "key= stands for the key where the path says `-`, and this path names one itself",
            )),
            None => Ok(RecordKey::new(&namespace, &key)?),
        }
    }

    /// The namespace of the path, if the caller may go there.
    fn namespace(&self) -> Result<String, Refusal> {
        let name = decode(self.captured.namespace, Plus::Plus)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        check_namespace(&name)?;
        credentials::check_reach(&self.caller, &name)?;
        Ok(name)
    }

    fn check_by_hand(&self) -> Result<(), Refusal> {
        let by_hand = matches!(self.route.action, Action::Complete | Action::Fail)
            && self.params.token("token").is_none();
        if by_hand && !self.caller.may(Right::Operate) {
            return Err(lacking(&self.caller, Right::Operate));
        }
        Ok(())
    }

    /// The body, as the route uses it.
    async fn body<B>(&self, body: &mut Upload<B>) -> Result<Taken<'_>, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let options = &self.face.options;
        let limit = match self.route.body {
            BodyUse::None => 0,
            BodyUse::Payload => options.payload_limit,
            BodyUse::Result => options.result_limit,
            BodyUse::Batch => batch::MAX_BATCH,
            BodyUse::Policy => policy::MAX_POLICY,
            BodyUse::Lines => transfer::limit(options.payload_limit, options.result_limit),
        };
        let (headers, room) = (&self.parts.headers, &self.face.room);
        let taken = body.read(headers, limit, options.body_timeout, room);
        taken.await.map_err(|error| match self.count(error) {
            BodyError::TooLarge => too_large(self.route.body, limit),
            BodyError::Encoded => {
                Refusal::bad_input_as(StatusCode::UNSUPPORTED_MEDIA_TYPE, error.to_string())
            }
            BodyError::Slow => {
                Refusal::bad_input_as(StatusCode::REQUEST_TIMEOUT, error.to_string())
            }
            BodyError::Broken => Refusal::bad_input(error.to_string()),
            BodyError::NoRoom => Refusal::unavailable(error.to_string()),
        })
    }

    /// Counts what limit was met, if that was one.
    fn count(&self, error: BodyError) -> BodyError {
        let limit = match error {
            BodyError::TooLarge => Some(Limit::Body),
            BodyError::Slow => Some(Limit::BodyTime),
            BodyError::NoRoom => Some(Limit::BodyRoom),
            BodyError::Encoded | BodyError::Broken => None,
        };
        limit.inspect(|limit| self.face.met.count(*limit));
        error
    }

    /// The request body's content type; repeated or unreadable, it is bad input.
    fn content_type(&self) -> Result<Box<str>, Refusal> {
        let mut given = self.parts.headers.get_all(CONTENT_TYPE).iter();
        match (given.next(), given.next()) {
            (None, _) => Ok(DEFAULT_CONTENT_TYPE.into()),
            (Some(one), None) => Ok(one
                .to_str()
                .map_err(|_| Refusal::bad_input("Content-Type is printable ASCII text"))?
                .into()),
            (Some(_), Some(_)) => Err(Refusal::bad_input(
                "Content-Type is given twice; give it once",
            )),
        }
    }

    fn verb(&self, bytes: Bytes) -> Result<Verb, Refusal> {
        let params = &self.params;
        let token = || {
            params
                .token("token")
                .ok_or_else(|| Refusal::bad_input("token is missing"))
        };
        Ok(match self.route.action {
            Action::Claim => Verb::Claim(Box::new(self.claim(bytes)?)),
            Action::Complete => Verb::Complete {
                token: params.token("token"),
                result: KeptResult {
                    body: Kept {
                        content_type: self.content_type()?,
                        content: Content::new(bytes),
                    },
                    status: params.number("status"),
                },
            },
            Action::Renew => Verb::Renew {
                token: token()?,
                lease: params.span("lease"),
            },
            Action::Effect => Verb::Effect { token: token()? },
            Action::Fail => Verb::Fail {
                token: params.token("token"),
                error: params.text("error").map(Box::from),
                retry_in: params.span("retry_in"),
                bury: params.flag("bury"),
            },
            Action::Release => Verb::Release { token: token()? },
            Action::Replay => Verb::Replay {
                generation: params.number("generation"),
                force: params.flag("force"),
            },
            Action::Forget => Verb::Forget {
                force: params.flag("force"),
            },
            Action::Get
            | Action::GetResult
            | Action::GetPayload
            | Action::List
            | Action::Batch
            | Action::Namespaces
            | Action::Namespace
            | Action::PutNamespace
            | Action::Events
            | Action::Stats
            | Action::Metrics
            | Action::ReplayPage
            | Action::Backup
            | Action::Export
            | Action::Import
            | Action::Healthz
            | Action::Readyz
            | Action::OpenApi
            | Action::Manual
            | Action::Chapter
            | Action::Problem => Verb::Get,
        })
    }

    fn claim(&self, bytes: Bytes) -> Result<Claim, Refusal> {
        let params = &self.params;
        let result = params.text("result");
        let mode = match (params.word("mode"), result) {
            (Some("once"), None) => Mode::Once { result: None },
            (Some("once"), Some(text)) => {
                if text.len() > self.face.options.result_limit {
                    let limit = self.face.options.result_limit;
                    return Err(Refusal::too_large(format!(
                        "a result has at most {limit} bytes"
                    )));
                }
                let body = Kept {
                    content_type: TEXT.into(),
                    content: Content::new(Bytes::copy_from_slice(text.as_bytes())),
                };
                Mode::Once {
                    result: Some(KeptResult { body, status: None }),
                }
            }
            (_, None) => Mode::Lease,
            (_, Some(_)) => {
                return Err(Refusal::bad_input(
                    "result= goes with mode=once; in two phases the result is the body of complete",
                ));
            }
        };
        // An empty body is no payload, whatever type it announces (SPEC 3).
        let payload = match bytes.is_empty() {
            true => None,
            false => Some(Payload::new(bytes, self.content_type()?)),
        };
        Ok(Claim {
            lease: params.span("lease"),
            retention: params.retention("retention"),
            on_lease_end: params.word("on_lease_end").and_then(OnLeaseEnd::parse),
            max_attempts: params.number("max_attempts"),
            claim_id: params.text("claim_id").map(Box::from),
            owner: params.text("owner").map(Box::from),
            fingerprint: params.text("fingerprint").map(Box::from),
            payload,
            store: params.flag("store"),
            mode,
            wait: params.span("wait").unwrap_or(Span::ZERO),
        })
    }

    fn list(&self) -> Result<List, Refusal> {
        let params = &self.params;
        let bytes = |name| params.bytes(name).map(Bytes::copy_from_slice);
        Ok(List {
            namespace: self.namespace()?.into(),
            state: params.state("state"),
            prefix: bytes("prefix").unwrap_or_default(),
            due: params.flag("due"),
            after: bytes("cursor"),
            limit: params.number("limit").unwrap_or(PAGE),
        })
    }

    fn events(&self) -> Result<events::Asked, Refusal> {
        let params = &self.params;
        let namespace = params.text("ns");
        namespace.map(check_namespace).transpose()?;
        match namespace {
            Some(namespace) => credentials::check_reach(&self.caller, namespace)?,
            None if self.caller.reaches_all() => {}
            None => {
                return Err(Refusal::forbidden(
                    "this credential is for some namespaces only; name one of them with ns=",
                ));
            }
        }
        let key = params.bytes("key");
        // What no record can have is no filter.
        key.map(|key| RecordKey::new(namespace.unwrap_or(DEFAULT_NAMESPACE), key))
            .transpose()?;
        Ok(events::Asked {
            after: params.number("after").map(Lsn),
            limit: params.number("limit"),
            follow: params.flag("follow"),
            filter: Filter {
                namespace: namespace.map(Box::from),
                key: key.map(Bytes::copy_from_slice),
            },
        })
    }

    /// The bytes that `/result` and `/payload` are asked for.
    fn bytes(&self, outcome: &Outcome, key: &RecordKey) -> Result<Answer, Refusal> {
        let (Verdict::Found, Some(shown)) = (&outcome.verdict, &outcome.record) else {
            return Ok(Answer::decided(outcome, key));
        };
        let record = &shown.record;
        let (body, status, what) = match self.route.action {
            Action::GetPayload => (record.payload.as_ref(), None, "payload"),
            _ => {
                let result = record.result.as_ref();
                let status = result.and_then(|result| result.status);
                (result.map(|result| &result.body), status, "result")
            }
        };
        let Some(body) = body else {
            let state = shown.state.name();
            return Err(Refusal::not_found(format!(
                "the record is {state} and has no {what}"
            )));
        };
        Answer::raw(body, status)
            .ok_or_else(|| Refusal::unavailable(format!("the {what} could not be read; try again")))
    }
}

fn too_large(body: BodyUse, limit: usize) -> Refusal {
    match body {
        BodyUse::None => Refusal::bad_input("this route takes no body; options go into the query"),
        BodyUse::Batch => Refusal::too_large(format!(
            "a batch has at most {limit} bytes; send several batches"
        )),
        BodyUse::Lines => Refusal::too_large(format!(
            "an import has at most {limit} bytes; send fewer lines at once"
        )),
        BodyUse::Policy => Refusal::too_large(format!("a policy has at most {limit} bytes")),
        BodyUse::Payload => Refusal::too_large(format!(
            "a payload has at most {limit} bytes; keep it elsewhere and claim with a fingerprint of it"
        )),
        BodyUse::Result => Refusal::too_large(format!(
            "a result has at most {limit} bytes; keep it elsewhere and complete again without the body"
        )),
    }
}
