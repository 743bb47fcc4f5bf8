//! Many keys in a row: the rate over time, another client's latency, memory, files, and the start afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::load::{self, Done, Face, Load, Probe};
use crate::peer::{self, Persistence, Server};
use crate::rounds::mib;
use crate::samples::Latencies;
use crate::verdict::{Figures, Ingest};
use crate::{Outcome, Plan, machine};

/// Long enough for everything to be in the store: a checkpoint comes every few seconds.
const SETTLED: Duration = Duration::from_secs(8);
/// Key and value of a claim, as sent.
const SENT: f64 = 23.0;

/// What was seen while keys were loaded.
struct Seen {
    done: Done,
    /// Keys of each second, but the last, which was not whole.
    seconds: Vec<u64>,
    /// Memory when a tenth of the keys was there, and when all were.
    tenth: u64,
    all: u64,
}

/// Loads the keys with pipelines and looks at the server every few milliseconds.
fn fill(plan: &Plan, server: &Server) -> Outcome<Seen> {
    let load = Load {
        address: server.address,
        face: Face::Resp { seconds: 86_400 },
        clients: 64,
        pipeline: 16,
        first: 0,
        keys: plan.keys,
        time: load::NO_END,
    };
    let answered = Arc::new(AtomicU64::new(0));
    let counted = answered.clone();
    let begun = Instant::now();
    let loading =
        std::thread::spawn(move || load::run(load, &counted).map_err(|error| error.to_string()));
    let (mut seconds, mut before, mut tenth) = (Vec::new(), 0, None);
    while !loading.is_finished() {
        std::thread::sleep(Duration::from_millis(5));
        let now = answered.load(Ordering::Relaxed);
        if tenth.is_none() && now >= plan.keys / 10 {
            tenth = Some(machine::resident(server.pid())?);
        }
        if begun.elapsed() >= Duration::from_secs(seconds.len() as u64 + 1) {
            seconds.push(now - before);
            before = now;
        }
    }
    let done = loading.join().map_err(|_| "the load panicked")??;
    let all = machine::resident(server.pid())?;
    Ok(Seen {
        done,
        seconds,
        tenth: tenth.unwrap_or(all),
        all,
    })
}

/// onced with many keys.
pub fn onced(plan: &Plan, restart: bool, figures: &mut Figures) -> Outcome<()> {
    println!("\n{} new keys in a row, 64 clients, pipeline 16", plan.keys);
    println!("  before: {}", machine::noise(plan));
    let dir = plan.folder.join("fill");
    let server = peer::onced(plan, &dir)?;
    let probe = Probe::start(server.address);
    let seen = fill(plan, &server)?;
    let mut latencies = Latencies::default();
    for (_, latency) in probe.stop()? {
        latencies.add(latency);
    }
    print_rate(&seen);
    println!(
        "  another client, one claim at a time: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, worst {:.2} ms of {}",
        latencies.per_mille(500),
        latencies.per_mille(990),
        latencies.per_mille(999),
        latencies.worst(),
        latencies.len()
    );
    let pipelines = &seen.done.latencies;
    println!(
        "  the load itself, a pipeline: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, worst {:.2} ms",
        pipelines.per_mille(500),
        pipelines.per_mille(990),
        pipelines.per_mille(999),
        pipelines.worst()
    );
    figures.ingest = Some(Ingest {
        first: seen.seconds.first().map(|keys| *keys as f64),
        rate: seen.done.rate(),
        slowest: latencies.per_mille(999).max(pipelines.per_mille(999)),
    });

    std::thread::sleep(SETTLED);
    let rest = machine::resident(server.pid())?;
    let peak = machine::of_process(server.pid(), "status", "VmHWM")? * 1024;
    println!(
        "  memory: {:.1} MiB at a tenth of the keys (under load), {:.1} at all, {:.1} at rest, peak {:.1}",
        mib(seen.tenth),
        mib(seen.all),
        mib(rest),
        mib(peak)
    );
    figures.onced_memory = Some((mib(seen.tenth), mib(rest)));
    disk(plan, &server, &dir)?;
    println!("  after: {}", machine::noise(plan));
    if restart {
        kill_and_start(plan, server, &dir, figures)?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn print_rate(seen: &Seen) {
    let seconds: Vec<String> = seen
        .seconds
        .chunks(seen.seconds.len().div_ceil(20).max(1))
        .map(|chunk| (chunk.iter().sum::<u64>() / chunk.len() as u64 / 1000).to_string())
        .collect();
    println!(
        "  {:.0} keys/s over {:.1} s",
        seen.done.rate(),
        seen.done.took.as_secs_f64()
    );
    if let (Some(first), Some(last)) = (seen.seconds.first(), seen.seconds.last()) {
        println!(
            "  first second {first}, last whole second {last}; in thousands, over time: {}",
            seconds.join(" ")
        );
    }
}

/// Files per key, and what was written to get there.
fn disk(plan: &Plan, server: &Server, dir: &std::path::Path) -> Outcome<()> {
    let data = dir.join("data");
    let keys = plan.keys as f64;
    let store = machine::allocated(&data.join("store.redb"))? as f64;
    let journal = machine::allocated(&data.join("journal"))?;
    // Writes that are still in the page cache count already: they were made by the process.
    let written = machine::of_process(server.pid(), "io", "write_bytes")? as f64;
    println!(
        "  files: store {:.0} bytes per key, journal {:.0} MiB in all",
        store / keys,
        mib(journal)
    );
    println!(
        "  written: {:.0} bytes per key, {:.2} x the store's file, {:.1} x key and value as sent ({SENT})",
        written / keys,
        written / store,
        written / keys / SENT
    );
    Ok(())
}

/// More keys, so that the journal has some that the store has not, then kill -9 and a start.
fn kill_and_start(
    plan: &Plan,
    server: Server,
    dir: &std::path::Path,
    figures: &mut Figures,
) -> Outcome<()> {
    let burst = Load {
        address: server.address,
        face: Face::Resp { seconds: 86_400 },
        clients: 64,
        pipeline: 16,
        first: plan.keys,
        keys: u64::MAX - plan.keys,
        time: Duration::from_millis(if plan.quick { 200 } else { 1000 }),
    };
    let done = load::run(burst, &Arc::default())?;
    server.stop(Signal::KILL)?;
    let server = peer::onced(plan, dir)?;
    println!(
        "  ready {:.2} s after kill -9 (files in the page cache), {} keys of the last second among them",
        server.took.as_secs_f64(),
        done.answered
    );
    let lost = load::missing(server.address, plan.keys, done.answered)?
        + load::missing(server.address, 0, plan.keys.min(100_000))?;
    if lost > 0 {
        return Err(format!("{lost} acknowledged keys are gone after kill -9").into());
    }
    println!("  no acknowledged key is missing");
    figures.restart = Some(server.took.as_secs_f64());
    Ok(())
}

/// Redis without persistence, with the same keys.
pub fn redis(plan: &Plan, figures: &mut Figures) -> Outcome<()> {
    if peer::find("redis-server").is_none() {
        println!("  Redis is left out: redis-server is not on the PATH");
        return Ok(());
    }
    let dir = plan.folder.join("redis-fill");
    let server = peer::redis(&dir, Persistence::Off)?;
    let seen = fill(plan, &server)?;
    println!("\nThe same keys in Redis, in memory alone");
    print_rate(&seen);
    println!(
        "  memory: {:.1} MiB at a tenth of the keys, {:.1} at all",
        mib(seen.tenth),
        mib(seen.all)
    );
    figures.redis_memory = Some((mib(seen.tenth), mib(seen.all)));
    Ok(())
}
