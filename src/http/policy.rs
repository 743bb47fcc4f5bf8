//! The policy of a namespace as JSON (SPEC 5, 6): what is absent is the built-in default, what is unknown,
//! repeated or null is bad input.

use serde::Deserialize;

use super::document::{Object, given};
use super::problem::Refusal;
use crate::model::policy::{
    FingerprintKind, Policy, RangeError, check_attempts, check_delay, check_lease, check_retention,
};
use crate::model::record::{OnLeaseEnd, Retention, Window};
use crate::model::time::Span;

/// The most bytes of a policy's JSON.
pub const MAX_POLICY: usize = 64 * 1024;

/// As it is sent.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sent {
    #[serde(deserialize_with = "given")]
    lease: Option<String>,
    #[serde(deserialize_with = "given")]
    retention: Option<String>,
    #[serde(deserialize_with = "given")]
    window: Option<String>,
    #[serde(deserialize_with = "given")]
    max_attempts: Option<u32>,
    #[serde(deserialize_with = "given")]
    on_lease_end: Option<String>,
    #[serde(deserialize_with = "given")]
    backoff: Option<String>,
    #[serde(deserialize_with = "given")]
    backoff_max: Option<String>,
    #[serde(deserialize_with = "given")]
    fingerprint: Option<String>,
    #[serde(deserialize_with = "given")]
    forget_open_after: Option<String>,
}

/// Reads a policy.
///
/// # Errors
/// Bad input that names the member.
pub fn parse(bytes: &[u8]) -> Result<Policy, Refusal> {
    let Object(sent): Object<Sent> = serde_json::from_slice(bytes).map_err(|error| {
        Refusal::bad_input(format!(
            "the body is not a policy: {error}; send {{}} for the defaults"
        ))
    })?;
    let default = Policy::default();
    Ok(Policy {
        lease: read("lease", sent.lease, default.lease, |text| {
            ranged(check_lease(span(text)?))
        })?,
        retention: read("retention", sent.retention, default.retention, retention)?,
        window: read("window", sent.window, default.window, |text| {
            word(Window::parse(text), "fixed or sliding")
        })?,
        max_attempts: read(
            "max_attempts",
            sent.max_attempts,
            default.max_attempts,
            |n| ranged(check_attempts(*n)),
        )?,
        on_lease_end: read(
            "on_lease_end",
            sent.on_lease_end,
            default.on_lease_end,
            |text| word(OnLeaseEnd::parse(text), "retry or hold"),
        )?,
        backoff: read("backoff", sent.backoff, default.backoff, delay)?,
        backoff_max: read("backoff_max", sent.backoff_max, default.backoff_max, delay)?,
        fingerprint: read(
            "fingerprint",
            sent.fingerprint,
            default.fingerprint,
            |text| word(FingerprintKind::parse(text), "raw or json"),
        )?,
        forget_open_after: read(
            "forget_open_after",
            sent.forget_open_after,
            default.forget_open_after,
            retention,
        )?,
    })
}

fn read<S, T>(
    name: &str,
    sent: Option<S>,
    default: T,
    value: impl Fn(&S) -> Result<T, String>,
) -> Result<T, Refusal> {
    sent.map_or(Ok(default), |sent| value(&sent))
        .map_err(|why| Refusal::bad_input(format!("{name}: {why}")))
}

fn span(text: &str) -> Result<Span, String> {
    match Span::parse(text) {
        Ok(Span::ZERO) => Err("a duration of 0 is no duration".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

#[allow(clippy::ptr_arg)] // what `read` hands in
fn retention(text: &String) -> Result<Retention, String> {
    match text.as_str() {
        "forever" => Ok(Retention::Forever),
        text => ranged(check_retention(Retention::For(span(text)?))),
    }
}

#[allow(clippy::ptr_arg)] // what `read` hands in
fn delay(text: &String) -> Result<Span, String> {
    ranged(check_delay(span(text)?))
}

fn ranged<T>(checked: Result<T, RangeError>) -> Result<T, String> {
    checked.map_err(|error| error.to_string())
}

fn word<T>(parsed: Option<T>, words: &str) -> Result<T, String> {
    parsed.ok_or_else(|| words.to_owned())
}
