//! What the engine is asked and what it answers: the vocabulary of its handle.

use std::fmt;

use bytes::Bytes;

use super::program;
use crate::model::command::Command;
use crate::model::key::RecordKey;
use crate::model::outcome::Outcome;

/// What is decided together.
#[derive(Clone, Debug)]
pub enum Unit {
    /// One command.
    One(Command),
    /// Several, in order: if one of them does not hold ([`Outcome::holds`]), nothing of them is stored.
    All(Vec<Command>),
}

/// Why a command was not decided. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The store has no room for what creates records or hands out work (SPEC 9).
    Full,
    /// Recent writes wait for the disk, and did so for too long.
    Overloaded,
    /// More than one unit may write (SPEC 10).
    TooLarge,
    /// More payloads and results than one unit may read.
    Reads,
    /// Payloads and results wait for those that others have not taken yet, and did so for too long (SPEC 10).
    Crowded,
    /// There are [`super::MAX_NAMESPACES`] namespaces already, and this would be one more.
    Namespaces,
    /// There are [`MAX_WAITERS`] claims waiting already, or [`MAX_WAITING_BYTES`] of them.
    Waiters,
    /// The configuration speaks for this namespace's policy.
    Configured,
    /// A bound of programs.
    Program(program::Bound),
    /// A rule of the engine's own was broken; the log says which.
    Defect,
    /// The engine is stopping. What was asked may have been stored: nobody was told.
    Stopping,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unavailable::Program(bound) => return bound.fmt(f),
            Unavailable::Full => {
                "the disk of the data directory is full; free space, it goes on by itself"
            }
            Unavailable::Overloaded => {
                "the disk is slower than the writes that wait for it; try again"
            }
            Unavailable::TooLarge => "more than may be written in one step; send less at once",
            Unavailable::Reads => {
                "these records have more payloads and results than may be read in one step; ask for fewer at once"
            }
            Unavailable::Crowded => {
                "answers that others have not read yet use up the memory for bytes in flight; try again"
            }
            Unavailable::Namespaces => {
                "there are 10000 namespaces already; use one of them, with what tells jobs apart in the key"
            }
            Unavailable::Waiters => {
                "as many claims wait already as may, or as many bytes of them; ask again without waiting"
            }
            Unavailable::Configured => {
                "the configuration file sets the policy of this namespace, and speaks last at every start; change it there"
            }
            Unavailable::Defect => {
                "a defect of the server: nothing was stored; report it with the server's log"
            }
            Unavailable::Stopping => "the server is stopping; try again",
        })
    }
}

impl std::error::Error for Unavailable {}

/// A page of a listing: records in key order, as `get` answers them but without large bodies.
#[derive(Clone, Debug)]
pub struct Page {
    /// The records.
    pub records: Vec<(RecordKey, Outcome)>,
    /// Where the next page begins (its `after`), if there may be more.
    pub next: Option<Bytes>,
}

/// What became of the first units of several.
#[derive(Debug, Default)]
pub struct Submitted {
    /// How many units.
    pub units: usize,
    /// The answers of their commands, in order.
    pub answers: Vec<Result<Outcome, Unavailable>>,
}
