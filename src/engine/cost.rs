//! What a batch can take of memory and journal at most, known before it is decided.

use super::Unit;
use super::recent::record_size;
use crate::model::command::{Command, Mode, StringVerb, Verb};
use crate::model::record::HISTORY;

/// What a new record costs in memory or in the journal beside its key, names and bodies, generously.
const OVERHEAD: usize = 1024;
/// The same for a record that goes: there is nothing but the decision.
const REMOVAL: usize = 256;

/// Bytes that decisions can take at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// In memory.
    pub(super) memory: usize,
    /// In the journal.
    pub(super) journal: usize,
    /// Something else than a removal is among them: see [`Limits::kept`](super::Limits::kept).
    pub(super) adds: bool,
}

impl Unit {
    /// Its commands, in order.
    #[must_use]
    pub fn commands(&self) -> &[Command] {
        match self {
            Unit::One(command) => std::slice::from_ref(command),
            Unit::All(commands) => commands,
        }
    }

    /// The same, to say whose they are.
    #[must_use]
    pub fn commands_mut(&mut self) -> &mut [Command] {
        match self {
            Unit::One(command) => std::slice::from_mut(command),
            Unit::All(commands) => commands,
        }
    }

    /// Bytes its entries and records can take at most, beside what the records have already.
    pub(super) fn cost(&self) -> usize {
        self.commands().iter().map(cost).sum()
    }
}

/// Whether a command can change anything.
pub(super) fn writes(verb: &Verb) -> bool {
    !matches!(
        verb,
        Verb::Get | Verb::String(StringVerb::Read | StringVerb::Digest)
    )
}

/// Whether a command can only take a record away.
pub(super) fn removes(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Forget { .. } | Verb::String(StringVerb::Delete { .. })
    )
}

/// Bytes a command can take at most, beside what its record has already.
pub(super) fn cost(command: &Command) -> usize {
    if !writes(&command.verb) {
        return 0;
    }
    let bodies = match &command.verb {
        Verb::Claim(claim) => {
            let result = match &claim.mode {
                Mode::Once { result: Some(kept) } => kept.body.content.len(),
                _ => 0,
            };
            result
                + claim
                    .payload
                    .as_ref()
                    .map_or(0, |payload| payload.body.content.len())
        }
        Verb::Complete { result, .. } => result.body.content.len(),
        Verb::Fail { error, .. } => error.as_ref().map_or(0, |error| error.len()),
        Verb::String(StringVerb::Set(set)) => set.value.len(),
        Verb::Import(import) => record_size(&import.record),
        _ => 0,
    };
    let by = command.by.as_ref().map_or(0, |by| by.len());
    if removes(&command.verb) {
        return REMOVAL + command.key.joined().len() * 2 + by;
    }
    // Each of the record's facts may say it, and the entry itself.
    let by = by * (HISTORY + 1);
    OVERHEAD + command.key.joined().len() * 2 + bodies + by
}

/// Whether the bodies' bytes belong into the answer.
pub(super) fn shows_bodies(command: &Command) -> bool {
    command.with_bodies
        && match &command.verb {
            Verb::Claim(_) | Verb::Get => true,
            Verb::String(verb) => match verb {
                StringVerb::Set(set) => set.get,
                StringVerb::Add(_) => false,
                StringVerb::Read
                | StringVerb::Digest
                | StringVerb::Delete { .. }
                | StringVerb::Expire { .. } => true,
            },
            _ => false,
        }
}

/// Whether the bodies' bytes are needed to decide: those of a large value may be in the store alone.
pub(super) fn looks_into_value(verb: &Verb) -> bool {
    matches!(verb, Verb::String(verb) if verb.looks_into_value())
}
