//! What it takes to turn records and requests into bytes and back.

// The macros of the harness make functions that nobody documents.
#![allow(missing_docs)]
// A bench may fail loudly.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use onced::engine::Unavailable;
use onced::model::body::{Body, Content, DEFAULT_CONTENT_TYPE};
use onced::model::command::{Claim, Command, Mode, Verb};
use onced::model::key::RecordKey;
use onced::model::outcome::Outcome;
use onced::model::policy::Policy;
use onced::model::record::{KeptResult, Lsn, Record, Token};
use onced::model::time::{BootTime, Now, Timestamp};
use onced::model::transition::{Context, Effect, apply};
use onced::resp::{Face, Limits, Options, Parser, Protocol, Session, Writer};
use onced::store::{Change, Decision, Entry, decode_entry, encode_entry};

/// Requests of one read, as `redis-benchmark -P 16` sends them.
const PIPELINE: usize = 16;

fn key() -> RecordKey {
    RecordKey::new("default", b"key:000000000042").unwrap()
}

fn decide(verb: Verb) -> (Option<Arc<Record>>, Outcome) {
    let policy = Policy::default();
    let now = Now {
        time: Timestamp::from_millis(1_767_323_045_678),
        boot: BootTime::from_millis(1_000_000),
        ..Now::default()
    };
    let context = Context {
        policy: &policy,
        now,
        token: Some(Token::FIRST),
        slide: true,
    };
    let step = apply(context, None, &Command::new(key(), verb));
    let record = match step.effect {
        Effect::Put(record) => Some(record),
        _ => None,
    };
    (record, step.outcome)
}

/// A claim that is done at once, with a result of so many bytes.
fn once(len: usize) -> Verb {
    let result = KeptResult {
        body: Body {
            content_type: DEFAULT_CONTENT_TYPE.into(),
            content: Content::new(Bytes::from(vec![b'x'; len])),
        },
        status: Some(200),
    };
    let mode = Mode::Once {
        result: Some(result),
    };
    Verb::Claim(Box::new(Claim {
        owner: Some("worker-1".into()),
        mode,
        ..Claim::default()
    }))
}

fn entry(record: Arc<Record>) -> Entry {
    let decision = Decision {
        at: record.claimed_at,
        verb: "claim",
        outcome: "acquired",
        reason: None,
        event: record.history.last().map(|fact| fact.event),
        token: Some(record.token),
        attempt: record.attempt,
        generation: record.generation,
        by: record.owner.clone(),
        count: 1,
    };
    Entry {
        lsn: Lsn(1),
        change: Change::Put(key(), record),
        decision,
    }
}

fn entries(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("entry");
    let table = [
        ("pending", Verb::Claim(Box::default())),
        ("done, 16 bytes", once(16)),
        ("done, 4 KiB", once(4096)),
    ];
    for (name, verb) in table {
        let entry = entry(decide(verb).0.unwrap());
        let mut bytes = Vec::new();
        encode_entry(&entry, &mut bytes).unwrap();
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let mut into = Vec::with_capacity(bytes.len());
        group.bench_function(format!("encode, {name}"), |bencher| {
            bencher.iter(|| {
                into.clear();
                encode_entry(black_box(&entry), &mut into)
            });
        });
        group.bench_function(format!("decode, {name}"), |bencher| {
            bencher.iter(|| decode_entry(black_box(&bytes)).unwrap());
        });
    }
    group.finish();
}

fn pipeline(request: &str) -> BytesMut {
    BytesMut::from(request.repeat(PIPELINE).as_bytes())
}

/// Each request once more in its own buffer: the parser hands out slices of it.
fn requests(criterion: &mut Criterion) {
    let set = "*6\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$7\r\npending\r\n$2\r\nNX\r\n$2\r\nEX\r\n\
               $5\r\n86400\r\n";
    let claim = "*6\r\n$10\r\nONCE.CLAIM\r\n$5\r\nevt_1\r\n$5\r\nLEASE\r\n$5\r\n30000\r\n$5\r\nOWNER\r\n\
                 $8\r\nworker-1\r\n";
    let inline = "ONCE.CLAIM evt_1 LEASE 30000 OWNER worker-1\r\n";
    let mut group = criterion.benchmark_group("request");
    group.throughput(Throughput::Elements(PIPELINE as u64));
    let face = Arc::new(Face::new(Options::default()));
    for (name, text) in [("set nx", set), ("claim", claim), ("inline claim", inline)] {
        let limits = Limits::default();
        group.bench_function(format!("parse, {name}"), |bencher| {
            bencher.iter_batched(
                || pipeline(text),
                |mut input| {
                    let mut parser = Parser::default();
                    let mut read = 0;
                    while parser.parse(&mut input, &limits).unwrap().is_some() {
                        read += 1;
                    }
                    assert_eq!(read, PIPELINE);
                },
                BatchSize::SmallInput,
            );
        });
        group.bench_function(format!("to commands, {name}"), |bencher| {
            let mut session = Session::new(face.clone(), "bench".to_owned());
            bencher.iter_batched(
                || pipeline(text),
                |mut input| {
                    let units = session.read(&mut input).units();
                    assert_eq!(units.len(), PIPELINE);
                    units
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn replies(criterion: &mut Criterion) {
    let face = Arc::new(Face::new(Options::default()));
    let claim = "ONCE.CLAIM key:000000000042\r\n";
    let outcome = decide(Verb::Claim(Box::default())).1;
    let mut group = criterion.benchmark_group("reply");
    group.throughput(Throughput::Elements(PIPELINE as u64));
    let mut output = BytesMut::with_capacity(1 << 16);
    let session = RefCell::new(Session::new(face, "bench".to_owned()));
    group.bench_function("render, acquired", |bencher| {
        bencher.iter_batched(
            || {
                let batch = session.borrow_mut().read(&mut pipeline(claim));
                let decided: Result<Outcome, Unavailable> = Ok(outcome.clone());
                (batch, vec![decided; PIPELINE])
            },
            |(batch, decisions)| {
                output.clear();
                session.borrow_mut().answer(batch, decisions, &mut output);
                assert!(output.starts_with(b"*"));
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("write, status", |bencher| {
        bencher.iter(|| {
            output.clear();
            let mut writer = Writer::new(&mut output, Protocol::Resp2);
            for _ in 0..PIPELINE {
                writer.status(black_box("OK"));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, entries, requests, replies);
criterion_main!(benches);
