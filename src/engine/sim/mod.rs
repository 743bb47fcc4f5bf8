//! The real engine, journal and store in a simulated world: disk, clocks, clients and the order in which
//! things happen all follow from a seed, in one thread. An auditor judges every answer.
//!
//! In reading order: `disk` is the device, `clients` ask, `world` lets one thing happen after the other, `audit`
//! keeps what was answered and `rules` says what is right.
//!
//! Not simulated: the files of the data directory that are written once (`open` makes them), and what happens
//! inside one transaction of the store while others read: a commit is one step.

mod audit;
mod clients;
mod dice;
mod disk;
mod rules;
mod tests;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The wall clock at the beginning.
const START: u64 = 1_767_323_045_000;

/// What a simulation has of an engine beside its parts.
#[derive(Debug, Default)]
pub(super) struct Tap {
    simulated: AtomicBool,
    decided: AtomicU64,
}

impl Tap {
    pub(super) fn is_simulated(&self) -> bool {
        self.simulated.load(Ordering::SeqCst)
    }

    /// A batch was decided.
    pub(super) fn decided(&self) {
        self.decided.fetch_add(1, Ordering::SeqCst);
    }
}

/// Reads the store when it is this one's turn; others have theirs before and after.
pub(super) async fn in_turn<T>(read: impl FnOnce() -> T) -> T {
    turn().await;
    let value = read();
    turn().await;
    value
}

async fn turn() {
    let mut had = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut had, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
