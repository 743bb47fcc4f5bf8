//! What the two ends of a connection's code tell each other: the requests above hyper, and the stream below.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Waker;

use hyper::Uri;
use parking_lot::Mutex;

/// How the targets begin that name a key.
const CLAIMS: &[u8] = b"/v1/claims/";
/// So many targets are kept apart that were cut.
const MAX_CUT: usize = 64;

/// How far the request in hand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    Idle,
    /// Its head is there, its body still comes.
    Reading,
    /// All of it is there; the answer comes whatever the client does.
    Deciding,
    /// All of it is there, and it waits for as long as the client does.
    Waiting,
    /// The answer is being written.
    Answered,
    /// The answer is being written, and more of it comes.
    Streaming,
}

impl Stage {
    const ALL: [Stage; 6] = [
        Stage::Idle,
        Stage::Reading,
        Stage::Deciding,
        Stage::Waiting,
        Stage::Answered,
        Stage::Streaming,
    ];
}

/// Shared by the requests of one connection and its stream. All of it runs in one task, so the order of the
/// atomics does not matter.
#[derive(Debug, Default)]
pub(super) struct Link {
    stage: AtomicU8,
    unread: AtomicBool,
    /// Who waits for the end of the input that is kept back.
    parked: Mutex<Option<Waker>>,
    /// Targets that lost their `#` and what follows on their way.
    cut: Mutex<Vec<Box<[u8]>>>,
}

impl Link {
    pub(super) fn set(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
        if matches!(stage, Stage::Idle | Stage::Waiting)
            && let Some(waker) = self.parked.lock().take()
        {
            waker.wake();
        }
    }

    /// Wakes the reader when the end of the input may be seen.
    pub(super) fn park(&self, waker: &Waker) {
        *self.parked.lock() = Some(waker.clone());
    }

    pub(super) fn stage(&self) -> Stage {
        let stage = usize::from(self.stage.load(Ordering::Relaxed));
        Stage::ALL.get(stage).copied().unwrap_or(Stage::Idle)
    }

    /// Bytes of a refused request were left where they are.
    pub(super) fn leave_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    pub(super) fn unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// A line was seen that reads like a request with that target, a `#` behind it. Others than claims are
    /// of no interest: nothing is kept of them.
    pub(super) fn note_cut(&self, target: &[u8]) {
        let mut cut = self.cut.lock();
        let known = cut.iter().any(|known| **known == *target);
        if !known && cut.len() <= MAX_CUT && target.windows(CLAIMS.len()).any(|it| it == CLAIMS) {
            cut.push(target.into());
        }
    }

    /// Whether a request of that target may be one that was cut. Where too many were to tell, all may.
    pub(super) fn may_be_cut(&self, target: &Uri) -> bool {
        let cut = self.cut.lock();
        if cut.is_empty() {
            return false;
        }
        let target = target.path_and_query().map_or("/", |it| it.as_str());
        cut.len() > MAX_CUT || cut.iter().any(|cut| cut.ends_with(target.as_bytes()))
    }
}
