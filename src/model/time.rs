//! Units of time and their text forms. Nothing here asks a clock: `engine::clock` alone does.
//!
//! Two time lines run through the store (SPEC 9):
//! * [`BootTime`] counts milliseconds on the boot clock, continued over restarts. Leases and backoff are
//!   durations on it, so that no jump of the wall clock ends a lease early.
//! * [`Timestamp`] is engine time: milliseconds since the Unix epoch, approaching the wall clock and never
//!   going backwards. Retention follows it, and every stored or shown time is one.

use std::fmt;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all. Only `retry_in` and `wait` may be that (SPEC 5).
    pub const ZERO: Span = Span(0);

    /// A duration of so many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis)
    }

    /// A duration of so many seconds; `secs` is a constant of the program, never outside input.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs * SECOND)
    }

    /// The duration in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The duration in whole seconds, rounded up, at least 1: what `Retry-After` carries (SPEC 6).
    #[must_use]
    pub const fn as_secs_up(self) -> u64 {
        let secs = self.0.div_ceil(SECOND);
        if secs == 0 { 1 } else { secs }
    }

    /// Parses `200ms`, `30s`, `15m`, `72h`, `7d` or integer milliseconds (SPEC 6).
    ///
    /// # Errors
    /// Anything else: signs, blanks, fractions, unknown units, and what overflows 2^53 ms.
    pub fn parse(text: &str) -> Result<Span, SpanError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "" | "ms" => 1,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            _ => return Err(SpanError::Malformed),
        };
        if number.is_empty() {
            return Err(SpanError::Malformed);
        }
        number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(factor))
            .filter(|millis| *millis <= MAX_MILLIS)
            .map(Span)
            .ok_or(SpanError::TooLong)
    }
}

/// The largest instant and duration: 2^53 ms, exact in every client's number type.
pub const MAX_MILLIS: u64 = 1 << 53;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanError {
    /// Not of the form SPEC 6 gives.
    Malformed,
    /// Beyond 2^53 milliseconds.
    TooLong,
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpanError::Malformed => {
                "not a duration: write 200ms, 30s, 15m, 72h, 7d or whole milliseconds"
            }
            SpanError::TooLong => "a duration beyond 2^53 milliseconds",
        })
    }
}

impl std::error::Error for SpanError {}

/// The shortest exact text: `72h`, `90s`, `1500ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self.0 {
            0 => (0, "ms"),
            // Hours up to a week read better than days: the default retention is written 72h.
            n if n % DAY == 0 && n / DAY >= 7 => (n / DAY, "d"),
            n if n % HOUR == 0 => (n / HOUR, "h"),
            n if n % MINUTE == 0 => (n / MINUTE, "m"),
            n if n % SECOND == 0 => (n / SECOND, "s"),
            n => (n, "ms"),
        };
        write!(f, "{number}{unit}")
    }
}

/// An instant of engine time: milliseconds since the Unix epoch. Never goes backwards (SPEC 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant so many milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Timestamp {
        Timestamp(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The instant `span` later; saturates at the end of representable time.
    #[must_use]
    pub const fn after(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// RFC 3339 in UTC with milliseconds; years beyond 9999 show as the last instant of 9999.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LAST: u64 = 253_402_300_799_999;
        let millis = self.0.min(LAST);
        let (days, rest) = (millis / DAY, millis % DAY);
        // Civil date from days, counted from 0000-03-01 so that a leap day ends its year.
        let z = days + 719_468;
        let era = z / 146_097;
        let doe = z % 146_097;
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + u64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            rest / HOUR,
            rest % HOUR / MINUTE,
            rest % MINUTE / SECOND,
            rest % SECOND
        )
    }
}

/// An instant on the store's boot clock, in milliseconds: continued over restarts, never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// The instant so many milliseconds after the store's first start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> BootTime {
        BootTime(millis)
    }

    /// Milliseconds since the store's first start.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The instant `span` later; saturates.
    #[must_use]
    pub const fn after(self, span: Span) -> BootTime {
        BootTime(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: BootTime) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// The one instant at which a whole batch is decided, on both time lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Now {
    /// Engine time.
    pub time: Timestamp,
    /// The store's boot clock: its last whole millisecond.
    pub boot: BootTime,
    /// The clock stands between that millisecond and the next one.
    pub between: bool,
    /// How many milliseconds the wall clock is ahead of engine time: absolute times of Redis commands are
    /// the client's wall clock, and are converted by this offset on their way in and out.
    pub wall_ahead: i64,
}

impl Now {
    /// The end of a duration that begins now. Counted from the next whole millisecond, so that no lease is
    /// shorter than was asked for. No time at all ends now: a retry at once is due at once.
    #[must_use]
    pub const fn end_of(self, span: Span) -> BootTime {
        if span.0 == 0 {
            return self.boot;
        }
        BootTime(self.boot.0.saturating_add(self.between as u64)).after(span)
    }

    /// Engine time of an instant that a client read off the wall clock.
    #[must_use]
    pub const fn from_wall(self, wall: Timestamp) -> Timestamp {
        Timestamp(
            wall.0
                .saturating_add_signed(self.wall_ahead.saturating_neg()),
        )
    }

    /// What the wall clock shows at an instant of engine time.
    #[must_use]
    pub const fn to_wall(self, time: Timestamp) -> Timestamp {
        Timestamp(time.0.saturating_add_signed(self.wall_ahead))
    }

    /// Engine time of an instant on the boot clock, by the offset in force now: how lease ends and
    /// `not_before` are shown.
    #[must_use]
    pub const fn show(self, instant: BootTime) -> Timestamp {
        if instant.0 >= self.boot.0 {
            Timestamp(self.time.0.saturating_add(instant.0 - self.boot.0))
        } else {
            Timestamp(self.time.0.saturating_sub(self.boot.0 - instant.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_the_manual_says() {
        let table = [
            ("1", Ok(1)),
            ("200ms", Ok(200)),
            ("30s", Ok(30_000)),
            ("15m", Ok(900_000)),
            ("72h", Ok(259_200_000)),
            ("7d", Ok(604_800_000)),
            ("0", Ok(0)),
            ("", Err(SpanError::Malformed)),
            ("s", Err(SpanError::Malformed)),
            ("-1", Err(SpanError::Malformed)),
            ("+1", Err(SpanError::Malformed)),
            ("1.5s", Err(SpanError::Malformed)),
            ("1 s", Err(SpanError::Malformed)),
            (" 1s", Err(SpanError::Malformed)),
            ("1S", Err(SpanError::Malformed)),
            ("1e30", Err(SpanError::Malformed)),
            ("null", Err(SpanError::Malformed)),
            ("9007199254740993", Err(SpanError::TooLong)),
            ("99999999999999999999", Err(SpanError::TooLong)),
            ("213503982335d", Err(SpanError::TooLong)),
        ];
        for (text, expected) in table {
            assert_eq!(Span::parse(text).map(Span::as_millis), expected, "{text:?}");
        }
    }

    #[test]
    fn a_duration_prints_as_text_that_parses_to_itself() {
        for millis in [
            0,
            1,
            999,
            1000,
            1500,
            60_000,
            90_000,
            3_600_000,
            86_400_000,
            604_800_000,
        ] {
            let span = Span::from_millis(millis);
            assert_eq!(Span::parse(&span.to_string()), Ok(span));
        }
        assert_eq!(Span::from_secs(72 * 3600).to_string(), "72h");
    }

    #[test]
    fn no_duration_is_shorter_than_asked_for_between_two_milliseconds() {
        let at = |between| Now {
            boot: BootTime::from_millis(1000),
            between,
            ..Now::default()
        };
        let lease = Span::from_millis(400);
        assert_eq!(at(false).end_of(lease).as_millis(), 1400);
        assert_eq!(at(true).end_of(lease).as_millis(), 1401);
        assert_eq!(at(true).end_of(Span::ZERO).as_millis(), 1000);
    }

    #[test]
    fn timestamps_print_as_rfc_3339() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_767_323_045_678, "2026-01-02T03:04:05.678Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ];
        for (millis, expected) in table {
            assert_eq!(Timestamp::from_millis(millis).to_string(), expected);
        }
    }
}
