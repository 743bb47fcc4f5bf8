//! What can be asked of one record: the whole vocabulary of every face (SPEC 3, 4, 7).

use bytes::Bytes;
use std::fmt;
use std::sync::OnceLock;

use super::body::{Body, Content, Digest, sha256};
use super::imported::Import;
use super::json::{self, JsonError};
use super::key::RecordKey;
use super::policy::{self, FingerprintKind, RangeError};
use super::record::{Fingerprint, KeptResult, OnLeaseEnd, Retention, State, Token};
use super::time::{Span, Timestamp};

/// The longest owner, claim id and given fingerprint, in bytes (SPEC 10).
pub const MAX_NAME: usize = 128;
/// The longest error text, in bytes (SPEC 10).
pub const MAX_ERROR: usize = 4096;
/// The longest content type, in bytes.
pub const MAX_CONTENT_TYPE: usize = 256;
/// The longest `wait` (SPEC 3).
pub const MAX_WAIT: Span = Span::from_secs(60);
/// A status is what HTTP calls one.
pub const STATUS_RANGE: std::ops::RangeInclusive<u16> = 100..=599;

/// One question about one record.
#[derive(Clone, Debug)]
pub struct Command {
    /// Which record.
    pub key: RecordKey,
    /// What is asked.
    pub verb: Verb,
    /// The name of the caller's credential, where there is one: for history and audit only.
    pub by: Option<Box<str>>,
    /// Whether the answer is to have the bytes of large bodies, where the verb shows them at all.
    pub with_bodies: bool,
}

impl Command {
    /// A command of a caller without a name, whose answer has what the verb shows.
    #[must_use]
    pub fn new(key: RecordKey, verb: Verb) -> Command {
        Command {
            key,
            verb,
            by: None,
            with_bodies: true,
        }
    }

    /// The same, answered without the bytes of large bodies, so that nobody reads them.
    #[must_use]
    pub fn without_bodies(mut self) -> Command {
        self.with_bodies = false;
        self
    }
}

/// What is asked of a record.
#[derive(Clone, Debug)]
pub enum Verb {
    /// The atomic check-and-set (SPEC 3).
    Claim(Box<Claim>),
    /// The lease runs from now.
    Renew {
        /// The holder's token.
        token: Token,
        /// Replaces the record's lease.
        lease: Option<Span>,
    },
    /// The side effect is about to happen.
    Effect {
        /// The holder's token.
        token: Token,
    },
    /// Done.
    Complete {
        /// The holder's token; without one, by hand (needs the operate right, which faces check).
        token: Option<Token>,
        /// Kept and answered again for `retention`.
        result: KeptResult,
    },
    /// The attempt failed.
    Fail {
        /// The holder's token; without one, by hand (needs the operate right, which faces check).
        token: Option<Token>,
        /// Why, for people.
        error: Option<Box<str>>,
        /// In place of the policy's backoff.
        retry_in: Option<Span>,
        /// Straight to `dead`.
        bury: bool,
    },
    /// Nothing happened.
    Release {
        /// The holder's token.
        token: Token,
    },
    /// The record as it shows.
    Get,
    /// Another round (needs the operate right, which faces check).
    Replay {
        /// The generation the operator saw.
        generation: Option<u32>,
        /// Also a `done` record.
        force: bool,
    },
    /// Removes the record (needs the operate right, which faces check).
    Forget {
        /// Also while a lease runs.
        force: bool,
    },
    /// A Redis string command.
    String(StringVerb),
    /// A record of another store (needs the admin right, which faces check).
    Import(Box<Import>),
}

/// The options of a claim.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// In place of the policy's.
    pub lease: Option<Span>,
    /// In place of the policy's.
    pub retention: Option<Retention>,
    /// In place of the policy's.
    pub on_lease_end: Option<OnLeaseEnd>,
    /// In place of the policy's; stays with the record. 0 is no limit.
    pub max_attempts: Option<u32>,
    /// Fresh for each attempt: lets a claim whose answer was lost be repeated.
    pub claim_id: Option<Box<str>>,
    /// Who claims; never decides anything.
    pub owner: Option<Box<str>>,
    /// Identity of the request body; wins over the payload's own.
    pub fingerprint: Option<Box<str>>,
    /// The request body. Faces make no payload of an empty one.
    pub payload: Option<Payload>,
    /// Keep the payload and hand it to every later holder.
    pub store: bool,
    /// One phase or two.
    pub mode: Mode,
    /// How long to wait where the answer would be `busy` or `backoff`.
    pub wait: Span,
}

/// One phase or two.
#[derive(Clone, Debug, Default)]
pub enum Mode {
    /// Claim now, complete later.
    #[default]
    Lease,
    /// Set-once: `done` in the step that acquires.
    Once {
        /// Kept as the result.
        result: Option<KeptResult>,
    },
}

/// A request body and its identities, each computed once, at first use.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The bytes and their type.
    pub body: Body,
    raw: OnceLock<Digest>,
    json: OnceLock<Result<Digest, JsonError>>,
}

impl Payload {
    /// A payload; hashes large bytes, so not under a lock.
    #[must_use]
    pub fn new(bytes: Bytes, content_type: Box<str>) -> Payload {
        let body = Body {
            content_type,
            content: Content::new(bytes),
        };
        Payload {
            body,
            raw: OnceLock::new(),
            json: OnceLock::new(),
        }
    }

    /// Its fingerprint of that kind.
    ///
    /// # Errors
    /// Kind `json` and the bytes are not JSON, or repeat a member.
    pub fn fingerprint(&self, kind: FingerprintKind) -> Result<Fingerprint, JsonError> {
        match kind {
            FingerprintKind::Raw => Ok(Fingerprint::Raw(*self.raw.get_or_init(|| self.digest()))),
            FingerprintKind::Json => self
                .json
                .get_or_init(|| json::canonical(self.bytes()).map(|canonical| sha256(&canonical)))
                .clone()
                .map(Fingerprint::Json),
        }
    }

    /// Whether the fingerprint of that kind is computed already: large bodies are not hashed under a lock.
    #[must_use]
    pub fn knows(&self, kind: FingerprintKind) -> bool {
        match kind {
            FingerprintKind::Raw => self.raw.get().is_some(),
            FingerprintKind::Json => self.json.get().is_some(),
        }
    }

    fn digest(&self) -> Digest {
        match &self.body.content {
            Content::Inline(bytes) => sha256(bytes),
            Content::Large(large) => large.digest,
        }
    }

    /// A payload was made from bytes, so they are here.
    fn bytes(&self) -> &[u8] {
        self.body.content.bytes().map_or(&[], |bytes| bytes)
    }
}

/// Redis string commands, as one record sees them (SPEC 7).
#[derive(Clone, Debug)]
pub enum StringVerb {
    /// `GET`, `MGET`, `STRLEN`, `EXISTS`, `TTL`, `TYPE` and kin.
    Read,
    /// `SET` and kin.
    Set(Box<Set>),
    /// `DEL`, `GETDEL`, and the compare-and-delete forms.
    Delete {
        /// Only if this holds.
        when: Option<Compare>,
    },
    /// `EXPIRE`, `PERSIST`, `GETEX` and kin.
    Expire {
        /// The new end. `Keep` and `Retention` are not used here.
        to: Expiry,
        /// Only if this holds.
        when: ExpireWhen,
    },
    /// `INCR`, `DECR` and kin.
    Add(i64),
    /// `DIGEST`: the value is asked for by its XXH3.
    Digest,
}

impl StringVerb {
    /// Whether the bytes of a large value are needed to decide, not only to answer.
    #[must_use]
    pub fn looks_into_value(&self) -> bool {
        let by_digest = |compare: &Compare| matches!(compare.with, Comparand::Xxh3(_));
        match self {
            StringVerb::Digest => true,
            StringVerb::Set(set) => {
                matches!(&set.when, Some(SetWhen::Compare(compare)) if by_digest(compare))
            }
            StringVerb::Delete { when } => when.as_ref().is_some_and(by_digest),
            _ => false,
        }
    }
}

/// A `SET`.
#[derive(Clone, Debug)]
pub struct Set {
    /// The value.
    pub value: Bytes,
    /// Only if this holds.
    pub when: Option<SetWhen>,
    /// `GET`: the old value is asked for, so a record that is not a string is `WRONGTYPE`.
    pub get: bool,
    /// The end.
    pub expiry: Expiry,
}

/// The condition of a `SET`.
#[derive(Clone, Debug)]
pub enum SetWhen {
    /// `NX`.
    Absent,
    /// `XX`.
    Present,
    /// `IFEQ`, `IFNE`, `IFDEQ`, `IFDNE`.
    Compare(Compare),
}

/// A condition on the value.
#[derive(Clone, Debug)]
pub struct Compare {
    /// What to compare with.
    pub with: Comparand,
    /// Holds when they are equal; else when they differ.
    pub equal: bool,
}

/// What a value is compared with.
#[derive(Clone, Debug)]
pub enum Comparand {
    /// These bytes, compared as they are kept: hashed before, if they are many.
    Value(Content),
    /// The value that has this XXH3 (64 bits, seed 0), as `DIGEST` tells it.
    Xxh3(u64),
}

/// When a string ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// As before.
    Keep,
    /// The namespace's retention (`nx_without_expiry = "retention"`).
    Retention,
    /// So long from now.
    In(Span),
    /// At that instant of the client's wall clock.
    At(Timestamp),
}

/// The condition of an `EXPIRE`. `NX` cannot be combined; `XX` may stand with `GT` or `LT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireWhen {
    /// `NX`: only without an end.
    pub without_end: bool,
    /// `XX`: only with one.
    pub with_end: bool,
    /// `GT`: only later than the present end (no end is the latest).
    pub later: bool,
    /// `LT`: only earlier.
    pub earlier: bool,
}

impl Verb {
    /// Its name on every face; string commands are named by kind of change.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Verb::Claim(_) => "claim",
            Verb::Renew { .. } => "renew",
            Verb::Effect { .. } => "effect",
            Verb::Complete { .. } => "complete",
            Verb::Fail { .. } => "fail",
            Verb::Release { .. } => "release",
            Verb::Get => "get",
            Verb::Import(_) => "import",
            Verb::Replay { .. } => "replay",
            Verb::Forget { .. } => "forget",
            Verb::String(StringVerb::Read | StringVerb::Digest) => "read",
            Verb::String(StringVerb::Set(_)) => "set",
            Verb::String(StringVerb::Delete { .. }) => "del",
            Verb::String(StringVerb::Expire { .. }) => "expire",
            Verb::String(StringVerb::Add(_)) => "incr",
        }
    }

    /// The payload it carries.
    #[must_use]
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Verb::Claim(claim) => claim.payload.as_ref(),
            _ => None,
        }
    }

    /// Step 1 of every decision: what can be refused without looking at the record.
    ///
    /// # Errors
    /// See [`BadInput`].
    pub fn check(&self) -> Result<(), BadInput> {
        match self {
            Verb::Claim(claim) => claim.check(),
            Verb::Renew {
                lease: Some(lease), ..
            } => {
                policy::check_lease(*lease)?;
                Ok(())
            }
            Verb::Complete { result, .. } => check_result(result),
            Verb::Fail {
                error, retry_in, ..
            } => {
                if error.as_ref().is_some_and(|error| error.len() > MAX_ERROR) {
                    return Err(BadInput::LongError);
                }
                if let Some(delay) = retry_in {
                    policy::check_delay(*delay)?;
                }
                Ok(())
            }
            Verb::Import(import) => import.check().map_err(BadInput::Record),
            _ => Ok(()),
        }
    }
}

impl Claim {
    fn check(&self) -> Result<(), BadInput> {
        if let Some(lease) = self.lease {
            policy::check_lease(lease)?;
        }
        if let Some(retention) = self.retention {
            policy::check_retention(retention)?;
        }
        if let Some(attempts) = self.max_attempts {
            policy::check_attempts(attempts)?;
        }
        check_name("claim_id", self.claim_id.as_deref())?;
        check_name("owner", self.owner.as_deref())?;
        check_name("fingerprint", self.fingerprint.as_deref())?;
        if self.wait > MAX_WAIT {
            return Err(BadInput::Wait);
        }
        if let Some(payload) = &self.payload {
            check_content_type(&payload.body.content_type)?;
        }
        match &self.mode {
            Mode::Once {
                result: Some(result),
            } => check_result(result),
            _ => Ok(()),
        }
    }
}

fn check_name(what: &'static str, text: Option<&str>) -> Result<(), BadInput> {
    match text {
        Some(text) if !(1..=MAX_NAME).contains(&text.len()) => Err(BadInput::Name(what)),
        _ => Ok(()),
    }
}

/// Checks the content type of a payload or result.
///
/// # Errors
/// [`BadInput::ContentType`].
pub fn check_content_type(text: &str) -> Result<(), BadInput> {
    let visible = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if text.is_empty() || text.len() > MAX_CONTENT_TYPE || !visible {
        return Err(BadInput::ContentType);
    }
    Ok(())
}

fn check_result(result: &KeptResult) -> Result<(), BadInput> {
    check_content_type(&result.body.content_type)?;
    match result.status {
        Some(status) if !STATUS_RANGE.contains(&status) => Err(BadInput::Status),
        _ => Ok(()),
    }
}

/// Why a command is refused unseen. Nothing was stored; the text says what to send instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadInput {
    /// A number or duration outside its range.
    Range(RangeError),
    /// An owner, claim id or fingerprint that is empty or too long.
    Name(&'static str),
    /// An error text that is too long.
    LongError,
    /// A `wait` that is too long.
    Wait,
    /// A content type that no HTTP header could carry.
    ContentType,
    /// A status that is not one.
    Status,
    /// The namespace compares payloads as JSON, and this one cannot be read so.
    Json(JsonError),
    /// A record that no store writes.
    Record(&'static str),
}

impl From<RangeError> for BadInput {
    fn from(error: RangeError) -> BadInput {
        BadInput::Range(error)
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadInput::Range(error) => error.fmt(f),
            BadInput::Name(what) => write!(f, "{what} has 1 to {MAX_NAME} bytes"),
            BadInput::LongError => write!(f, "an error text has at most {MAX_ERROR} bytes"),
            BadInput::Wait => write!(f, "wait is at most {MAX_WAIT}"),
            BadInput::ContentType => write!(
                f,
                "a content type has 1 to {MAX_CONTENT_TYPE} printable ASCII characters"
            ),
            BadInput::Status => f.write_str("a status is 100 to 599"),
            BadInput::Record(rule) => write!(f, "no store writes such a record: {rule}"),
            BadInput::Json(error) => write!(
                f,
                "this namespace compares payloads as JSON, and this payload is not: {error}; \
                 send valid JSON, or give a fingerprint yourself"
            ),
        }
    }
}

impl std::error::Error for BadInput {}

/// A listing of one namespace, in key order (SPEC 4, 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Which namespace.
    pub namespace: Box<str>,
    /// Only records that show in this state.
    pub state: Option<State>,
    /// Only keys that begin so.
    pub prefix: Bytes,
    /// Only what a claim would get: orphans and due retries.
    pub due: bool,
    /// Only keys after this one.
    pub after: Option<Bytes>,
    /// At most so many records, 1 to [`MAX_LIST`].
    pub limit: usize,
}

/// The largest page of a listing.
pub const MAX_LIST: usize = 1000;
