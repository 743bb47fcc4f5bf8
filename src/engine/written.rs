//! How a decision is written down: its entry for the journal, and the row that memory keeps for the store.

use std::sync::Arc;

use super::Unavailable;
use crate::model::body::LargeContent;
use crate::model::command::{Command, Verb};
use crate::model::outcome::{Outcome, Reason, Verdict};
use crate::model::record::{Lsn, Record};
use crate::model::time::Now;
use crate::model::transition::{Effect, Step};
use crate::store::{Change, CodecError, Decision, Entry, Write, encode_entry, encode_put};

/// What a decision writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// For the journal.
    pub(super) entry: Vec<u8>,
    /// For memory and store, empty where the record is gone.
    row: Vec<u8>,
    lsn: Lsn,
    large: bool,
    bodies: Vec<LargeContent>,
}

impl Written {
    /// The change as memory takes it.
    pub(super) fn change(&self) -> Write<'_> {
        Write {
            lsn: self.lsn,
            value: (!self.row.is_empty()).then_some(&self.row),
            large: self.large,
            bodies: self.bodies.clone(),
        }
    }

    /// Writes down a decision that changes something, in place of what was here; at that LSN.
    pub(super) fn write(
        &mut self,
        command: &Command,
        step: &Step,
        lsn: Lsn,
        now: Now,
    ) -> Result<(), Unavailable> {
        self.entry.clear();
        self.row.clear();
        self.lsn = lsn;
        let record = match &step.effect {
            Effect::Put(record) => Some(placed(record, lsn)),
            Effect::None | Effect::Remove => None,
        };
        let record = record.as_deref();
        self.large = record.is_some_and(|record| record.large_bodies().next().is_some());
        self.bodies = match record {
            Some(record) if self.large => record.held_bodies(),
            _ => Vec::new(),
        };
        let decision = decision(command, &step.outcome, record, now);
        self.encode(command, record, decision).map_err(|error| {
            // Faces and model keep every field within what an entry can hold.
            tracing::error!(key = ?command.key, %error, "a decision does not fit an entry of the journal");
            Unavailable::Defect
        })
    }

    fn encode(
        &mut self,
        command: &Command,
        record: Option<&Record>,
        decision: Decision,
    ) -> Result<(), CodecError> {
        let (lsn, key) = (self.lsn, &command.key);
        match record {
            Some(record) => encode_put(
                lsn,
                key.joined(),
                record,
                &decision,
                &mut self.entry,
                &mut self.row,
            ),
            None => {
                let change = Change::Remove(key.clone());
                let entry = Entry {
                    lsn,
                    change,
                    decision,
                };
                encode_entry(&entry, &mut self.entry)
            }
        }
    }
}

/// The decision as the audit trail keeps it.
pub(super) fn decision(
    command: &Command,
    outcome: &Outcome,
    record: Option<&Record>,
    now: Now,
) -> Decision {
    let shown = outcome.record.as_ref().map(|shown| &*shown.record);
    let facts = record.or(shown);
    let reason = match outcome.verdict {
        Verdict::Acquired(reason) => Some(reason),
        _ => None,
    };
    let event = match outcome.verdict {
        // These change a record without a fact of its history.
        Verdict::Renewed | Verdict::Done | Verdict::Acquired(Reason::Resumed) => None,
        _ => record
            .and_then(|record| record.history.last())
            .map(|entry| entry.event),
    };
    let token = match &command.verb {
        // So that a redo raises the tokens of this store as the import did: it is above the record's own.
        Verb::Import(import) if record.is_some() => Some(import.granted),
        _ => facts.map(|facts| facts.token),
    };
    Decision {
        at: now.time,
        verb: command.verb.name(),
        outcome: outcome.verdict.name(),
        reason,
        event,
        token,
        attempt: facts.map_or(0, |facts| facts.attempt),
        generation: facts.map_or(0, |facts| facts.generation),
        by: command
            .by
            .clone()
            .or_else(|| match (&command.verb, record) {
                // Who was refused, not who holds it.
                (Verb::Claim(claim), None) => claim.owner.clone(),
                (_, record) => record.and_then(|record| record.owner.clone()),
            }),
        count: 1,
    }
}

/// The record with its new large bodies placed: this entry is the one that makes them durable.
fn placed(record: &Arc<Record>, lsn: Lsn) -> Arc<Record> {
    let mut record = record.clone();
    if record.large_bodies().any(|large| large.lsn.is_none()) {
        for large in Arc::make_mut(&mut record).large_bodies_mut() {
            large.lsn.get_or_insert(lsn);
        }
    }
    record
}
