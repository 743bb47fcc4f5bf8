//! Replay in bulk by a filter, in pages (SPEC 4): each record is decided as by itself, for the generation in
//! which it was seen. So a page that is sent again does no harm, and nobody's new attempt is taken from him.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Engine, Unavailable, Unit};
use crate::model::command::{Command, List, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Verdict};
use crate::model::record::State;
use crate::model::shown::show;
use crate::store::Which;

/// So many slices of the namespace are looked through at most; a page then ends before it is full.
const SLICES: usize = 10;

/// What a page of replays came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replays {
    /// How many records are in a new generation.
    pub replayed: u64,
    /// How many were left as they are, by the outcome of their replay. `unchanged`: replayed before, and not
    /// claimed since.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Where the next page begins (its `after`), if there may be more.
    pub next: Option<Bytes>,
}

impl Engine {
    /// Replays the records of a page, `force` those that are done too. `by` is the operator's name, for the
    /// audit.
    ///
    /// # Errors
    /// See [`Unavailable`]: where the first record is refused, so that nothing was stored. A refusal further on
    /// ends the page before it.
    pub async fn replay_page(
        &self,
        list: List,
        force: bool,
        by: Option<Box<str>>,
    ) -> Result<Replays, Unavailable> {
        let (seen, next) = self.seen(&list).await?;
        let replay = |(key, generation): &(RecordKey, u32)| {
            let verb = Verb::Replay {
                generation: Some(*generation),
                force,
            };
            let mut command = Command::new(key.clone(), verb);
            command.by.clone_from(&by);
            Unit::One(command)
        };
        let answers = self.submit(seen.iter().map(replay).collect()).await;
        let mut replays = Replays {
            next,
            ..Replays::default()
        };
        let mut last = None;
        for ((key, generation), answer) in seen.iter().zip(answers) {
            match answer {
                Ok(outcome) => replays.count(*generation, &outcome),
                Err(why) => {
                    let Some(last) = last else {
                        return Err(why);
                    };
                    replays.next = Some(last);
                    break;
                }
            }
            last = Some(Bytes::copy_from_slice(key.key()));
        }
        Ok(replays)
    }

    /// The keys of a page, each with the generation its record shows, and where the next one begins.
    async fn seen(
        &self,
        list: &List,
    ) -> Result<(Vec<(RecordKey, u32)>, Option<Bytes>), Unavailable> {
        let which = match list.state {
            Some(State::Done) | None => Which::All,
            Some(_) => Which::Open,
        };
        let mut seen: Vec<(RecordKey, u32)> = Vec::new();
        let mut after = list.after.clone();
        for _ in 0..SLICES {
            // What it shows may not be durable yet: a replay that rests on it waits for that itself.
            let slice = self.slice(list, which, after.as_ref()).await?;
            for (key, record) in slice.records {
                let shown = show(&record, &slice.policy, slice.now);
                let Some(shown) = shown.filter(|it| list.state.is_none_or(|of| of == it.state))
                else {
                    continue;
                };
                if seen.len() == list.limit {
                    let last = seen.last().map(|(key, _)| key.key());
                    let last = last.map(Bytes::copy_from_slice);
                    return Ok((seen, last));
                }
                seen.push((key, shown.record.generation));
            }
            after = slice.end;
            if after.is_none() {
                break;
            }
        }
        Ok((seen, after))
    }
}

impl Replays {
    /// A record that was seen in that generation.
    fn count(&mut self, generation: u32, outcome: &Outcome) {
        let now = outcome.record.as_ref();
        let now = now.map(|shown| shown.record.generation);
        let why = match outcome.verdict {
            Verdict::Replayed if now.is_some_and(|now| now > generation) => {
                self.replayed += 1;
                return;
            }
            Verdict::Replayed => "unchanged",
            ref verdict => verdict.name(),
        };
        *self.skipped.entry(why).or_default() += 1;
    }
}
