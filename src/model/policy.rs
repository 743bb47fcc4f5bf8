//! The policy of a namespace (SPEC 5).

use super::record::{OnLeaseEnd, Retention, Window};
use super::time::Span;
use std::fmt;

/// The shortest and longest lease.
pub const LEASE_RANGE: (Span, Span) = (Span::from_millis(1), Span::from_secs(24 * 3600));
/// The shortest and longest retention; beyond it is `forever`.
pub const RETENTION_RANGE: (Span, Span) = (Span::from_secs(1), Span::from_secs(3650 * 24 * 3600));
/// The longest backoff and `retry_in`: what a retention may be.
pub const MAX_BACKOFF: Span = RETENTION_RANGE.1;
/// The highest number of attempts that can be asked for; 0 is no limit.
pub const MAX_ATTEMPTS: u32 = 1_000_000;

/// How a payload that comes without a fingerprint is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintKind {
    /// By its bytes.
    Raw,
    /// By its canonical JSON.
    Json,
}

impl FingerprintKind {
    /// Its name on every face.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FingerprintKind::Raw => "raw",
            FingerprintKind::Json => "json",
        }
    }

    /// The value of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<FingerprintKind> {
        [FingerprintKind::Raw, FingerprintKind::Json]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// What holds in a namespace where a request says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a holder may work.
    pub lease: Span,
    /// How long a finished record is remembered.
    pub retention: Retention,
    /// Whether a duplicate restarts retention.
    pub window: Window,
    /// Attempts before a record is dead; 0 is no limit.
    pub max_attempts: u32,
    /// What the end of a lease means.
    pub on_lease_end: OnLeaseEnd,
    /// The delay after the first failure, doubled after each.
    pub backoff: Span,
    /// The longest delay.
    pub backoff_max: Span,
    /// How payloads are compared.
    pub fingerprint: FingerprintKind,
    /// When open records go by age; `Forever` by default.
    pub forget_open_after: Retention,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            lease: Span::from_secs(60),
            retention: Retention::For(Span::from_secs(72 * 3600)),
            window: Window::Fixed,
            max_attempts: 5,
            on_lease_end: OnLeaseEnd::Retry,
            backoff: Span::from_secs(10),
            backoff_max: Span::from_secs(3600),
            fingerprint: FingerprintKind::Raw,
            forget_open_after: Retention::Forever,
        }
    }
}

/// A value outside its range; nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// A lease outside [`LEASE_RANGE`].
    Lease,
    /// A retention outside [`RETENTION_RANGE`].
    Retention,
    /// A delay above [`MAX_BACKOFF`].
    Delay,
    /// More attempts than [`MAX_ATTEMPTS`].
    Attempts,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RangeError::Lease => "a lease is 1ms to 24h",
            RangeError::Retention => "a retention is 1s to 3650d, or forever",
            RangeError::Delay => "a delay is at most 3650d",
            RangeError::Attempts => "max_attempts is 0 (no limit) to 1000000",
        })
    }
}

impl std::error::Error for RangeError {}

/// Checks a lease.
///
/// # Errors
/// [`RangeError::Lease`].
pub fn check_lease(lease: Span) -> Result<Span, RangeError> {
    let (least, most) = LEASE_RANGE;
    if (least..=most).contains(&lease) {
        Ok(lease)
    } else {
        Err(RangeError::Lease)
    }
}

/// Checks a retention.
///
/// # Errors
/// [`RangeError::Retention`].
pub fn check_retention(retention: Retention) -> Result<Retention, RangeError> {
    let (least, most) = RETENTION_RANGE;
    match retention {
        Retention::For(span) if !(least..=most).contains(&span) => Err(RangeError::Retention),
        fine => Ok(fine),
    }
}

/// Checks a delay (`retry_in`, backoff); zero is allowed.
///
/// # Errors
/// [`RangeError::Delay`].
pub fn check_delay(delay: Span) -> Result<Span, RangeError> {
    if delay <= MAX_BACKOFF {
        Ok(delay)
    } else {
        Err(RangeError::Delay)
    }
}

/// Checks a number of attempts.
///
/// # Errors
/// [`RangeError::Attempts`].
pub fn check_attempts(attempts: u32) -> Result<u32, RangeError> {
    if attempts <= MAX_ATTEMPTS {
        Ok(attempts)
    } else {
        Err(RangeError::Attempts)
    }
}
