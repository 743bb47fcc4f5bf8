//! onced over minutes, and among thousands of clients that do nothing good.
//!
//! ```console
//! $ cargo bench --bench soak -- --minutes 15
//! $ cargo bench --bench soak -- --only crowd
//! ```
//!
//! `steady` sends claims at a fixed rate with lifetimes from seconds to hours, and samples memory, open files, disk
//! and latency: what grows without end shows. `crowd` measures the latency of a few healthy clients beside
//! 10 000 idle connections, 10 000 claims that wait, 5000 that never finish a head, and clients that never read what
//! they asked for.

// A program for people: it prints, and it ends at the first thing that is not as expected.
#![allow(clippy::print_stdout)]
// One binary: what is public here is public to its modules alone.
#![allow(unreachable_pub)]

mod crowd;
mod server;
mod steady;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// What can be run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A fixed rate over minutes
    Steady,
    /// Healthy clients beside thousands of others
    Crowd,
}

/// Runs onced for long, and among many.
#[derive(Debug, Parser)]
#[command(name = "soak", bin_name = "cargo bench --bench soak --")]
struct Options {
    /// How long the fixed rate is held
    #[arg(long, value_name = "N", default_value_t = 15.0)]
    minutes: f64,

    /// Claims per second
    #[arg(long, value_name = "N", default_value_t = 2000)]
    rate: u32,

    /// Idle connections; half as many with slow heads
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    idle: usize,

    /// Only this
    #[arg(long, value_name = "NAME", value_enum)]
    only: Option<Part>,

    /// Where the server keeps its data: a disk, not memory [default: the build's]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Another binary of onced [default: the one just built]
    #[arg(long, value_name = "PATH")]
    onced: Option<PathBuf>,

    /// What cargo says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What goes wrong here is for people to read.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` runs benches too, and means to see whether they start.
        println!("to run: cargo bench --bench soak -- [OPTIONS]");
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome<()> {
    let built = || Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned();
    let base = options.dir.clone().unwrap_or_else(built);
    let folder = tempfile::Builder::new().prefix("soak-").tempdir_in(&base)?;
    let binary =
        (options.onced.clone()).unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_onced")));
    server::allow_files(options.idle as u64 + 1000)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let wants = |part| options.only.is_none_or(|only| only == part);
    if wants(Part::Steady) {
        let time = Duration::from_secs_f64(options.minutes * 60.0);
        let server = server::Server::start(&binary, &folder.path().join("steady"), 100)?;
        runtime.block_on(steady::run(&server, options.rate, time))?;
        server.stop()?;
    }
    if wants(Part::Crowd) {
        let server =
            server::Server::start(&binary, &folder.path().join("crowd"), options.idle + 100)?;
        runtime.block_on(crowd::run(&server, options.idle))?;
        server.stop()?;
    }
    Ok(())
}
