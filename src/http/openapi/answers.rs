//! What each route may answer: the decisions of its verb, what its kind of request is refused for, and what any
//! request is.

use crate::http::answer::{JSON, LINES, PROBLEM};
use crate::http::metrics;
use crate::http::problem::PROBLEMS;
use crate::http::routes::{Action, BodyUse, Route, Segment};

/// An answer that is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its status.
    pub status: u16,
    /// The value of `Onced-Outcome`.
    pub outcome: &'static str,
    /// What its body is.
    pub shape: Shape,
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// JSON of that schema.
    Json(&'static str),
    /// A problem document (RFC 9457).
    Problem,
    /// A line of JSON for each event.
    Lines,
    /// Figures as text.
    Metrics,
    /// The manual's text.
    Text,
    /// A backup.
    Backup,
    /// Bytes that were kept, with the content type they came with.
    Kept,
}

impl Shape {
    /// The content types it may have.
    #[must_use]
    pub const fn media(self) -> &'static [&'static str] {
        match self {
            Shape::Json(_) => &[JSON],
            Shape::Problem => &[PROBLEM],
            Shape::Lines => &[LINES],
            Shape::Metrics => &[metrics::TEXT],
            Shape::Text => &["text/markdown; charset=utf-8", "text/plain; charset=utf-8"],
            Shape::Backup => &["application/octet-stream"],
            Shape::Kept => &["*/*"],
        }
    }

    /// The schema of its JSON.
    #[must_use]
    pub const fn schema(self) -> Option<&'static str> {
        match self {
            Shape::Json(name) => Some(name),
            Shape::Problem => Some("Problem"),
            _ => None,
        }
    }

    /// Whether the JSON has a member `outcome`.
    #[must_use]
    pub fn names_its_outcome(self) -> bool {
        matches!(
            self,
            Shape::Problem | Shape::Json("Acquired" | "Done" | "Verb")
        )
    }
}

/// What any request may be refused for: its head, its sender, a server that is full or stops.
const ANY: [&str; 4] = ["bad_input", "forbidden", "misdirected", "unavailable"];

/// All that the route may answer.
#[must_use]
pub fn of(route: &Route) -> Vec<Told> {
    let mut all = Vec::new();
    for (status, outcomes, shape) in successes(route.action) {
        for outcome in *outcomes {
            all.push(Told {
                status: *status,
                outcome,
                shape: *shape,
            });
        }
    }
    let about_records = route.path.contains(&Segment::Namespace);
    let secret = route.right.is_some().then_some("unauthorized");
    // Also where no body is taken: the engine reads bodies of its own, and those are bounded too.
    let large = (about_records || route.body != BodyUse::None).then_some("too_large");
    let refused = refusals(route.action).iter().copied();
    for outcome in ANY.into_iter().chain(secret).chain(large).chain(refused) {
        let statuses = PROBLEMS.iter().find(|it| it.outcome == outcome);
        let statuses = statuses.map_or(&[][..], |it| it.statuses);
        for status in statuses {
            // The path takes this method: another one is not the route's matter.
            if *status != 405 {
                all.push(Told {
                    status: *status,
                    outcome,
                    shape: Shape::Problem,
                });
            }
        }
    }
    all
}

/// A status, the outcomes that have it, and what the body is.
type Success = (u16, &'static [&'static str], Shape);

/// What is no refusal.
const fn successes(action: Action) -> &'static [Success] {
    use Shape::Json;
    match action {
        Action::Claim => &[
            (201, &["acquired"], Json("Acquired")),
            (200, &["done"], Json("Done")),
        ],
        Action::Complete => &[(200, &["completed"], Json("Verb"))],
        Action::Renew => &[(200, &["renewed"], Json("Verb"))],
        Action::Effect => &[(200, &["announced"], Json("Verb"))],
        Action::Fail => &[(200, &["failed"], Json("Verb"))],
        Action::Release => &[(200, &["released"], Json("Verb"))],
        Action::Replay => &[
            (200, &["replayed"], Json("Verb")),
            (200, &["done"], Json("Done")),
        ],
        Action::Forget => &[(200, &["forgotten"], Json("Verb"))],
        Action::Get => &[(200, &["ok"], Json("Record"))],
        Action::GetResult | Action::GetPayload => &[(200, &["ok"], Shape::Kept)],
        Action::List => &[(200, &["ok"], Json("Page"))],
        Action::Batch => &[(200, &["ok"], Json("Results"))],
        Action::Namespaces => &[(200, &["ok"], Json("Namespaces"))],
        Action::Namespace | Action::PutNamespace => &[(200, &["ok"], Json("Namespace"))],
        Action::ReplayPage => &[(200, &["ok"], Json("Replays"))],
        Action::Stats => &[(200, &["ok"], Json("Stats"))],
        Action::Healthz | Action::Readyz => &[(200, &["ok"], Json("Health"))],
        Action::OpenApi => &[(200, &["ok"], Json("OpenApi"))],
        Action::Import => &[(200, &["ok"], Json("Imported"))],
        Action::Events | Action::Export => &[(200, &["ok"], Shape::Lines)],
        Action::Metrics => &[(200, &["ok"], Shape::Metrics)],
        Action::Backup => &[(200, &["ok"], Shape::Backup)],
        Action::Manual | Action::Chapter | Action::Problem => &[(200, &["ok"], Shape::Text)],
    }
}

/// What this route refuses beside what any may.
const fn refusals(action: Action) -> &'static [&'static str] {
    match action {
        Action::Claim => &["busy", "backoff", "in_doubt", "dead", "mismatch", "full"],
        Action::Complete => &["stale", "conflict", "busy", "not_found", "full"],
        Action::Fail => &["stale", "conflict", "busy", "not_found", "full"],
        Action::Renew | Action::Effect => &["stale", "full"],
        Action::Release => &["stale", "conflict", "full"],
        Action::Replay => &["busy", "conflict", "not_found", "full"],
        Action::Forget => &["busy", "not_found", "full"],
        Action::Get | Action::GetResult | Action::GetPayload => &["not_found"],
        Action::Batch => &[
            "busy", "backoff", "in_doubt", "dead", "done", "mismatch", "full",
        ],
        Action::PutNamespace => &["conflict", "full"],
        Action::ReplayPage | Action::Backup | Action::Import => &["full"],
        Action::Export => &["too_large"],
        Action::Events => &["gone"],
        Action::Chapter | Action::Problem => &["not_found"],
        Action::List
        | Action::Namespaces
        | Action::Namespace
        | Action::Stats
        | Action::Metrics
        | Action::Healthz
        | Action::Readyz
        | Action::OpenApi
        | Action::Manual => &[],
    }
}
