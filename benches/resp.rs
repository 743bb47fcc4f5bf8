//! What the Redis face takes for one request: bytes to a command, an outcome to bytes, a script.

// The macros of the harness make functions that nobody documents.
#![allow(missing_docs)]
// A bench may fail loudly.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::BytesMut;
use criterion::{Criterion, criterion_group, criterion_main};
use onced::engine::{self, Engine};
use onced::resp::{Face, Limits, Options, Parser, Session};

fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

const RELEASE: &[u8] =
    b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let key = b"key:000000000042";
    vec![
        ("ping", request(&[b"PING"])),
        ("get", request(&[b"GET", key])),
        (
            "set nx ex",
            request(&[b"SET", key, b"worker-1", b"NX", b"EX", b"86400"]),
        ),
        (
            "once.claim",
            request(&[
                b"ONCE.CLAIM",
                key,
                b"LEASE",
                b"60000",
                b"OWNER",
                b"worker-1",
            ]),
        ),
    ]
}

fn parsing(criterion: &mut Criterion) {
    let limits = Limits::default();
    let mut group = criterion.benchmark_group("resp, parse");
    for (name, bytes) in requests() {
        group.bench_function(name, |bencher| {
            let mut parser = Parser::default();
            bencher.iter(|| {
                let mut input = BytesMut::from(&bytes[..]);
                black_box(parser.parse(&mut input, &limits))
                    .unwrap()
                    .unwrap()
            });
        });
    }
    group.finish();
}

/// Of requests that are decided already or need no decision: with the engine it is the engine's bench.
fn serving(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut options = engine::Options::default();
    options.journal.segment_size = 16 << 20;
    let (engine, _) = runtime
        .block_on(async { Engine::open(dir.path(), options) })
        .unwrap();
    let mut session = Session::new(Arc::new(Face::new(Options::default())), "bench".to_owned());
    let mut talk = |bytes: &[u8]| {
        let (mut input, mut output) = (BytesMut::from(bytes), BytesMut::new());
        runtime.block_on(session.serve(&engine, &mut input, &mut output));
        assert!(!output.is_empty() && output[0] != b'-', "{output:?}");
        output
    };
    let key = b"key:000000000042";
    talk(&request(&[b"SET", key, b"worker-1"]));
    let table = [
        ("ping", request(&[b"PING"])),
        ("get", request(&[b"GET", key])),
        (
            "set nx, duplicate",
            request(&[b"SET", key, b"worker-2", b"NX", b"EX", b"86400"]),
        ),
        (
            "multi get exec",
            [
                request(&[b"MULTI"]),
                request(&[b"GET", key]),
                request(&[b"EXEC"]),
            ]
            .concat(),
        ),
        (
            "eval release, another's",
            request(&[b"EVAL", RELEASE, b"1", key, b"worker-2"]),
        ),
    ];
    let mut group = criterion.benchmark_group("resp, serve");
    for (name, bytes) in &table {
        group.bench_function(*name, |bencher| bencher.iter(|| talk(black_box(bytes))));
    }
    group.finish();
}

criterion_group!(benches, parsing, serving);
criterion_main!(benches);
