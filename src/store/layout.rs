//! Which table a record lies in: pure, from the record alone and how full the tables are.
//!
//! Open records lie in `open`. Done records lie by the time they expire, so that a bucket that is over is
//! dropped whole: `done/<width>/<bucket>/<part>`, the width in seconds a power of 8 that is at least an
//! eighth of the retention, the bucket `expires_at / width`. Records that never expire lie in
//! `done/forever/<part>`. A part is closed at a bounded number of rows, because merges into a larger B-tree
//! dirty a page per key. Bodies over 4 KiB lie in a table paired with the record's, `body/<table>`.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::time::{Span, Timestamp};

use super::codec::{Lies, RecordView};
use super::open::Options;

/// The name of the table of format, state, counts and policies.
pub(super) const META: &str = "meta";
/// Goes before the name of a table for the one of its bodies.
const BODY: &str = "body/";

/// 8^15 seconds: every instant up to 2^53 ms lies in its first bucket.
const WIDEST: u8 = 15;
/// How long after its end a bucket may still be written to by a batch with an older `now`.
const GRACE: Span = Span::from_secs(60);

/// A table of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// `pending`, `retry`, `in_doubt` and `dead`.
    Open,
    /// `done`, until about the end of the bucket.
    Done(Bucket, u32),
    /// `done`, for ever.
    Forever(u32),
}

/// Tables whose records expire about together: see [`Place::family`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Those of eight buckets in a row.
    Until {
        /// Of their width.
        exponent: u8,
        /// An eighth of their numbers.
        number: u64,
    },
    /// Those that never do.
    Forever,
}

/// A stretch of time in which records expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Bucket {
    /// The exponent of the width: 8^exponent seconds.
    exponent: u8,
    /// Which of that width, counted from the Unix epoch.
    number: u64,
}

impl Bucket {
    const fn width_millis(exponent: u8) -> u64 {
        // At most 8^15 * 1000 < 2^55.
        (1 << (3 * exponent as u32)) * 1000
    }

    fn of(exponent: u8, at: Timestamp) -> Bucket {
        Bucket {
            exponent,
            number: at.as_millis() / Bucket::width_millis(exponent),
        }
    }

    fn holds(self, at: Timestamp) -> bool {
        Bucket::of(self.exponent, at) == self
    }

    /// From here on, every record in it has expired.
    fn end(self) -> Timestamp {
        let width = Bucket::width_millis(self.exponent);
        Timestamp::from_millis(self.number.saturating_add(1).saturating_mul(width))
    }
}

impl Place {
    /// The place of the table of that name; `None` for any other table.
    pub(super) fn parse(name: &str) -> Option<Place> {
        if name == "open" {
            return Some(Place::Open);
        }
        let rest = name.strip_prefix("done/")?;
        if let Some(part) = rest.strip_prefix("forever/") {
            return Some(Place::Forever(number(part)?.try_into().ok()?));
        }
        let mut fields = rest.split('/');
        let mut next = || number(fields.next()?);
        let (width, bucket, part) = (next()?, next()?, next()?.try_into().ok()?);
        let exponent = (0..=WIDEST).find(|e| Bucket::width_millis(*e) / 1000 == width)?;
        let place = Place::Done(
            Bucket {
                exponent,
                number: bucket,
            },
            part,
        );
        fields.next().is_none().then_some(place)
    }

    /// The place whose bodies lie in the table of that name.
    pub(super) fn parse_body(name: &str) -> Option<Place> {
        Place::parse(name.strip_prefix(BODY)?)
    }

    /// Its family: tables that end in one stretch of eight buckets' width. `None`: it is alone.
    pub(super) fn family(self) -> Option<Family> {
        match self {
            Place::Open => None,
            Place::Done(bucket, _) => Some(Family::Until {
                exponent: bucket.exponent,
                number: bucket.number / 8,
            }),
            Place::Forever(_) => Some(Family::Forever),
        }
    }

    /// Whether the two have one family.
    pub(super) fn is_kin(self, other: Place) -> bool {
        self.family().is_some_and(|own| other.family() == Some(own))
    }

    /// The name of its table.
    pub(super) fn name(self) -> String {
        self.to_string()
    }

    /// The name of the table of its bodies.
    pub(super) fn body_name(self) -> String {
        format!("{BODY}{self}")
    }

    /// Whether every record in it has expired.
    pub(super) fn has_expired(self, now: Timestamp) -> bool {
        matches!(self, Place::Done(bucket, _) if bucket.end() <= now)
    }

    /// Whether the sweeper may drop it.
    pub(super) fn is_over(self, now: Timestamp) -> bool {
        matches!(self, Place::Done(bucket, _) if is_over(bucket.end(), now))
    }

    /// Whether a record that lies so belongs here.
    pub(super) fn fits(self, lies: Lies) -> bool {
        match (self, lies) {
            (Place::Open, Lies::Open) | (Place::Forever(_), Lies::Forever) => true,
            (Place::Done(bucket, _), Lies::Until(at)) => bucket.holds(at),
            _ => false,
        }
    }
}

/// Whether no batch under way can still see as alive what expires by `end`.
pub(super) fn is_over(end: Timestamp, now: Timestamp) -> bool {
    end.after(GRACE) < now
}

/// Digits only, so that a name parses back to itself.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let canonical = text.len() == 1 || !text.starts_with('0');
    if plain && canonical {
        text.parse().ok()
    } else {
        None
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Open => f.write_str("open"),
            Place::Forever(part) => write!(f, "done/forever/{part}"),
            Place::Done(bucket, part) => {
                let width = Bucket::width_millis(bucket.exponent) / 1000;
                write!(f, "done/{width}/{}/{part}", bucket.number)
            }
        }
    }
}

/// Bounds on tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// A part is closed at that many rows.
    pub(super) part_rows: u64,
    /// About so many tables of records, at most.
    pub(super) tables: usize,
}

impl Bounds {
    pub(super) fn of(options: Options) -> Bounds {
        Bounds {
            part_rows: options.part_rows.max(1),
            tables: options.tables.max(64),
        }
    }
}

/// Chooses tables for the records of one checkpoint.
pub(super) struct Chooser {
    bounds: Bounds,
    /// Rows of every table, with what was chosen so far but for the run.
    rows: BTreeMap<Place, u64>,
    /// Most records of a checkpoint go where the one before them went.
    run: Option<Run>,
}

/// Records of one bucket that go to one table.
struct Run {
    bucket: Bucket,
    place: Place,
    taken: u64,
    /// How many more the table takes.
    left: u64,
}

impl Chooser {
    /// A chooser over the tables there are, with their rows.
    pub(super) fn new(bounds: Bounds, tables: impl IntoIterator<Item = (Place, u64)>) -> Chooser {
        Chooser {
            bounds,
            rows: tables.into_iter().collect(),
            run: None,
        }
    }

    /// The table for a record, which counts as one more row of it.
    pub(super) fn choose(&mut self, record: &RecordView<'_>) -> Place {
        let lies = record.lies();
        let kept = match lies {
            Lies::Until(at) => record.kept(at),
            Lies::Open | Lies::Forever => Span::ZERO,
        };
        let bucket = match lies {
            Lies::Until(at) => Some(Bucket::of(least_exponent(kept), at)),
            Lies::Forever | Lies::Open => None,
        };
        if let Some(run) = &mut self.run {
            if bucket == Some(run.bucket) && run.left > 0 {
                run.taken += 1;
                run.left -= 1;
                return run.place;
            }
            *self.rows.entry(run.place).or_insert(0) += run.taken;
            self.run = None;
        }
        let place = match lies {
            Lies::Until(at) => self.bucket(at, kept),
            Lies::Forever => self.part(Place::Forever, 0, true),
            Lies::Open => Some(Place::Open),
        };
        // `bucket` finds a place for every record, and so does `part` when parts may grow.
        let place = place.unwrap_or(Place::Forever(0));
        let rows = self.rows.entry(place).or_insert(0);
        *rows += 1;
        match (bucket, place) {
            (Some(wanted), Place::Done(bucket, _)) if bucket == wanted => {
                self.run = Some(Run {
                    bucket,
                    place,
                    taken: 0,
                    left: self.bounds.part_rows.saturating_sub(*rows),
                });
            }
            _ => {}
        }
        place
    }

    /// At the bound on tables wider buckets are taken, which hold expired records longer; where they are
    /// used up too, parts grow beyond their size.
    fn bucket(&self, at: Timestamp, retention: Span) -> Option<Place> {
        let least = least_exponent(retention);
        let part_of = |exponent: u8, grow: bool| {
            let bucket = Bucket::of(exponent, at);
            self.part(
                |part| Place::Done(bucket, part),
                usize::from(exponent - least),
                grow,
            )
        };
        (least..=WIDEST)
            .find_map(|exponent| part_of(exponent, false))
            .or_else(|| {
                let exists = |e: &u8| {
                    self.last_part(|p| Place::Done(Bucket::of(*e, at), p))
                        .is_some()
                };
                part_of((least..=WIDEST).find(exists).unwrap_or(WIDEST), true)
            })
    }

    /// The part to write to: the last one while it has room, then a new one while tables may be added;
    /// `steps` wider than wanted leaves the more room for tables, so that widening is gradual. A part that
    /// may `grow` is always found.
    fn part(&self, place: impl Fn(u32) -> Place, steps: usize, grow: bool) -> Option<Place> {
        let last = self.last_part(&place);
        if let Some((part, rows)) = last
            && (rows < self.bounds.part_rows || part == u32::MAX)
        {
            return Some(place(part));
        }
        let next = last.map_or(0, |(part, _)| part.saturating_add(1));
        let most = self.bounds.tables / 4 * 3 + self.bounds.tables / 64 * steps;
        if self.rows.len() < most {
            return Some(place(next));
        }
        grow.then(|| place(last.map_or(0, |(part, _)| part)))
    }

    fn last_part(&self, place: impl Fn(u32) -> Place) -> Option<(u32, u64)> {
        let (found, rows) = self.rows.range(place(0)..=place(u32::MAX)).next_back()?;
        match found {
            Place::Done(_, part) | Place::Forever(part) => Some((*part, *rows)),
            Place::Open => None,
        }
    }
}

/// The smallest width that is at least an eighth of the retention.
fn least_exponent(retention: Span) -> u8 {
    let fits = |e: &u8| Bucket::width_millis(*e).saturating_mul(8) >= retention.as_millis();
    (0..=WIDEST).find(fits).unwrap_or(WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::{Record, Retention, State};
    use crate::store::codec::{encode_record, view_record};
    use crate::store::samples;

    fn choose(chooser: &mut Chooser, record: &Record) -> Place {
        let mut value = Vec::new();
        encode_record(b"ns\0k", record, &mut value).unwrap();
        chooser.choose(&view_record(b"ns\0k", &value).unwrap())
    }

    const BOUNDS: Bounds = Bounds {
        part_rows: 3,
        tables: 1024,
    };

    fn done(expires: u64, retention: u64) -> Record {
        let mut record = samples::done(1, Timestamp::from_millis(expires - retention), expires);
        record.retention = Retention::For(Span::from_millis(retention));
        record
    }

    #[test]
    fn names_parse_back_and_nothing_else_does() {
        let bucket = Bucket {
            exponent: 5,
            number: 53_219,
        };
        for (place, name) in [
            (Place::Open, "open"),
            (Place::Done(bucket, 0), "done/32768/53219/0"),
            (Place::Forever(7), "done/forever/7"),
        ] {
            assert_eq!(place.name(), name);
            assert_eq!(Place::parse(name), Some(place));
            assert_eq!(Place::parse_body(&place.body_name()), Some(place));
        }
        for other in [
            "",
            "meta",
            "done",
            "done/",
            "done/forever",
            "done/forever/x",
            "done/9/1/1",
            "done/8/1",
            "done/8/1/1/1",
            "done/8/01/1",
            "done/8/+1/1",
            "done/8/1/4294967296",
            "body/open",
            "Open",
        ] {
            assert_eq!(Place::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_width_is_the_smallest_of_at_least_an_eighth_of_the_retention() {
        for (retention, width) in [
            (1, 1),
            (8_000, 1),
            (8_001, 8),
            (64_000, 8),
            (3_600_000, 512),
            (259_200_000, 32_768),
            (315_360_000_000, 134_217_728),
            (u64::MAX, 35_184_372_088_832),
        ] {
            let exponent = least_exponent(Span::from_millis(retention));
            assert_eq!(
                Bucket::width_millis(exponent) / 1000,
                width,
                "{retention} ms"
            );
        }
    }

    #[test]
    fn a_bucket_is_over_a_minute_after_its_last_record_expired() {
        let mut chooser = Chooser::new(BOUNDS, []);
        let place = choose(&mut chooser, &done(1_000_000, 60_000));
        assert_eq!(place.name(), "done/8/125/0");
        for (now, over) in [(1_000_000, false), (1_068_000, false), (1_068_001, true)] {
            assert_eq!(place.is_over(Timestamp::from_millis(now)), over, "{now}");
        }
        assert!(!Place::Open.is_over(Timestamp::from_millis(u64::MAX)));
        assert!(!Place::Forever(0).is_over(Timestamp::from_millis(u64::MAX)));
    }

    #[test]
    fn a_part_is_closed_when_it_is_full() {
        let mut chooser = Chooser::new(BOUNDS, []);
        let names: Vec<_> = (0..7)
            .map(|_| choose(&mut chooser, &done(1_000_000, 60_000)).name())
            .collect();
        let expected = ["done/8/125/0"; 3]
            .iter()
            .chain(&["done/8/125/1"; 3])
            .chain(&["done/8/125/2"]);
        assert!(names.iter().eq(expected), "{names:?}");
    }

    #[test]
    fn at_the_bound_on_tables_buckets_get_wider_and_then_parts_larger() {
        let bounds = Bounds {
            part_rows: 1,
            tables: 64,
        };
        let mut chooser = Chooser::new(bounds, []);
        for second in 0..1000 {
            let record = done(1_000_000_000 + second * 1000, 4000);
            let place = choose(&mut chooser, &record);
            assert!(
                place.fits(Lies::Until(record.expires_at.unwrap())),
                "{place} at {second}"
            );
        }
        assert!(chooser.rows.len() <= 64, "{} tables", chooser.rows.len());
        let widths: std::collections::BTreeSet<_> = chooser
            .rows
            .keys()
            .filter_map(|place| match place {
                Place::Done(bucket, _) => Some(bucket.exponent),
                _ => None,
            })
            .collect();
        assert!(widths.len() > 3, "widening is gradual: {widths:?}");
        let mut forever = done(1_000_000, 60_000);
        forever.expires_at = None;
        assert_eq!(
            choose(&mut chooser, &forever),
            Place::Forever(0),
            "found also at the bound"
        );
    }

    #[test]
    fn open_records_and_those_for_ever_have_places_of_their_own() {
        let mut chooser = Chooser::new(BOUNDS, []);
        let mut record = done(1_000_000, 60_000);
        record.expires_at = None;
        assert_eq!(choose(&mut chooser, &record), Place::Forever(0));
        for state in [State::Pending, State::Retry, State::InDoubt, State::Dead] {
            record.state = state;
            (record.result, record.completed_at) = (None, None);
            assert_eq!(choose(&mut chooser, &record), Place::Open);
        }
    }
}
