//! The engine's figures, as families that every face renders in its own form.

use super::clock::Timer;
use super::metrics::{Counted, ENTRIES, SECONDS, load};
use super::waiters::End;
use super::{Engine, Face, States, Unavailable};

/// How old the counts of open records may be, in seconds: counting reads all of them.
const FRESH: u64 = 10;

/// Figures of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, in snake case.
    pub name: &'static str,
    /// What it tells, with its unit.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// One for each combination of labels.
    pub samples: Vec<Sample>,
}

/// What kind of figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows from the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often values were how large, from the start of the process.
    Histogram,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What tells it from the others of its name.
    pub labels: Vec<(&'static str, String)>,
    /// The figure.
    pub value: Value,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram, with the upper bounds of its buckets.
    Spread(&'static [f64; 16], Counted),
}

impl Family {
    /// Figures with labels.
    #[must_use]
    pub fn of(name: &'static str, help: &'static str, kind: Kind, samples: Vec<Sample>) -> Family {
        Family {
            name,
            help,
            kind,
            samples,
        }
    }

    /// One figure without labels.
    #[must_use]
    pub fn one(name: &'static str, help: &'static str, kind: Kind, value: u64) -> Family {
        Family::of(name, help, kind, vec![sample(&[], value)])
    }

    /// One figure of several.
    #[must_use]
    pub fn sample(labels: &[(&'static str, &str)], value: u64) -> Sample {
        sample(labels, value)
    }
}

fn sample(labels: &[(&'static str, &str)], value: u64) -> Sample {
    numbered(labels, value as f64)
}

fn numbered(labels: &[(&'static str, &str)], value: f64) -> Sample {
    let labels = labels.iter().map(|(name, text)| (*name, (*text).into()));
    Sample {
        labels: labels.collect(),
        value: Value::Number(value),
    }
}

fn spread(labels: &[(&'static str, &str)], bounds: &'static [f64; 16], counted: Counted) -> Sample {
    Sample {
        value: Value::Spread(bounds, counted),
        ..numbered(labels, 0.0)
    }
}

impl Engine {
    /// The same engine, for commands that come through that face: they are counted apart.
    #[must_use]
    pub fn facing(mut self, face: Face) -> Engine {
        self.face = face;
        self
    }

    /// All figures of the engine, as of now; those of open records may be ten seconds old.
    ///
    /// # Errors
    /// [`Unavailable::Stopping`]; a failing store stops the process.
    pub async fn figures(&self) -> Result<Vec<Family>, Unavailable> {
        use Kind::{Counter, Gauge, Histogram};
        let states = self.open_states().await?;
        let inner = &self.inner;
        let metrics = &inner.metrics;
        let (full, recent, late, jumps, last, held, ended) = {
            let core = self.running()?;
            let last = core.gather.durable().0;
            let (late, jumps) = (core.late.count(), core.clock.jumps());
            let (held, ended) = (core.waiters.held(), core.waiters.ended());
            let recent = core.recent.bytes() as u64;
            (core.full, recent, late, jumps, last, held, ended)
        };
        let filters = inner.reader.filter_stats();
        let trail = inner.trails.bytes();
        let store = inner.space.get().and_then(|(data, _)| {
            let meta = std::fs::metadata(data.join(super::open::STORE));
            meta.ok().map(|meta| meta.len())
        });
        let answers = metrics.answers();
        let answers = answers.iter().map(|(ns, verb, outcome, count)| {
            sample(
                &[("ns", &**ns), ("verb", verb), ("outcome", outcome)],
                *count,
            )
        });
        let times = metrics.times().into_iter().map(|(face, verb, counted)| {
            spread(&[("verb", verb), ("face", face.name())], &SECONDS, counted)
        });
        let refusals = metrics.refusals();
        let refusals = refusals.map(|(limit, count)| sample(&[("limit", limit)], count));
        let open = [
            ("pending", states.pending),
            ("retry", states.retry),
            ("in_doubt", states.in_doubt),
            ("dead", states.dead),
        ];
        let open = open.map(|(state, count)| sample(&[("state", state)], count));
        let ended = End::NAMES.into_iter().zip(ended);
        let ended = ended.map(|(end, count)| sample(&[("end", end)], count));
        let since_sweep = metrics.since_sweep().as_secs_f64();
        let whole = |bounds, histogram: &super::metrics::Histogram| {
            vec![spread(&[], bounds, histogram.read())]
        };
        Ok(vec![
            Family::of(
                "answers",
                "Commands answered, by namespace (the first 64), verb and outcome",
                Counter,
                answers.collect(),
            ),
            Family::of(
                "answer_seconds",
                "From the command to its durable answer, by verb and face",
                Histogram,
                times.collect(),
            ),
            Family::of(
                "refusals",
                "Commands that a limit or a state of the server refused, by which",
                Counter,
                refusals.collect(),
            ),
            Family::one("waiting_claims", "Claims that wait now", Gauge, held),
            Family::of(
                "waits",
                "Waits of claims that ended, by what ended them",
                Counter,
                ended.collect(),
            ),
            Family::one(
                "trail_readers",
                "Readers of the audit trail, followers included",
                Gauge,
                inner.trails.readers(),
            ),
            Family::one(
                "late_completions",
                "Completes with an ended token: possible double executions",
                Counter,
                late,
            ),
            Family::of(
                "open_records",
                "Open records, by the state they show in",
                Gauge,
                open.to_vec(),
            ),
            Family::one(
                "orphaned_records",
                "Pending records whose lease is over",
                Gauge,
                states.orphaned,
            ),
            Family::one("done_records", "Done records", Gauge, states.done),
            Family::of(
                "commit_entries",
                "Entries of a group commit",
                Histogram,
                whole(&ENTRIES, &metrics.commit_entries),
            ),
            Family::of(
                "commit_seconds",
                "Write and fsync of a group commit",
                Histogram,
                whole(&SECONDS, &metrics.commit_seconds),
            ),
            Family::of(
                "checkpoint_seconds",
                "Copying recent records to the store",
                Histogram,
                whole(&SECONDS, &metrics.checkpoint_seconds),
            ),
            Family::one("durable_lsn", "The last durable entry", Gauge, last),
            Family::one(
                "journal_bytes",
                "Bytes of the journal's segments",
                Gauge,
                trail,
            ),
            Family::one(
                "store_bytes",
                "Bytes of the store's file",
                Gauge,
                store.unwrap_or(0),
            ),
            Family::one("recent_bytes", "Memory of recent records", Gauge, recent),
            Family::one(
                "filter_bytes",
                "Memory of the filters",
                Gauge,
                filters.bytes,
            ),
            Family::one(
                "filter_probes",
                "Look-ups in a table because its filter said maybe",
                Counter,
                filters.positives,
            ),
            Family::one(
                "filter_false_positives",
                "Those of them that found nothing",
                Counter,
                filters.false_positives,
            ),
            Family::of(
                "since_sweep_seconds",
                "Since expired records were last looked for; a sweep is due every 10 s",
                Gauge,
                vec![numbered(&[], since_sweep)],
            ),
            Family::one(
                "swept_records",
                "Records dropped after their retention",
                Counter,
                load(&metrics.swept),
            ),
            Family::one("clock_jumps", "Jumps of the wall clock", Counter, jumps),
            Family::one(
                "full",
                "1 while the disk has no room for new records",
                Gauge,
                full.into(),
            ),
        ])
    }

    /// How many records show in each state, over all namespaces.
    async fn open_states(&self) -> Result<States, Unavailable> {
        if let Some((counted, states)) = &*self.inner.metrics.states.lock()
            && counted.elapsed().as_secs() < FRESH
        {
            return Ok(*states);
        }
        let names: Vec<Box<str>> = self.running()?.namespaces.iter().cloned().collect();
        let mut all = States::default();
        for name in names {
            let states = self.states(&name).await?;
            all.pending = all.pending.saturating_add(states.pending);
            all.retry = all.retry.saturating_add(states.retry);
            all.done = all.done.saturating_add(states.done);
            all.in_doubt = all.in_doubt.saturating_add(states.in_doubt);
            all.dead = all.dead.saturating_add(states.dead);
            all.orphaned = all.orphaned.saturating_add(states.orphaned);
        }
        *self.inner.metrics.states.lock() = Some((Timer::start(), all));
        Ok(all)
    }
}
