//! What a batch takes from the call to the durable answer: decisions, one frame, one sync.

// The macros of the harness make functions that nobody documents.
#![allow(missing_docs)]
// A bench may fail loudly.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use onced::engine::{Engine, Options, Unit};
use onced::model::command::{Command, Expiry, Set, SetWhen, StringVerb, Verb};
use onced::model::key::RecordKey;
use onced::model::time::Span;

fn set_nx(number: u64) -> Unit {
    let set = Set {
        value: Bytes::from_static(b"pending"),
        when: Some(SetWhen::Absent),
        get: false,
        expiry: Expiry::In(Span::from_secs(86_400)),
    };
    let key = RecordKey::new("default", format!("key:{number:012}").as_bytes()).unwrap();
    Unit::One(Command::new(
        key,
        Verb::String(StringVerb::Set(Box::new(set))),
    ))
}

/// Keys that follow each other for a person and not for a tree.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000_000
}

fn batches(criterion: &mut Criterion) {
    // On the file system of the build, which is a disk where /tmp may be memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (engine, _) = Engine::open(folder.path(), Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut group = criterion.benchmark_group("engine");
    group.measurement_time(Duration::from_secs(5));
    let mut fresh = 0..;
    for size in [1, 64, 1024] {
        group.throughput(Throughput::Elements(size as u64));
        group.bench_function(format!("submit, {size} new"), |bencher| {
            bencher.iter_custom(|times| {
                timed(times, || {
                    let units = fresh.by_ref().take(size).map(scattered).map(set_nx);
                    let units = units.collect();
                    let begun = Instant::now();
                    let answers = runtime.block_on(engine.submit(units));
                    let took = begun.elapsed();
                    assert!(answers.iter().all(Result::is_ok));
                    took
                })
            });
        });
        let known = || (0..size as u64).map(scattered).map(set_nx).collect();
        runtime.block_on(engine.submit(known()));
        group.bench_function(format!("submit, {size} duplicates"), |bencher| {
            bencher.iter_custom(|times| {
                timed(times, || {
                    let units = known();
                    let begun = Instant::now();
                    let answers = runtime.block_on(engine.submit(units));
                    let took = begun.elapsed();
                    assert!(answers.iter().all(Result::is_ok));
                    took
                })
            });
        });
    }
    group.finish();
    engine.close().unwrap();
}

fn timed(times: u64, mut once: impl FnMut() -> Duration) -> Duration {
    (0..times).map(|_| once()).sum()
}

criterion_group!(benches, batches);
criterion_main!(benches);
