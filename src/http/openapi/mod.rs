//! `/openapi.json` (OpenAPI 3.1): the route table as a document for programs. What a route answers stands in
//! [`answers`], and every answer that a build with debug assertions gives is looked up there.

pub mod answers;
mod schemas;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::answers::{Shape, Told};
use super::answer::Answer;
use super::batch::MAX_BATCH;
use super::params::{Kind, Param};
use super::policy::MAX_POLICY;
use super::problem::PROBLEMS;
use super::routes::{Action, BodyUse, ROUTES, Route, Segment};
use crate::manual::CHAPTERS;
use crate::model::key::{MAX_KEY, MAX_NAMESPACE};
use crate::model::record::State;

/// Texts of durations: SPEC 6 gives their form.
const DURATION: &str = "^[0-9]{1,16}(ms|s|m|h|d)?$";
/// The largest token.
const MAX_TOKEN: u64 = (1 << 53) - 1;

/// The document, made once.
#[must_use]
pub fn document() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let made = || Bytes::from(format!("{:#}\n", whole()));
    DOCUMENT.get_or_init(made).clone()
}

/// Whether the document tells of that answer of that route.
#[must_use]
pub fn tells(route: &Route, answer: &Answer) -> bool {
    let (status, outcome, media) = answer.told();
    let all = answers::of(route);
    let mut same = all
        .iter()
        .filter(|told| told.status == status.as_u16() && told.outcome == outcome);
    same.any(|told| match told.shape.media() {
        [] => media.is_none(),
        types => types.contains(&"*/*") || media.is_some_and(|media| types.contains(&media)),
    })
}

fn whole() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.pattern()).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "onced",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Am I the one who does this, or was it done already?",
            "description": "Every path that takes GET takes HEAD too, and every path OPTIONS, which answers 204 with \
                Allow. Parameters that are not listed, repeated or empty are bad input. The manual is served under \
                /manual.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "externalDocs": { "url": "/manual/http" },
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The secret of a [[token]] of the configuration.",
                },
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "The same secret as password; the user name is empty or the credential's.",
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut name = format!("{:?}", route.action);
    name.get_mut(..1).map(str::make_ascii_lowercase);
    let path = route.path.iter().filter_map(in_path);
    let query = route.params.iter().map(in_query);
    let mut operation = json!({
        "operationId": name,
        "summary": route.summary,
        "parameters": path.chain(query).collect::<Vec<_>>(),
        "responses": responses(route),
        "security": [],
    });
    if let Some(right) = route.right {
        operation["x-onced-right"] = right.name().into();
        // None is asked for where the configuration has no credentials.
        operation["security"] = json!([{}, { "bearer": [] }, { "basic": [] }]);
    }
    if let Some(body) = request_body(route.body) {
        operation["requestBody"] = body;
    }
    operation
}

fn request_body(body: BodyUse) -> Option<Value> {
    let schema =
        |name: &str| json!({ "schema": { "$ref": format!("#/components/schemas/{name}") } });
    let (description, required, content) = match body {
        BodyUse::None => return None,
        BodyUse::Payload => (
            "The payload, any bytes up to the server's limit; empty is none.".to_owned(),
            false,
            json!({ "*/*": {} }),
        ),
        BodyUse::Result => (
            "The result, any bytes up to the server's limit.".to_owned(),
            false,
            json!({ "*/*": {} }),
        ),
        // Whatever it is called, it is read as JSON: `curl -d` works.
        BodyUse::Batch => (
            format!("JSON, at most {MAX_BATCH} bytes, whatever its content type."),
            true,
            json!({ "application/json": schema("Batch") }),
        ),
        BodyUse::Lines => (
            "Lines of an export, as they are.".to_owned(),
            true,
            json!({ "application/x-ndjson": {} }),
        ),
        BodyUse::Policy => (
            format!("JSON, at most {MAX_POLICY} bytes, whatever its content type."),
            true,
            json!({ "application/json": schema("Policy") }),
        ),
    };
    Some(json!({ "description": description, "required": required, "content": content }))
}

fn in_path(segment: &Segment) -> Option<Value> {
    let (name, description, schema) = match segment {
        Segment::Fixed(_) => return None,
        Segment::Namespace => ("ns", "A namespace.", namespace()),
        Segment::Key => (
            "key",
            "A key, percent-decoded exactly once. `-` with the parameter `key` stands for that one.",
            json!({
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_KEY,
                // Clients normalise these away: `-` and `key` are for them.
                "not": { "enum": [".", ".."] },
            }),
        ),
        Segment::Name(what) => {
            let outcomes = PROBLEMS.iter().map(|problem| problem.outcome);
            let chapters = CHAPTERS.iter().map(|chapter| chapter.name);
            let names: Vec<_> = match *what {
                "outcome" => outcomes.collect(),
                _ => chapters.collect(),
            };
            (*what, "One of these.", json!({ "enum": names }))
        }
    };
    Some(json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": description,
        "schema": schema,
    }))
}

fn in_query(param: &Param) -> Value {
    json!({
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": format!("{} ({})", param.doc, param.kind),
        "schema": schema(param.kind),
    })
}

fn namespace() -> Value {
    let rest = MAX_NAMESPACE - 1;
    json!({ "type": "string", "pattern": format!("^[a-z0-9][a-z0-9._-]{{0,{rest}}}$") })
}

fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Span(..) => json!({ "type": "string", "pattern": DURATION }),
        Kind::Retention(..) => {
            json!({ "type": "string", "pattern": format!("{DURATION}|^forever$") })
        }
        Kind::Number(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Kind::Token => json!({ "type": "integer", "minimum": 1, "maximum": MAX_TOKEN }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::State => json!({ "enum": State::ALL.map(State::name) }),
        Kind::Text(most) | Kind::Bytes(most) => {
            json!({ "type": "string", "minLength": 1, "maxLength": most })
        }
        Kind::Cursor => {
            json!({ "type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9_-]+$" })
        }
        Kind::Namespace => namespace(),
    }
}

/// By status: all that a route may answer under it.
fn responses(route: &Route) -> Value {
    let mut by_status: BTreeMap<u16, Vec<Told>> = BTreeMap::new();
    for told in answers::of(route) {
        by_status.entry(told.status).or_default().push(told);
    }
    let responses = by_status.into_iter().map(|(status, all)| {
        let outcomes: Vec<_> = all.iter().map(|told| told.outcome).collect();
        let mut headers = json!({
            "Onced-Outcome": { "required": true, "schema": { "enum": outcomes } },
        });
        let retries =
            |outcome: &&str| matches!(*outcome, "busy" | "backoff" | "full" | "unavailable");
        if outcomes.iter().any(retries) {
            headers["Retry-After"] = json!({
                "description": "Whole seconds, rounded up.",
                "schema": { "type": "integer", "minimum": 1 },
            });
        }
        if route.action == Action::Claim && outcomes.contains(&"done") {
            headers["Idempotent-Replayed"] = json!({ "schema": { "const": "true" } });
        }
        let response = json!({
            "description": outcomes.join(", "),
            "headers": headers,
            "content": content(&all),
        });
        (status.to_string(), response)
    });
    responses.collect::<Map<_, _>>().into()
}

/// By content type: what answers of one status hold.
fn content(all: &[Told]) -> Value {
    // Outcomes of one shape are one schema.
    let mut shapes: Vec<Shape> = Vec::new();
    for told in all {
        if !shapes.contains(&told.shape) {
            shapes.push(told.shape);
        }
    }
    let mut by_media: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for shape in shapes {
        let schema = shape.schema().map(|name| {
            let outcomes = all.iter().filter(|told| told.shape == shape);
            let outcomes: Vec<_> = outcomes.map(|told| told.outcome).collect();
            let named = json!({ "$ref": format!("#/components/schemas/{name}") });
            match shape.names_its_outcome() {
                true => json!({
                    "allOf": [named, { "properties": { "outcome": { "enum": outcomes } } }],
                }),
                false => named,
            }
        });
        for media in shape.media() {
            by_media.entry(media).or_default().extend(schema.clone());
        }
    }
    let content = by_media.into_iter().map(|(media, mut schemas)| {
        let one = match (schemas.pop(), schemas.is_empty()) {
            (None, _) => json!({}),
            (Some(only), true) => json!({ "schema": only }),
            (Some(last), false) => {
                schemas.push(last);
                json!({ "schema": { "anyOf": schemas } })
            }
        };
        (media.to_owned(), one)
    });
    content.collect::<Map<_, _>>().into()
}
