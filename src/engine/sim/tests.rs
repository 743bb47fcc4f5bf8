//! What the simulation runs.
//!
//! `SEED=n` replays one seed; `ONCED_SEEDS=n` runs so many from there on; `ONCED_CANARY=Name` puts a fault in,
//! in a build with the feature `canary`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::audit::Broken;
use super::world::{Stats, Without, World};
use crate::engine::Unit;
use crate::model::command::{Claim, Command, Mode, Verb};
use crate::model::key::RecordKey;
use crate::model::record::Retention;
use crate::model::time::Span;
use crate::store::without_filters;

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 1000;

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("it is a number"))
}

/// A whole run of one seed.
fn run(seed: u64) -> Result<World, Broken> {
    let mut world = World::new(seed);
    let created = world.create();
    created.map_err(|error| format!("not created: {error}"))?;
    let lives = 2 + world.dice.below(5);
    world.come_up(false)?;
    for _ in 0..lives {
        world.live()?;
        world.come_up(true)?;
    }
    world.close()?;
    world.check()?;
    world.come_up(false)?;
    Ok(world)
}

/// What many runs came to.
#[derive(Default)]
struct Sum {
    runs: u64,
    stats: Stats,
    by_verdict: BTreeMap<&'static str, u64>,
    answers: u64,
    doubts: u64,
}

impl Sum {
    fn add(&mut self, world: &World) {
        self.runs += 1;
        self.stats.add(&world.stats);
        let judged = &world.audit.judged;
        self.answers += judged.answers;
        self.doubts += judged.doubts;
        for (verdict, count) in &judged.by_verdict {
            *self.by_verdict.entry(verdict).or_default() += count;
        }
    }
}

/// Runs seeds on all cores until they are through or one is broken.
fn run_all(from: u64, count: u64) -> Result<Sum, (u64, Broken)> {
    let (next, over) = (AtomicU64::new(from), AtomicBool::new(false));
    let sum = Mutex::new(Ok(Sum::default()));
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            scope.spawn(|| {
                choose_canary();
                while !over.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= from + count {
                        return;
                    }
                    let ran = run(seed);
                    let mut sum = sum.lock();
                    match (ran, &mut *sum) {
                        (Ok(world), Ok(sum)) => sum.add(&world),
                        (Err(broken), Ok(_)) => {
                            *sum = Err((seed, broken));
                            over.store(true, Ordering::SeqCst);
                        }
                        (_, Err(_)) => {}
                    }
                }
            });
        }
    });
    sum.into_inner()
}

#[cfg(not(feature = "canary"))]
fn choose_canary() {}

#[cfg(feature = "canary")]
fn choose_canary() {
    use crate::canary::{Fault, choose};
    if let Ok(name) = std::env::var("ONCED_CANARY") {
        let named = Fault::ALL
            .into_iter()
            .find(|fault| format!("{fault:?}") == name);
        choose(Some(named.expect("it names a fault of src/canary.rs")));
    }
}

#[test]
fn every_answer_of_every_seed_is_right_through_crashes_failing_disks_full_disks_and_moving_clocks()
{
    let (from, count) = match (env("SEED"), env("ONCED_SEEDS")) {
        (Some(seed), count) => (seed, count.unwrap_or(1)),
        (None, count) => (1, count.unwrap_or(SEEDS)),
    };
    let started = crate::engine::clock::Pace::Machine.start();
    let sum = match run_all(from, count) {
        Ok(sum) => sum,
        Err((seed, broken)) => panic!("SEED={seed}: {broken}"),
    };
    println!(
        "{} seeds from {from} in {:?}: {:?}, {} answers judged, {} of them about what nobody had heard of, {:?}",
        sum.runs,
        started.elapsed(),
        sum.stats,
        sum.answers,
        sum.doubts,
        sum.by_verdict
    );
    if count >= SEEDS {
        assert_everything_happened(&sum);
    }
}

/// A simulation in which nothing happens proves nothing.
fn assert_everything_happened(sum: &Sum) {
    let stats = &sum.stats;
    let table = [
        ("power cuts", stats.power_cuts),
        ("kills", stats.kills),
        ("clean ends", stats.closes),
        ("failing disks", stats.failed_disks),
        ("starts that were cut", stats.cut_starts),
        ("torn frames", stats.torn),
        ("redone entries", stats.redone),
        ("checkpoints", stats.checkpoints),
        ("sweeps that dropped records", stats.swept),
        ("segments begun for want of room", stats.segments),
        ("checkpoints that waited for a reader", stats.holds),
        ("refusals of a full disk", stats.full),
        ("clients that went away", stats.deserted),
        ("claims that waited and got it", stats.waited),
        ("claims that waited in vain", stats.timed_out),
        ("answers about what nobody had heard of", sum.doubts),
    ];
    for (what, count) in table {
        assert!(count >= sum.runs / 100, "only {count} {what}");
    }
    let verdicts = [
        "new",
        "resumed",
        "takeover",
        "retry",
        "replay",
        "done",
        "busy",
        "backoff",
        "in_doubt",
        "dead",
        "mismatch",
        "conflict",
        "stale",
        "not_found",
        "renewed",
        "announced",
        "completed",
        "failed",
        "released",
        "replayed",
        "forgotten",
        "ok",
    ];
    for verdict in verdicts {
        let count = sum.by_verdict.get(verdict).copied().unwrap_or(0);
        assert!(
            count >= sum.runs / 10,
            "only {count} answers were {verdict}"
        );
    }
}

#[test]
fn the_same_seed_is_the_same_run_to_the_last_byte_on_the_disk() {
    for seed in 1..20 {
        let (one, other) = (run(seed).unwrap(), run(seed).unwrap());
        assert_eq!(one.device.trace(), other.device.trace(), "SEED={seed}");
        assert_eq!(format!("{:?}", one.stats), format!("{:?}", other.stats));
    }
}

/// The workload that is cut: some hundred turns of several clients.
fn workload(seed: u64) -> World {
    let mut world = World::new(seed);
    world.create().unwrap();
    world.come_up(false).unwrap();
    world
}

const TURNS: u32 = 1200;

fn work(world: &mut World) -> Result<(), Broken> {
    for turn in 0..TURNS {
        if !world.is_up() {
            return Ok(());
        }
        world.turn(4)?;
        // Whatever is due every few seconds comes up in every workload.
        if turn % 40 == 39 {
            world.pass(Span::from_secs(3));
            world.keep();
        }
    }
    Ok(())
}

/// Comes up, and everything is right now and after some more work.
fn recovers(world: &mut World) -> Result<(), Broken> {
    world.come_up(false)?;
    for _ in 0..10 {
        world.ask(usize::MAX);
    }
    world.settle()?;
    world.audit_keys()?;
    world.close()?;
    world.check()?;
    world.come_up(false)
}

/// The workload is run again for each of its writes, syncs and changes of names, with the power cut there; and
/// the start after it is cut at each of its own.
#[test]
fn a_cut_at_every_step_of_a_workload_and_of_its_recovery_loses_nothing() {
    let long = env("ONCED_CUTS").unwrap_or(1);
    let (mut cuts, mut cuts_of_starts) = (0, 0);
    for seed in 1..=long {
        let mut whole = workload(seed);
        let before = whole.device.ops();
        work(&mut whole).unwrap();
        let ops = whole.device.ops() - before;
        assert!(whole.stats.checkpoints > 3 && ops > 100, "{ops} operations");
        for cut in 0..ops {
            // A start is some thirty steps; in a short run every tenth is cut at all of them.
            let starts = long > 1 || cut % 10 == 7;
            match cut_at(seed, cut, starts) {
                Ok(of_starts) => cuts_of_starts += of_starts,
                Err(broken) => panic!("workload {seed} cut at {cut} of {ops}: {broken}"),
            }
            cuts += 1;
        }
    }
    println!("{cuts} cuts, and {cuts_of_starts} of starts after them");
}

/// How many cuts of the start after it there were.
fn cut_at(seed: u64, cut: u64, starts: bool) -> Result<u64, Broken> {
    let mut world = workload(seed);
    world.device.cut_after(cut);
    work(&mut world)?;
    if !world.device.is_off() {
        return Err("it is over before".into());
    }
    world.power_cut()?;
    let cuts = if starts { cut_starts(&world, cut)? } else { 0 };
    recovers(&mut world)?;
    Ok(cuts)
}

fn cut_starts(crashed: &World, seed: u64) -> Result<u64, Broken> {
    for cut in 0.. {
        let mut world = crashed.fork();
        for _ in 0..seed {
            world.dice.roll();
        }
        world.device.cut_after(cut);
        let started = world.start();
        if !world.device.is_off() {
            started.map_err(|error| error.to_string())?;
            return Ok(cut);
        }
        world.power_cut()?;
        recovers(&mut world).map_err(|broken| format!("its start cut at {cut}: {broken}"))?;
    }
    Ok(0)
}

/// Runs commands one after the other through clean and unclean ends, and keeps every answer as text.
fn answers(seed: u64, without: Without) -> Result<Vec<String>, Broken> {
    without_filters(without.filters);
    let mut world = World::new(seed).without(without);
    world.create().map_err(|error| error.to_string())?;
    let mut told = Vec::new();
    // Chance of what is asked and when, apart from the order of steps.
    let mut dice = world.dice.fork();
    for _ in 0..4 {
        world.come_up(false)?;
        for _ in 0..60 {
            let span = match dice.below(8) {
                0 => dice.below(60_000),
                1..4 => dice.below(4000),
                _ => 0,
            };
            world.pass(Span::from_millis(span));
            for _ in 0..4 {
                if !without.checkpoints {
                    world.keep();
                }
                world.commit();
            }
            told.extend(world.tell(&mut dice)?);
        }
        world.settle()?;
        world.kill_and_wait(dice.one_in(2))?;
    }
    without_filters(false);
    Ok(told)
}

#[test]
fn answers_are_the_same_without_sweeper_without_checkpoints_and_without_filters() {
    let plain = Without::default();
    let table = [
        (
            "sweeper",
            Without {
                sweeper: true,
                ..plain
            },
        ),
        (
            "checkpoints",
            Without {
                checkpoints: true,
                ..plain
            },
        ),
        (
            "filters",
            Without {
                filters: true,
                ..plain
            },
        ),
    ];
    let from = env("SEED").unwrap_or(1);
    let count = env("ONCED_SEEDS").map_or(40, |count| count / 20).max(1);
    for seed in from..from + count {
        let known = answers(seed, plain).unwrap_or_else(|broken| panic!("SEED={seed}: {broken}"));
        for (what, without) in table {
            let told = answers(seed, without)
                .unwrap_or_else(|broken| panic!("SEED={seed} without {what}: {broken}"));
            let differs = known.iter().zip(&told).position(|(a, b)| a != b);
            if let Some(at) = differs {
                panic!(
                    "SEED={seed} without {what}, answer {at}:\n  {}\n  {}",
                    known[at], told[at]
                );
            }
            assert_eq!(known.len(), told.len(), "SEED={seed} without {what}");
        }
    }
}

/// Each fault put in is caught within the seeds that every `cargo test` runs.
#[cfg(feature = "canary")]
#[test]
fn every_canary_is_caught() {
    use crate::canary::{Fault, choose};
    for fault in Fault::ALL {
        choose(Some(fault));
        let caught = (1..=SEEDS).find_map(|seed| Some((seed, run(seed).err()?)));
        choose(None);
        let (seed, broken) =
            caught.unwrap_or_else(|| panic!("{fault:?} lives through {SEEDS} seeds"));
        let first = broken.lines().next().unwrap_or_default();
        println!("{fault:?} is caught by seed {seed}: {first}");
    }
}

/// A jump of the wall clock is adopted after an hour, and with it what is past its retention goes. If the
/// machine then comes up with its clock set right, time must not be where the record was still protected.
#[test]
fn what_was_swept_by_a_jump_of_the_clock_stays_past_its_retention_after_a_restart() {
    const DAYS: i64 = 86_400_000;
    for quiet in 0..20 {
        let mut world = World::new(quiet);
        world.create().unwrap();
        world.come_up(false).unwrap();
        let claim = Claim {
            mode: Mode::Once { result: None },
            retention: Some(Retention::For(Span::from_secs(20 * 86_400))),
            ..Claim::default()
        };
        let key = RecordKey::new("default", b"k0").unwrap();
        let verb = Verb::Claim(Box::new(claim));
        world.submit(Unit::One(Command::new(key, verb)));
        world.settle().unwrap();
        world.step_wall(100 * DAYS);
        // An hour in which nobody asks for anything, and some seconds after it.
        for _ in 0..3600 + quiet * 3 {
            world.pass(Span::from_secs(1));
            world.keep();
            world.commit();
        }
        world.power_cut_with_wall(-100 * DAYS).unwrap();
        world
            .come_up(false)
            .unwrap_or_else(|broken| panic!("{quiet}: {broken}"));
    }
}
