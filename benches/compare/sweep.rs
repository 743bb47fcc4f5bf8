//! Expired keys: how long dropping them takes, and who notices.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bytes::Bytes;
use onced::model::command::{Command, Expiry, Set, SetWhen, StringVerb, Verb};
use onced::model::key::RecordKey;
use onced::model::policy::Policy;
use onced::model::record::{Lsn, Token};
use onced::model::time::{Now, Span, Timestamp};
use onced::model::transition::{Context, Effect, apply};
use onced::store::{self, Checkpoint, Memtable, Store};
use rustix::process::Signal;

use crate::load::{self, Face, Load, Probe};
use crate::samples::{Latencies, median, scattered};
use crate::verdict::Figures;
use crate::{Outcome, Plan, machine, peer};

/// Keys of one checkpoint.
const CHECKPOINT: u64 = 65_536;
/// How long the keys are remembered that expire under load.
const RETENTION: u64 = 30;

/// The store by itself: keys in, time over, one sweep.
pub fn alone(plan: &Plan, figures: &mut Figures) -> Outcome<()> {
    println!("\nA sweep of {} expired keys", plan.expired);
    let path = plan.folder.join("sweep.redb");
    let mut store = Store::create(&path, [1; 16], store::Options::default())?;
    let now = Now {
        time: Timestamp::from_millis(1_767_323_045_678),
        ..Now::default()
    };
    let policy = Policy::default();
    let mut first = 0;
    while first < plan.expired {
        let next = (first + CHECKPOINT).min(plan.expired);
        let mut changes = Memtable::new(store.reader().hasher().clone());
        for number in first..next {
            let set = Set {
                value: Bytes::from_static(b"pending"),
                when: Some(SetWhen::Absent),
                get: false,
                expiry: Expiry::In(Span::from_secs(RETENTION)),
            };
            let key = format!("key:{:012}", scattered(number));
            let key = RecordKey::new("default", key.as_bytes())?;
            let verb = Verb::String(StringVerb::Set(Box::new(set)));
            let context = Context {
                policy: &policy,
                now,
                token: Token::new(number + 1),
                slide: true,
            };
            match apply(context, None, &Command::new(key.clone(), verb)).effect {
                Effect::Put(record) => changes.put_record(Lsn(next), &key, Some(&record))?,
                other => return Err(format!("a set made {other:?}").into()),
            }
        }
        store.checkpoint(Checkpoint {
            lsn: Lsn(next),
            next_token: Token::new(next + 1).ok_or("no more tokens")?,
            mark: Vec::new(),
            policies: Vec::new(),
            changes: Arc::new(changes),
        })?;
        first = next;
    }
    let begun = Instant::now();
    let swept = store.sweep(now.time.after(Span::from_secs(3600)), &[])?;
    let took = begun.elapsed().as_secs_f64();
    println!(
        "  the store alone: {} records in {} tables dropped in {took:.3} s",
        swept.records, swept.tables
    );
    figures.sweep = Some(took);
    store.close()?;
    std::fs::remove_file(&path)?;
    Ok(())
}

/// A server that is asked all the time, and a client beside: its latency before and while keys are dropped.
pub fn under_load(plan: &Plan, figures: &mut Figures) -> Outcome<()> {
    // A bucket of the keys is at most 8 s wide, is kept for a minute after its end, and the sweeper comes
    // every ten seconds where nothing keeps it.
    let (earliest, latest) = (RETENTION + 60, RETENTION + 8 + 60 + 20);
    println!("  under load: {latest} s of new keys, the sweep after second {earliest}");
    println!("  before: {}", machine::noise(plan));
    let dir = plan.folder.join("sweep");
    let server = peer::onced(plan, &dir)?;
    let probe = Probe::start(server.address);
    let begun = Instant::now();
    let expiring = Load {
        address: server.address,
        face: Face::Resp {
            seconds: u32::try_from(RETENTION)?,
        },
        clients: 64,
        pipeline: 16,
        first: 0,
        keys: plan.expired,
        time: load::NO_END,
    };
    let expired = load::run(expiring, &Arc::default())?;
    let loaded = begun.elapsed().as_secs();
    let steady = Load {
        face: Face::Resp { seconds: 86_400 },
        clients: 16,
        pipeline: 1,
        first: plan.expired,
        keys: u64::MAX - plan.expired,
        time: Duration::from_secs(latest),
        ..expiring
    };
    let answered = Arc::new(AtomicU64::new(0));
    let kept = load::run(steady, &answered)?;
    let samples = probe.stop()?;
    println!("  after: {}", machine::noise(plan));
    server.stop(Signal::TERM)?;
    let (store, opened) = Store::open(dir.join("data/store.redb"), store::Options::default())?;
    drop(store);
    let still = opened
        .records
        .saturating_sub(kept.acquired + samples.len() as u64);
    println!(
        "  {:.0} claims/s meanwhile; of {} expired records {still} are still there",
        kept.rate(),
        expired.acquired
    );
    if still > expired.acquired / 100 {
        println!("  NOT SWEPT: the sweeper did not come in {latest} s of load");
        return Ok(());
    }
    // Equal stretches before and after, the load of the expiring keys left out of both.
    let stretch = latest + loaded - earliest;
    let from = earliest.saturating_sub(stretch).max(loaded + 1);
    let before = worst_second(&samples, from..earliest);
    let during = worst_second(&samples, earliest..latest + loaded);
    println!(
        "  p99 of another client, median and worst second: before {:.2} and {:.2} ms, with the sweep {:.2} and {:.2} ms",
        before.0, before.1, during.0, during.1
    );
    figures.sweep_latency = Some((before.1, during.1));
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// The p99 of each second: the median of them, and the worst.
fn worst_second(samples: &[(Duration, Duration)], seconds: std::ops::Range<u64>) -> (f64, f64) {
    let each: Vec<f64> = seconds
        .map(|second| {
            let mut latencies = Latencies::default();
            for (_, latency) in samples.iter().filter(|(at, _)| at.as_secs() == second) {
                latencies.add(*latency);
            }
            latencies.per_mille(990)
        })
        .collect();
    let worst = each.iter().copied().fold(0.0, f64::max);
    (median(&each).unwrap_or(0.0), worst)
}
