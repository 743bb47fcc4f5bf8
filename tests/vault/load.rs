//! Backups under load: clients that know what they were told are the judges.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

const WRITERS: usize = 4;

/// What one writer was told: how many of its keys are there, in their order.
struct Told {
    answered: [AtomicUsize; WRITERS],
    stop: AtomicBool,
}

impl Told {
    fn now(&self) -> Vec<usize> {
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        self.answered.iter().map(count).collect()
    }

    fn write(&self, server: &Server, writer: usize) {
        let mut redis = server.redis();
        while !self.stop.load(Ordering::SeqCst) {
            let at = self.answered[writer].load(Ordering::SeqCst);
            let set = redis.command(&format!("SET w{writer}-{at} v{at} NX EX 3600"));
            assert_eq!(set, Reply::Status("OK".into()));
            self.answered[writer].store(at + 1, Ordering::SeqCst);
        }
    }
}

#[test]
fn under_load_a_backup_is_a_point_in_time_and_has_everything_answered_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let told = Told {
        answered: Default::default(),
        stop: AtomicBool::new(false),
    };
    let mut points = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (told, server) = (&told, &server);
            scope.spawn(move || told.write(server, writer));
        }
        let begun = Instant::now();
        while told.now().iter().any(|count| *count < 200) {
            assert!(begun.elapsed() < crate::support::PATIENCE);
            std::thread::yield_now();
        }
        for number in 0..3 {
            let before = told.now();
            let path = taken(&server, folder.path(), &format!("b{number}"));
            points.push((path, before, told.now()));
        }
        told.stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(server.term().code(), 0);
    for (number, (path, before, after)) in points.into_iter().enumerate() {
        let dir = folder.path().join(format!("r{number}"));
        restored(&path, &dir);
        let server = Server::start(&dir);
        let mut redis = server.redis();
        for writer in 0..WRITERS {
            let exists = |redis: &mut crate::support::Redis, at: usize| {
                redis.command(&format!("GET w{writer}-{at}"))
            };
            let mut there = 0;
            while exists(&mut redis, there) == Reply::Bytes(format!("v{there}").into_bytes()) {
                there += 1;
            }
            // One more may have been decided, and not answered yet.
            assert!(
                (before[writer]..=after[writer] + 1).contains(&there),
                "backup {number}, writer {writer}: {there} keys, {before:?} {after:?}"
            );
            for beyond in there..after[writer] + 2 {
                assert_eq!(
                    exists(&mut redis, beyond),
                    Reply::Null,
                    "a hole before {beyond}"
                );
            }
        }
        assert_eq!(server.term().code(), 0);
    }
}

/// Prints what a claim takes while a backup is taken, and without one. `cargo test -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a judgement"]
fn what_claims_take_during_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill(&server, 60_000);
    let (stop, backups) = (AtomicBool::new(false), AtomicUsize::new(0));
    let measure = |what: &str| {
        let mut http = server.http();
        let mut took: Vec<Duration> = (0..4000)
            .map(|at| {
                let begun = Instant::now();
                claim(&mut http, &format!("{what}{at}"));
                begun.elapsed()
            })
            .collect();
        took.sort_unstable();
        println!("{what}: p50 {:?}, p99 {:?}", took[2000], took[3960]);
    };
    measure("without");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let number = backups.fetch_add(1, Ordering::SeqCst);
                taken(&server, folder.path(), &format!("b{number}"));
            }
        });
        measure("during");
        stop.store(true, Ordering::SeqCst);
    });
    println!("{} backups meanwhile", backups.load(Ordering::SeqCst));
}
