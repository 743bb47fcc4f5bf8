//! The answer to a request, before it is a response: its headers are written in one place.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode};

use super::credentials::CHALLENGE;
use super::json;
use super::metrics;
use super::pieces::Pieces;
use super::problem::{Refusal, status};
use super::stream::{Reply, Source, Stream};
use crate::engine::backup::Outflow;
use crate::model::body::Body;
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Verdict};

const ONCED_OUTCOME: HeaderName = HeaderName::from_static("onced-outcome");
const ONCED_RESULT_STATUS: HeaderName = HeaderName::from_static("onced-result-status");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Content types of the server's own.
pub(super) const JSON: &str = "application/json";
pub(super) const PROBLEM: &str = "application/problem+json";
pub(super) const LINES: &str = "application/x-ndjson";

/// An answer.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    outcome: &'static str,
    media: Media,
    body: Bytes,
    /// What comes in place of the body.
    stream: Option<Source>,
    replayed: bool,
    /// Whole seconds.
    retry_after: Option<u64>,
    allow: Option<String>,
    result_status: Option<u16>,
    /// The connection ends with this answer.
    pub close: bool,
}

/// What the body is.
#[derive(Debug)]
enum Media {
    None,
    Json,
    Problem,
    /// One JSON document a line.
    Lines,
    /// Figures as text.
    Metrics,
    /// Bytes that somebody else gave us, or text that nobody runs.
    Foreign(HeaderValue),
}

impl Answer {
    fn new(status: StatusCode, outcome: &'static str, media: Media, body: Bytes) -> Answer {
        Answer {
            status,
            outcome,
            media,
            body,
            stream: None,
            replayed: false,
            retry_after: None,
            allow: None,
            result_status: None,
            close: false,
        }
    }

    /// Its status, outcome and content type: what the reference has to tell of.
    #[must_use]
    pub(super) fn told(&self) -> (StatusCode, &'static str, Option<&str>) {
        let media = match &self.media {
            Media::None => None,
            Media::Json => Some(JSON),
            Media::Problem => Some(PROBLEM),
            Media::Lines => Some(LINES),
            Media::Metrics => Some(metrics::TEXT),
            Media::Foreign(media) => media.to_str().ok(),
        };
        (self.status, self.outcome, media)
    }

    /// 200 with JSON that is no decision.
    #[must_use]
    pub fn json(body: impl Into<Bytes>) -> Answer {
        Answer::new(StatusCode::OK, "ok", Media::Json, body.into())
    }

    /// 200 with figures as text.
    #[must_use]
    pub(super) fn metrics(body: impl Into<Bytes>) -> Answer {
        Answer::new(StatusCode::OK, "ok", Media::Metrics, body.into())
    }

    /// 200 with lines of JSON, as long as they come.
    #[must_use]
    pub(super) fn lines(lines: Pieces) -> Answer {
        let none = Answer::new(StatusCode::OK, "ok", Media::Lines, Bytes::new());
        Answer {
            stream: Some(Source::Pieces(lines)),
            ..none
        }
    }

    /// 200 with a page of lines of JSON.
    #[must_use]
    pub(super) fn page_of_lines(body: impl Into<Bytes>) -> Answer {
        Answer::new(StatusCode::OK, "ok", Media::Lines, body.into())
    }

    /// 200 with a text of our own, of that content type.
    #[must_use]
    pub fn text(body: impl Into<Bytes>, media: HeaderValue) -> Answer {
        Answer::new(StatusCode::OK, "ok", Media::Foreign(media), body.into())
    }

    /// The methods of a path.
    #[must_use]
    pub fn options(allow: String) -> Answer {
        let none = Answer::new(StatusCode::NO_CONTENT, "ok", Media::None, Bytes::new());
        Answer {
            allow: Some(allow),
            ..none
        }
    }

    /// A decision on a record.
    #[must_use]
    pub fn decided(outcome: &Outcome, key: &RecordKey) -> Answer {
        let verdict = &outcome.verdict;
        let status = status(verdict);
        if verdict.refused() {
            let body = json::refused(outcome, key, status).into();
            return Answer {
                retry_after: outcome.retry_after().map(|span| span.as_secs_up()),
                ..Answer::new(status, verdict.name(), Media::Problem, body)
            };
        }
        let body = json::answer(outcome, key).into();
        Answer::new(status, verdict.name(), Media::Json, body)
    }

    /// The decision on a claim.
    #[must_use]
    pub fn claimed(outcome: &Outcome, key: &RecordKey) -> Answer {
        Answer {
            replayed: outcome.verdict == Verdict::Done,
            ..Answer::decided(outcome, key)
        }
    }

    /// The member that an atomic batch was refused for: never a success, also where the key is done.
    #[must_use]
    pub fn refused_member(outcome: &Outcome, key: &RecordKey) -> Answer {
        if outcome.verdict.refused() {
            return Answer::decided(outcome, key);
        }
        let status = StatusCode::CONFLICT;
        let body = json::already_done(key, status).into();
        Answer::new(status, outcome.verdict.name(), Media::Problem, body)
    }

    /// The bytes of a payload or result, or `None` where they are not at hand.
    #[must_use]
    pub fn raw(body: &Body, result_status: Option<u16>) -> Option<Answer> {
        let bytes = body.content.bytes()?.clone();
        // Types are checked when they are taken in; one that no header can carry is not worth a failure.
        let media = HeaderValue::from_str(&body.content_type)
            .unwrap_or(HeaderValue::from_static("application/octet-stream"));
        Some(Answer {
            result_status,
            ..Answer::new(StatusCode::OK, "ok", Media::Foreign(media), bytes)
        })
    }

    /// Bytes that come as they are read; none where only the head is asked for.
    #[must_use]
    pub fn stream(stream: Option<Outflow>) -> Answer {
        let media = Media::Foreign(from_static("application/octet-stream"));
        Answer {
            stream: stream.map(Source::Backup),
            ..Answer::new(StatusCode::OK, "ok", media, Bytes::new())
        }
    }

    /// The response. `headers` is an empty map whose memory is used again: hyper hands it on from request to
    /// request, so that a busy connection allocates none.
    #[must_use]
    pub fn into_response(self, mut headers: HeaderMap, method: &Method) -> Response<Reply> {
        headers.insert(ONCED_OUTCOME, HeaderValue::from_static(self.outcome));
        match self.media {
            Media::None => None,
            Media::Json => headers.insert(CONTENT_TYPE, from_static(JSON)),
            Media::Problem => headers.insert(CONTENT_TYPE, from_static(PROBLEM)),
            Media::Lines => headers.insert(CONTENT_TYPE, from_static(LINES)),
            Media::Metrics => headers.insert(CONTENT_TYPE, from_static(metrics::TEXT)),
            Media::Foreign(media) => {
                // Should a browser ever show them, then as what they are and without any rights here.
                headers.insert(X_CONTENT_TYPE_OPTIONS, from_static("nosniff"));
                headers.insert(
                    CONTENT_SECURITY_POLICY,
                    from_static("default-src 'none'; sandbox"),
                );
                headers.insert(CONTENT_TYPE, media)
            }
        };
        if self.replayed {
            headers.insert(IDEMPOTENT_REPLAYED, from_static("true"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.and_then(|allow| allow.try_into().ok()) {
            headers.insert(ALLOW, allow);
        }
        if let Some(status) = self.result_status {
            headers.insert(ONCED_RESULT_STATUS, HeaderValue::from(status));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, from_static(CHALLENGE));
        }
        if self.close {
            headers.insert(CONNECTION, from_static("close"));
        }
        if matches!(*method, Method::GET | Method::HEAD) {
            headers.insert(CACHE_CONTROL, from_static("no-store"));
        }
        let body = if *method == Method::HEAD {
            if self.stream.is_none() {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(self.body.len()));
            }
            Bytes::new()
        } else {
            self.body
        };
        let mut response = Response::new(match self.stream.filter(|_| *method != Method::HEAD) {
            Some(stream) => Either::Right(Stream::new(stream)),
            None => Either::Left(Full::new(body)),
        });
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        response
    }
}

fn from_static(value: &'static str) -> HeaderValue {
    HeaderValue::from_static(value)
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        let Refusal {
            status,
            outcome,
            detail,
            retry_after,
            allow,
        } = refusal;
        let body = json::problem(outcome, status, &detail, retry_after).into();
        Answer {
            retry_after: retry_after.map(|span| span.as_secs_up()),
            allow,
            ..Answer::new(status, outcome, Media::Problem, body)
        }
    }
}
