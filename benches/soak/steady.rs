//! A fixed rate over minutes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::Outcome;
use crate::server::{Sample, Server};
use crate::wire::{Latencies, Redis, member};

const CLIENTS: u32 = 32;
/// How often everything is looked at in a run.
const LOOKS: u32 = 30;

/// What happened since the last look.
#[derive(Default)]
struct Seen {
    latencies: Latencies,
    failed: Option<String>,
}

/// Holds the rate for so long, and says how memory, files, disk and latency went.
pub async fn run(server: &Server, rate: u32, time: Duration) -> Outcome<()> {
    println!(
        "{rate} claims/s for {:.1} min, lifetimes from 2 s to 2 h",
        time.as_secs_f64() / 60.0
    );
    println!("   min  claims/s  p50 ms  p99 ms  p99.9   MiB memory  files  MiB disk");
    let seen = Rc::new(RefCell::new(Seen::default()));
    let begun = Instant::now();
    let looks: Vec<Sample> = LocalSet::new()
        .run_until(async {
            let clients = (0..CLIENTS).map(|number| {
                let (seen, address) = (seen.clone(), server.redis);
                tokio::task::spawn_local(async move {
                    let client = client(number, address, rate, begun, time, &seen);
                    if let Err(error) = client.await {
                        seen.borrow_mut().failed = Some(error.to_string());
                    }
                })
            });
            let clients: Vec<_> = clients.collect();
            let step = time / LOOKS;
            let mut looks = Vec::new();
            let mut since = begun;
            for look in 1..=LOOKS {
                tokio::time::sleep_until((begun + step * look).into()).await;
                let sample = server.sample()?;
                let now = std::mem::take(&mut *seen.borrow_mut());
                if let Some(error) = now.failed {
                    return Err(error.into());
                }
                print(begun, since, &now.latencies, sample);
                since = Instant::now();
                looks.push(sample);
            }
            for client in clients {
                client.await?;
            }
            Outcome::Ok(looks)
        })
        .await?;
    trend(&looks);
    Ok(())
}

fn print(begun: Instant, since: Instant, latencies: &Latencies, sample: Sample) {
    println!(
        "{:6.1} {:9.0} {:7.2} {:7.2} {:6.1} {:12.1} {:6} {:9.1}",
        begun.elapsed().as_secs_f64() / 60.0,
        latencies.len() as f64 / since.elapsed().as_secs_f64(),
        latencies.per_mille(500),
        latencies.per_mille(990),
        latencies.per_mille(999),
        sample.memory as f64 / 1_048_576.0,
        sample.files,
        sample.disk as f64 / 1_048_576.0,
    );
}

/// Growth in the first third of the run, and in the last: what levels off grows less.
fn trend(looks: &[Sample]) {
    let third = looks.len() / 3;
    let (Some(start), Some(early), Some(late), Some(end)) = (
        looks.first(),
        looks.get(third),
        looks.get(looks.len() - 1 - third),
        looks.last(),
    ) else {
        return;
    };
    let mib = |from: u64, to: u64| (to as f64 - from as f64) / 1_048_576.0;
    println!(
        "growth in the first third, and in the last: memory {:+.1} and {:+.1} MiB, disk {:+.1} and {:+.1} MiB, \
         files {:+} and {:+}",
        mib(start.memory, early.memory),
        mib(late.memory, end.memory),
        mib(start.disk, early.disk),
        mib(late.disk, end.disk),
        early.files as i64 - start.files as i64,
        end.files as i64 - late.files as i64,
    );
}

/// One connection with its part of the rate: half of its claims by SET NX, a part in two phases, some of a key
/// that was claimed before.
async fn client(
    number: u32,
    address: std::net::SocketAddr,
    rate: u32,
    begun: Instant,
    time: Duration,
    seen: &RefCell<Seen>,
) -> Outcome<()> {
    let mut redis = Redis::connect(address).await?;
    let mut ticks = interval(Duration::from_secs_f64(
        f64::from(CLIENTS) / f64::from(rate),
    ));
    // Who is late catches up: the rate is held.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut chance = u64::from(number) + 1;
    for claim in 0_u64.. {
        ticks.tick().await;
        if begun.elapsed() >= time {
            return Ok(());
        }
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let random = chance >> 33;
        let key = format!("soak:{number}:{claim}");
        // 2 s, 4 s, .. 2 h and a little.
        let life = (2_u64 << (random % 13)).to_string();
        let sent = Instant::now();
        match random / 13 % 10 {
            0 if claim > 0 => {
                let earlier = format!("soak:{number}:{}", claim - 1);
                redis
                    .command(&["SET", &earlier, "again", "NX", "EX", &life])
                    .await?;
            }
            0..=5 => {
                redis
                    .command(&["SET", &key, "mine", "NX", "EX", &life])
                    .await?;
            }
            _ => {
                let retention = format!("{life}000");
                let words = [
                    "ONCE.CLAIM",
                    &key,
                    "LEASE",
                    "60000",
                    "RETENTION",
                    &retention,
                ];
                let answer = redis.command(&words).await?;
                let token = member(&answer, "token").ok_or("no token")?.to_owned();
                seen.borrow_mut().latencies.add(sent.elapsed());
                let result = "r".repeat(200);
                let complete = ["ONCE.COMPLETE", &key, &token, "RESULT", &result];
                redis.command(&complete).await?;
                continue;
            }
        }
        seen.borrow_mut().latencies.add(sent.elapsed());
    }
    Ok(())
}
