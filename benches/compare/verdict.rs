//! What was measured beside what has to be reached. Losses are printed like everything else.

use std::collections::BTreeMap;

use crate::Plan;
use crate::rounds::{What, Who};
use crate::samples::median;

/// Everything measured; `None` where it was not.
#[derive(Debug, Default)]
pub struct Figures {
    /// Claims per second, one for each round.
    pub rates: BTreeMap<(What, Who), Vec<f64>>,
    /// Memory and size of the binary, in MiB.
    pub idle: Option<(f64, f64)>,
    /// In MiB, with a tenth of the keys and with all.
    pub onced_memory: Option<(f64, f64)>,
    /// The same.
    pub redis_memory: Option<(f64, f64)>,
    pub ingest: Option<Ingest>,
    /// Seconds from the start of the process to its being ready.
    pub restart: Option<f64>,
    /// Seconds for dropping the expired keys.
    pub sweep: Option<f64>,
    /// The p99 of the worst second before and with the sweep, in milliseconds.
    pub sweep_latency: Option<(f64, f64)>,
}

/// New keys in a row.
#[derive(Debug)]
pub struct Ingest {
    /// Keys of the first second; `None` where all were in before it was over.
    pub first: Option<f64>,
    /// Keys per second over all.
    pub rate: f64,
    /// The p99.9 of an answer, of the load or of the client beside it, in milliseconds.
    pub slowest: f64,
}

impl Figures {
    /// The ratio of two medians.
    pub fn ratio(&self, what: What, who: Who, other: What, than: Who) -> Option<f64> {
        let middle = |what, who| median(self.rates.get(&(what, who))?);
        Some(middle(what, who)? / middle(other, than)?)
    }
}

/// One line of the table.
struct Row {
    what: String,
    target: f64,
    /// Reached from the target up; else from it down.
    at_least: bool,
    unit: &'static str,
    figure: Option<f64>,
}

fn at_least(what: &str, target: f64, figure: Option<f64>) -> Row {
    Row {
        what: what.to_owned(),
        target,
        at_least: true,
        unit: "x",
        figure,
    }
}

fn at_most(what: &str, target: f64, unit: &'static str, figure: Option<f64>) -> Row {
    Row {
        what: what.to_owned(),
        target,
        at_least: false,
        unit,
        figure,
    }
}

/// Prints the table.
pub fn print(plan: &Plan, figures: &Figures) {
    println!("\nReached?");
    for row in rows(plan, figures) {
        let bound = if row.at_least { ">=" } else { "<=" };
        let target = format!("{bound} {:.2} {}", row.target, row.unit);
        let (figure, verdict) = match row.figure {
            None => ("-".to_owned(), "not measured"),
            Some(figure) => {
                let reached = if row.at_least {
                    figure >= row.target
                } else {
                    figure <= row.target
                };
                let verdict = if reached { "yes" } else { "NO" };
                (format!("{figure:.2} {}", row.unit), verdict)
            }
        };
        println!("  {:<66} {target:>12}  {figure:>10}  {verdict}", row.what);
    }
    if plan.quick {
        println!("  (--quick: too short and too small for the figures to mean anything)");
    }
}

fn rows(plan: &Plan, figures: &Figures) -> Vec<Row> {
    let against = |what, who| figures.ratio(what, Who::Onced, what, who);
    let http = |what| figures.ratio(what, Who::Onced, What::OwnMany, Who::Onced);
    let ingest = figures.ingest.as_ref();
    let memory = |pick: fn((f64, f64)) -> f64| {
        Some(pick(figures.onced_memory?) / pick(figures.redis_memory?))
    };
    let keys = plan.keys;
    vec![
        at_least(
            "64 clients against Redis always",
            1.25,
            against(What::Many, Who::RedisAlways),
        ),
        at_least(
            "pipeline 16 against Redis always",
            2.5,
            against(What::Pipelined, Who::RedisAlways),
        ),
        at_least(
            "pipeline 16 against Redis in memory",
            1.0,
            against(What::Pipelined, Who::RedisOff),
        ),
        at_least(
            "1 client against Redis always",
            1.0,
            against(What::One, Who::RedisAlways),
        ),
        at_least(
            "64 clients against PostgreSQL",
            4.0,
            against(What::Many, Who::Postgres),
        ),
        at_least(
            "HTTP claim against own RESP, 64 clients",
            0.8,
            http(What::HttpClaim),
        ),
        at_least(
            "HTTP in mode once against own RESP, 64 clients",
            0.8,
            http(What::HttpOnce),
        ),
        at_most(
            &format!("memory against Redis, {} keys (under load)", keys / 10),
            1.0 / 6.0,
            "x",
            memory(|(tenth, _)| tenth),
        ),
        at_most(
            &format!("memory against Redis, {keys} keys"),
            1.0 / 6.0,
            "x",
            memory(|(_, all)| all),
        ),
        at_least(
            &format!("{keys} new keys: sustained against first second"),
            0.5,
            ingest.and_then(|ingest| Some(ingest.rate / ingest.first?)),
        ),
        at_most(
            &format!("{keys} new keys: p99.9 of an answer"),
            50.0,
            "ms",
            ingest.map(|ingest| ingest.slowest),
        ),
        at_most(
            &format!("ready after kill -9 with {keys} keys"),
            4.0,
            "s",
            figures.restart,
        ),
        at_most(
            &format!("sweep of {} keys", plan.expired),
            1.0,
            "s",
            figures.sweep,
        ),
        at_most(
            "sweep: p99 of the worst second against before",
            2.0,
            "x",
            figures
                .sweep_latency
                .map(|(before, during)| during / before),
        ),
        at_most("binary", 8.0, "MiB", figures.idle.map(|(_, binary)| binary)),
        at_most(
            "memory idle",
            12.0,
            "MiB",
            figures.idle.map(|(memory, _)| memory),
        ),
    ]
}
