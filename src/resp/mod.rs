//! The Redis protocol face (SPEC 7): bytes in, bytes out. It translates bytes to commands and outcomes to
//! bytes, and decides nothing.
//!
//! In reading order: [`frame`] takes requests out of a buffer, [`commands`] knows what each asks for,
//! [`render`] and [`reply`] write what is answered, [`session`] is one connection without its socket.
//!
//! Transactions and scripts are decided as one: [`program`] says what they ask of the engine, [`lua`] is the
//! world of one script.
//!
//! Deliberately absent: hashes, lists, sets, streams, and anything a transaction would do half.

mod commands;
mod face;
mod frame;
mod glob;
mod inline;
mod lua;
mod program;
mod render;
mod reply;
mod session;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use crate::model::access::Access;
pub use commands::scripts::MAX_GIVEN;
pub use face::Face;
pub use frame::{Parser, ProtocolError, Request};
pub use reply::{Protocol, Writer};
pub use session::{Batch, Flow, Session};

/// The version of Redis that is announced (SPEC 7): what clients choose their features by.
pub const REDIS_VERSION: &str = "8.4.0";
/// How many databases there are: namespaces `default` and `db1` to `db15`.
pub const DATABASES: usize = 16;

/// How the Redis face behaves: the `[redis]` part of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// When a set-once without expiry ends.
    pub nx_without_expiry: NxWithoutExpiry,
    /// Who may do what, at first.
    pub access: Access,
    /// Whether `FLUSHALL` and `FLUSHDB` are let through.
    pub allow_flush: bool,
    /// What one connection may ask for.
    pub limits: Limits,
}

/// When `SET .. NX`, `SETNX` and `MSETNX` without expiry end: the old recipe for immortal locks (SPEC 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NxWithoutExpiry {
    /// After the namespace's retention, visible in `TTL`.
    #[default]
    Retention,
    /// Never, as in Redis.
    Forever,
    /// They are refused.
    Error,
}

impl NxWithoutExpiry {
    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            NxWithoutExpiry::Retention => "retention",
            NxWithoutExpiry::Forever => "forever",
            NxWithoutExpiry::Error => "error",
        }
    }

    /// The value of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<NxWithoutExpiry> {
        [
            NxWithoutExpiry::Retention,
            NxWithoutExpiry::Forever,
            NxWithoutExpiry::Error,
        ]
        .into_iter()
        .find(|value| value.name() == name)
    }
}

/// What one connection may ask for (SPEC 10). Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest value or result: above it an error, and the connection goes on.
    pub result: usize,
    /// The largest payload of a claim: above it an error, and the connection goes on.
    pub payload: usize,
    /// The largest argument that is read at all: one announced longer closes the connection.
    pub bulk: usize,
    /// All arguments of one request together: above it the connection is closed.
    pub request: usize,
    /// Arguments of one request: above it the connection is closed.
    pub arguments: usize,
    /// An inline command, and the head of an array or argument.
    pub inline: usize,
    /// Requests that are decided together; the rest of a longer pipeline waits for its turn.
    pub pipeline: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            result: 1 << 20,
            payload: 1 << 20,
            // Twice what a value can be configured to, so that one too large gets its own error first.
            bulk: 64 << 20,
            request: 64 << 20,
            // An argument of no bytes takes 6 on the wire and some 200 as a command: this bounds the factor.
            arguments: 1 << 17,
            inline: 64 << 10,
            pipeline: 10_000,
        }
    }
}
