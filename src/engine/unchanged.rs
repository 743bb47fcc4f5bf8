//! Decisions that changed nothing: duplicates and refusals, for the audit trail.
//!
//! They make nothing durable, so nobody waits for them and they cause no write of their own. They are counted
//! here per key and second, and written with a frame a second later at most (SPEC 6); a crash loses the last second
//! of them. What does not fit is counted per namespace alone.

use std::collections::BTreeMap;
use std::mem;

use crate::model::command::Command;
use crate::model::key::RecordKey;
use crate::model::outcome::Outcome;
use crate::model::time::Now;
use crate::store::{Change, Decision};

use super::written::decision;

/// Bytes of memory for them.
const MOST: usize = 4 << 20;
/// What one takes beside its names.
const OVERHEAD: usize = 200;

/// Decisions that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Unchanged {
    kept: BTreeMap<(RecordKey, &'static str, &'static str), Decision>,
    sums: BTreeMap<(Box<str>, &'static str, &'static str), Decision>,
    bytes: usize,
}

impl Unchanged {
    /// Counts one.
    pub(super) fn add(&mut self, command: &Command, outcome: &Outcome, now: Now) {
        let (verb, answer) = (command.verb.name(), outcome.verdict.name());
        let key = &command.key;
        if let Some(known) = self.kept.get_mut(&(key.clone(), verb, answer)) {
            known.at = now.time;
            known.count = known.count.saturating_add(1);
            return;
        }
        let new = decision(command, outcome, None, now);
        let by = new.by.as_ref().map_or(0, |by| by.len());
        let cost = OVERHEAD + key.joined().len() + by;
        if self.bytes + cost <= MOST {
            self.bytes += cost;
            self.kept.insert((key.clone(), verb, answer), new);
            return;
        }
        let sum = self.sums.entry((key.namespace().into(), verb, answer));
        let sum = sum.or_insert(Decision {
            token: None,
            attempt: 0,
            generation: 0,
            by: None,
            count: 0,
            ..new
        });
        sum.at = now.time;
        sum.count = sum.count.saturating_add(1);
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.sums.is_empty()
    }

    /// Takes all of them out, to be written.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Change, Decision)> + use<> {
        let Unchanged { kept, sums, .. } = mem::take(self);
        let kept = kept
            .into_iter()
            .map(|((key, ..), decision)| (Change::None(key), decision));
        let sums = sums
            .into_iter()
            .map(|((namespace, ..), decision)| (Change::Tally(namespace), decision));
        kept.chain(sums)
    }

    /// Bytes that writing them takes at most.
    pub(super) fn cost(&self) -> u64 {
        self.bytes as u64 + (self.sums.len() * OVERHEAD) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::command::Verb;
    use crate::model::outcome::Verdict;
    use crate::model::time::Timestamp;

    fn busy(key: &str, millis: u64, unchanged: &mut Unchanged) {
        let key = RecordKey::new("orders", key.as_bytes()).unwrap();
        let command = Command::new(key, Verb::Claim(Box::default()));
        let now = Now {
            time: Timestamp::from_millis(millis),
            ..Now::default()
        };
        let outcome = Outcome {
            verdict: Verdict::Busy,
            record: None,
            removed: false,
            now,
        };
        unchanged.add(&command, &outcome, now);
    }

    #[test]
    fn those_of_a_key_are_one_with_a_count_and_the_last_instant() {
        let mut unchanged = Unchanged::default();
        for millis in 1..=1000 {
            busy("a", millis, &mut unchanged);
        }
        busy("b", 7, &mut unchanged);
        let taken: Vec<_> = unchanged.take().collect();
        let facts: Vec<_> = taken
            .iter()
            .map(|(change, decision)| {
                let key = change.key().map(RecordKey::key);
                (key, decision.outcome, decision.count, decision.at)
            })
            .collect();
        let at = Timestamp::from_millis;
        assert_eq!(
            facts,
            [
                (Some(&b"a"[..]), "busy", 1000, at(1000)),
                (Some(&b"b"[..]), "busy", 1, at(7)),
            ]
        );
        assert!(unchanged.is_empty());
        assert_eq!(unchanged.cost(), 0);
    }

    #[test]
    fn beyond_four_mebibytes_only_sums_are_kept() {
        let mut unchanged = Unchanged::default();
        let keys = MOST / OVERHEAD;
        for number in 0..keys {
            busy(&format!("key-{number}"), 1, &mut unchanged);
        }
        assert!(unchanged.cost() < (MOST + 1024) as u64);
        let (mut kept, mut summed) = (0, 0);
        for (change, decision) in unchanged.take() {
            match change {
                Change::None(_) => kept += decision.count,
                Change::Tally(namespace) => {
                    assert_eq!(&*namespace, "orders");
                    summed += decision.count;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(summed > 0);
        assert_eq!((kept + summed) as usize, keys, "none is lost");
    }
}
