//! Between the thread that reads the store and whoever takes the backup: a few chunks, and word of the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::Cut;

/// Chunks that wait to be taken, at most: half a mebibyte.
const MOST: usize = 8;

/// The two ends of a backup on its way.
#[derive(Default)]
pub(super) struct Pipe {
    state: Mutex<State>,
    taken: Condvar,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Bytes>,
    end: Option<Result<(), Cut>>,
    /// Nobody takes any more.
    gone: bool,
    waker: Option<Waker>,
}

/// What came of handing a chunk on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// It is on its way.
    Taken,
    /// There is no room yet.
    Full,
    /// Nobody is there to take it.
    Gone,
}

impl Pipe {
    /// Hands a chunk on, or waits so long for room.
    pub(super) fn push(&self, chunk: &Bytes, patience: Duration) -> Push {
        let mut state = self.state.lock();
        if state.chunks.len() >= MOST && !state.gone {
            let _ = self.taken.wait_for(&mut state, patience);
        }
        if state.gone {
            return Push::Gone;
        }
        if state.chunks.len() >= MOST {
            return Push::Full;
        }
        state.chunks.push_back(chunk.clone());
        wake(&mut state);
        Push::Taken
    }

    /// Says that no more comes, and whether that was all.
    pub(super) fn end(&self, how: Result<(), Cut>) {
        let mut state = self.state.lock();
        state.end = Some(how);
        wake(&mut state);
    }
}

fn wake(state: &mut State) {
    if let Some(waker) = state.waker.take() {
        waker.wake();
    }
}

/// A backup on its way: chunks of bytes, in order. Dropped, it ends the copying.
pub struct Outflow(pub(super) Arc<Pipe>);

impl Outflow {
    /// The next chunk; `None` after the last one. [`Cut`] where what came until then is no whole backup.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let mut state = self.0.state.lock();
        if let Some(chunk) = state.chunks.pop_front() {
            drop(state);
            self.0.taken.notify_one();
            return Poll::Ready(Some(Ok(chunk)));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(cut)) => {
                // Once is enough; after it there is nothing.
                state.end = Some(Ok(()));
                Poll::Ready(Some(Err(cut)))
            }
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Outflow {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.gone = true;
        state.chunks.clear();
        drop(state);
        self.0.taken.notify_one();
    }
}

impl std::fmt::Debug for Outflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outflow").finish_non_exhaustive()
    }
}
