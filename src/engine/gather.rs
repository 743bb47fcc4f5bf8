//! Decisions on their way to the disk: what is decided while the disk works goes into the next frame, and
//! whoever waits is woken when the frame that holds what he waits for is durable.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::journal::frame::{ENTRY_HEAD_LEN, Frame};
use crate::model::record::Lsn;

/// Told that an LSN is durable; dropped unsent where the journal failed.
pub(super) type Durable = oneshot::Receiver<Landed>;

/// Whoever waits for a frame.
type Waiting = Vec<oneshot::Sender<Landed>>;

/// A frame is durable. The journal's thread tells one of those who wait, and he tells the others by dropping
/// this: so a commit crosses from thread to thread once, not once for each client. Dropped unread (its client
/// is gone), it tells them all the same.
#[derive(Debug)]
pub(super) struct Landed(Waiting);

impl Landed {
    /// Tells the first of them who is still there.
    pub(super) fn tell(mut self) {
        while let Some(first) = self.0.pop() {
            let others = Landed(std::mem::take(&mut self.0));
            match first.send(others) {
                Ok(()) => return,
                Err(mut others) => self.0 = std::mem::take(&mut others.0),
            }
        }
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        for sender in self.0.drain(..) {
            // A receiver that is gone was a client that is gone.
            let _ = sender.send(Landed(Vec::new()));
        }
    }
}

/// A frame being filled, and who waits for it.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) frame: Frame,
    pub(super) last: Lsn,
    waiting: Waiting,
}

/// Frames in LSN order: at most one in flight, the others behind it.
#[derive(Debug)]
pub(super) struct Gather {
    queue: VecDeque<Batch>,
    flight: Option<(Lsn, Waiting)>,
    durable: Lsn,
    /// Bytes of frames that the journal has not accounted for yet.
    queued: u64,
    frames: u64,
    max_frame: u64,
}

impl Gather {
    pub(super) fn new(durable: Lsn, max_frame: u64) -> Gather {
        Gather {
            queue: VecDeque::new(),
            flight: None,
            durable,
            queued: 0,
            frames: 0,
            max_frame,
        }
    }

    /// The highest LSN that is on stable storage.
    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Bytes that wait for the journal or are being written.
    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    /// Whether a frame waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds entries that stand or fall together: all of them in one frame. Their LSNs follow each other,
    /// the first is `first`.
    pub(super) fn push<'a>(
        &mut self,
        first: Lsn,
        entries: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
    ) {
        let entries = entries.into_iter();
        let len = |entry: &[u8]| entry.len().saturating_add(ENTRY_HEAD_LEN);
        let bytes: usize = entries.clone().map(len).sum();
        let fits =
            |batch: &Batch| (batch.frame.len().saturating_add(bytes) as u64) <= self.max_frame;
        if !self.queue.back().is_some_and(fits) {
            let frame = Frame::new(first);
            self.queued = self.queued.saturating_add(frame.len() as u64);
            self.queue.push_back(Batch {
                frame,
                last: first,
                waiting: Vec::new(),
            });
        }
        let Some(batch) = self.queue.back_mut() else {
            return;
        };
        let mut last = first;
        for entry in entries {
            batch.frame.push(entry);
            batch.last = last;
            last = Lsn(last.0.saturating_add(1));
        }
        self.queued = self.queued.saturating_add(bytes as u64);
    }

    /// Adds a frame without entries, for the clocks it carries, unless one waits or is in flight anyway.
    pub(super) fn push_mark(&mut self) {
        if self.queue.is_empty() && self.flight.is_none() {
            let last = self.durable;
            let frame = Frame::new(Lsn(last.0.saturating_add(1)));
            self.queued = self.queued.saturating_add(frame.len() as u64);
            self.queue.push_back(Batch {
                frame,
                last,
                waiting: Vec::new(),
            });
        }
    }

    /// How many frames went to the journal.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// A wake-up for when `lsn` is durable; `None` if it is already.
    pub(super) fn wait(&mut self, lsn: Lsn) -> Option<Durable> {
        if lsn <= self.durable {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        match &mut self.flight {
            Some((last, waiting)) if lsn <= *last => waiting.push(sender),
            // An LSN beyond what was gathered is a fault of the engine: its waiter is dropped, never told
            // that it is durable.
            _ => {
                if let Some(batch) = self.queue.iter_mut().find(|batch| lsn <= batch.last) {
                    batch.waiting.push(sender);
                }
            }
        }
        Some(receiver)
    }

    /// Takes the next frame to the journal.
    pub(super) fn take(&mut self) -> Option<Frame> {
        let batch = self.queue.pop_front()?;
        self.frames = self.frames.saturating_add(1);
        self.flight = Some((batch.last, batch.waiting));
        Some(batch.frame)
    }

    /// The frame in flight is durable: who waited for it is to be told, outside the lock.
    pub(super) fn landed(&mut self, bytes: u64) -> Landed {
        self.queued = self.queued.saturating_sub(bytes);
        let Some((last, waiting)) = self.flight.take() else {
            return Landed(Vec::new());
        };
        self.durable = last;
        Landed(waiting)
    }

    /// The journal failed: nobody is told that anything is durable.
    pub(super) fn abandon(&mut self) {
        self.queue.clear();
        self.flight = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(clients: usize) -> (Gather, Vec<Durable>) {
        let mut gather = Gather::new(Lsn(0), 1 << 20);
        gather.push(Lsn(1), [&b"entry"[..]]);
        let waiting = (0..clients).filter_map(|_| gather.wait(Lsn(1))).collect();
        (gather, waiting)
    }

    #[tokio::test]
    async fn all_who_wait_are_told_whoever_of_them_is_gone() {
        for gone in 0..4 {
            let (mut gather, mut waiting) = gathered(4);
            assert!(gather.take().is_some());
            drop(waiting.remove(gone));
            gather.landed(0).tell();
            // The one who was told goes before he looks.
            let mut told = 0;
            for durable in &mut waiting {
                told += usize::from(!durable.is_empty());
            }
            assert_eq!(told, 1);
            waiting.retain(|durable| durable.is_empty());
            assert_eq!(waiting.len(), 2);
            for durable in waiting {
                assert!(durable.await.is_ok());
            }
        }
    }

    #[tokio::test]
    async fn nobody_is_told_by_a_journal_that_failed() {
        for in_flight in [false, true] {
            let (mut gather, waiting) = gathered(3);
            if in_flight {
                assert!(gather.take().is_some());
            }
            gather.abandon();
            for durable in waiting {
                assert!(durable.await.is_err());
            }
        }
    }

    #[test]
    fn the_clocks_are_written_down_alone_only_where_no_frame_carries_them() {
        let (mut gather, _waiting) = gathered(1);
        gather.push_mark();
        assert_eq!(gather.take().map(|frame| frame.count()), Some(1));
        gather.push_mark();
        assert!(gather.is_empty(), "one is in flight");
        gather.landed(0).tell();
        gather.push_mark();
        let frame = gather.take().unwrap();
        assert_eq!((frame.count(), frame.first_lsn()), (0, Lsn(2)));
        gather.landed(0).tell();
        assert_eq!(gather.durable(), Lsn(1), "no entry became durable by it");
    }

    #[test]
    fn what_is_durable_waits_for_nothing() {
        let (mut gather, _waiting) = gathered(1);
        assert!(gather.take().is_some());
        gather.landed(0).tell();
        assert_eq!(gather.durable(), Lsn(1));
        assert!(gather.wait(Lsn(1)).is_none());
    }
}
