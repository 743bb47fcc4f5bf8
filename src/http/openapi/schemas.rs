//! The JSON of requests and answers, as the document names it.

use serde_json::{Map, Value, json};

use super::{DURATION, MAX_TOKEN};
use crate::http::batch::MAX_CLAIMS;
use crate::http::problem::PROBLEMS;
use crate::model::command::{MAX_CONTENT_TYPE, MAX_NAME, STATUS_RANGE};
use crate::model::key::MAX_KEY;
use crate::model::policy::MAX_ATTEMPTS;
use crate::model::record::State;

/// All of them.
pub(super) fn all() -> Map<String, Value> {
    let schemas = [
        ("Problem", problem()),
        ("Acquired", acquired()),
        ("Done", done()),
        ("Verb", verb()),
        ("Record", record()),
        ("Body", body()),
        ("Page", page()),
        ("Batch", batch()),
        ("Member", member()),
        ("Results", results()),
        ("Namespace", namespace()),
        ("Namespaces", namespaces()),
        ("Policy", policy()),
        ("Replays", replays()),
        ("Imported", imported()),
        ("Stats", json!({ "type": "object" })),
        (
            "Health",
            object(
                &["status"],
                json!({ "status": { "enum": ["ok", "ready"] } }),
            ),
        ),
        ("OpenApi", json!({ "type": "object" })),
    ];
    schemas
        .map(|(name, schema)| (name.to_owned(), schema))
        .into_iter()
        .collect()
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

/// An object about one key: it has the key as text, or in base64 where its bytes are no UTF-8.
fn keyed(required: &[&str], mut properties: Value) -> Value {
    properties["namespace"] = text();
    properties["key"] = text();
    properties["key_base64"] = base64();
    let mut object = object(required, properties);
    object["anyOf"] = json!([{ "required": ["key"] }, { "required": ["key_base64"] }]);
    object
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn base64() -> Value {
    json!({ "type": "string", "contentEncoding": "base64" })
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn token() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": MAX_TOKEN })
}

fn states() -> Value {
    json!({ "enum": State::ALL.map(State::name) })
}

fn named(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn or_null(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn problem() -> Value {
    let outcomes = PROBLEMS.map(|problem| problem.outcome);
    let types = outcomes.map(|outcome| format!("/manual/problems/{outcome}"));
    object(
        &["type", "title", "status", "detail", "outcome"],
        json!({
            "type": { "enum": types },
            "title": text(),
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string", "description": "What to do next." },
            "outcome": { "enum": outcomes },
            "namespace": text(),
            "key": text(),
            "key_base64": base64(),
            "state": states(),
            "owner": text(),
            "attempt": count(),
            "generation": count(),
            "lease_left_ms": count(),
            "retry_after_ms": count(),
        }),
    )
}

fn acquired() -> Value {
    keyed(
        &[
            "outcome",
            "reason",
            "namespace",
            "token",
            "attempt",
            "generation",
            "payload",
        ],
        json!({
            "outcome": { "const": "acquired" },
            "reason": { "enum": ["new", "resumed", "takeover", "retry", "replay"] },
            "token": token(),
            "attempt": count(),
            "generation": count(),
            "lease_expires_at": time(),
            "completed_at": or_null(time()),
            "expires_at": or_null(time()),
            "payload": { "type": "boolean", "description": "Whether one is kept: GET .../payload." },
        }),
    )
}

fn done() -> Value {
    keyed(
        &[
            "outcome",
            "namespace",
            "token",
            "attempt",
            "generation",
            "completed_at",
            "expires_at",
            "result",
        ],
        json!({
            "outcome": { "const": "done" },
            "token": token(),
            "attempt": count(),
            "generation": count(),
            "completed_at": or_null(time()),
            "expires_at": or_null(time()),
            "result": or_null(named("Body")),
        }),
    )
}

fn verb() -> Value {
    let states: Vec<_> = State::ALL
        .map(State::name)
        .into_iter()
        .chain(["absent"])
        .collect();
    keyed(
        &[
            "outcome",
            "namespace",
            "state",
            "token",
            "attempt",
            "generation",
        ],
        json!({
            "outcome": text(),
            "state": { "enum": states },
            "token": token(),
            "attempt": count(),
            "generation": count(),
            "lease_expires_at": time(),
            "not_before": time(),
            "expires_at": or_null(time()),
        }),
    )
}

fn record() -> Value {
    let optional = ["namespace", "key", "key_base64", "earlier_result"];
    let properties = json!({
        "state": states(),
        "kind": { "enum": ["claim", "string"] },
        "orphaned": { "type": "boolean" },
        "token": token(),
        "attempt": count(),
        "max_attempts": count(),
        "generation": count(),
        "fingerprint": or_null(object(
            &["kind", "value"],
            json!({ "kind": { "enum": ["given", "raw", "json"] }, "value": text() }),
        )),
        "claim_id": or_null(text()),
        "owner": or_null(text()),
        "claimed_at": time(),
        "lease_ms": count(),
        "lease_expires_at": or_null(time()),
        "lease_left_ms": or_null(count()),
        "effect_announced": { "type": "boolean" },
        "not_before": or_null(time()),
        "completed_at": or_null(time()),
        "expires_at": or_null(time()),
        "last_error": or_null(text()),
        "payload": or_null(named("Body")),
        "result": or_null(named("Body")),
        "earlier_result": or_null(named("Body")),
        "history": { "type": "array", "items": object(
            &["at", "event", "token", "attempt", "by"],
            json!({
                "at": time(),
                "event": text(),
                "token": token(),
                "attempt": count(),
                "by": or_null(text()),
            }),
        ) },
    });
    let members = properties.as_object().into_iter().flatten();
    let names = members.map(|(name, _)| name.as_str());
    let required: Vec<_> = names.filter(|name| !optional.contains(name)).collect();
    keyed(
        &[&required[..], &["namespace"]].concat(),
        properties.clone(),
    )
}

fn body() -> Value {
    object(
        &["content_type", "size"],
        json!({
            "content_type": text(),
            "status": status(),
            "size": count(),
            "body": { "type": "string", "description": "UTF-8 up to 64 KiB." },
            "body_base64": base64(),
        }),
    )
}

fn status() -> Value {
    json!({ "type": "integer", "minimum": STATUS_RANGE.start(), "maximum": STATUS_RANGE.end() })
}

fn page() -> Value {
    object(
        &["records", "next"],
        json!({
            "records": { "type": "array", "items": named("Record") },
            "next": or_null(text()),
        }),
    )
}

fn batch() -> Value {
    let mut batch = object(
        &["claims"],
        json!({
            "atomic": { "type": "boolean" },
            "claims": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_CLAIMS,
                "items": named("Member"),
                "description": "Of distinct keys.",
            },
        }),
    );
    batch["additionalProperties"] = false.into();
    batch
}

fn duration() -> Value {
    json!({ "anyOf": [{ "type": "string", "pattern": DURATION }, count()] })
}

fn retention() -> Value {
    json!({ "anyOf": [
        { "type": "string", "pattern": format!("{DURATION}|^forever$") },
        count(),
    ] })
}

fn member() -> Value {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME });
    let mut member = object(
        &[],
        json!({
            "key": { "type": "string", "minLength": 1, "maxLength": MAX_KEY },
            "key_base64": base64(),
            "lease": duration(),
            "retention": retention(),
            "on_lease_end": { "enum": ["retry", "hold"] },
            "max_attempts": { "type": "integer", "minimum": 0, "maximum": MAX_ATTEMPTS },
            "claim_id": name,
            "owner": name,
            "fingerprint": name,
            "payload": text(),
            "payload_base64": base64(),
            "content_type": { "type": "string", "minLength": 1, "maxLength": MAX_CONTENT_TYPE },
            "store": { "type": "boolean" },
            "mode": { "enum": ["lease", "once"] },
            "result": text(),
            "result_base64": base64(),
            "wait": duration(),
        }),
    );
    member["oneOf"] = json!([{ "required": ["key"] }, { "required": ["key_base64"] }]);
    member["additionalProperties"] = false.into();
    member
}

/// Of each member its own answer, by the outcome it has.
fn results() -> Value {
    let refused = keyed(
        &["outcome", "namespace", "detail"],
        json!({
            "outcome": { "enum": PROBLEMS.map(|problem| problem.outcome) },
            "detail": text(),
            "state": states(),
            "owner": text(),
            "attempt": count(),
            "generation": count(),
            "lease_left_ms": count(),
            "retry_after_ms": count(),
        }),
    );
    object(
        &["results"],
        json!({ "results": { "type": "array", "items": {
            "anyOf": [named("Acquired"), named("Done"), refused],
        } } }),
    )
}

fn policy() -> Value {
    let duration = json!({ "type": "string", "pattern": DURATION });
    let retention = json!({ "type": "string", "pattern": format!("{DURATION}|^forever$") });
    let mut policy = object(
        &[],
        json!({
            "lease": duration,
            "retention": retention,
            "window": { "enum": ["fixed", "sliding"] },
            "max_attempts": { "type": "integer", "minimum": 0, "maximum": MAX_ATTEMPTS },
            "on_lease_end": { "enum": ["retry", "hold"] },
            "backoff": duration,
            "backoff_max": duration,
            "fingerprint": { "enum": ["raw", "json"] },
            "forget_open_after": retention,
        }),
    );
    policy["additionalProperties"] = false.into();
    policy
}

fn namespace() -> Value {
    let states = State::ALL.map(State::name);
    let counts: Map<_, _> = states
        .iter()
        .map(|state| ((*state).to_owned(), count()))
        .collect();
    object(
        &["namespace", "records", "policy_from", "policy"],
        json!({
            "namespace": text(),
            "records": count(),
            "policy_from": { "enum": ["default", "configuration", "put"] },
            "policy": named("Policy"),
            "states": object(&states, counts.into()),
            "orphaned": count(),
        }),
    )
}

fn namespaces() -> Value {
    object(
        &["namespaces"],
        json!({ "namespaces": { "type": "array", "items": named("Namespace") } }),
    )
}

fn replays() -> Value {
    object(
        &["namespace", "replayed", "skipped", "next"],
        json!({
            "namespace": text(),
            "replayed": count(),
            "skipped": { "type": "object", "additionalProperties": count() },
            "next": or_null(text()),
        }),
    )
}

fn imported() -> Value {
    object(
        &["imported", "there", "expired", "in_doubt", "differ"],
        json!({
            "imported": count(),
            "there": count(),
            "expired": count(),
            "in_doubt": count(),
            "differ": { "type": "array", "items": keyed(
                &["line", "namespace"],
                json!({ "line": count() }),
            ) },
        }),
    )
}
