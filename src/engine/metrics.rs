//! What is counted while the engine works. Counting takes no lock and decides nothing: relaxed atomics, in a part of
//! memory of the thread's own, and once for a run of commands alike rather than once for each.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::clock::Timer;
use super::{States, Unavailable};
use crate::model::command::Command;
use crate::model::outcome::Outcome;
use crate::store::{OUTCOMES, VERBS};

/// Namespaces that are told apart, the first that come; the others are counted together.
pub const MAX_TOLD_APART: usize = 64;
/// What the others are called: no namespace's name, so that nobody is mistaken for them.
pub const OTHERS: &str = "(others)";
/// Parts of memory that threads count in.
const SHARDS: usize = 8;
/// What scripts and transactions are called beside the verbs.
const PROGRAM: &str = "program";
/// Names of what takes time: the verbs, then programs.
const TIMED: usize = VERBS.len() + 1;

/// Upper bounds of times, in seconds.
pub(super) const SECONDS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 10.0,
];
/// Upper bounds of the number of entries in a commit.
pub(super) const ENTRIES: [f64; 16] = [
    0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0,
    16384.0, 65536.0,
];

/// Through which face a command came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Face {
    /// None: the program's own.
    #[default]
    Inside,
    /// HTTP.
    Http,
    /// The Redis protocol.
    Redis,
}

impl Face {
    pub(super) const ALL: [Face; 3] = [Face::Inside, Face::Http, Face::Redis];

    /// Its name as a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Face::Inside => "inside",
            Face::Http => "http",
            Face::Redis => "redis",
        }
    }
}

/// How often a value was at most so large. The last bucket is for what is larger than every bound.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; 17],
    /// In millionths.
    sum: AtomicU64,
}

impl Histogram {
    fn add(&self, bounds: &[f64; 16], value: f64, times: u64) {
        let at = bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(times, Ordering::Relaxed);
        }
        let millionths = (value * 1e6) as u64;
        self.sum
            .fetch_add(millionths.saturating_mul(times), Ordering::Relaxed);
    }

    fn took(&self, took: Duration, times: u64) {
        self.add(&SECONDS, took.as_secs_f64(), times);
    }

    /// What was counted so far, in the same buckets.
    pub(super) fn read(&self) -> Counted {
        Counted {
            buckets: self.buckets.each_ref().map(load),
            sum: load(&self.sum) as f64 / 1e6,
        }
    }
}

/// A histogram at one moment; buckets are not cumulative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// One for each bound, and one for what is larger.
    pub buckets: [u64; 17],
    /// Of all values.
    pub sum: f64,
}

impl Counted {
    fn join(&mut self, other: &Counted) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine = mine.saturating_add(theirs);
        }
        self.sum += other.sum;
    }

    /// How many values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

pub(super) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A thread's part, in memory of its own: no two threads write to one cache line, but at its edges.
struct Shard {
    /// By namespace; each a counter for every verb and outcome.
    answers: Vec<OnceLock<Box<[AtomicU64]>>>,
    /// By face and verb.
    times: Vec<Histogram>,
}

impl Shard {
    fn new() -> Shard {
        Shard {
            answers: (0..=MAX_TOLD_APART).map(|_| OnceLock::new()).collect(),
            times: (0..Face::ALL.len() * TIMED)
                .map(|_| Histogram::default())
                .collect(),
        }
    }

    fn count(&self, namespace: usize, verb: usize, outcome: usize, times: u64) {
        let Some(counters) = self.answers.get(namespace) else {
            return;
        };
        let none = || (0..VERBS.len() * OUTCOMES.len()).map(|_| AtomicU64::new(0));
        let counters = counters.get_or_init(|| none().collect());
        if let Some(counter) = counters.get(verb * OUTCOMES.len() + outcome) {
            counter.fetch_add(times, Ordering::Relaxed);
        }
    }
}

/// Commands in a row of which namespace, verb and outcome are the same.
struct Run<'a> {
    namespace: &'a str,
    verb: &'static str,
    outcome: &'static str,
    times: u64,
}

/// All that is counted.
pub(super) struct Metrics {
    /// The first namespaces that came.
    names: Vec<OnceLock<Box<str>>>,
    shards: Vec<Shard>,
    refusals: [AtomicU64; Unavailable::NAMES.len()],
    pub(super) commit_entries: Histogram,
    pub(super) commit_seconds: Histogram,
    pub(super) checkpoint_seconds: Histogram,
    pub(super) swept: AtomicU64,
    last_sweep: Mutex<Timer>,
    /// Counting the open records reads them all: not at every look.
    pub(super) states: Mutex<Option<(Timer, States)>>,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        Metrics {
            names: (0..MAX_TOLD_APART).map(|_| OnceLock::new()).collect(),
            shards: (0..SHARDS).map(|_| Shard::new()).collect(),
            refusals: Default::default(),
            commit_entries: Histogram::default(),
            commit_seconds: Histogram::default(),
            checkpoint_seconds: Histogram::default(),
            swept: AtomicU64::new(0),
            last_sweep: Mutex::new(Timer::start()),
            states: Mutex::new(None),
        }
    }

    /// Commands that were answered together, after that time.
    pub(super) fn answered<'a>(
        &self,
        face: Face,
        commands: impl Iterator<Item = &'a Command>,
        answers: &[Result<Outcome, Unavailable>],
        took: Duration,
    ) {
        let mut run: Option<Run<'a>> = None;
        for (command, answer) in commands.zip(answers) {
            let (verb, namespace) = (command.verb.name(), command.key.namespace());
            let outcome = match answer {
                Ok(outcome) => outcome.verdict.name(),
                Err(why) => {
                    self.refused(*why);
                    "unavailable"
                }
            };
            match &mut run {
                Some(run)
                    if run.verb == verb && run.outcome == outcome && run.namespace == namespace =>
                {
                    run.times += 1;
                }
                _ => {
                    let next = Run {
                        namespace,
                        verb,
                        outcome,
                        times: 1,
                    };
                    self.count(face, run.replace(next), took);
                }
            }
        }
        self.count(face, run, took);
    }

    fn count(&self, face: Face, run: Option<Run<'_>>, took: Duration) {
        let (Some(run), Some(shard)) = (run, self.shards.get(shard())) else {
            return;
        };
        let place = |names: &[&str], name: &str| names.iter().position(|known| *known == name);
        let (Some(verb), Some(outcome)) = (place(&VERBS, run.verb), place(&OUTCOMES, run.outcome))
        else {
            return;
        };
        // A question about what is not there takes up no place.
        let is_one = !matches!(
            run.outcome,
            "not_found" | "stale" | "bad_input" | "unavailable"
        );
        shard.count(self.slot(run.namespace, is_one), verb, outcome, run.times);
        if let Some(times) = shard.times.get(face as usize * TIMED + verb) {
            times.took(took, run.times);
        }
    }

    /// A program was run, in that time.
    pub(super) fn ran(&self, face: Face, took: Duration) {
        let program = face as usize * TIMED + VERBS.len();
        let shard = self.shards.get(shard());
        if let Some(times) = shard.and_then(|shard| shard.times.get(program)) {
            times.took(took, 1);
        }
    }

    pub(super) fn refused(&self, why: Unavailable) {
        if let Some(counter) = self.refusals.get(why.place()) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A frame of so many entries became durable.
    pub(super) fn committed(&self, entries: u64, took: Duration) {
        self.commit_entries.add(&ENTRIES, entries as f64, 1);
        self.commit_seconds.took(took, 1);
    }

    pub(super) fn checkpointed(&self, took: Duration) {
        self.checkpoint_seconds.took(took, 1);
    }

    pub(super) fn swept(&self, records: u64) {
        self.swept.fetch_add(records, Ordering::Relaxed);
        *self.last_sweep.lock() = Timer::start();
    }

    pub(super) fn since_sweep(&self) -> Duration {
        self.last_sweep.lock().elapsed()
    }

    /// Where a namespace is counted. The first to come takes a free place, if it `is_one`; nobody ever gives one up.
    fn slot(&self, namespace: &str, is_one: bool) -> usize {
        let is_here = |place: &OnceLock<Box<str>>| {
            let known = match is_one {
                true => Some(place.get_or_init(|| namespace.into())),
                false => place.get(),
            };
            known.is_some_and(|known| **known == *namespace)
        };
        let found = self.names.iter().position(is_here);
        found.unwrap_or(MAX_TOLD_APART)
    }

    /// Answers by namespace, verb and outcome, as far as there were any.
    pub(super) fn answers(&self) -> Vec<(Box<str>, &'static str, &'static str, u64)> {
        let names = self.names.iter().map_while(|name| name.get().cloned());
        let names: Vec<Box<str>> = names.collect();
        let known = names.len();
        let names = names.into_iter().chain([OTHERS.into()]);
        let mut all = Vec::new();
        for (name, slot) in names.zip((0..known).chain([MAX_TOLD_APART])) {
            for (verb_at, verb) in VERBS.iter().enumerate() {
                for (outcome_at, outcome) in OUTCOMES.iter().enumerate() {
                    let at = verb_at * OUTCOMES.len() + outcome_at;
                    let counters = self.shards.iter().filter_map(|shard| {
                        let counters = shard.answers.get(slot)?.get()?;
                        counters.get(at).map(load)
                    });
                    let count: u64 = counters.sum();
                    if count > 0 {
                        all.push((name.clone(), *verb, *outcome, count));
                    }
                }
            }
        }
        all
    }

    /// Times by face and verb, as far as there were any.
    pub(super) fn times(&self) -> Vec<(Face, &'static str, Counted)> {
        let mut all = Vec::new();
        for face in Face::ALL {
            for (at, verb) in VERBS.iter().chain([&PROGRAM]).enumerate() {
                let mut sum = Counted::default();
                for shard in &self.shards {
                    if let Some(times) = shard.times.get(face as usize * TIMED + at) {
                        sum.join(&times.read());
                    }
                }
                if sum.count() > 0 {
                    all.push((face, *verb, sum));
                }
            }
        }
        all
    }

    /// Commands that were not decided, by reason.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refusals.iter().map(load);
        Unavailable::NAMES.into_iter().zip(counts)
    }
}

impl Unavailable {
    /// What each is called in figures.
    pub(super) const NAMES: [&str; 11] = [
        "full",
        "overloaded",
        "too_large",
        "reads",
        "crowded",
        "namespaces",
        "configured",
        "program",
        "defect",
        "stopping",
        "waiters",
    ];

    /// Its place among the names.
    const fn place(self) -> usize {
        match self {
            Unavailable::Full => 0,
            Unavailable::Overloaded => 1,
            Unavailable::TooLarge => 2,
            Unavailable::Reads => 3,
            Unavailable::Crowded => 4,
            Unavailable::Namespaces => 5,
            Unavailable::Configured => 6,
            Unavailable::Program(_) => 7,
            Unavailable::Defect => 8,
            Unavailable::Stopping => 9,
            Unavailable::Waiters => 10,
        }
    }
}

/// The part of this thread.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    MINE.with(|mine| {
        mine.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
            mine.set(Some(next));
            next
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::command::Verb;
    use crate::model::key::RecordKey;

    fn get(namespace: &str) -> Command {
        Command::new(RecordKey::new(namespace, b"k").unwrap(), Verb::Get)
    }

    #[test]
    fn the_first_namespaces_are_told_apart_and_no_answer_is_lost() {
        let metrics = Metrics::new();
        let threads = 4;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for at in 0..MAX_TOLD_APART * 2 {
                        metrics.slot(&format!("n{at}"), true);
                        let commands = [get(&format!("n{at}")), get(&format!("n{at}"))];
                        let answers = [Err(Unavailable::Full), Err(Unavailable::Stopping)];
                        let took = Duration::from_millis(3);
                        metrics.answered(Face::Http, commands.iter(), &answers, took);
                    }
                });
            }
        });
        let answers = metrics.answers();
        assert_eq!(answers.len(), MAX_TOLD_APART + 1);
        let total: u64 = answers.iter().map(|(.., count)| count).sum();
        let expected = (threads * MAX_TOLD_APART * 4) as u64;
        assert_eq!(total, expected);
        let others = answers.iter().find(|(name, ..)| **name == *OTHERS);
        assert_eq!(others.map(|(.., count)| *count), Some(expected / 2));
        let times = metrics.times();
        let (face, verb, counted) = &times[0];
        assert_eq!((times.len(), *face, *verb), (1, Face::Http, "get"));
        // 3 ms is over 2.5 and at most 5.
        assert_eq!((counted.count(), counted.buckets[6]), (expected, expected));
        let refusals: Vec<_> = metrics.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            refusals,
            [("full", expected / 2), ("stopping", expected / 2)]
        );
    }
}
