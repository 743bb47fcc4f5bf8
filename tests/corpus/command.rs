//! Words of a request as a command of the model: what a face does with its own syntax, in the plainest form.

use bytes::Bytes;

use onced::model::body::{Body, Content, DEFAULT_CONTENT_TYPE};
use onced::model::command::{Claim, Command, List, MAX_LIST, Mode, Payload, Verb};
use onced::model::key::{RecordKey, check_namespace};
use onced::model::record::{KeptResult, OnLeaseEnd, Retention, State, Token};
use onced::model::time::Span;

use super::script::Request;

/// # Errors
/// Why it is bad input.
pub(super) fn command(request: &Request) -> Result<Command, String> {
    let key =
        RecordKey::new(&request.namespace, &request.key).map_err(|error| error.to_string())?;
    let verb = match request.verb.as_str() {
        "claim" => Verb::Claim(Box::new(claim(request)?)),
        "renew" => Verb::Renew {
            token: token(request)?,
            lease: request.span("lease")?,
        },
        "effect" => Verb::Effect {
            token: token(request)?,
        },
        "complete" => Verb::Complete {
            token: request.token()?,
            result: kept(
                request.option("result").unwrap_or_default(),
                request.word("type")?,
                request.status()?,
            ),
        },
        "fail" => Verb::Fail {
            token: request.token()?,
            error: request.word("error")?,
            retry_in: request.span("retry_in")?,
            bury: request.flag("bury")?,
        },
        "release" => Verb::Release {
            token: token(request)?,
        },
        "get" => Verb::Get,
        "replay" => Verb::Replay {
            generation: Some(
                request
                    .number("generation")?
                    .ok_or("generation is missing")?,
            ),
            force: request.flag("force")?,
        },
        "forget" => Verb::Forget {
            force: request.flag("force")?,
        },
        other => return Err(format!("no verb {other}")),
    };
    Ok(Command::new(key, verb))
}

/// # Errors
/// Why it is bad input.
pub(super) fn list(request: &Request) -> Result<List, String> {
    check_namespace(&request.namespace).map_err(|error| error.to_string())?;
    let state = request.word("state")?;
    let state = state
        .map(|name| State::parse(&name).ok_or("no such state"))
        .transpose()?;
    let limit = request.number("limit")?.unwrap_or(100) as usize;
    if !(1..=MAX_LIST).contains(&limit) {
        return Err("limit is 1 to 1000".into());
    }
    Ok(List {
        namespace: request.namespace.clone().into(),
        state,
        prefix: Bytes::copy_from_slice(request.option("prefix").unwrap_or_default()),
        due: request.flag("due")?,
        after: request.option("cursor").map(Bytes::copy_from_slice),
        limit,
    })
}

fn claim(request: &Request) -> Result<Claim, String> {
    let content_type = request
        .word("type")?
        .unwrap_or_else(|| DEFAULT_CONTENT_TYPE.into());
    let payload = request.option("payload").filter(|bytes| !bytes.is_empty());
    let payload = payload.map(|bytes| Payload::new(Bytes::copy_from_slice(bytes), content_type));
    let on_lease_end = request.word("on_lease_end")?;
    let result = request.option("result");
    let mode = match request.word("mode")?.as_deref() {
        None | Some("lease") if result.is_none() => Mode::Lease,
        Some("once") => Mode::Once {
            result: result.map(|bytes| kept(bytes, None, None)),
        },
        _ => return Err("mode is lease or once, and a result goes with once".into()),
    };
    Ok(Claim {
        lease: request.span("lease")?,
        retention: request.retention()?,
        on_lease_end: on_lease_end
            .map(|name| OnLeaseEnd::parse(&name).ok_or("on_lease_end is retry or hold"))
            .transpose()?,
        max_attempts: request.number("max_attempts")?,
        claim_id: request.word("claim_id")?,
        owner: request.word("owner")?,
        fingerprint: request.word("fingerprint")?,
        payload,
        store: request.flag("store")?,
        mode,
        wait: Span::ZERO,
    })
}

fn token(request: &Request) -> Result<Token, String> {
    request.token()?.ok_or_else(|| "token is missing".into())
}

fn kept(bytes: &[u8], content_type: Option<Box<str>>, status: Option<u16>) -> KeptResult {
    KeptResult {
        body: Body {
            content_type: content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.into()),
            content: Content::new(Bytes::copy_from_slice(bytes)),
        },
        status,
    }
}

impl Request {
    fn word(&self, name: &str) -> Result<Option<Box<str>>, String> {
        let text = |bytes| {
            std::str::from_utf8(bytes)
                .map(Box::from)
                .map_err(|_| format!("{name} is not text"))
        };
        self.option(name).map(text).transpose()
    }

    fn span(&self, name: &str) -> Result<Option<Span>, String> {
        let word = self.word(name)?;
        word.map(|text| Span::parse(&text).map_err(|error| format!("{name}: {error}")))
            .transpose()
    }

    fn retention(&self) -> Result<Option<Retention>, String> {
        match self.word("retention")?.as_deref() {
            Some("forever") => Ok(Some(Retention::Forever)),
            _ => Ok(self.span("retention")?.map(Retention::For)),
        }
    }

    /// Digits and nothing else.
    fn number(&self, name: &str) -> Result<Option<u32>, String> {
        let Some(text) = self.word(name)? else {
            return Ok(None);
        };
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number
            .map(Some)
            .ok_or_else(|| format!("{name} is not a number: {text}"))
    }

    fn status(&self) -> Result<Option<u16>, String> {
        let status = self.number("status")?.map(u16::try_from).transpose();
        status.map_err(|_| "a status is 100 to 599".into())
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.option(name) {
            None | Some(b"false") => Ok(false),
            Some(b"true") => Ok(true),
            Some(_) => Err(format!("{name} is true or false")),
        }
    }

    fn token(&self) -> Result<Option<Token>, String> {
        let Some(text) = self.word("token")? else {
            return Ok(None);
        };
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let token = text.parse().ok().filter(|_| digits).and_then(Token::new);
        token
            .map(Some)
            .ok_or_else(|| format!("{text} is not a token"))
    }
}
