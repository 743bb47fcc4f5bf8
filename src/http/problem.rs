//! Refusals: which status each has, and the document that says what to do next (SPEC 6, RFC 9457).

use std::borrow::Cow;

use hyper::StatusCode;

use super::guard::Stopped;
use super::params::ParamError;
use super::percent::BadEscape;
use crate::engine::Unavailable;
use crate::engine::backup::Refused;
use crate::model::key::KeyError;
use crate::model::outcome::Verdict;
use crate::model::time::Span;

/// When to ask again on a full disk: somebody has to free space first.
const FULL_RETRY: Span = Span::from_secs(10);
/// When to ask again where the server is busy with itself.
const BUSY_RETRY: Span = Span::from_secs(1);

/// The status of a decision (the table of SPEC 6).
#[must_use]
pub const fn status(verdict: &Verdict) -> StatusCode {
    match verdict {
        Verdict::Acquired(_) => StatusCode::CREATED,
        Verdict::Busy
        | Verdict::Backoff
        | Verdict::InDoubt
        | Verdict::Dead
        | Verdict::Conflict(_) => StatusCode::CONFLICT,
        Verdict::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
        Verdict::Stale => StatusCode::PRECONDITION_FAILED,
        Verdict::BadInput(_) => StatusCode::BAD_REQUEST,
        Verdict::NotFound => StatusCode::NOT_FOUND,
        Verdict::OutOfTokens => StatusCode::SERVICE_UNAVAILABLE,
        Verdict::Done
        | Verdict::Renewed
        | Verdict::Announced
        | Verdict::Completed
        | Verdict::Failed
        | Verdict::Released
        | Verdict::Replayed
        | Verdict::Forgotten
        | Verdict::Found
        | Verdict::Imported(_)
        | Verdict::String(_) => StatusCode::OK,
    }
}

/// A kind of refusal.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// The value of `Onced-Outcome`.
    pub outcome: &'static str,
    /// What it is called, the same for all of its kind.
    pub title: &'static str,
    /// The statuses it may have.
    pub statuses: &'static [u16],
}

const fn kind(outcome: &'static str, title: &'static str, statuses: &'static [u16]) -> Problem {
    Problem {
        outcome,
        title,
        statuses,
    }
}

/// Every kind of refusal. The manual has a section for each.
pub const PROBLEMS: [Problem; 17] = [
    kind("busy", "Another holder works on this key", &[409]),
    kind("backoff", "The next attempt is not due", &[409]),
    kind("in_doubt", "Nobody knows whether it happened", &[409]),
    kind("dead", "Attempts are used up", &[409]),
    kind(
        "mismatch",
        "Another request body under the same key",
        &[422],
    ),
    kind("conflict", "The record says otherwise", &[409]),
    kind("done", "It was done already", &[409]),
    kind("stale", "The token has ended", &[412]),
    kind("not_found", "Not found", &[404]),
    kind("bad_input", "Bad input", &[400, 405, 408, 414, 415, 431]),
    kind("too_large", "Too large", &[413]),
    kind("unauthorized", "No or wrong credentials", &[401]),
    kind("forbidden", "Not allowed", &[403]),
    kind("misdirected", "Not a name of this server", &[421]),
    kind("full", "The store is full", &[507]),
    kind("gone", "No longer kept", &[410]),
    kind("unavailable", UNAVAILABLE, &[503]),
];

const UNAVAILABLE: &str = "Unavailable";

/// What that kind of refusal is called.
#[must_use]
pub fn title(outcome: &str) -> &'static str {
    let known = PROBLEMS.iter().find(|problem| problem.outcome == outcome);
    debug_assert!(
        known.is_some(),
        "{outcome} is not in the table, nor in the manual"
    );
    known.map_or(UNAVAILABLE, |problem| problem.title)
}

/// A request refused without a decision on a record. Nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The value of `Onced-Outcome`.
    pub outcome: &'static str,
    /// What to do next.
    pub detail: Cow<'static, str>,
    /// When asking again makes sense.
    pub retry_after: Option<Span>,
    /// The methods of the path, for 405.
    pub allow: Option<String>,
}

impl Refusal {
    fn new(
        status: StatusCode,
        outcome: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Refusal {
        Refusal {
            status,
            outcome,
            detail: detail.into(),
            retry_after: None,
            allow: None,
        }
    }

    /// 400.
    #[must_use]
    pub fn bad_input(detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "bad_input", detail)
    }

    /// Bad input with a status of its own: 408, 415, 431.
    #[must_use]
    pub fn bad_input_as(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(status, "bad_input", detail)
    }

    /// 404.
    #[must_use]
    pub fn not_found(detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// 410.
    #[must_use]
    pub fn gone(detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::GONE, "gone", detail)
    }

    /// 405, with the methods that are there.
    #[must_use]
    pub fn method(allow: String) -> Refusal {
        let detail = format!("this path does not take that method; it takes {allow}");
        Refusal {
            allow: Some(allow),
            ..Refusal::bad_input_as(StatusCode::METHOD_NOT_ALLOWED, detail)
        }
    }

    /// 413.
    #[must_use]
    pub fn too_large(detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    }

    /// 401; the response names the schemes.
    #[must_use]
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// 403.
    #[must_use]
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// 503, worth another try soon.
    #[must_use]
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal {
            retry_after: Some(BUSY_RETRY),
            ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
        }
    }
}

impl From<Stopped> for Refusal {
    fn from(stopped: Stopped) -> Refusal {
        let detail = stopped.to_string();
        match stopped {
            Stopped::Host => Refusal::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", detail),
            Stopped::Origin | Stopped::Site => Refusal::forbidden(detail),
        }
    }
}

impl From<ParamError> for Refusal {
    fn from(error: ParamError) -> Refusal {
        Refusal::bad_input(error.to_string())
    }
}

impl From<BadEscape> for Refusal {
    fn from(error: BadEscape) -> Refusal {
        Refusal::bad_input(format!("in the path, {error}"))
    }
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Refusal {
        Refusal::bad_input(error.to_string())
    }
}

impl From<Refused> for Refusal {
    fn from(error: Refused) -> Refusal {
        let detail = error.to_string();
        match error {
            Refused::Full => Refusal {
                detail: detail.into(),
                ..Unavailable::Full.into()
            },
            _ => Refusal::unavailable(detail),
        }
    }
}

impl From<Unavailable> for Refusal {
    fn from(error: Unavailable) -> Refusal {
        let detail = error.to_string();
        match error {
            Unavailable::Full => Refusal {
                retry_after: Some(FULL_RETRY),
                ..Refusal::new(StatusCode::INSUFFICIENT_STORAGE, "full", detail)
            },
            Unavailable::Overloaded
            | Unavailable::Crowded
            | Unavailable::Waiters
            | Unavailable::Stopping
            | Unavailable::Defect => Refusal::unavailable(detail),
            Unavailable::TooLarge | Unavailable::Reads => Refusal::too_large(detail),
            Unavailable::Configured => Refusal::new(StatusCode::CONFLICT, "conflict", detail),
            Unavailable::Namespaces | Unavailable::Program(_) => Refusal::bad_input(detail),
        }
    }
}
