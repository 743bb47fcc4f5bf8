//! How much can surely be appended: what commands are decided into.

use super::frame::{HEAD_LEN, max_frame};
use super::segment::HEADER_LEN;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Room for frames in space that is allocated already. Cheap to ask from any thread.
#[derive(Debug)]
pub struct Room {
    available: AtomicU64,
    spares: AtomicUsize,
    wanted: usize,
    over: AtomicBool,
}

impl Room {
    pub(super) fn new(wanted: usize) -> Room {
        Room {
            available: AtomicU64::new(0),
            spares: AtomicUsize::new(0),
            wanted,
            over: AtomicBool::new(false),
        }
    }

    /// Bytes of frames, heads included, that can be appended in any division into frames that append takes,
    /// without another spare. What is lost at the end of each segment is counted as lost.
    ///
    /// An append lowers it by at most its frame's length, and before it returns: who reserves bytes against it,
    /// and gives them back after the append, never has more than there is. 0 once the writer is poisoned or
    /// closed.
    #[must_use]
    pub fn available(&self) -> u64 {
        if self.is_over() {
            0
        } else {
            self.available.load(Ordering::Acquire)
        }
    }

    /// The spares there are.
    #[must_use]
    pub fn spares(&self) -> usize {
        self.spares.load(Ordering::Acquire)
    }

    /// Whether there are fewer spares than wanted: the preparer should run.
    #[must_use]
    pub fn wants_spares(&self) -> bool {
        self.spares() < self.wanted
    }

    /// Whether nothing is appended any more: a write or sync failed, or the writer was closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Sets what there is. The caller holds the lock under which it was counted.
    pub(super) fn set(&self, remaining: u64, spares: usize, segment_size: u64) {
        self.spares.store(spares, Ordering::Release);
        self.available
            .store(surely(remaining, spares, segment_size), Ordering::Release);
    }
}

/// Bytes for frames in a fresh segment: without the header, and without the end frame that closes it.
pub(super) const fn usable(segment_size: u64) -> u64 {
    segment_size.saturating_sub(HEADER_LEN as u64 + HEAD_LEN as u64)
}

/// What can surely be appended with `remaining` bytes in the current segment and so many spares.
///
/// A segment is left when a frame does not fit, so all of them but the last can lose one byte less than the
/// largest frame.
fn surely(remaining: u64, spares: usize, segment_size: u64) -> u64 {
    let lost = max_frame(segment_size).saturating_sub(1);
    let fresh = usable(segment_size);
    match (spares as u64).checked_sub(1) {
        None => remaining,
        Some(between) => remaining
            .saturating_sub(lost)
            .saturating_add(between.saturating_mul(fresh.saturating_sub(lost)))
            .saturating_add(fresh),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_counts_what_is_lost_at_the_ends_of_segments() {
        let size = 16_384;
        let (fresh, lost) = (16_384 - 4096 - 68, 4095);
        let table = [
            (0, 0, 0),
            (500, 0, 500),
            (500, 1, fresh),
            (5000, 1, 5000 - lost + fresh),
            (0, 2, fresh - lost + fresh),
            (fresh, 3, fresh - lost + 2 * (fresh - lost) + fresh),
        ];
        for (remaining, spares, expected) in table {
            assert_eq!(
                surely(remaining, spares, size),
                expected,
                "{remaining} {spares}"
            );
        }
    }

    #[test]
    fn there_is_no_room_after_the_end() {
        let room = Room::new(2);
        room.set(1000, 0, 16_384);
        assert_eq!(room.available(), 1000);
        assert!(room.wants_spares());
        room.end();
        room.set(1000, 2, 16_384);
        assert_eq!(room.available(), 0);
        assert!(room.is_over() && !room.wants_spares());
    }
}
