//! The auditor: keeps every answer that anybody heard, and judges what the store says by it.
//!
//! It knows in which order commands were decided and which entry of the journal each one wrote, and what
//! every answer said. It does not run the model: a key's state is what the last answer about it showed, and
//! whether the next answer fits is read off the contract, in `rules`.
//!
//! After a start it learns how far the journal reached. Everything that was answered, and everything an
//! answer rested on, has to be below that; what was not answered is there whole up to that point, and absent
//! after it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::clients::policies;
use super::rules;
use crate::engine::Unavailable;
use crate::model::body::Content;
use crate::model::command::Command;
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Reason, Verdict};
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Record, Token};
use crate::model::time::{BootTime, Timestamp};

/// What was broken.
pub(super) type Broken = String;

/// What a key holds, as written.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Nothing,
    Record(Arc<Record>),
    /// What a string command left, of which answers show the value before.
    Text {
        value: Content,
        expires_at: Option<Timestamp>,
    },
}

/// What is known of a key.
#[derive(Clone, Debug)]
enum Base {
    Known(Held),
    /// Something was written whose answer nobody heard: the last of it, and what was there just before.
    Doubt {
        before: Option<Held>,
        last: Box<Command>,
        at: Timestamp,
    },
}

/// When something was decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) time: Timestamp,
    pub(super) boot: BootTime,
    /// What the machine's boot clock showed.
    pub(super) machine: u64,
}

#[derive(Clone, Debug)]
enum Answer {
    Awaited,
    /// Nobody will hear it.
    Lost,
    Heard(Outcome),
}

/// One decision.
#[derive(Clone, Debug)]
struct Entry {
    ticket: u64,
    command: Command,
    /// What it wrote.
    lsn: Option<Lsn>,
    at: At,
    answer: Answer,
}

/// Decisions about one key that cannot be judged yet, in order.
#[derive(Clone, Debug)]
struct Log {
    base: Base,
    entries: VecDeque<Entry>,
    /// The last entry of the journal that is about the key.
    last: Lsn,
}

/// Entries that stand or fall together.
#[derive(Clone, Copy, Debug)]
struct Whole {
    first: Lsn,
    last: Lsn,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Auditor {
    keys: BTreeMap<RecordKey, Log>,
    policies: BTreeMap<String, Policy>,
    /// Some answer rests on this.
    rests: Lsn,
    /// Grants that somebody heard of, by the entries that made them.
    grants: BTreeMap<Lsn, Token>,
    wholes: Vec<Whole>,
    /// Every written decision since the last start, by its entry.
    written: BTreeMap<Lsn, At>,
    /// The last decision of this run.
    last_at: Option<At>,
    /// No time before this was ever durable.
    floor: Option<(Timestamp, BootTime)>,
    pub(super) judged: Judged,
}

/// How much was judged.
#[derive(Clone, Debug, Default)]
pub(super) struct Judged {
    pub(super) answers: u64,
    pub(super) doubts: u64,
    pub(super) by_verdict: BTreeMap<&'static str, u64>,
}

impl Auditor {
    pub(super) fn new() -> Auditor {
        Auditor {
            policies: policies(),
            ..Auditor::default()
        }
    }

    /// A batch was decided and wrote these entries, `count` from `first` on.
    pub(super) fn decided(
        &mut self,
        ticket: u64,
        commands: &[Command],
        (first, count): (Lsn, u64),
        at: At,
    ) -> Result<(), Broken> {
        if let Some(last) = self.last_at {
            let (passed, shown) = (at.machine - last.machine, at.boot.since(last.boot));
            if at.time < last.time || at.boot < last.boot || shown.as_millis() != passed {
                return Err(format!(
                    "time went from {last:?} to {at:?}: leases run on the boot clock, and nothing goes back"
                ));
            }
        } else if let Some((time, boot)) = self.floor
            && (at.time < time || at.boot < boot)
        {
            return Err(format!("{at:?} after a start is before {time:?} {boot:?}"));
        }
        self.last_at = Some(at);
        if count != 0 && count != commands.len() as u64 {
            return Err(format!("{count} entries for {} commands", commands.len()));
        }
        if count > 1 {
            let last = Lsn(first.0 + count - 1);
            self.wholes.push(Whole { first, last });
        }
        for (number, command) in commands.iter().enumerate() {
            let lsn = (count > 0).then_some(Lsn(first.0 + number as u64));
            let log = self.keys.entry(command.key.clone()).or_insert_with(|| Log {
                base: Base::Known(Held::Nothing),
                entries: VecDeque::new(),
                last: Lsn(0),
            });
            if let Some(lsn) = lsn {
                self.written.insert(lsn, at);
                log.last = lsn;
            }
            log.entries.push_back(Entry {
                ticket,
                command: command.clone(),
                lsn,
                at,
                answer: Answer::Awaited,
            });
        }
        Ok(())
    }

    /// Somebody heard these answers.
    pub(super) fn answered(
        &mut self,
        ticket: u64,
        commands: &[Command],
        answers: Vec<Result<Outcome, Unavailable>>,
    ) -> Result<(), Broken> {
        if answers.len() != commands.len() {
            return Err(format!(
                "{} answers to {} commands",
                answers.len(),
                commands.len()
            ));
        }
        let refused = commands.len() > 1
            && !answers
                .iter()
                .all(|answer| answer.as_ref().is_ok_and(Outcome::holds));
        for (command, answer) in commands.iter().zip(answers) {
            let Some(log) = self.keys.get_mut(&command.key) else {
                continue;
            };
            let Some(position) = log.entries.iter().position(|entry| entry.ticket == ticket) else {
                continue;
            };
            // What was written about the key up to this decision has to stay from now on.
            let before = log.entries.iter().take(position + 1).rev();
            let rest = before.filter_map(|entry| entry.lsn).next();
            let entry = &mut log.entries[position];
            match answer {
                // A member of a refused unit that would have been acquired: nothing was stored.
                Ok(outcome) if refused && outcome.holds() => entry.answer = Answer::Lost,
                Ok(outcome) => {
                    self.rests = self.rests.max(rest.unwrap_or_default());
                    entry.answer = Answer::Heard(outcome);
                }
                Err(Unavailable::Stopping) => entry.answer = Answer::Lost,
                Err(why) if entry.lsn.is_some() => {
                    return Err(format!("{command:?} was refused ({why}) and stored"));
                }
                Err(_) => entry.answer = Answer::Lost,
            }
            self.judge(&command.key)?;
        }
        Ok(())
    }

    /// Nobody waits for these answers any more.
    pub(super) fn gone(&mut self, ticket: u64, commands: &[Command]) -> Result<(), Broken> {
        for command in commands {
            if let Some(log) = self.keys.get_mut(&command.key) {
                for entry in log.entries.iter_mut().filter(|e| e.ticket == ticket) {
                    entry.answer = Answer::Lost;
                }
                self.judge(&command.key)?;
            }
        }
        Ok(())
    }

    /// A start found entries up to this one.
    pub(super) fn started(&mut self, reached: Lsn) -> Result<(), Broken> {
        if reached < self.rests {
            return Err(format!(
                "an answer rested on entry {}, and the journal ends with {}",
                self.rests.0, reached.0
            ));
        }
        if let Some(torn) = self
            .wholes
            .iter()
            .find(|whole| whole.first <= reached && reached < whole.last)
        {
            return Err(format!(
                "{torn:?} was cut: the journal ends with {reached:?}"
            ));
        }
        self.wholes.clear();
        // A start ends with a checkpoint: what it found stays.
        self.rests = reached;
        let _lost = self.written.split_off(&Lsn(reached.0 + 1));
        let floor = self.written.values().next_back();
        if let Some(at) = floor {
            self.floor = Some((at.time, at.boot));
        }
        self.last_at = None;
        self.written.clear();
        let keys: Vec<RecordKey> = self.keys.keys().cloned().collect();
        for key in keys {
            if let Some(log) = self.keys.get_mut(&key) {
                log.entries
                    .retain(|entry| entry.lsn.is_none_or(|lsn| lsn <= reached));
                for entry in &mut log.entries {
                    if matches!(entry.answer, Answer::Awaited) {
                        entry.answer = Answer::Lost;
                    }
                }
            }
            self.judge(&key)?;
        }
        Ok(())
    }

    /// Judges what can be judged: in order, as far as answers are known.
    fn judge(&mut self, key: &RecordKey) -> Result<(), Broken> {
        let standard = Policy::default();
        let policy = self.policies.get(key.namespace()).unwrap_or(&standard);
        let Some(log) = self.keys.get_mut(key) else {
            return Ok(());
        };
        while let Some(entry) = log.entries.front() {
            let unsure = entry.lsn.is_some_and(|lsn| lsn > self.rests);
            if match entry.answer {
                Answer::Awaited => true,
                // A crash may still make it undone.
                Answer::Lost => unsure,
                Answer::Heard(_) => false,
            } {
                break;
            }
            let Some(entry) = log.entries.pop_front() else {
                break;
            };
            match &entry.answer {
                Answer::Heard(outcome) => {
                    self.judged.answers += 1;
                    *self
                        .judged
                        .by_verdict
                        .entry(outcome.verdict.name())
                        .or_default() += 1;
                    if let Verdict::Acquired(reason) = outcome.verdict {
                        *self.judged.by_verdict.entry(reason.name()).or_default() += 1;
                    }
                    let broken = |why: String| {
                        format!(
                            "{key:?}: {why}\n  known: {:?}\n  asked: {:?}\n  entry: {:?} at {:?}\n  answered: {:?}",
                            log.base, entry.command, entry.lsn, entry.at, outcome
                        )
                    };
                    if outcome.now.time != entry.at.time || outcome.now.boot != entry.at.boot {
                        return Err(broken("decided at another instant than it says".into()));
                    }
                    grant(&mut self.grants, entry.lsn, outcome).map_err(broken)?;
                    rules::bodies_are_whole(&entry.command, outcome).map_err(broken)?;
                    let wrote = entry.lsn.is_some();
                    let next = match &log.base {
                        Base::Known(held) => {
                            rules::judge(policy, held, &entry.command, outcome, wrote)
                                .map_err(broken)?
                        }
                        Base::Doubt { before, last, at } => {
                            self.judged.doubts += 1;
                            if !wrote {
                                rules::explain(before.as_ref(), last, *at, outcome)
                                    .map_err(broken)?;
                            }
                            match rules::after(&entry.command, outcome, wrote) {
                                Some(held) => held,
                                None if !wrote => continue,
                                None => {
                                    log.base = Base::Doubt {
                                        before: None,
                                        last: Box::new(entry.command),
                                        at: entry.at.time,
                                    };
                                    continue;
                                }
                            }
                        }
                    };
                    log.base = Base::Known(next);
                }
                _ if entry.lsn.is_none() => {}
                _ => {
                    let before = match &log.base {
                        Base::Known(held) => Some(held.clone()),
                        Base::Doubt { .. } => None,
                    };
                    log.base = Base::Doubt {
                        before,
                        last: Box::new(entry.command),
                        at: entry.at.time,
                    };
                }
            }
        }
        Ok(())
    }
}

/// One grant, one token, in the order of their entries.
fn grant(
    grants: &mut BTreeMap<Lsn, Token>,
    lsn: Option<Lsn>,
    outcome: &Outcome,
) -> Result<(), Broken> {
    let (Verdict::Acquired(reason), Some(shown)) = (&outcome.verdict, &outcome.record) else {
        return Ok(());
    };
    if *reason == Reason::Resumed {
        return Ok(());
    }
    let token = shown.record.token;
    let Some(lsn) = lsn else {
        return Err("a grant that was not written".into());
    };
    let below = grants.range(..lsn).next_back();
    let above = grants.range(lsn..).next();
    if below.is_some_and(|(_, below)| *below >= token)
        || above.is_some_and(|(_, above)| *above <= token)
    {
        return Err(format!(
            "token {token} is granted between {below:?} and {above:?}"
        ));
    }
    grants.insert(lsn, token);
    Ok(())
}
