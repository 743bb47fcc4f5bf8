//! Rates against every peer, in rounds, and what an idle server takes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use crate::load::{self, Face, Load};
use crate::peer::{self, Cluster, Persistence};
use crate::samples::{median, range};
use crate::verdict::Figures;
use crate::{Outcome, Plan, machine, tools};

/// Who takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Onced,
    RedisAlways,
    RedisEverySecond,
    RedisOff,
    Postgres,
}

impl Who {
    const ALL: [Who; 5] = [
        Who::Onced,
        Who::RedisAlways,
        Who::RedisEverySecond,
        Who::RedisOff,
        Who::Postgres,
    ];

    fn persistence(self) -> Option<Persistence> {
        match self {
            Who::RedisAlways => Some(Persistence::Always),
            Who::RedisEverySecond => Some(Persistence::EverySecond),
            Who::RedisOff => Some(Persistence::Off),
            Who::Onced | Who::Postgres => None,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Who::Onced => "onced",
            Who::RedisAlways => "Redis always",
            Who::RedisEverySecond => "Redis everysec",
            Who::RedisOff => "Redis in memory",
            Who::Postgres => "PostgreSQL",
        })
    }
}

/// What they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// One claim at a time on one connection.
    One,
    /// 64 connections.
    Many,
    /// The same, 16 claims in each write.
    Pipelined,
    /// As `Many`, by our own load.
    OwnMany,
    /// The same over HTTP, with a lease.
    HttpClaim,
    /// The same over HTTP, set-once as `SET .. NX` is.
    HttpOnce,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            What::One => "1 client",
            What::Many => "64 clients",
            What::Pipelined => "64 clients, pipeline 16",
            What::OwnMany => "64 clients, RESP, own load",
            What::HttpClaim => "64 clients, HTTP claim",
            What::HttpOnce => "64 clients, HTTP, mode once",
        })
    }
}

const CLIENTS: usize = 64;
const PIPELINE: u64 = 16;

impl What {
    /// Those that every server understands, with clients, pipeline and requests.
    fn common(quick: bool) -> [(What, usize, u64, u64); 3] {
        let requests = |full, few| if quick { few } else { full };
        [
            (What::Many, CLIENTS, 1, requests(250_000, 20_000)),
            (
                What::Pipelined,
                CLIENTS,
                PIPELINE,
                requests(1_500_000, 150_000),
            ),
            (What::One, 1, 1, requests(20_000, 2_000)),
        ]
    }
}

/// A turn of everybody in each round, beginning with another one each time.
pub fn rates(plan: &Plan, figures: &mut Figures) -> Outcome<()> {
    println!("\nDurable claims of new keys, per second");
    let has_redis = peer::find("redis-server").is_some();
    if !has_redis {
        println!("  Redis is left out: redis-server is not on the PATH");
    }
    if peer::find("redis-benchmark").is_none() {
        println!("  redis-benchmark is not on the PATH: our own load drives in its place");
    }
    let cluster = Cluster::create(&plan.folder.join("postgres"))?;
    for round in 0..plan.rounds {
        println!(
            "  round {} of {}: {}",
            round + 1,
            plan.rounds,
            machine::noise(plan)
        );
        for turn in 0..Who::ALL.len() {
            let who = Who::ALL[(turn + round) % Who::ALL.len()];
            let measured = match (who, who.persistence(), &cluster) {
                (Who::Onced, ..) => onced(plan, round)?,
                (_, Some(persistence), _) if has_redis => redis(plan, persistence)?,
                (Who::Postgres, _, Some(cluster)) => postgres(plan, cluster)?,
                _ => continue,
            };
            let line: Vec<String> = measured
                .iter()
                .map(|(what, rate)| format!("{what} {rate:.0}"))
                .collect();
            println!("    {who:<16} {}", line.join("; "));
            for (what, rate) in measured {
                figures.rates.entry((what, who)).or_default().push(rate);
            }
        }
        println!("  after it: {}", machine::noise(plan));
    }
    print_medians(figures);
    Ok(())
}

type Rates = Vec<(What, f64)>;

fn onced(plan: &Plan, round: usize) -> Outcome<Rates> {
    let dir = fresh(plan, "onced-turn")?;
    let server = peer::onced(plan, &dir)?;
    let mut rates = Vec::new();
    for (what, clients, pipeline, requests) in What::common(plan.quick) {
        rates.push((what, tools::redis(&server, clients, pipeline, requests)?));
    }
    let time = Duration::from_millis(if plan.quick { 700 } else { 4000 });
    let http = server.http.ok_or("no address of HTTP")?;
    let own = [
        (
            What::OwnMany,
            server.address,
            Face::Resp { seconds: 86_400 },
        ),
        (What::HttpClaim, http, Face::Http { query: "" }),
        (
            What::HttpOnce,
            http,
            Face::Http {
                query: "?mode=once&retention=24h",
            },
        ),
    ];
    // Whoever comes first meets a smaller store: so another one in each round.
    for turn in 0..own.len() {
        let at = (turn + round) % own.len();
        let (what, address, face) = own[at];
        let load = Load {
            address,
            face,
            clients: CLIENTS,
            pipeline: 1,
            first: (at as u64 + 1) << 32,
            keys: u64::MAX,
            time,
        };
        let done = load::run(load, &Arc::default())?;
        if done.acquired < done.answered / 100 * 99 {
            return Err(format!("{what}: {} of {} acquired", done.acquired, done.answered).into());
        }
        rates.push((what, done.rate()));
    }
    server.stop(Signal::TERM)?;
    std::fs::remove_dir_all(&dir)?;
    rates.sort_by_key(|(what, _)| *what);
    Ok(rates)
}

fn redis(plan: &Plan, persistence: Persistence) -> Outcome<Rates> {
    let dir = fresh(plan, "redis-turn")?;
    let server = peer::redis(&dir, persistence)?;
    let mut rates = Vec::new();
    for (what, clients, pipeline, requests) in What::common(plan.quick) {
        rates.push((what, tools::redis(&server, clients, pipeline, requests)?));
    }
    drop(server);
    std::fs::remove_dir_all(&dir)?;
    rates.sort_by_key(|(what, _)| *what);
    Ok(rates)
}

fn postgres(plan: &Plan, cluster: &Cluster) -> Outcome<Rates> {
    let server = cluster.start()?;
    // What the turn before left to be written is written now, not in the middle.
    cluster.sql(&server, tools::TABLE)?;
    cluster.sql(&server, "CHECKPOINT")?;
    let time = Duration::from_secs(if plan.quick { 1 } else { 5 });
    let mut rates = Vec::new();
    for (what, clients) in [(What::One, 1), (What::Many, CLIENTS)] {
        rates.push((
            what,
            tools::postgres(plan, cluster, &server, clients, time)?,
        ));
    }
    server.stop(Signal::INT)?;
    Ok(rates)
}

/// A folder's path with nothing there.
fn fresh(plan: &Plan, name: &str) -> Outcome<PathBuf> {
    let dir = plan.folder.join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(dir)
}

fn print_medians(figures: &Figures) {
    println!("  medians (lowest to highest), and onced against it");
    for ((what, who), rates) in &figures.rates {
        let middle = median(rates).unwrap_or(0.0);
        let (low, high) = range(rates);
        let ratio = match figures.ratio(*what, Who::Onced, *what, *who) {
            Some(ratio) if *who != Who::Onced => format!("{ratio:6.2} x"),
            _ => String::new(),
        };
        println!("    {what:<28} {who:<16} {middle:>9.0}  ({low:.0} to {high:.0})  {ratio}");
    }
}

/// What onced takes while nobody asks it anything.
pub fn idle(plan: &Plan, figures: &mut Figures) -> Outcome<()> {
    println!("\nIdle");
    let dir = fresh(plan, "idle")?;
    let server = peer::onced(plan, &dir)?;
    std::thread::sleep(Duration::from_secs(1));
    let memory = machine::resident(server.pid())?;
    let program = std::fs::read(&plan.onced)?;
    let dynamic = program
        .windows(8)
        .any(|bytes| bytes == b"ld-linux" || bytes == b"ld-musl-");
    let linked = if dynamic {
        "dynamically linked"
    } else {
        "static"
    };
    println!(
        "  memory {:.1} MiB, ready in {:.0} ms",
        mib(memory),
        server.took.as_secs_f64() * 1e3
    );
    println!("  binary {:.1} MiB, {linked}", mib(program.len() as u64));
    figures.idle = Some((mib(memory), mib(program.len() as u64)));
    Ok(())
}

pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
