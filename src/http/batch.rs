//! Batch claims (SPEC 4, 6): one JSON document, each member with a claim's options.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::document::{Object, given};
use super::problem::Refusal;
use super::{Options, TEXT};
use crate::model::body::{Body, Content, DEFAULT_CONTENT_TYPE};
use crate::model::command::{BadInput, Claim, Command, Mode, Payload, Verb, check_content_type};
use crate::model::key::RecordKey;
use crate::model::policy::{FingerprintKind, Policy};
use crate::model::record::{KeptResult, OnLeaseEnd, Retention};
use crate::model::time::Span;

/// The most claims of a batch (SPEC 4).
pub const MAX_CLAIMS: usize = 1000;
/// The most bytes of a batch (SPEC 6).
pub const MAX_BATCH: usize = 8 * 1024 * 1024;

/// A batch, read and checked.
#[derive(Debug)]
pub struct Batch {
    /// All or nothing.
    pub atomic: bool,
    /// The claims, in order, of distinct keys.
    pub claims: Vec<Command>,
}

/// Reads a batch for a namespace of that policy. One member that is not in order refuses all.
///
/// # Errors
/// Bad input that names the member's index.
pub fn parse(
    bytes: &[u8],
    namespace: &str,
    policy: &Policy,
    options: &Options,
) -> Result<Batch, Refusal> {
    let Object(sent): Object<Sent> = serde_json::from_slice(bytes)
        .map_err(|error| Refusal::bad_input(format!("the body is not a batch: {error}")))?;
    let members = sent.claims.0;
    if members.is_empty() {
        return Err(Refusal::bad_input("claims is empty; a batch has 1 to 1000"));
    }
    let mut keys = HashSet::with_capacity(members.len());
    let mut claims = Vec::with_capacity(members.len());
    for (index, member) in members.into_iter().enumerate() {
        let bad = |why: String| Refusal::bad_input(format!("claims[{index}]: {why}"));
        let command = member.command(namespace, policy, options).map_err(bad)?;
        if !keys.insert(command.key.clone()) {
            let why = "its key stands in the batch already; give each key once";
            return Err(bad(why.to_owned()));
        }
        claims.push(command);
    }
    Ok(Batch {
        atomic: sent.atomic,
        claims,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    #[serde(default)]
    atomic: bool,
    claims: Members,
}

/// Read one by one, so that what is wrong with one is told with its index, and no more than may be.
struct Members(Vec<Member>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of claims")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                loop {
                    let at = members.len();
                    let next = seq.next_element::<Object<Member>>();
                    match next
                        .map_err(|error| A::Error::custom(format!("claims[{at}]: {error}")))?
                    {
                        None => return Ok(Members(members)),
                        Some(_) if at == MAX_CLAIMS => {
                            return Err(A::Error::custom(format!(
                                "more than {MAX_CLAIMS} claims; send several batches"
                            )));
                        }
                        Some(Object(member)) => members.push(member),
                    }
                }
            }
        }
        deserializer.deserialize_seq(Each)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Member {
    #[serde(deserialize_with = "given")]
    key: Option<String>,
    #[serde(deserialize_with = "given")]
    key_base64: Option<String>,
    #[serde(deserialize_with = "given")]
    lease: Option<Duration>,
    #[serde(deserialize_with = "given")]
    retention: Option<Duration>,
    #[serde(deserialize_with = "given")]
    on_lease_end: Option<String>,
    #[serde(deserialize_with = "given")]
    max_attempts: Option<u32>,
    #[serde(deserialize_with = "given")]
    claim_id: Option<Box<str>>,
    #[serde(deserialize_with = "given")]
    owner: Option<Box<str>>,
    #[serde(deserialize_with = "given")]
    fingerprint: Option<Box<str>>,
    #[serde(deserialize_with = "given")]
    payload: Option<String>,
    #[serde(deserialize_with = "given")]
    payload_base64: Option<String>,
    #[serde(deserialize_with = "given")]
    content_type: Option<Box<str>>,
    store: bool,
    #[serde(deserialize_with = "given")]
    mode: Option<String>,
    #[serde(deserialize_with = "given")]
    result: Option<String>,
    #[serde(deserialize_with = "given")]
    result_base64: Option<String>,
    #[serde(deserialize_with = "given")]
    wait: Option<Duration>,
}

/// Text, or whole milliseconds; as the text of both.
struct Duration(String);

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Ok(Duration(text)),
            serde_json::Value::Number(number) if number.is_u64() => {
                Ok(Duration(number.to_string()))
            }
            _ => Err(D::Error::custom(
                "a duration is text like \"30s\", or whole milliseconds",
            )),
        }
    }
}

impl Duration {
    fn span(&self, name: &str) -> Result<Span, String> {
        Span::parse(&self.0).map_err(|error| format!("{name}: {error}"))
    }
}

impl Member {
    fn command(
        self,
        namespace: &str,
        policy: &Policy,
        options: &Options,
    ) -> Result<Command, String> {
        let key = either("key", self.key, self.key_base64)?.ok_or("key is missing")?;
        let key = RecordKey::new(namespace, &key).map_err(|error| error.to_string())?;
        let content_type = self.content_type;
        let payload = either("payload", self.payload, self.payload_base64)?
            // An empty body is no payload (SPEC 3).
            .filter(|bytes| !bytes.is_empty());
        if payload
            .as_ref()
            .is_some_and(|it| it.len() > options.payload_limit)
        {
            let most = options.payload_limit;
            return Err(format!(
                "a payload has at most {most} bytes; keep it elsewhere and claim with a fingerprint of it"
            ));
        }
        let as_text = self.result.is_some();
        let result = either("result", self.result, self.result_base64)?;
        if result
            .as_ref()
            .is_some_and(|it| it.len() > options.result_limit)
        {
            return Err(format!(
                "a result has at most {} bytes",
                options.result_limit
            ));
        }
        let result = result.map(|bytes| KeptResult {
            body: Body {
                content_type: if as_text { TEXT } else { DEFAULT_CONTENT_TYPE }.into(),
                content: Content::new(bytes.into()),
            },
            status: None,
        });
        let mode = match (self.mode.as_deref(), result) {
            (Some("once"), result) => Mode::Once { result },
            (None | Some("lease"), None) => Mode::Lease,
            (None | Some("lease"), Some(_)) => return Err("result goes with mode once".into()),
            (Some(_), _) => return Err("mode: lease or once".into()),
        };
        let end = |word: &str| OnLeaseEnd::parse(word).ok_or("on_lease_end: retry or hold");
        let retention = |kept: Duration| match kept.0.as_str() {
            "forever" => Ok(Retention::Forever),
            _ => kept.span("retention").map(Retention::For),
        };
        // Checked, also where it says nothing for want of a payload.
        let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.into());
        check_content_type(&content_type).map_err(|bad| bad.to_string())?;
        let wait = self.wait.map(|wait| wait.span("wait")).transpose()?;
        let claim = Claim {
            lease: self.lease.map(|lease| lease.span("lease")).transpose()?,
            retention: self.retention.map(retention).transpose()?,
            on_lease_end: self.on_lease_end.as_deref().map(end).transpose()?,
            max_attempts: self.max_attempts,
            claim_id: self.claim_id,
            owner: self.owner,
            fingerprint: self.fingerprint,
            payload: payload.map(|bytes| Payload::new(bytes.into(), content_type)),
            store: self.store,
            mode,
            wait: wait.unwrap_or(Span::ZERO),
        };
        if let (None, Some(payload), FingerprintKind::Json) =
            (&claim.fingerprint, &claim.payload, policy.fingerprint)
        {
            payload
                .fingerprint(FingerprintKind::Json)
                .map_err(|error| BadInput::Json(error).to_string())?;
        }
        let mut verb = Verb::Claim(Box::new(claim));
        verb.check().map_err(|bad| bad.to_string())?;
        if let Verb::Claim(claim) = &mut verb {
            // Checked, and then not used: a batch does not wait (SPEC 3).
            claim.wait = Span::ZERO;
        }
        Ok(Command::new(key, verb))
    }
}

/// A member's bytes, as text or as base64.
fn either(
    name: &str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Vec<u8>>, String> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(format!("give {name} or {name}_base64, not both")),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => STANDARD
            .decode(base64)
            .map(Some)
            .map_err(|_| format!("{name}_base64 is not base64")),
        (None, None) => Ok(None),
    }
}
