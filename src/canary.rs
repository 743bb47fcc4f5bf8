//! Faults put in on purpose, one at a time, to see that the simulation catches them. Only with the feature
//! `canary`, and never in a build without debug assertions: nobody can ship one by mistake.

use std::cell::Cell;

#[cfg(not(any(test, debug_assertions)))]
compile_error!(
    "the feature `canary` puts faults in on purpose: it is for tests alone, never for a release"
);

/// A fault to put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers leave before the journal has them.
    ReplyBeforeSync,
    /// Readers see a table's filter one publication late.
    FilterUpdatedLate,
    /// Any token is taken for the holder's.
    StaleTokenAccepted,
    /// A record past its retention is gone only when it is swept.
    ExpiryBySweeper,
    /// A start goes on from the token of the last checkpoint.
    TokenResetOnRestart,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 5] = [
        Fault::ReplyBeforeSync,
        Fault::FilterUpdatedLate,
        Fault::StaleTokenAccepted,
        Fault::ExpiryBySweeper,
        Fault::TokenResetOnRestart,
    ];
}

thread_local! {
    static CHOSEN: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Puts a fault in, for this thread; `None` takes it out.
pub fn choose(fault: Option<Fault>) {
    CHOSEN.set(fault);
}

/// Whether that fault is in.
#[must_use]
pub fn has(fault: Fault) -> bool {
    CHOSEN.get() == Some(fault)
}
