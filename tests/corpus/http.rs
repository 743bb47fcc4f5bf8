//! The HTTP face in-process, held to SPEC 6's table of statuses and headers with every answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::{Request as HttpRequest, Response};
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

use onced::http::{Face, MAX_IN_FLIGHT, Options, Readiness, handle};
use onced::model::policy::Policy;
use onced::model::time::{Span, Timestamp};

use super::answer::{Answer, Value};
use super::engine::Place;
use super::runner::Driver;
use super::script::Request;

/// The face over an engine of its own.
pub(super) struct Http {
    place: Place,
    readiness: watch::Receiver<Readiness>,
}

impl Http {
    pub(super) fn new() -> Http {
        Http {
            place: Place::new(),
            readiness: watch::channel(Readiness::Ready).1,
        }
    }

    fn send(
        &mut self,
        method: &str,
        target: &str,
        content_type: Option<&[u8]>,
        body: &[u8],
    ) -> Reply {
        let mut request = HttpRequest::builder()
            .method(method)
            .uri(target)
            .header(HOST, "localhost");
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let room = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let face = Face::new(
            self.place.engine(),
            Options::default(),
            self.readiness.clone(),
            room,
        );
        self.place.wait(async {
            let response = handle(&face, request).await;
            Reply::read(response).await
        })
    }

    /// A payload or result as bytes, beside what the JSON says of it.
    fn raw(&mut self, request: &Request, what: &str, told: &mut Value) -> Result<(), String> {
        let target = target(request, Some(what), &[]);
        let reply = self.send("GET", &target, None, b"");
        let fits = |name: &str, header: Option<&str>| {
            told.get(name).map(Value::written).as_deref() == header.map(str::as_bytes)
        };
        let size = reply.body.len().to_string();
        let same = reply.status == 200
            && reply.header("onced-outcome") == Some("ok")
            && fits("content_type", reply.header("content-type"))
            && fits("status", reply.header("onced-result-status"))
            && fits("size", Some(&size))
            && told
                .get("body")
                .is_none_or(|body| body.written() == reply.body);
        if !same {
            return Err(format!(
                "GET {target} answers {reply:?} where the record says {told}"
            ));
        }
        told.put("body", Value::Text(reply.body));
        Ok(())
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        let (method, word) = match request.verb.as_str() {
            "claim" => ("POST", None),
            "get" | "list" => ("GET", None),
            "forget" => ("DELETE", None),
            verb => ("POST", Some(verb)),
        };
        let body = match request.verb.as_str() {
            "claim" => "payload",
            "complete" => "result",
            _ => "",
        };
        let target = target(request, word, &["type", body]);
        let bytes = request.option(body).unwrap_or_default();
        let reply = self.send(method, &target, request.option("type"), bytes);
        let mut answer = reply.answer(&request.verb)?;
        if answer.outcome == "acquired" {
            let payload = match answer.members.get("payload").map(Value::written).as_deref() {
                Some(b"true") => Value::Text(
                    self.send(
                        "GET",
                        &self::target(request, Some("payload"), &all(request)),
                        None,
                        b"",
                    )
                    .body,
                ),
                Some(b"false") => Value::Null,
                other => return Err(format!("payload is true or false, not {other:?}")),
            };
            answer.members.put("payload", payload);
        }
        if request.verb == "get" && answer.outcome == "ok" {
            for what in ["payload", "result"] {
                if let Some(mut told) = answer.members.get(what).cloned() {
                    self.raw(request, what, &mut told)?;
                    answer.members.put(what, told);
                }
            }
        }
        Ok(answer)
    }
}

impl Driver for Http {
    fn set_policy(&mut self, namespace: &str, policy: Policy) {
        self.place.set_policy(namespace, policy);
    }

    fn advance(&mut self, span: Span) {
        self.place.advance(span);
    }

    fn now(&self) -> Timestamp {
        self.place.now()
    }

    fn run(&mut self, request: &Request) -> Answer {
        if !request.redis.is_empty() {
            return self.place.redis(request);
        }
        self.ask(request).unwrap_or_else(|problem| {
            Answer::new("(against SPEC 6)").with("problem", Value::text(problem))
        })
    }
}

fn all(request: &Request) -> Vec<&str> {
    request.options.keys().map(String::as_str).collect()
}

/// The path and query, without the options that are not for the query. Keys that clients normalise away go
/// into the query, and so do those that are only looked at, as both ways lead to one record.
fn target(request: &Request, word: Option<&str>, not_for_query: &[&str]) -> String {
    let mut query: Vec<(&str, &[u8])> = request
        .options
        .iter()
        .filter(|(name, _)| !not_for_query.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect();
    let mut path = format!("/v1/claims/{}", escaped(request.namespace.as_bytes()));
    if request.verb != "list" {
        let normalised = matches!(request.key.as_slice(), b"." | b"..");
        if normalised || (request.verb == "get" && request.key.len() <= 1024) {
            path.push_str("/-");
            query.push(("key", &request.key));
        } else {
            path.push('/');
            path.push_str(&escaped(&request.key));
        }
    }
    if let Some(word) = word {
        path.push('/');
        path.push_str(word);
    }
    for (at, (name, value)) in query.iter().enumerate() {
        path.push(if at == 0 { '?' } else { '&' });
        path.push_str(&format!("{name}={}", escaped(value)));
    }
    path
}

/// Percent-encoded, but for what RFC 3986 leaves unreserved.
fn escaped(bytes: &[u8]) -> String {
    let escape = |b: &u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*b).to_string()
        }
        _ => format!("%{b:02X}"),
    };
    bytes.iter().map(escape).collect()
}

/// A response that was read.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    async fn read(response: Response<onced::http::stream::Reply>) -> Reply {
        let (parts, body) = response.into_parts();
        let text =
            |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        Reply {
            status: parts.status.as_u16(),
            headers: parts
                .headers
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), text(value)))
                .collect(),
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The answer, or what of it is against SPEC 6.
    fn answer(&self, verb: &str) -> Result<Answer, String> {
        let json: serde_json::Value = serde_json::from_slice(&self.body)
            .map_err(|error| format!("not JSON ({error}): {self:?}"))?;
        let members = value(&json);
        let told = members.get("outcome").map(Value::written);
        let outcome = told.map_or("ok".to_owned(), |bytes| String::from_utf8(bytes).unwrap());
        self.check(verb, &outcome, &members)
            .map_err(|problem| format!("{problem}: {self:?} {members}"))?;
        Ok(Answer { outcome, members })
    }

    fn check(&self, verb: &str, outcome: &str, members: &Value) -> Result<(), String> {
        let (status, refused) =
            table(outcome).ok_or_else(|| format!("no outcome is called {outcome}"))?;
        expect("status", &self.status, &status)?;
        expect(
            "Onced-Outcome",
            &self.header("onced-outcome"),
            &Some(outcome),
        )?;
        let duplicate = (verb, outcome) == ("claim", "done");
        expect(
            "Idempotent-Replayed",
            &self.header("idempotent-replayed"),
            &duplicate.then_some("true"),
        )?;
        let left = members.get("retry_after_ms").map(Value::written);
        let left = left.map(|bytes| String::from_utf8(bytes).unwrap().parse::<u64>().unwrap());
        let in_time = matches!(outcome, "busy" | "backoff");
        expect("retry_after_ms is there", &left.is_some(), &in_time)?;
        let seconds = left.map(|millis| millis.div_ceil(1000).max(1).to_string());
        expect(
            RETRY_AFTER.as_str(),
            &self.header("retry-after"),
            &seconds.as_deref(),
        )?;
        let media = if refused {
            "application/problem+json"
        } else {
            "application/json"
        };
        expect("Content-Type", &self.header("content-type"), &Some(media))?;
        if refused {
            let text = |name: &str| {
                members
                    .get(name)
                    .map(|value| String::from_utf8(value.written()).unwrap())
            };
            expect(
                "type",
                &text("type"),
                &Some(format!("/manual/problems/{outcome}")),
            )?;
            expect(
                "status in the body",
                &text("status"),
                &Some(status.to_string()),
            )?;
            for name in ["title", "detail"] {
                expect(
                    name,
                    &text(name).is_some_and(|text| !text.is_empty()),
                    &true,
                )?;
            }
            expect("a token in a refusal", &members.get("token"), &None)?;
        }
        Ok(())
    }
}

/// The status of an outcome, and whether it is a refusal: SPEC 6.
fn table(outcome: &str) -> Option<(u16, bool)> {
    Some(match outcome {
        "acquired" => (201, false),
        "done" | "ok" => (200, false),
        "renewed" | "announced" | "completed" | "failed" | "released" | "replayed"
        | "forgotten" => (200, false),
        "busy" | "backoff" | "in_doubt" | "dead" | "conflict" => (409, true),
        "mismatch" => (422, true),
        "stale" => (412, true),
        "bad_input" => (400, true),
        "not_found" => (404, true),
        "too_large" => (413, true),
        _ => return None,
    })
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected {
        Ok(())
    } else {
        Err(format!("{what} is {got:?}, and has to be {expected:?}"))
    }
}

/// JSON as a script writes it; bytes that JSON cannot hold stand under the name of their text.
fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::text(truth),
        serde_json::Value::Number(number) => Value::text(number),
        serde_json::Value::String(text) => Value::text(text),
        serde_json::Value::Array(items) => Value::List(items.iter().map(value).collect()),
        serde_json::Value::Object(members) => {
            let member =
                |(name, json): (&String, &serde_json::Value)| match name.strip_suffix("_base64") {
                    Some(plain) => {
                        let bytes = STANDARD.decode(json.as_str().unwrap_or_default()).unwrap();
                        (plain.to_owned(), Value::Text(bytes))
                    }
                    None => (name.clone(), value(json)),
                };
            Value::Map(members.iter().map(member).collect())
        }
    }
}
