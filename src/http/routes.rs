//! Every route, once: matching, refusals, parameters and the reference all come from [`ROUTES`] (SPEC 6).

use hyper::Method;

use super::MAX_HEADER;
use super::params::{Kind, Param};
use crate::model::access::Right;
use crate::model::command::{MAX_ERROR, MAX_LIST, MAX_NAME, MAX_WAIT, STATUS_RANGE};
use crate::model::key::MAX_KEY;
use crate::model::policy::{LEASE_RANGE, MAX_ATTEMPTS, MAX_BACKOFF, RETENTION_RANGE};
use crate::model::time::Span;

/// One route.
#[derive(Debug)]
pub struct Route {
    /// Its method. A `GET` route answers `HEAD` too.
    pub method: Method,
    /// Its path, segment by segment.
    pub path: &'static [Segment],
    /// What it does.
    pub action: Action,
    /// Its query parameters; all others are bad input.
    pub params: &'static [Param],
    /// What a request body is to it.
    pub body: BodyUse,
    /// The right it needs; `None`: it is open to everybody. `complete` and `fail` without a token need
    /// [`Right::Operate`].
    pub right: Option<Right>,
    /// One sentence for the reference.
    pub summary: &'static str,
}

/// A segment of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// This word, as it is.
    Fixed(&'static str),
    /// A namespace.
    Namespace,
    /// A key; `-` with a parameter `key` stands for that one.
    Key,
    /// A name out of a list of the server's own; the reference calls it so.
    Name(&'static str),
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Claim.
    Claim,
    /// Complete.
    Complete,
    /// Renew.
    Renew,
    /// Announce the side effect.
    Effect,
    /// Fail.
    Fail,
    /// Release.
    Release,
    /// Replay.
    Replay,
    /// Forget.
    Forget,
    /// The record.
    Get,
    /// The result's bytes.
    GetResult,
    /// The payload's bytes.
    GetPayload,
    /// A page of records.
    List,
    /// Many claims at once.
    Batch,
    /// All namespaces.
    Namespaces,
    /// One namespace.
    Namespace,
    /// Sets its policy.
    PutNamespace,
    /// The audit trail.
    Events,
    /// The figures, for people.
    Stats,
    /// The figures, for Prometheus.
    Metrics,
    /// Replays its records by a filter.
    ReplayPage,
    /// A backup.
    Backup,
    /// A page of all records, with their bodies.
    Export,
    /// Stores records of another store.
    Import,
    /// The process runs.
    Healthz,
    /// Requests are answered.
    Readyz,
    /// This table, for programs.
    OpenApi,
    /// The chapters of the manual.
    Manual,
    /// One chapter.
    Chapter,
    /// What an outcome means: where `type` of a problem document leads.
    Problem,
}

/// What a request body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyUse {
    /// Not expected: bad input.
    None,
    /// The payload of a claim.
    Payload,
    /// The result of a complete.
    Result,
    /// A batch of claims, as JSON.
    Batch,
    /// A policy, as JSON.
    Policy,
    /// Lines of an export.
    Lines,
}

const fn param(name: &'static str, kind: Kind, doc: &'static str) -> Param {
    Param {
        name,
        kind,
        required: false,
        doc,
    }
}

const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Param {
    Param {
        name,
        kind,
        required: true,
        doc,
    }
}

const LEASE: Kind = Kind::Span(LEASE_RANGE.0, LEASE_RANGE.1);
const NAME: Kind = Kind::Text(MAX_NAME);
const KEY: Param = param(
    "key",
    Kind::Bytes(MAX_KEY),
    "The key, where the path says `-`: for keys that clients normalise away.",
);
const TOKEN: Param = required("token", Kind::Token, "The token the claim was granted.");
const BY_HAND: Param = param(
    "token",
    Kind::Token,
    "The token the claim was granted. Without one, the record is resolved by hand.",
);
const FORCE_REPLAY: Param = param("force", Kind::Flag, "Also a record that is done.");
const FORCE_FORGET: Param = param("force", Kind::Flag, "Also while a lease runs.");

const CLAIM: &[Param] = &[
    KEY,
    param("lease", LEASE, "How long the holder may work."),
    param(
        "retention",
        Kind::Retention(RETENTION_RANGE.0, RETENTION_RANGE.1),
        "How long the finished record is remembered.",
    ),
    param(
        "on_lease_end",
        Kind::Choice(&["retry", "hold"]),
        "What the end of the lease means.",
    ),
    param(
        "max_attempts",
        Kind::Number(0, MAX_ATTEMPTS as u64),
        "Attempts before the record is dead; 0 is no limit.",
    ),
    param(
        "claim_id",
        NAME,
        "Fresh for each attempt: lets a claim whose answer was lost be repeated.",
    ),
    param("owner", NAME, "Who claims; for people only."),
    param(
        "fingerprint",
        NAME,
        "Identity of the request body, in place of the payload's own.",
    ),
    param(
        "store",
        Kind::Flag,
        "Keep the payload and hand it to every later holder.",
    ),
    param(
        "mode",
        Kind::Choice(&["lease", "once"]),
        "`once`: done in the step that acquires.",
    ),
    param(
        "result",
        Kind::Text(MAX_HEADER),
        "With mode `once`: kept as the result.",
    ),
    param(
        "wait",
        Kind::Span(Span::ZERO, MAX_WAIT),
        "How long to wait where the answer would be busy or backoff.",
    ),
];

const LIST: &[Param] = &[
    param(
        "state",
        Kind::State,
        "Only records that show in this state.",
    ),
    param("prefix", Kind::Bytes(MAX_KEY), "Only keys that begin so."),
    param(
        "due",
        Kind::Flag,
        "Only what a claim would get: orphans and due retries.",
    ),
    param(
        "cursor",
        Kind::Cursor,
        "Where to go on: `next` of the page before.",
    ),
    param(
        "limit",
        Kind::Number(1, MAX_LIST as u64),
        "Records on a page; 100 if not given.",
    ),
];

const EVENTS: &[Param] = &[
    param(
        "after",
        Kind::Number(0, u64::MAX),
        "Only those behind this LSN: of the last line that was read; from the oldest kept if not given.",
    ),
    param(
        "limit",
        Kind::Number(1, u64::MAX),
        "How many; all if not given.",
    ),
    param("ns", Kind::Namespace, "Only those of this namespace."),
    param("key", Kind::Bytes(MAX_KEY), "Only those of this key."),
    param(
        "follow",
        Kind::Flag,
        "Goes on with those to come, as they become durable.",
    ),
];

const REPLAY_PAGE: &[Param] = &[
    required(
        "state",
        Kind::State,
        "Only records that show in this state: dead, in_doubt, retry, or done with force.",
    ),
    param("prefix", Kind::Bytes(MAX_KEY), "Only keys that begin so."),
    FORCE_REPLAY,
    param(
        "cursor",
        Kind::Cursor,
        "Where to go on: `next` of the page before.",
    ),
    param(
        "limit",
        Kind::Number(1, MAX_LIST as u64),
        "Records of a page; 100 if not given.",
    ),
];

const EXPORT: &[Param] = &[
    param("ns", Kind::Namespace, "Only those of this namespace."),
    param(
        "cursor",
        Kind::Cursor,
        "Where to go on: `next` of the page before.",
    ),
];

const IMPORT: &[Param] = &[
    required(
        "granted",
        Kind::Token,
        "The highest token that their store may have granted: of the export's last page.",
    ),
    param(
        "first",
        Kind::Number(1, u64::MAX),
        "The number that the first of these lines has in its file; 1 if not given.",
    ),
];

const RECORD: &[Segment] = &[
    Segment::Fixed("v1"),
    Segment::Fixed("claims"),
    Segment::Namespace,
    Segment::Key,
];

const NAMESPACE: &[Segment] = &[
    Segment::Fixed("v1"),
    Segment::Fixed("namespaces"),
    Segment::Namespace,
];

/// The path of something about one record.
macro_rules! record_path {
    ($word:literal) => {
        &[
            Segment::Fixed("v1"),
            Segment::Fixed("claims"),
            Segment::Namespace,
            Segment::Key,
            Segment::Fixed($word),
        ]
    };
}

/// Every route. The first that fits is taken; those asked most stand first.
pub static ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: RECORD,
        action: Action::Claim,
        params: CLAIM,
        body: BodyUse::Payload,
        right: Some(Right::Claim),
        summary: "Am I the one who does this, or was it done already?",
    },
    Route {
        method: Method::POST,
        path: record_path!("complete"),
        action: Action::Complete,
        params: &[
            KEY,
            BY_HAND,
            param(
                "status",
                Kind::Number(*STATUS_RANGE.start() as u64, *STATUS_RANGE.end() as u64),
                "A status kept beside the result.",
            ),
        ],
        body: BodyUse::Result,
        right: Some(Right::Claim),
        summary: "It is done; the body is the result.",
    },
    Route {
        method: Method::POST,
        path: record_path!("renew"),
        action: Action::Renew,
        params: &[
            KEY,
            TOKEN,
            param("lease", LEASE, "Replaces the record's lease."),
        ],
        body: BodyUse::None,
        right: Some(Right::Claim),
        summary: "The lease runs from now.",
    },
    Route {
        method: Method::POST,
        path: record_path!("effect"),
        action: Action::Effect,
        params: &[KEY, TOKEN],
        body: BodyUse::None,
        right: Some(Right::Claim),
        summary: "The side effect is about to happen: from here the end of the lease means in_doubt.",
    },
    Route {
        method: Method::POST,
        path: record_path!("fail"),
        action: Action::Fail,
        params: &[
            KEY,
            BY_HAND,
            param("error", Kind::Text(MAX_ERROR), "Why, for people."),
            param(
                "retry_in",
                Kind::Span(Span::ZERO, MAX_BACKOFF),
                "When the next attempt may start, in place of the policy's backoff; 0 is at once.",
            ),
            param(
                "bury",
                Kind::Flag,
                "No further attempt: the record is dead.",
            ),
        ],
        body: BodyUse::None,
        right: Some(Right::Claim),
        summary: "This attempt failed.",
    },
    Route {
        method: Method::POST,
        path: record_path!("release"),
        action: Action::Release,
        params: &[KEY, TOKEN],
        body: BodyUse::None,
        right: Some(Right::Claim),
        summary: "Nothing happened: the claim is given back.",
    },
    Route {
        method: Method::POST,
        path: record_path!("replay"),
        action: Action::Replay,
        params: &[
            KEY,
            required(
                "generation",
                Kind::Number(1, u32::MAX as u64),
                "The generation the operator saw.",
            ),
            FORCE_REPLAY,
        ],
        body: BodyUse::None,
        right: Some(Right::Operate),
        summary: "Another round, in a new generation.",
    },
    Route {
        method: Method::GET,
        path: RECORD,
        action: Action::Get,
        params: &[KEY],
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "The record.",
    },
    Route {
        method: Method::GET,
        path: record_path!("result"),
        action: Action::GetResult,
        params: &[KEY],
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "The result's bytes, with their content type.",
    },
    Route {
        method: Method::GET,
        path: record_path!("payload"),
        action: Action::GetPayload,
        params: &[KEY],
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "The payload's bytes, with their content type.",
    },
    Route {
        method: Method::DELETE,
        path: RECORD,
        action: Action::Forget,
        params: &[KEY, FORCE_FORGET],
        body: BodyUse::None,
        right: Some(Right::Operate),
        summary: "Removes the record.",
    },
    Route {
        method: Method::GET,
        path: &[
            Segment::Fixed("v1"),
            Segment::Fixed("claims"),
            Segment::Namespace,
        ],
        action: Action::List,
        params: LIST,
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "Records of a namespace, in key order.",
    },
    Route {
        method: Method::POST,
        path: &[
            Segment::Fixed("v1"),
            Segment::Fixed("claims"),
            Segment::Namespace,
        ],
        action: Action::Batch,
        params: &[],
        body: BodyUse::Batch,
        right: Some(Right::Claim),
        summary: "Up to 1000 claims of distinct keys; with `atomic`, all of them or none.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("v1"), Segment::Fixed("backup")],
        action: Action::Backup,
        params: &[],
        body: BodyUse::None,
        right: Some(Right::Admin),
        summary: "A backup as a stream, up to what was answered before it was asked for.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("v1"), Segment::Fixed("export")],
        action: Action::Export,
        params: EXPORT,
        body: BodyUse::None,
        right: Some(Right::Admin),
        summary: "A page of records with their bodies as NDJSON; its last line says where the next page begins.",
    },
    Route {
        method: Method::POST,
        path: &[Segment::Fixed("v1"), Segment::Fixed("import")],
        action: Action::Import,
        params: IMPORT,
        body: BodyUse::Lines,
        right: Some(Right::Admin),
        summary: "Stores records of another store, up to 1000 lines; one that is there already is never written over.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("v1"), Segment::Fixed("namespaces")],
        action: Action::Namespaces,
        params: &[],
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "All namespaces, with how many records each has and its policy.",
    },
    Route {
        method: Method::GET,
        path: NAMESPACE,
        action: Action::Namespace,
        params: &[],
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "How many records show in each state, and the policy in force.",
    },
    Route {
        method: Method::PUT,
        path: NAMESPACE,
        action: Action::PutNamespace,
        params: &[],
        body: BodyUse::Policy,
        right: Some(Right::Admin),
        summary: "Replaces the policy whole: what is absent is the default.",
    },
    Route {
        method: Method::POST,
        path: &[
            Segment::Fixed("v1"),
            Segment::Fixed("namespaces"),
            Segment::Namespace,
            Segment::Fixed("replay"),
        ],
        action: Action::ReplayPage,
        params: REPLAY_PAGE,
        body: BodyUse::None,
        right: Some(Right::Operate),
        summary: "Another round for each record of a page; a page sent again does no harm.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("v1"), Segment::Fixed("events")],
        action: Action::Events,
        params: EVENTS,
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "The audit trail as NDJSON: who decided what, and when.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("v1"), Segment::Fixed("stats")],
        action: Action::Stats,
        params: &[],
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "The server's figures as one JSON document.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("metrics")],
        action: Action::Metrics,
        params: &[],
        body: BodyUse::None,
        right: Some(Right::Read),
        summary: "The server's figures as OpenMetrics text, for Prometheus.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("healthz")],
        action: Action::Healthz,
        params: &[],
        body: BodyUse::None,
        right: None,
        summary: "Whether the process runs.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("readyz")],
        action: Action::Readyz,
        params: &[],
        body: BodyUse::None,
        right: None,
        summary: "Whether requests are answered.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("openapi.json")],
        action: Action::OpenApi,
        params: &[],
        body: BodyUse::None,
        right: None,
        summary: "This reference as an OpenAPI 3.1 document, for programs.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("manual")],
        action: Action::Manual,
        params: &[],
        body: BodyUse::None,
        right: None,
        summary: "The chapters of the manual.",
    },
    Route {
        method: Method::GET,
        path: &[Segment::Fixed("manual"), Segment::Name("chapter")],
        action: Action::Chapter,
        params: &[],
        body: BodyUse::None,
        right: None,
        summary: "One chapter, in Markdown.",
    },
    Route {
        method: Method::GET,
        path: &[
            Segment::Fixed("manual"),
            Segment::Fixed("problems"),
            Segment::Name("outcome"),
        ],
        action: Action::Problem,
        params: &[],
        body: BodyUse::None,
        right: None,
        summary: "What an outcome means and what to do: where the `type` of a problem leads.",
    },
];

/// What a path says, still encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured<'p> {
    /// The segment that names a namespace.
    pub namespace: &'p str,
    /// The segment that names a key.
    pub key: &'p str,
    /// The segment that is a name out of a list.
    pub name: &'p str,
}

/// What was found for a method and a path.
#[derive(Debug)]
pub enum Found<'p> {
    /// This route.
    Route(&'static Route, Captured<'p>),
    /// The path, but not under this method: what to put in `Allow`.
    Path(String),
    /// Nothing.
    Nothing,
}

/// Looks a request up. `path` is raw: it is split at `/` before anything is decoded, and neither `..` nor
/// `//` means anything but itself.
#[must_use]
pub fn find<'p>(method: &Method, path: &'p str) -> Found<'p> {
    let wanted = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let mut elsewhere = false;
    for route in ROUTES {
        if let Some(captured) = route.captures(path) {
            if route.method == *wanted {
                return Found::Route(route, captured);
            }
            elsewhere = true;
        }
    }
    if elsewhere {
        Found::Path(allow(path))
    } else {
        Found::Nothing
    }
}

/// The methods of a path, as `Allow` lists them.
fn allow(path: &str) -> String {
    let mut out = String::new();
    for route in ROUTES.iter().filter(|route| route.captures(path).is_some()) {
        out.push_str(route.method.as_str());
        out.push_str(", ");
        if route.method == Method::GET {
            out.push_str("HEAD, ");
        }
    }
    out.push_str("OPTIONS");
    out
}

impl Route {
    /// What `path` says, if it is this route's.
    fn captures<'p>(&self, path: &'p str) -> Option<Captured<'p>> {
        let mut captured = Captured::default();
        let mut given = path.strip_prefix('/')?.split('/');
        for segment in self.path {
            let raw = given.next()?;
            match segment {
                Segment::Fixed(word) if *word == raw => {}
                Segment::Fixed(_) => return None,
                Segment::Namespace => captured.namespace = raw,
                Segment::Key => captured.key = raw,
                Segment::Name(_) => captured.name = raw,
            }
        }
        given.next().is_none().then_some(captured)
    }

    /// Its path as the reference writes it: `/v1/claims/{ns}/{key}`.
    #[must_use]
    pub fn pattern(&self) -> String {
        let mut out = String::new();
        for segment in self.path {
            out.push('/');
            match segment {
                Segment::Fixed(word) => out.push_str(word),
                Segment::Namespace => out.push_str("{ns}"),
                Segment::Key => out.push_str("{key}"),
                Segment::Name(what) => out.push_str(&format!("{{{what}}}")),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_before_they_are_decoded_and_never_normalised() {
        let table = [
            ("/v1/claims/ns/a%2Fb", Some((Action::Get, "ns", "a%2Fb"))),
            ("/v1/claims/ns/..", Some((Action::Get, "ns", ".."))),
            ("/v1/claims/ns/.", Some((Action::Get, "ns", "."))),
            ("/v1/claims/ns/", Some((Action::Get, "ns", ""))),
            ("/v1/claims//k", Some((Action::Get, "", "k"))),
            (
                "/v1/claims/ns/k/result",
                Some((Action::GetResult, "ns", "k")),
            ),
            ("/v1/claims/ns//result", Some((Action::GetResult, "ns", ""))),
            ("/v1/claims/ns", Some((Action::List, "ns", ""))),
            ("/v1/claims/ns/a/b", None),
            ("/v1/claims/ns/a//b", None),
            ("/v1/claims/ns/k/result/", None),
            ("/v1/claims/ns/k/resul%74", None),
            ("/v1//claims/ns/k", None),
            ("//v1/claims/ns/k", None),
            ("/v1/claims/../claims/ns/k", None),
            ("/V1/claims/ns/k", None),
            ("/healthz/", None),
            ("/", None),
            ("", None),
            ("*", None),
        ];
        for (path, expected) in table {
            let found = match find(&Method::GET, path) {
                Found::Route(route, captured) => {
                    Some((route.action, captured.namespace, captured.key))
                }
                _ => None,
            };
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn no_two_routes_answer_the_same_request_and_every_parameter_is_told_apart() {
        for (index, route) in ROUTES.iter().enumerate() {
            let path = route.pattern();
            match find(&route.method, &path) {
                Found::Route(found, _) => assert_eq!(found.action, route.action, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
            let twin = ROUTES.iter().skip(index + 1);
            assert!(
                twin.clone()
                    .all(|twin| twin.pattern() != path || twin.method != route.method),
                "{path}"
            );
            for (at, param) in route.params.iter().enumerate() {
                let rest = route.params.iter().skip(at + 1);
                assert!(rest.clone().all(|other| other.name != param.name), "{path}");
                assert!(!param.doc.is_empty() && !route.summary.is_empty());
            }
            let keyed = route.path.contains(&Segment::Key);
            let takes_key = route.params.iter().any(|param| param.name == "key");
            let filters = route.action == Action::Events;
            assert_eq!(
                keyed || filters,
                takes_key,
                "{path}: every key may be given as key="
            );
        }
    }
}
