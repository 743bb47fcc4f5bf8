//! The verbs of claims, under the names of SPEC 7.

use bytes::Bytes;

use super::{Call, Next, Refusal, kept};
use crate::engine::Unit;
use crate::model::body::{Body, Content, DEFAULT_CONTENT_TYPE};
use crate::model::command::{BadInput, Claim, Command, Mode, Payload, Verb};
use crate::model::key::RecordKey;
use crate::model::record::{KeptResult, OnLeaseEnd, Retention, Token};
use crate::model::time::Span;
use crate::resp::frame::integer;
use crate::resp::render::Answer;

/// An option of a verb, and whether a value follows it.
type Known = (&'static str, bool);

const CLAIM: &[Known] = &[
    ("LEASE", true),
    ("RETENTION", true),
    ("MAXATTEMPTS", true),
    ("ONLEASEEND", true),
    ("ID", true),
    ("OWNER", true),
    ("FP", true),
    ("PAYLOAD", true),
    ("TYPE", true),
    ("STORE", false),
    ("ONCE", false),
    ("RESULT", true),
    ("WAIT", true),
    ("NS", true),
];
const RENEW: &[Known] = &[("LEASE", true), ("NS", true)];
const COMPLETE: &[Known] = &[
    ("RESULT", true),
    ("TYPE", true),
    ("STATUS", true),
    ("NS", true),
];
const FAIL: &[Known] = &[
    ("ERROR", true),
    ("RETRY", true),
    ("BURY", false),
    ("NS", true),
];
const FORCE: &[Known] = &[("FORCE", false), ("NS", true)];
const ONLY_NS: &[Known] = &[("NS", true)];

pub(super) fn claim(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 2, CLAIM)?;
    let limits = &call.face.options.limits;
    let content_type = given.text("TYPE")?;
    if content_type.is_some() && given.get("PAYLOAD").is_none() {
        return Err(Refusal::new(
            "ERR TYPE is the content type of PAYLOAD, and there is none",
        ));
    }
    let payload = match given.get("PAYLOAD") {
        Some(bytes) if !bytes.is_empty() => {
            let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.into());
            Some(Payload::new(
                bounded(
                    Some(bytes),
                    limits.payload,
                    "PAYLOAD has at most % bytes; keep it elsewhere and claim with an FP of it",
                )?,
                content_type,
            ))
        }
        _ => None,
    };
    let result = match given.get("RESULT") {
        Some(bytes) => Some(result(
            bounded(
                Some(bytes),
                limits.result,
                "RESULT has at most % bytes; keep it elsewhere and claim without it",
            )?,
            DEFAULT_CONTENT_TYPE.into(),
            None,
        )),
        None => None,
    };
    let mode = match (given.has("ONCE"), result) {
        (true, result) => Mode::Once { result },
        (false, None) => Mode::Lease,
        (false, Some(_)) => {
            return Err(Refusal::new(
                "ERR RESULT is what a claim with ONCE leaves behind; add ONCE, or use ONCE.COMPLETE",
            ));
        }
    };
    let claim = Claim {
        lease: given.millis("LEASE")?,
        retention: retention(&given)?,
        on_lease_end: on_lease_end(&given)?,
        max_attempts: given.number("MAXATTEMPTS")?,
        claim_id: given.text("ID")?,
        owner: given.text("OWNER")?,
        fingerprint: given.text("FP")?,
        payload,
        store: given.has("STORE"),
        mode,
        wait: given.millis("WAIT")?.unwrap_or(Span::ZERO),
    };
    let waits = claim.wait != Span::ZERO;
    let key = given.key(call)?;
    let answer = decide(call, key, Verb::Claim(claim.into()));
    Ok(match waits {
        true => Next::Wait(answer),
        false => Next::Decide(answer),
    })
}

pub(super) fn renew(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 3, RENEW)?;
    let (token, lease) = (token(call)?, given.millis("LEASE")?);
    let key = given.key(call)?;
    Ok(Next::Decide(decide(
        call,
        key,
        Verb::Renew { token, lease },
    )))
}

pub(super) fn effect(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 3, ONLY_NS)?;
    let token = token(call)?;
    let key = given.key(call)?;
    Ok(Next::Decide(decide(call, key, Verb::Effect { token })))
}

pub(super) fn complete(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 3, COMPLETE)?;
    let token = Some(token(call)?);
    let status = match given.int("STATUS")? {
        Some(status) => Some(u16::try_from(status).map_err(|_| bad(&BadInput::Status))?),
        None => None,
    };
    let bytes = bounded(
        given.get("RESULT"),
        call.face.options.limits.result,
        "RESULT has at most % bytes; keep it elsewhere and complete again without it",
    )?;
    let content_type = given.text("TYPE")?;
    let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.into());
    let result = result(bytes, content_type, status);
    let key = given.key(call)?;
    Ok(Next::Decide(decide(
        call,
        key,
        Verb::Complete { token, result },
    )))
}

/// The error text is for people, and often comes from a crash: bytes that are not UTF-8 are replaced, so that
/// they do not keep the failure from being told.
pub(super) fn fail(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 3, FAIL)?;
    let error = given.get("ERROR").map(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        text.into_owned().into_boxed_str()
    });
    let verb = Verb::Fail {
        token: Some(token(call)?),
        error,
        retry_in: given.millis("RETRY")?,
        bury: given.has("BURY"),
    };
    let key = given.key(call)?;
    Ok(Next::Decide(decide(call, key, verb)))
}

pub(super) fn release(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 3, ONLY_NS)?;
    let token = token(call)?;
    let key = given.key(call)?;
    Ok(Next::Decide(decide(call, key, Verb::Release { token })))
}

pub(super) fn get(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 2, ONLY_NS)?;
    let key = given.key(call)?;
    Ok(Next::Decide(decide(call, key, Verb::Get)))
}

pub(super) fn replay(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 3, FORCE)?;
    let generation = integer(call.arg(2)).and_then(|number| u32::try_from(number).ok());
    if generation.is_none_or(|generation| generation == 0) {
        return Err(Refusal::new(
            "ERR a generation is an integer of 1 or more: the one ONCE.GET shows",
        ));
    }
    let force = given.has("FORCE");
    let key = given.key(call)?;
    Ok(Next::Decide(decide(
        call,
        key,
        Verb::Replay { generation, force },
    )))
}

pub(super) fn forget(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let given = Given::parse(call, 2, FORCE)?;
    let force = given.has("FORCE");
    let key = given.key(call)?;
    Ok(Next::Decide(decide(call, key, Verb::Forget { force })))
}

fn decide(call: &mut Call<'_>, key: RecordKey, verb: Verb) -> Answer {
    let command = Command::new(key.clone(), verb);
    call.units.push(Unit::One(command));
    Answer::Members(key)
}

fn token(call: &Call<'_>) -> Result<Token, Refusal> {
    integer(call.arg(2))
        .and_then(|number| u64::try_from(number).ok())
        .and_then(Token::new)
        .ok_or(Refusal::new(
            "ERR a token is an integer from 1 to 9007199254740991: the one ONCE.CLAIM answered",
        ))
}

fn result(bytes: Bytes, content_type: Box<str>, status: Option<u16>) -> KeptResult {
    let content = Content::new(bytes);
    let body = Body {
        content_type,
        content,
    };
    KeptResult { body, status }
}

fn retention(given: &Given<'_>) -> Result<Option<Retention>, Refusal> {
    match given.get("RETENTION") {
        Some(word) if word.eq_ignore_ascii_case(b"forever") => Ok(Some(Retention::Forever)),
        _ => Ok(given.millis("RETENTION")?.map(Retention::For)),
    }
}

fn on_lease_end(given: &Given<'_>) -> Result<Option<OnLeaseEnd>, Refusal> {
    let Some(word) = given.text("ONLEASEEND")? else {
        return Ok(None);
    };
    match OnLeaseEnd::parse(&word.to_ascii_lowercase()) {
        Some(value) => Ok(Some(value)),
        None => Err(Refusal::new("ERR ONLEASEEND is retry or hold")),
    }
}

/// Bytes that will be kept, or a text of its own about the limit: work was done for them, so what to do next
/// has to be said. The limit goes in at its `%`.
fn bounded(bytes: Option<&Bytes>, most: usize, text: &str) -> Result<Bytes, Refusal> {
    kept(bytes, most)
        .map_err(|_| Refusal::quoting(&format!("ERR {text}"), most.to_string().as_bytes()))
}

fn bad(input: &BadInput) -> Refusal {
    Refusal::from(format!("ERR {input}"))
}

/// The options of one request, each at most once.
struct Given<'a>(Vec<(&'static str, Option<&'a Bytes>)>);

impl<'a> Given<'a> {
    /// The arguments from number `from` on, names in any case.
    fn parse(call: &Call<'a>, from: usize, known: &[Known]) -> Result<Given<'a>, Refusal> {
        let mut args = call.args.get(from..).unwrap_or_default();
        let mut given: Vec<(&'static str, Option<&Bytes>)> = Vec::new();
        while let Some((word, rest)) = args.split_first() {
            args = rest;
            let name = |(name, _): &&Known| word.eq_ignore_ascii_case(name.as_bytes());
            let Some(&(name, valued)) = known.iter().find(name) else {
                let command = call.name.to_ascii_uppercase();
                let text = format!("ERR syntax error: {command} has no option '%'");
                return Err(Refusal::quoting(&text, word));
            };
            if given.iter().any(|(earlier, _)| *earlier == name) {
                return Err(Refusal::from(format!(
                    "ERR syntax error: option {name} is given twice"
                )));
            }
            let value = match (valued, args.split_first()) {
                (false, _) => None,
                (true, Some((value, rest))) => {
                    args = rest;
                    Some(value)
                }
                (true, None) => {
                    return Err(Refusal::from(format!(
                        "ERR syntax error: option {name} needs a value"
                    )));
                }
            };
            given.push((name, value));
        }
        Ok(Given(given))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == name)
    }

    fn get(&self, name: &str) -> Option<&'a Bytes> {
        self.0.iter().find(|(given, _)| *given == name)?.1
    }

    fn text(&self, name: &str) -> Result<Option<Box<str>>, Refusal> {
        match self.get(name).map(|bytes| std::str::from_utf8(bytes)) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text.into())),
            Some(Err(_)) => Err(Refusal::from(format!("ERR {name} is text, in UTF-8"))),
        }
    }

    fn int(&self, name: &str) -> Result<Option<i64>, Refusal> {
        match self.get(name).map(|bytes| integer(bytes)) {
            None => Ok(None),
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => Err(Refusal::NOT_AN_INTEGER),
        }
    }

    fn number<N: TryFrom<i64>>(&self, name: &str) -> Result<Option<N>, Refusal> {
        match self.int(name)?.map(N::try_from) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(Refusal::NOT_AN_INTEGER),
        }
    }

    fn millis(&self, name: &str) -> Result<Option<Span>, Refusal> {
        Ok(self.number(name)?.map(Span::from_millis))
    }

    /// The record, in the namespace given or the selected database's.
    fn key(&self, call: &Call<'_>) -> Result<RecordKey, Refusal> {
        match self.text("NS")? {
            Some(namespace) => Ok(RecordKey::new(&namespace, call.arg(1))?),
            None => call.key(1),
        }
    }
}
