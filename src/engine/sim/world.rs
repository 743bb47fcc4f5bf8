//! One simulated machine with an engine on it: who does what next follows from the seed.
//!
//! Nothing runs by itself. A turn lets one thing happen: a client sends something or goes away, somebody who
//! was woken goes on, the journal thread or the store thread takes one step, the clocks move. Whoever was not
//! woken does not go on: a lost wake-up shows as an answer that never comes.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::audit::{At, Auditor, Broken};
use super::clients::{Clients, KEYS, NAMESPACES, all_keys, at_once, policies, wait_of};
use super::dice::Dice;
use super::disk::{Device, Op};
use super::{START, Tap};
use crate::engine::checkpoint::{self, Keeper};
use crate::engine::clock::{ManualClock, Pace, Source};
use crate::engine::commit;
use crate::engine::open::{Parts, Ready, recover};
use crate::engine::reserve::Reserve;
use crate::engine::waiters::ring_due;
use crate::engine::{Engine, EngineError, Limits, Options, Report, Unavailable, Unit};
use crate::journal;
use crate::model::body::Content;
use crate::model::command::{Command, List, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Shown, Verdict};
use crate::model::record::{Lsn, Record, State, Token};
use crate::model::time::{Span, Timestamp};
use crate::store::{self, Store};

const STORE: &str = "store";
const JOURNAL: &str = "journal";
const DATA: &str = "data";
const ID: [u8; 16] = *b"a simulated one.";
const DISK: u64 = 8 << 20;
/// The second is soon used up.
const RESERVES: [u64; 2] = [256 << 10, 32 << 10];
/// So many may be held at once.
const HELD: usize = 8;
/// Turns in which whatever is asked has to be answered once nothing fails any more.
const SETTLED: u32 = 20_000;

type Answers = Vec<Result<Outcome, Unavailable>>;

/// Whoever waits for an answer.
struct Task {
    ticket: u64,
    commands: Vec<Command>,
    future: Pin<Box<dyn Future<Output = Answers>>>,
    woken: Arc<Woken>,
    decided: bool,
    /// How long it may be held, and what the machine's boot clock showed when it was asked.
    wait: Span,
    asked: u64,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An engine without threads of its own.
struct Running {
    engine: Engine,
    keeper: Keeper,
    committed: commit::Next,
    kept: checkpoint::Next,
}

/// What is switched off.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Without {
    pub(super) sweeper: bool,
    pub(super) checkpoints: bool,
    pub(super) filters: bool,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    pub(super) starts: u64,
    pub(super) power_cuts: u64,
    pub(super) kills: u64,
    pub(super) closes: u64,
    pub(super) failed_disks: u64,
    pub(super) cut_starts: u64,
    pub(super) torn: u64,
    pub(super) redone: u64,
    pub(super) checkpoints: u64,
    pub(super) full: u64,
    pub(super) commands: u64,
    pub(super) deserted: u64,
    pub(super) swept: u64,
    pub(super) segments: u64,
    pub(super) holds: u64,
    /// Claims that were held and got something else than `busy` in the end.
    pub(super) waited: u64,
    /// Claims that were held as long as they wanted.
    pub(super) timed_out: u64,
}

impl Stats {
    pub(super) fn add(&mut self, other: &Stats) {
        let Stats {
            starts,
            power_cuts,
            kills,
            closes,
            failed_disks,
            cut_starts,
            torn,
            redone,
            checkpoints,
            full,
            commands,
            deserted,
            swept,
            segments,
            holds,
            waited,
            timed_out,
        } = other;
        self.starts += starts;
        self.power_cuts += power_cuts;
        self.kills += kills;
        self.closes += closes;
        self.failed_disks += failed_disks;
        self.cut_starts += cut_starts;
        self.torn += torn;
        self.redone += redone;
        self.checkpoints += checkpoints;
        self.full += full;
        self.commands += commands;
        self.deserted += deserted;
        self.swept += swept;
        self.segments += segments;
        self.holds += holds;
        self.waited += waited;
        self.timed_out += timed_out;
    }
}

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) device: Device,
    clock: Arc<ManualClock>,
    running: Option<Running>,
    tasks: Vec<Task>,
    pub(super) audit: Auditor,
    clients: Clients,
    tickets: u64,
    timers: tokio::runtime::Runtime,
    without: Without,
    /// Nobody is held any more.
    closing: bool,
    /// The store thread is much quicker than everybody else.
    hurried: bool,
    /// Who decides writes to the journal himself.
    lead: bool,
    /// Bytes of it.
    reserve: u64,
    /// What is told meanwhile, where somebody wants to know.
    heard: Option<Vec<(Command, Result<Outcome, Unavailable>)>>,
    pub(super) stats: Stats,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let timers = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let mut dice = Dice::new(seed);
        World {
            reserve: *dice.fork().of(&RESERVES),
            dice,
            device: Device::new(DISK),
            clock: ManualClock::new(START, 1_000_000),
            running: None,
            tasks: Vec::new(),
            audit: Auditor::new(),
            clients: Clients::default(),
            tickets: 0,
            timers,
            without: Without::default(),
            closing: false,
            hurried: false,
            lead: false,
            heard: None,
            stats: Stats::default(),
        }
    }

    /// A world like this one at the moment, without the engine and those who wait.
    pub(super) fn fork(&self) -> World {
        World {
            dice: self.dice.clone(),
            device: self.device.fork(),
            clock: self.clock.rebooted(self.clock.shown().0),
            audit: self.audit.clone(),
            clients: self.clients.clone(),
            tickets: self.tickets,
            without: self.without,
            reserve: self.reserve,
            ..World::new(0)
        }
    }

    pub(super) fn without(mut self, without: Without) -> World {
        self.without = without;
        self
    }

    fn options(&self) -> (Options, Limits) {
        let large = self.without.checkpoints;
        let options = Options {
            clock: Source::Manual(self.clock.clone()),
            policies: policies(),
            reserve: self.reserve,
            journal: journal::writer::Options {
                segment_size: 64 << 10,
                spares: 2,
                audit_age: Span::from_secs(600),
                audit_bytes: 256 << 10,
            },
            store: store::Options {
                cache: 256 << 10,
                part_rows: 8,
                tables: 24,
            },
            ..Options::default()
        };
        let recent_bytes = if large { 64 << 20 } else { 128 << 10 };
        let limits = Limits {
            recent_bytes,
            freeze_at: recent_bytes / 4,
            max_frame: 16 << 10,
            reads: 64 << 20,
            tick: Duration::from_secs(1),
            // In the thread that decides, or in one of its own.
            lead_below: if self.lead {
                Duration::MAX
            } else {
                Duration::ZERO
            },
        };
        (options, limits)
    }

    /// Makes the parts of a new store, before anybody looks at the disk.
    pub(super) fn create(&mut self) -> Result<(), EngineError> {
        let (options, _) = self.options();
        let source = self.device.source(STORE);
        let store = Store::create_with_backend(source, ID, options.store)?;
        let folder = self.device.folder(JOURNAL);
        drop(journal::create::create(
            folder,
            ID,
            Lsn(1),
            options.journal,
        )?);
        store.close()?;
        Ok(())
    }

    /// A start.
    pub(super) fn start(&mut self) -> Result<(), EngineError> {
        self.lead = self.dice.one_in(3);
        let (options, limits) = self.options();
        let reserve = Reserve::on(self.device.folder(DATA), options.reserve)?;
        let (store, opened) = Store::open_with_backend(self.device.source(STORE), options.store)?;
        let parts = Parts {
            store,
            opened,
            journal: self.device.folder(JOURNAL),
            reserve,
            pace: Pace::Manual(self.clock.clone()),
        };
        let mut report = Report::default();
        let ready = recover(parts, options, limits, &mut report)?;
        let Ready { inner, mut keeper } = ready;
        inner.tap.simulate();
        if self.without.sweeper {
            keeper.never_sweep();
        }
        self.stats.starts += 1;
        self.stats.redone += report.redone;
        self.stats.torn += u64::from(report.torn.is_some());
        self.running = Some(Running {
            engine: Engine::of(inner),
            keeper,
            committed: commit::Next::Step,
            kept: checkpoint::Next::Step,
        });
        Ok(())
    }

    /// Tells the auditor how far the journal reached, and asks about every key.
    pub(super) fn audit_start(&mut self) -> Result<(), Broken> {
        if let Some(running) = &self.running {
            let next = running.engine.inner.core.lock().next_lsn;
            self.audit.started(Lsn(next.0 - 1))?;
        }
        self.audit_keys()
    }

    /// Asks about every key, waits for all answers, and compares what a listing says.
    pub(super) fn audit_keys(&mut self) -> Result<(), Broken> {
        self.settle()?;
        self.heard = Some(Vec::new());
        for key in all_keys() {
            self.submit(Unit::One(Command::new(key, Verb::Get)));
        }
        self.settle()?;
        let heard = self.heard.take().unwrap_or_default();
        let got: BTreeMap<RecordKey, (State, Token)> = heard
            .into_iter()
            .filter_map(|(command, answer)| {
                let shown = answer.ok()?.record?;
                Some((command.key, (shown.state, shown.record.token)))
            })
            .collect();
        let listed = self.list_all()?;
        if let Some(error) = self.failure() {
            return Err(format!("it stopped for no reason: {error}"));
        }
        if listed != got {
            return Err(format!("listed: {listed:?}\n  got: {got:?}"));
        }
        Ok(())
    }

    /// What listings say, page by page. Nothing that they show is missing in the count.
    fn list_all(&mut self) -> Result<BTreeMap<RecordKey, (State, Token)>, Broken> {
        let listed = Arc::new(Mutex::new((BTreeMap::new(), Vec::new())));
        let Some(running) = &self.running else {
            return Ok(BTreeMap::new());
        };
        for namespace in NAMESPACES {
            let (engine, listed) = (running.engine.clone(), listed.clone());
            let future = async move {
                let (mut after, mut records) = (None, 0);
                loop {
                    let list = List {
                        namespace: namespace.into(),
                        state: None,
                        prefix: Bytes::new(),
                        due: false,
                        after,
                        limit: 3,
                    };
                    let Ok(page) = engine.list(list).await else {
                        return Vec::new();
                    };
                    records += page.records.len() as u64;
                    for (key, outcome) in page.records {
                        let shown = outcome.record.unwrap();
                        let facts = (shown.state, shown.record.token);
                        listed.lock().0.insert(key, facts);
                    }
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                let count = engine.count(namespace).await;
                listed.lock().1.push((namespace, records, count));
                Vec::new()
            };
            self.tickets += 1;
            self.tasks.push(Task {
                ticket: self.tickets,
                commands: Vec::new(),
                future: Box::pin(future),
                woken: Arc::new(Woken(true.into())),
                decided: false,
                wait: Span::ZERO,
                asked: 0,
            });
        }
        self.settle()?;
        let (listed, counts) = std::mem::take(&mut *listed.lock());
        for (namespace, records, count) in counts {
            // Beside each record there may be one past its retention whose bucket is not over.
            if count.is_ok_and(|count| count < records || count > 2 * KEYS) {
                return Err(format!(
                    "{namespace}: {records} are listed and {count:?} counted"
                ));
            }
        }
        Ok(listed)
    }

    pub(super) fn submit(&mut self, unit: Unit) {
        let Some(running) = &self.running else {
            return;
        };
        let engine = running.engine.clone();
        let commands = unit.commands().to_vec();
        let wait = wait_of(&unit);
        self.tickets += 1;
        self.stats.commands += commands.len() as u64;
        self.tasks.push(Task {
            ticket: self.tickets,
            commands,
            future: Box::pin(async move { engine.submit(vec![unit]).await }),
            woken: Arc::new(Woken(true.into())),
            decided: false,
            wait,
            asked: self.clock.shown().1,
        });
    }

    /// What somebody asks next, if there are not so many already whose answer only takes its time.
    pub(super) fn ask(&mut self, busy: usize) {
        let waiting = self.tasks.iter().filter(|task| task.wait > Span::ZERO);
        let waiting = waiting.count();
        if self.tasks.len() - waiting >= busy {
            return;
        }
        let unit = self.clients.next(&mut self.dice);
        self.submit(if waiting < HELD { unit } else { at_once(unit) });
    }

    /// What the thread that keeps the time does.
    fn ring(&mut self) {
        if let Some(running) = &self.running {
            let _ = ring_due(&running.engine.inner);
        }
    }

    /// Lets one thing happen.
    pub(super) fn turn(&mut self, busy: usize) -> Result<(), Broken> {
        if self.hurried {
            // Checkpoints overtake whoever has read and not decided.
            match self.dice.below(16) {
                0..2 => self.go_on()?,
                2..5 => self.commit(),
                5 => self.pass(Span::from_secs(5)),
                6..13 => self.keep(),
                13 => self.ring(),
                _ => self.ask(busy),
            }
            return Ok(());
        }
        match self.dice.below(16) {
            0..7 => self.go_on()?,
            7..11 => self.commit(),
            11..13 => self.keep(),
            13..15 => self.ask(busy),
            15 if self.dice.one_in(3) => self.ring(),
            15 if self.dice.one_in(3) => self.move_clocks(),
            15 if self.dice.one_in(12) => self.desert()?,
            _ => self.go_on()?,
        }
        Ok(())
    }

    /// Waits until everybody has an answer.
    pub(super) fn settle(&mut self) -> Result<(), Broken> {
        for turn in 0..SETTLED {
            if self.tasks.is_empty() {
                return Ok(());
            }
            self.go_on()?;
            self.commit();
            self.ring();
            if turn % 50 == 49 {
                self.keep();
            }
            if turn % 500 == 499 {
                self.pass(Span::from_secs(1));
            }
        }
        let waiting: Vec<_> = self.tasks.iter().map(|task| &task.commands).collect();
        let error = self.failure();
        Err(format!("an answer never came: {waiting:?}; {error:?}"))
    }

    /// Whether the engine can go on.
    pub(super) fn is_up(&self) -> bool {
        self.failure().is_none() && !self.device.is_off()
    }

    pub(super) fn failure(&self) -> Option<String> {
        let running = self.running.as_ref()?;
        let failure = running.engine.inner.failure.get();
        failure.map(|error| error.to_string())
    }

    /// One of those who were woken goes on.
    pub(super) fn go_on(&mut self) -> Result<(), Broken> {
        let woken = |task: &Task| task.woken.0.load(Ordering::SeqCst);
        let able: Vec<usize> = (0..self.tasks.len())
            .filter(|at| woken(&self.tasks[*at]))
            .collect();
        if able.is_empty() {
            return Ok(());
        }
        let at = *self.dice.of(&able);
        self.poll(at)
    }

    fn poll(&mut self, at: usize) -> Result<(), Broken> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let inner = running.engine.inner.clone();
        let task = &mut self.tasks[at];
        task.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(task.woken.clone());
        let (before, decided) = (inner.core.lock().next_lsn, inner.tap.count());
        let polled = {
            let _timers = self.timers.enter();
            task.future.as_mut().poll(&mut Context::from_waker(&waker))
        };
        if inner.tap.count() > decided {
            if std::mem::replace(&mut task.decided, true) {
                return Err(format!("decided twice: {:?}", task.commands));
            }
            let core = inner.core.lock();
            let position = core.clock.position();
            let at = At {
                time: position.time,
                boot: position.boot,
                machine: self.clock.shown().1,
            };
            let wrote = (before, core.next_lsn.0 - before.0);
            drop(core);
            self.audit.decided(task.ticket, &task.commands, wrote, at)?;
        }
        let Poll::Ready(answers) = polled else {
            return Ok(());
        };
        let task = self.tasks.remove(at);
        self.in_time(&task, &answers)?;
        let full = answers.iter().any(|a| matches!(a, Err(Unavailable::Full)));
        self.stats.full += u64::from(full);
        let told = task.commands.iter().zip(&answers);
        if let Some(heard) = &mut self.heard {
            heard.extend(told.map(|(command, answer)| (command.clone(), answer.clone())));
        } else {
            for (command, answer) in told {
                if let Ok(outcome) = answer {
                    self.clients.hear(command, outcome, &mut self.dice);
                }
            }
        }
        self.audit.answered(task.ticket, &task.commands, answers)
    }

    /// Whoever is held is told `busy` or `backoff` when his time is over, not before.
    fn in_time(&mut self, task: &Task, answers: &Answers) -> Result<(), Broken> {
        let [Ok(outcome)] = &answers[..] else {
            return Ok(());
        };
        if task.wait == Span::ZERO {
            return Ok(());
        }
        let passed = self.clock.shown().1 - task.asked;
        let held = matches!(outcome.verdict, Verdict::Busy | Verdict::Backoff);
        if held && passed < task.wait.as_millis() && !self.closing {
            return Err(format!(
                "{:?} was to be held for {}, and not for {passed} ms: {outcome:?}",
                task.commands, task.wait
            ));
        }
        self.stats.timed_out += u64::from(held);
        self.stats.waited += u64::from(!held && passed > 0);
        Ok(())
    }

    pub(super) fn commit(&mut self) {
        if let Some(running) = &mut self.running
            && running.committed != commit::Next::Over
        {
            let inner = running.engine.inner.clone();
            let before = self.device.segments();
            running.committed = inner.committer.lock().step(&inner);
            self.stats.segments += self.device.segments() - before;
        }
    }

    pub(super) fn keep(&mut self) {
        if let Some(running) = &mut self.running
            && running.kept != checkpoint::Next::Over
        {
            let inner = running.engine.inner.clone();
            let stored = || {
                let namespaces = inner.reader.namespaces().into_iter();
                let counts = namespaces.map(|name| inner.reader.count(&name, Timestamp::default()));
                counts.map(|rows| rows.done).sum::<u64>()
            };
            let (before, rows) = (inner.core.lock().checkpoints, stored());
            running.kept = running.keeper.step(&inner);
            self.stats.holds += u64::from(running.kept == checkpoint::Next::Holds);
            let checkpoints = inner.core.lock().checkpoints - before;
            self.stats.checkpoints += checkpoints;
            let committed = matches!(running.kept, checkpoint::Next::Step);
            if checkpoints == 0 && !committed {
                self.stats.swept += rows.saturating_sub(stored());
            }
        }
    }

    /// A client goes away without waiting.
    fn desert(&mut self) -> Result<(), Broken> {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(self.tasks.len() as u64) as usize;
        let task = self.tasks.remove(at);
        self.stats.deserted += 1;
        self.audit.gone(task.ticket, &task.commands)
    }

    /// Time passes on both clocks, and for whoever waits with patience.
    pub(super) fn pass(&mut self, span: Span) {
        self.clock.advance(span);
        let patience = Duration::from_millis(span.as_millis().min(30_000));
        self.timers.block_on(tokio::time::advance(patience));
    }

    /// Somebody sets the wall clock so much ahead of, or behind, where it was.
    pub(super) fn step_wall(&mut self, millis: i64) {
        let (wall, _) = self.clock.shown();
        self.clock.set_wall(wall.saturating_add_signed(millis));
    }

    fn move_clocks(&mut self) {
        let (wall, _) = self.clock.shown();
        match self.dice.below(40) {
            0 => self.clock.set_wall(wall + self.dice.below(5000)),
            1 => self
                .clock
                .set_wall(wall.saturating_sub(self.dice.below(5000))),
            2 => self.clock.set_wall(wall + self.dice.below(3 * 86_400_000)),
            3 => {
                let back = self.dice.below(3 * 86_400_000);
                self.clock.set_wall(wall.saturating_sub(back));
            }
            // The machine slept.
            4 => {
                let span = Span::from_millis(self.dice.below(2 * 3_600_000));
                self.pass(span);
            }
            5..10 => {
                let span = Span::from_secs(10 + self.dice.below(90));
                self.pass(span);
            }
            10..25 => {
                let span = Span::from_millis(self.dice.below(6000));
                self.pass(span);
            }
            _ => {
                let span = Span::from_millis(self.dice.below(20));
                self.pass(span);
            }
        }
    }

    /// The end of the process: whoever waits waits in vain.
    fn end(&mut self) -> Result<(), Broken> {
        for task in std::mem::take(&mut self.tasks) {
            self.audit.gone(task.ticket, &task.commands)?;
        }
        // What is dropped from here on finds its handles dead.
        self.running = None;
        Ok(())
    }

    /// Somebody asks, and everything else waits for the answer: what it says.
    pub(super) fn tell(&mut self, dice: &mut Dice) -> Result<Vec<String>, Broken> {
        // How long a wait takes depends on who else runs.
        let unit = at_once(self.clients.next(dice));
        self.submit(unit);
        self.heard = Some(Vec::new());
        self.settle()?;
        let heard = self.heard.take().unwrap_or_default();
        for (command, answer) in &heard {
            if let Ok(outcome) = answer {
                self.clients.hear(command, outcome, dice);
            }
        }
        let text = heard.iter().map(|(command, answer)| {
            let answer = answer.as_ref().map(|outcome| {
                let shown = outcome.record.as_ref().map(|shown| Shown {
                    record: without_places(&shown.record),
                    ..shown.clone()
                });
                (&outcome.verdict, shown, outcome.removed, outcome.now)
            });
            format!("{command:?}: {answer:?}")
        });
        Ok(text.collect())
    }

    /// The process dies at a moment when nobody waits, perhaps with the machine; no time passes.
    pub(super) fn kill_and_wait(&mut self, power: bool) -> Result<(), Broken> {
        if power {
            let mut dice = Dice::new(self.stats.starts);
            self.device.crash(&mut dice);
        } else {
            self.device.kill();
        }
        self.end()
    }

    /// `kill -9`: the machine goes on.
    pub(super) fn kill(&mut self) -> Result<(), Broken> {
        self.stats.kills += 1;
        self.device.kill();
        self.end()?;
        if self.dice.one_in(2) {
            let span = Span::from_millis(self.dice.below(20_000));
            self.pass(span);
        }
        Ok(())
    }

    /// The power goes and comes back, and the machine starts anew.
    pub(super) fn power_cut(&mut self) -> Result<(), Broken> {
        self.stats.power_cuts += 1;
        let mut dice = self.dice.fork();
        self.device.crash(&mut dice);
        self.end()?;
        let (wall, _) = self.clock.shown();
        let wall = match dice.below(8) {
            0 => wall.saturating_sub(dice.below(3 * 3_600_000)),
            1 => wall + dice.below(3 * 3_600_000),
            _ => wall + dice.below(30_000),
        };
        self.clock = self.clock.rebooted(wall);
        Ok(())
    }

    /// The machine starts anew, its wall clock where somebody has set it meanwhile.
    pub(super) fn power_cut_with_wall(&mut self, millis: i64) -> Result<(), Broken> {
        self.power_cut()?;
        self.step_wall(millis);
        Ok(())
    }

    /// A clean end.
    pub(super) fn close(&mut self) -> Result<(), Broken> {
        self.stats.closes += 1;
        self.hurried = false;
        if self.dice.one_in(2)
            && let Some(running) = &self.running
        {
            // As a server does: whoever is held has an answer before the engine stops.
            running.engine.stop_waiting();
            self.closing = true;
            self.settle()?;
            self.closing = false;
        }
        if let Some(running) = &self.running {
            running.engine.inner.stop();
        }
        for _ in 0..SETTLED {
            self.keep();
            self.commit();
            self.go_on()?;
            let over = self.running.as_ref().is_none_or(|running| {
                running.kept == checkpoint::Next::Over && running.committed == commit::Next::Over
            });
            if over && self.tasks.is_empty() {
                self.device.kill();
                return self.end();
            }
        }
        Err(format!("it does not stop: {:?}", self.failure()))
    }

    /// Starts until it is up: some starts are cut, and a full disk is freed.
    pub(super) fn come_up(&mut self, may_cut: bool) -> Result<(), Broken> {
        loop {
            let cut = may_cut && self.dice.one_in(4);
            if cut {
                self.device.cut_after(self.dice.below(60));
            }
            let started = self.start();
            if self.device.is_off() {
                self.stats.cut_starts += 1;
                self.power_cut()?;
                continue;
            }
            match started {
                Ok(()) => break,
                Err(error) if error.is_full() => {
                    self.device.kill();
                    self.device.set_free(DISK);
                }
                Err(error) => return Err(format!("a start is refused: {error}")),
            }
        }
        self.device.cut_never();
        self.audit_start()
    }

    /// What a check finds wrong with the store, while nobody uses it: nothing.
    pub(super) fn check(&self) -> Result<(), Broken> {
        let (options, _) = self.options();
        let report = store::check_backend(&self.device.source(STORE), options.store);
        let report = report.map_err(|error| format!("it cannot be checked: {error}"))?;
        match report.findings.as_slice() {
            [] => Ok(()),
            findings => Err(format!("a check finds {findings:?}")),
        }
    }

    /// One life of the process, from a start that went well to some end.
    pub(super) fn live(&mut self) -> Result<(), Broken> {
        let mut turns = 50 + self.dice.below(400);
        self.clients.heavy = self.dice.one_in(10);
        if self.clients.heavy || self.dice.one_in(10) {
            turns *= 8;
        }
        self.hurried = self.dice.one_in(6);
        let ending = self.dice.below(10);
        let trouble = self.dice.below(turns);
        let busy = 1 + self.dice.below(8) as usize;
        // Until somebody frees space, which in a life of large values nobody may.
        let full = self.clients.heavy && self.dice.one_in(2);
        if full || self.dice.one_in(6) {
            let most = if full { 64 << 10 } else { 400 << 10 };
            self.device.set_free(self.dice.below(most));
        }
        for turn in 0..turns {
            if turn == trouble {
                match ending {
                    0..2 => self.device.cut_after(self.dice.below(40)),
                    2..4 => self.device.cut_at_sync(self.dice.below(10)),
                    4 => {
                        let op = *self.dice.of(&[Op::Write, Op::Sync, Op::Other]);
                        self.device.fail_after(op, self.dice.below(20));
                    }
                    _ => {}
                }
            }
            if !full && self.dice.one_in(150) {
                self.device.set_free(self.dice.below(4 << 20));
            }
            self.turn(busy)?;
            if !self.is_up() {
                break;
            }
        }
        // Nobody is told of success from here on that is not there after the next start.
        if !self.is_up() {
            for _ in 0..30 {
                self.go_on()?;
                self.commit();
                self.keep();
                self.ring();
            }
        }
        if let Some(error) = self.failure()
            && !self.device.is_off()
            && !self.device.has_failed()
        {
            return Err(format!("it stopped for no reason: {error}"));
        }
        self.stats.failed_disks += u64::from(self.device.has_failed());
        match ending {
            _ if self.device.is_off() => self.power_cut(),
            4 | 5 | 7 if self.dice.one_in(2) => self.kill(),
            8.. if self.failure().is_none() && !self.device.has_failed() => {
                self.device.set_free(DISK);
                self.close()
            }
            _ => self.power_cut(),
        }
    }
}

/// A record as answers say it. In which entry a large body came is nobody's business, and whether the bytes
/// belong to their digest, and are there, the auditor has judged.
fn without_places(record: &Record) -> Arc<Record> {
    let mut record = record.clone();
    let results = [&mut record.result, &mut record.earlier_result];
    let results = results.into_iter().flatten().map(|kept| &mut kept.body);
    for body in results.chain(&mut record.payload) {
        if let Content::Large(large) = &mut body.content {
            (large.lsn, large.bytes) = (None, None);
        }
    }
    record.into()
}

impl Tap {
    pub(super) fn simulate(&self) {
        self.simulated.store(true, Ordering::SeqCst);
    }

    fn count(&self) -> u64 {
        self.decided.load(Ordering::SeqCst)
    }
}
