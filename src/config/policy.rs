//! A namespace's policy as the file writes it (SPEC 5): what is absent is the built-in default.

use std::str::FromStr;

use serde::Deserialize;

use super::value::{Positive, read_from_text};
use crate::model::key::{KeyError, check_namespace};
use crate::model::policy::{
    FingerprintKind, Policy, check_attempts, check_delay, check_lease, check_retention,
};
use crate::model::record::{OnLeaseEnd, Retention, Window};
use crate::model::time::Span;

/// A checked namespace name, the `orders` of `[namespace.orders]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespaceName(pub String);

/// Section `[namespace.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySettings {
    lease: Option<Lease>,
    retention: Option<Kept>,
    window: Option<Named<Window>>,
    max_attempts: Option<Attempts>,
    on_lease_end: Option<Named<OnLeaseEnd>>,
    backoff: Option<Delay>,
    backoff_max: Option<Delay>,
    fingerprint: Option<Named<FingerprintKind>>,
    forget_open_after: Option<Kept>,
}

impl PolicySettings {
    /// The whole policy.
    #[must_use]
    pub fn policy(self) -> Policy {
        let default = Policy::default();
        Policy {
            lease: self.lease.map_or(default.lease, |lease| lease.0),
            retention: self.retention.map_or(default.retention, |kept| kept.0),
            window: self.window.map_or(default.window, |window| window.0),
            max_attempts: self.max_attempts.map_or(default.max_attempts, |n| n.0),
            on_lease_end: self.on_lease_end.map_or(default.on_lease_end, |end| end.0),
            backoff: self.backoff.map_or(default.backoff, |delay| delay.0),
            backoff_max: self
                .backoff_max
                .map_or(default.backoff_max, |delay| delay.0),
            fingerprint: self.fingerprint.map_or(default.fingerprint, |kind| kind.0),
            forget_open_after: (self.forget_open_after)
                .map_or(default.forget_open_after, |kept| kept.0),
        }
    }
}

#[derive(Clone, Debug)]
struct Lease(Span);

#[derive(Clone, Debug)]
struct Kept(Retention);

#[derive(Clone, Debug)]
struct Attempts(u32);

#[derive(Clone, Debug)]
struct Delay(Span);

/// One of a few words.
#[derive(Clone, Debug)]
struct Named<T>(T);

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl FromStr for NamespaceName {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<NamespaceName, KeyError> {
        check_namespace(text)?;
        Ok(NamespaceName(text.to_owned()))
    }
}

impl FromStr for Lease {
    type Err = String;

    fn from_str(said: &str) -> Result<Lease, String> {
        let span = Span::parse(said).map_err(text)?;
        check_lease(span).map(Lease).map_err(text)
    }
}

impl FromStr for Kept {
    type Err = String;

    fn from_str(said: &str) -> Result<Kept, String> {
        if said == "forever" {
            return Ok(Kept(Retention::Forever));
        }
        let span = Span::parse(said).map_err(text)?;
        check_retention(Retention::For(span))
            .map(Kept)
            .map_err(text)
    }
}

impl FromStr for Attempts {
    type Err = String;

    fn from_str(said: &str) -> Result<Attempts, String> {
        let number = said.parse().map_err(text)?;
        check_attempts(number).map(Attempts).map_err(text)
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(said: &str) -> Result<Delay, String> {
        let Positive(span) = said.parse()?;
        check_delay(span).map(Delay).map_err(text)
    }
}

macro_rules! named {
    ($($name:ty: $advice:literal),*) => {$(
        impl FromStr for Named<$name> {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Named<$name>, &'static str> {
                <$name>::parse(text).map(Named).ok_or($advice)
            }
        }
    )*};
}

named!(
    Window: "write \"fixed\" or \"sliding\"",
    OnLeaseEnd: "write \"retry\" or \"hold\"",
    FingerprintKind: "write \"raw\" or \"json\""
);

read_from_text!(
    NamespaceName,
    Lease,
    Kept,
    Attempts,
    Delay,
    Named<Window>,
    Named<OnLeaseEnd>,
    Named<FingerprintKind>
);
