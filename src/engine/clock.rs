//! Time: the only place that asks for it (SPEC 9).
//!
//! Two lines advance with the boot clock, which no one can set and which counts suspend: the store's boot
//! line, for leases and backoff, and engine time, for retention. Engine time approaches the wall clock: a
//! small difference is slewed away, a jump forward is adopted once it has held for an hour, a jump backward
//! never is. Neither line goes backwards, restarts included.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::time::{BootTime, Now, Span, Timestamp};

/// A difference between wall clock and engine time up to this is slewed; a larger one is a jump.
pub const SMALL_DIFFERENCE: Span = Span::from_secs(10);
/// How long a jump forward has to hold before it is adopted.
pub const HOLD: Span = Span::from_secs(3600);
/// Slewing changes the rate of engine time by at most one part in this many.
const SLEW: u64 = 200;

/// What the machine's clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Wall clock, milliseconds since the Unix epoch.
    pub wall: u64,
    /// Boot clock, milliseconds since the machine started, suspend included.
    pub boot: u64,
    /// Which start of the machine that was.
    pub boot_id: [u8; 16],
}

/// Where readings come from: the machine, or a hand that moves them.
#[derive(Clone, Debug)]
pub enum Source {
    /// The machine's clocks.
    System {
        /// Read once, at the start of the process.
        boot_id: [u8; 16],
    },
    /// Moved by a test or a simulation.
    Manual(Arc<ManualClock>),
}

/// Clocks that stand still until they are moved.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicU64,
    boot: AtomicU64,
    boot_id: [u8; 16],
}

impl ManualClock {
    /// Clocks that show these milliseconds.
    #[must_use]
    pub fn new(wall: u64, boot: u64) -> Arc<ManualClock> {
        Arc::new(ManualClock {
            wall: wall.into(),
            boot: boot.into(),
            boot_id: [7; 16],
        })
    }

    /// Time passes on both clocks.
    pub fn advance(&self, span: Span) {
        self.wall.fetch_add(span.as_millis(), Ordering::SeqCst);
        self.boot.fetch_add(span.as_millis(), Ordering::SeqCst);
    }

    /// Somebody sets the wall clock.
    pub fn set_wall(&self, wall: u64) {
        self.wall.store(wall, Ordering::SeqCst);
    }

    /// The clocks of the machine after it was started anew: another boot, and whatever wall clock it came
    /// up with.
    #[cfg(test)]
    pub(crate) fn rebooted(&self, wall: u64) -> Arc<ManualClock> {
        let mut boot_id = self.boot_id;
        boot_id[0] = boot_id[0].wrapping_add(1);
        Arc::new(ManualClock {
            wall: wall.into(),
            boot: 1000.into(),
            boot_id,
        })
    }

    /// What both clocks show, wall clock first.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> (u64, u64) {
        let read = |clock: &AtomicU64| clock.load(Ordering::SeqCst);
        (read(&self.wall), read(&self.boot))
    }
}

impl Source {
    /// The machine's clocks.
    #[must_use]
    pub fn system() -> Source {
        // Without the file (an odd container) every start counts as a new boot: downtime then comes from
        // the wall clock, as after a reboot.
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut boot_id = [0; 16];
        let digits: Vec<u8> = text
            .bytes()
            .filter_map(|b| char::from(b).to_digit(16))
            .map(|d| d as u8)
            .collect();
        for (byte, pair) in boot_id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Source::System { boot_id }
    }

    /// What the clocks say now, and whether the boot clock stands between two milliseconds.
    #[must_use]
    pub fn read(&self) -> (Reading, bool) {
        match self {
            Source::System { boot_id } => {
                let (wall, _) = millis(rustix::time::ClockId::Realtime);
                let (boot, between) = boot_millis();
                let boot_id = *boot_id;
                (
                    Reading {
                        wall,
                        boot,
                        boot_id,
                    },
                    between,
                )
            }
            Source::Manual(clock) => {
                let wall = clock.wall.load(Ordering::SeqCst);
                let boot = clock.boot.load(Ordering::SeqCst);
                let boot_id = clock.boot_id;
                (
                    Reading {
                        wall,
                        boot,
                        boot_id,
                    },
                    false,
                )
            }
        }
    }
}

impl Source {
    /// The wall clock in microseconds since the Unix epoch: what a restore raises tokens to (SPEC 9).
    #[must_use]
    pub fn wall_micros(&self) -> u64 {
        match self {
            Source::System { .. } => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
                let micros = u64::try_from(now.tv_nsec).unwrap_or(0) / 1000;
                seconds.saturating_mul(1_000_000).saturating_add(micros)
            }
            Source::Manual(clock) => clock.wall.load(Ordering::SeqCst).saturating_mul(1000),
        }
    }
}

/// Both lines, and the reading they belong to: what is kept with every frame of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Engine time.
    pub time: Timestamp,
    /// The store's boot line.
    pub boot: BootTime,
    /// The machine's clocks at that instant.
    pub reading: Reading,
}

/// A jump of the wall clock, to be logged and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// The wall clock is so far ahead; engine time waits to see whether that holds.
    Forward(Span),
    /// The wall clock is so far behind; engine time goes on without it.
    Backward(Span),
    /// A jump forward has held, and engine time made it too.
    Adopted(Span),
    /// The wall clock is back.
    Over,
}

/// What stopwatches go by.
#[derive(Clone, Debug)]
pub enum Pace {
    /// The machine's boot clock, whatever hand moves the engine's.
    Machine,
    /// The hand's as well: in a simulation nothing else passes.
    #[cfg(test)]
    Manual(Arc<ManualClock>),
}

impl Pace {
    /// Starts a stopwatch.
    #[must_use]
    pub fn start(&self) -> Stopwatch {
        Stopwatch {
            pace: self.clone(),
            started: self.millis(),
        }
    }

    fn millis(&self) -> u64 {
        match self {
            Pace::Machine => boot_millis().0,
            #[cfg(test)]
            Pace::Manual(clock) => clock.boot.load(Ordering::SeqCst),
        }
    }
}

/// Real time that passes, for what has to be done every so often.
#[derive(Debug)]
pub struct Stopwatch {
    pace: Pace,
    started: u64,
}

impl Stopwatch {
    /// What has passed since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.pace.millis().saturating_sub(self.started))
    }
}

/// Real time that passes, to be measured and shown. Nothing is decided by it.
#[derive(Clone, Copy, Debug)]
pub struct Timer(Duration);

impl Timer {
    /// Counts from now.
    #[must_use]
    pub fn start() -> Timer {
        Timer(passed())
    }

    /// What has passed since.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        passed().saturating_sub(self.0)
    }
}

fn passed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(secs, nanos)
}

/// The machine's boot clock in whole milliseconds, and whether it stands between two.
/// How long this thread has worked: for bounds on work that runs under the engine's lock. It does not count
/// while the thread waits for a processor.
#[derive(Clone, Copy, Debug)]
pub struct Work(Duration);

impl Work {
    /// Counts from now.
    #[must_use]
    pub fn start() -> Work {
        Work(worked())
    }

    /// What this thread has worked since; to be asked by the thread that started it.
    #[must_use]
    pub fn spent(&self) -> Duration {
        worked().saturating_sub(self.0)
    }
}

fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(secs, nanos)
}

fn boot_millis() -> (u64, bool) {
    millis(rustix::time::ClockId::Boottime)
}

fn millis(clock: rustix::time::ClockId) -> (u64, bool) {
    let time = rustix::time::clock_gettime(clock);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    let millis = secs.saturating_mul(1000).saturating_add(nanos / 1_000_000);
    (millis, nanos % 1_000_000 > 0)
}

/// Where the wall clock stands to engine time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Near,
    /// Ahead since that reading of the boot clock.
    Ahead(u64),
    Behind,
}

/// The engine's clock.
#[derive(Debug)]
pub struct Clock {
    source: Source,
    position: Position,
    relation: Relation,
    /// Slewing below a millisecond, carried on: in 1/[`SLEW`] milliseconds.
    slew_rest: u64,
    jump: Option<Jump>,
    jumps: u64,
}

impl Clock {
    /// Starts the lines, or continues them from where they were last seen. The time in between is counted by
    /// the boot clock if the machine was not restarted, else by the wall clock; never less than zero.
    #[must_use]
    pub fn new(source: Source, last: Option<Position>) -> Clock {
        let (reading, _) = source.read();
        let position = match last {
            None => Position {
                time: Timestamp::from_millis(reading.wall),
                boot: BootTime::default(),
                reading,
            },
            Some(last) => {
                let same_boot =
                    last.reading.boot_id == reading.boot_id && reading.boot >= last.reading.boot;
                let down = if same_boot {
                    reading.boot - last.reading.boot
                } else {
                    reading.wall.saturating_sub(last.reading.wall)
                };
                let down = Span::from_millis(down);
                Position {
                    time: last.time.after(down),
                    boot: last.boot.after(down),
                    reading,
                }
            }
        };
        Clock {
            source,
            position,
            relation: Relation::Near,
            slew_rest: 0,
            jump: None,
            jumps: 0,
        }
    }

    /// The instant for a batch; never below the last one.
    pub fn now(&mut self) -> Now {
        let (reading, between) = self.source.read();
        let passed = reading.boot.saturating_sub(self.position.reading.boot);
        let mut time = self.position.time.as_millis().saturating_add(passed);
        let boot = self.position.boot.after(Span::from_millis(passed));
        let (ahead, behind) = (
            reading.wall.saturating_sub(time),
            time.saturating_sub(reading.wall),
        );
        let small = SMALL_DIFFERENCE.as_millis();
        if ahead > small {
            let since = match self.relation {
                Relation::Ahead(since) => since,
                _ => {
                    self.jumped(Jump::Forward(Span::from_millis(ahead)));
                    reading.boot
                }
            };
            self.relation = Relation::Ahead(since);
            if reading.boot.saturating_sub(since) >= HOLD.as_millis() {
                time = reading.wall;
                self.relation = Relation::Near;
                self.jumped(Jump::Adopted(Span::from_millis(ahead)));
            }
        } else if behind > small {
            if self.relation != Relation::Behind {
                self.jumped(Jump::Backward(Span::from_millis(behind)));
            }
            self.relation = Relation::Behind;
        } else {
            if self.relation != Relation::Near {
                self.jumped(Jump::Over);
            }
            self.relation = Relation::Near;
            let budget = self.slew_rest.saturating_add(passed);
            let step = (budget / SLEW).min(ahead.max(behind));
            self.slew_rest = if ahead.max(behind) == 0 {
                0
            } else {
                budget - step * SLEW
            };
            self.slew_rest = self.slew_rest.min(SLEW * small);
            // Slowing down is bounded by the time that passed, so engine time never steps back.
            time = if ahead > 0 {
                time + step
            } else {
                time - step.min(passed)
            };
        }
        let time = Timestamp::from_millis(time.max(self.position.time.as_millis()));
        self.position = Position {
            time,
            boot,
            reading,
        };
        let (wall, time_millis) = (reading.wall, time.as_millis());
        let wall_ahead = if wall >= time_millis {
            i64::try_from(wall - time_millis).unwrap_or(i64::MAX)
        } else {
            i64::try_from(time_millis - wall).map_or(i64::MIN, |behind| -behind)
        };
        Now {
            time,
            boot,
            between,
            wall_ahead,
        }
    }

    /// Where the lines stand, as of the last [`Clock::now`].
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// A jump seen since the last call: for the log.
    pub fn take_jump(&mut self) -> Option<Jump> {
        self.jump.take()
    }

    /// How many jumps were seen.
    #[must_use]
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    fn jumped(&mut self, jump: Jump) {
        if jump != Jump::Over {
            self.jumps = self.jumps.saturating_add(1);
        }
        self.jump = Some(jump);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_767_323_045_000;
    const YEAR: u64 = 365 * 24 * 3600 * 1000;

    fn clock() -> (Arc<ManualClock>, Clock, Now) {
        let hand = ManualClock::new(START, 5_000_000);
        let mut clock = Clock::new(Source::Manual(hand.clone()), None);
        let now = clock.now();
        (hand, clock, now)
    }

    fn millis(from: Now, to: Now) -> (u64, u64) {
        (
            to.time.since(from.time).as_millis(),
            to.boot.since(from.boot).as_millis(),
        )
    }

    #[test]
    fn both_lines_advance_with_the_boot_clock() {
        let (hand, mut clock, start) = clock();
        assert_eq!(start.time.as_millis(), START);
        hand.advance(Span::from_secs(30));
        assert_eq!(millis(start, clock.now()), (30_000, 30_000));
        assert_eq!(clock.jumps(), 0);
    }

    #[test]
    fn a_jump_forward_moves_nothing_until_it_has_held_for_an_hour() {
        let (hand, mut clock, start) = clock();
        hand.set_wall(START + YEAR);
        for minute in 1..60 {
            hand.advance(Span::from_secs(60));
            assert_eq!(
                millis(start, clock.now()),
                (minute * 60_000, minute * 60_000)
            );
        }
        hand.advance(Span::from_secs(120));
        let now = clock.now();
        assert_eq!(now.time.as_millis(), START + YEAR + 61 * 60_000);
        assert_eq!(now.boot.since(start.boot), Span::from_secs(61 * 60));
        assert_eq!(
            clock
                .take_jump()
                .map(|jump| matches!(jump, Jump::Adopted(_))),
            Some(true)
        );
    }

    #[test]
    fn a_jump_forward_that_goes_back_leaves_no_trace() {
        let (hand, mut clock, start) = clock();
        hand.set_wall(START + 25 * 3_600_000);
        hand.advance(Span::from_secs(10));
        let _ = clock.now();
        hand.set_wall(START + 10_000);
        hand.advance(Span::from_secs(3600 * 2));
        assert_eq!(millis(start, clock.now()), (7_210_000, 7_210_000));
    }

    #[test]
    fn a_jump_backward_is_never_adopted() {
        let (hand, mut clock, start) = clock();
        hand.set_wall(START - YEAR);
        hand.advance(Span::from_secs(3 * 3600));
        assert_eq!(millis(start, clock.now()), (10_800_000, 10_800_000));
        let now = clock.now();
        assert_eq!(now.to_wall(now.time).as_millis(), START - YEAR + 10_800_000);
    }

    #[test]
    fn a_small_difference_is_slewed_in_both_directions() {
        for (difference, expected) in [(2_000_i64, 1_005_000_u64), (-2_000, 995_000)] {
            let (hand, mut clock, start) = clock();
            hand.set_wall(START.saturating_add_signed(difference));
            for _ in 0..10_000 {
                hand.advance(Span::from_millis(100));
                let _ = clock.now();
            }
            let (time, boot) = millis(start, clock.now());
            assert_eq!(boot, 1_000_000);
            let reached = START.saturating_add_signed(difference) + 1_000_000 - START;
            assert_eq!(time, reached, "after enough time the wall clock is reached");
            assert!(time.abs_diff(1_000_000) <= expected.abs_diff(1_000_000));
        }
    }

    #[test]
    fn engine_time_never_goes_backwards() {
        let seed: u64 = std::env::var("SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or(7);
        println!("SEED={seed}");
        let (hand, mut clock, mut last) = clock();
        let mut random = seed;
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            match random >> 61 {
                0 => hand.set_wall(START.saturating_add_signed((random >> 40) as i64 - (1 << 23))),
                1 => hand.set_wall(random >> 20),
                _ => hand.advance(Span::from_millis(random >> 50)),
            }
            let now = clock.now();
            assert!(now.time >= last.time && now.boot >= last.boot);
            last = now;
        }
    }

    #[test]
    fn a_restart_counts_the_downtime_and_never_less_than_zero() {
        let table = [
            // same boot: the boot clock counts, whatever the wall clock says
            ([7; 16], 5_060_000, START + YEAR, 60_000),
            ([7; 16], 5_060_000, START - YEAR, 60_000),
            // another boot, or a boot clock that went back: the wall clock counts
            ([8; 16], 1_000, START + 90_000, 90_000),
            ([7; 16], 4_000_000, START + 90_000, 90_000),
            ([8; 16], 1_000, START - 90_000, 0),
        ];
        for (boot_id, boot, wall, down) in table {
            let (_, clock, start) = clock();
            let hand = ManualClock {
                wall: wall.into(),
                boot: boot.into(),
                boot_id,
            };
            let mut next = Clock::new(Source::Manual(hand.into()), Some(clock.position()));
            assert_eq!(
                millis(start, next.now()),
                (down, down),
                "{boot_id:?} {boot} {wall}"
            );
        }
    }
}
