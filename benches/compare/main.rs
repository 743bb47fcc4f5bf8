//! onced beside what people would use instead: the same load on each, on the same disk, in one run.
//!
//! ```console
//! $ cargo bench --bench compare -- --rounds 5
//! $ cargo bench --bench compare -- --quick
//! $ cargo bench --bench compare -- --only rates,ingest --keys 1000000
//! ```
//!
//! Peers that are not installed are left out, and said to be. Each turn starts its server afresh, so that
//! nobody's background work falls into another's turn; the order of the turns changes from round to round.
//! What counts is the ratio of medians of one run: figures of another machine, or of another hour, say little.
//!
//! In reading order: `rounds`, `fill` and `sweep` measure; `peer` starts servers; `load` and
//! `tools` drive them; `machine` says what they ran on; `verdict` puts it beside what has to be reached.

// A program for people: it prints, and it ends at the first thing that is not as expected.
#![allow(clippy::print_stdout)]
// One binary: what is public here is public to its modules alone.
#![allow(unreachable_pub)]

mod fill;
mod load;
mod machine;
mod peer;
mod rounds;
mod samples;
mod sweep;
mod tools;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::verdict::Figures;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// Claims per second, against every peer
    Rates,
    /// Memory with many keys, against Redis
    Memory,
    /// New keys in a row: the rate over time, and the latency of another client
    Ingest,
    /// Until ready after kill -9
    Restart,
    /// Bytes of files per key, and bytes written for it
    Disk,
    /// Expired keys dropped during load
    Sweep,
    /// Memory of an idle server, size of the binary
    Idle,
}

/// Runs onced and its peers under the same load, and says who is ahead.
#[derive(Debug, Parser)]
#[command(name = "compare", bin_name = "cargo bench --bench compare --")]
struct Options {
    /// Turns of every server; medians are of these [default: 5, quick: 1]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,

    /// Everything small, in under a minute: shows that it works, not how fast
    #[arg(long)]
    quick: bool,

    /// Only these; may be repeated
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    only: Vec<Measure>,

    /// Keys of the large measures [default: 10000000, quick: 200000]
    #[arg(long, value_name = "N")]
    keys: Option<u64>,

    /// Keys that expire in the sweep [default: 1000000, quick: 100000]
    #[arg(long, value_name = "N")]
    expired: Option<u64>,

    /// Where servers keep their data: a disk, not memory [default: the build's]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Another binary of onced to measure [default: the one just built]
    #[arg(long, value_name = "PATH")]
    onced: Option<PathBuf>,

    /// What cargo says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is in force for this run.
#[derive(Debug)]
pub struct Plan {
    /// Turns of every server.
    pub rounds: usize,
    /// Everything small.
    pub quick: bool,
    /// Of the large measures.
    pub keys: u64,
    /// Keys that expire in the sweep.
    pub expired: u64,
    /// The binary to measure.
    pub onced: PathBuf,
    /// A fresh folder for all data, readable for the user that peers run as.
    pub folder: PathBuf,
}

/// What goes wrong here is for people to read.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` runs benches too, and means to see whether they start.
        println!("to measure: cargo bench --bench compare -- [OPTIONS]");
        return ExitCode::SUCCESS;
    }
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Outcome<()> {
    let base = options
        .dir
        .unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned());
    let folder = tempfile::Builder::new()
        .prefix("compare-")
        .tempdir_in(&base)
        .map_err(|error| format!("cannot make a folder in {}: {error}", base.display()))?;
    machine::let_others_pass(folder.path())?;
    let quick = options.quick;
    let plan = Plan {
        rounds: options.rounds.unwrap_or(if quick { 1 } else { 5 }).max(1),
        quick,
        keys: options
            .keys
            .unwrap_or(if quick { 200_000 } else { 10_000_000 }),
        expired: options
            .expired
            .unwrap_or(if quick { 100_000 } else { 1_000_000 }),
        onced: options
            .onced
            .unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_onced"))),
        folder: folder.path().to_owned(),
    };
    let wants = |measure| options.only.is_empty() || options.only.contains(&measure);

    machine::describe(&plan);
    let mut figures = Figures::default();
    if wants(Measure::Idle) {
        rounds::idle(&plan, &mut figures)?;
    }
    if wants(Measure::Rates) {
        rounds::rates(&plan, &mut figures)?;
    }
    let large = [
        Measure::Memory,
        Measure::Ingest,
        Measure::Restart,
        Measure::Disk,
    ];
    if large.into_iter().any(wants) {
        fill::onced(&plan, wants(Measure::Restart), &mut figures)?;
    }
    if wants(Measure::Memory) {
        fill::redis(&plan, &mut figures)?;
    }
    if wants(Measure::Sweep) {
        sweep::alone(&plan, &mut figures)?;
        if plan.quick {
            println!(
                "  under load: not with --quick, because a bucket is kept for a minute after its end"
            );
        } else {
            sweep::under_load(&plan, &mut figures)?;
        }
    }
    verdict::print(&plan, &figures);
    Ok(())
}
