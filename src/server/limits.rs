//! What all connections share: how many there may be, and how many bytes they may have in flight (SPEC 10).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Files that the store and the sockets that listen need beside connections.
const OTHER_FILES: u64 = 256;

/// How many connections may be open with this process's limit on open files, which is raised as far as the
/// system allows. `wanted`, or less.
#[must_use]
pub fn open_files(wanted: usize) -> usize {
    let need = (wanted as u64).saturating_add(OTHER_FILES);
    let now = getrlimit(Resource::Nofile);
    // No limit at all is `None`.
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= need);
    if enough(now.current) {
        return wanted;
    }
    let raised = if enough(now.maximum) {
        Some(need)
    } else {
        now.maximum
    };
    let limit = Rlimit {
        current: raised,
        maximum: now.maximum,
    };
    let current = match setrlimit(Resource::Nofile, limit) {
        Ok(()) => raised,
        Err(_) => now.current,
    };
    if enough(current) {
        return wanted;
    }
    let files = current.unwrap_or(u64::MAX);
    let left = files.saturating_sub(OTHER_FILES).max(files / 2);
    let left = usize::try_from(left).unwrap_or(wanted).clamp(1, wanted);
    tracing::warn!(
        "this process may open {files} files, so {left} connections instead of {wanted}; raise it with \
         `ulimit -n` or LimitNOFILE="
    );
    left
}

/// How often connections met what all share.
#[derive(Debug, Default)]
pub struct Met {
    /// HTTP connections that were one too many.
    pub http_refused: AtomicU64,
    /// Redis connections that were.
    pub redis_refused: AtomicU64,
    /// Commands that came too slowly while bytes in flight were short.
    pub slow: AtomicU64,
    /// Clients that took nothing of their replies while bytes in flight were short.
    pub deaf: AtomicU64,
}

/// Counts one more.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts connections over all faces.
#[derive(Clone, Debug)]
pub struct Connections {
    free: Arc<Semaphore>,
    limit: usize,
}

/// One connection's place, free again when it is dropped.
#[derive(Debug)]
pub struct Seat(#[allow(dead_code)] OwnedSemaphorePermit);

impl Connections {
    /// At most `limit` at a time.
    #[must_use]
    pub fn new(limit: usize) -> Connections {
        Connections {
            free: Arc::new(Semaphore::new(limit)),
            limit,
        }
    }

    /// A place for one more; `None` where all are taken.
    #[must_use]
    pub fn admit(&self) -> Option<Seat> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(Seat)
    }

    /// How many there are.
    #[must_use]
    pub fn open(&self) -> usize {
        self.limit.saturating_sub(self.free.available_permits())
    }

    /// Returns once the last one has gone. For the end: nobody is admitted meanwhile.
    pub async fn all_gone(&self) {
        let all = u32::try_from(self.limit).unwrap_or(u32::MAX);
        // The semaphore is never closed, so this cannot fail.
        let _ = self.free.acquire_many(all).await;
    }
}

/// Bytes in flight over all connections: read and not yet decided, decided and not yet taken by the client.
/// When they reach the limit, reading pauses.
#[derive(Clone, Debug)]
pub struct Budget {
    /// A permit for each byte.
    bytes: Arc<Semaphore>,
    /// Connections that all hold a part of a request could wait for each other for ever. So one of them
    /// at a time may read on beyond the limit, until its request is whole and decided.
    pass: Arc<Semaphore>,
}

/// One connection's part of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    paid: Option<OwnedSemaphorePermit>,
    /// What came after the budget was used up: at most one small read, unless the connection has the pass.
    unpaid: usize,
    pass: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// Reading pauses at `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Budget {
        Budget {
            bytes: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            pass: Arc::new(Semaphore::new(1)),
        }
    }

    /// A permit for each byte, for a face that takes them itself.
    #[must_use]
    pub fn bytes(&self) -> Arc<Semaphore> {
        Arc::clone(&self.bytes)
    }

    /// An empty part.
    #[must_use]
    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            paid: None,
            unpaid: 0,
            pass: None,
        }
    }
}

impl Share {
    /// Whether others wait for bytes to be given back.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.budget.bytes.available_permits() == 0
    }

    /// Whether this connection reads although the budget is used up: others wait for it.
    #[cfg(test)]
    fn holds_others_up(&self) -> bool {
        self.pass.is_some()
    }

    /// Whether this connection has a part of a request, or replies, in memory.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        let paid = self.paid.as_ref();
        self.unpaid > 0 || paid.is_some_and(|paid| paid.num_permits() > 0)
    }

    /// Waits until this connection may read: until all that it has read is paid for and something is left, or it has
    /// the pass.
    pub async fn room(&mut self) {
        loop {
            self.settle();
            if self.pass.is_some() || (self.unpaid == 0 && !self.is_short()) {
                return;
            }
            let Budget { bytes, pass } = self.budget.clone();
            tokio::select! {
                // Kept: given back, one byte would go from hand to hand, and let all of them read.
                byte = bytes.acquire_owned() => {
                    self.pay(byte.ok());
                    self.unpaid = self.unpaid.saturating_sub(1);
                }
                pass = pass.acquire_owned() => self.pass = pass.ok(),
            }
            if self.unpaid == 0 {
                return;
            }
        }
    }

    fn pay(&mut self, more: Option<OwnedSemaphorePermit>) {
        match (&mut self.paid, more) {
            (Some(paid), Some(more)) => paid.merge(more),
            (paid, more) => *paid = paid.take().or(more),
        }
    }

    /// `bytes` more have come in.
    pub fn add(&mut self, bytes: usize) {
        // All that is left is taken even if it is too little: then the budget shows as used up.
        let there = self.budget.bytes.available_permits().min(bytes);
        let take = u32::try_from(there).unwrap_or(u32::MAX);
        let more = self.budget.bytes().try_acquire_many_owned(take).ok();
        let taken = more.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        self.pay(more);
        self.unpaid = self.unpaid.saturating_add(bytes.saturating_sub(taken));
    }

    /// Pays for what came while nothing was left, as far as others have given back since: what is held and not
    /// paid for would look like room.
    pub fn settle(&mut self) {
        let owed = std::mem::take(&mut self.unpaid);
        self.add(owed);
    }

    /// This connection has got on: it lets the pass go.
    pub fn got_on(&mut self) {
        self.pass = None;
    }

    /// This connection holds `bytes` from now on.
    pub fn hold(&mut self, bytes: usize) {
        let paid = self
            .paid
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let held = paid.saturating_add(self.unpaid);
        if bytes >= held {
            self.add(bytes.saturating_sub(held));
            return;
        }
        // What was not paid for goes first: as long as more is held than there is, nothing is free.
        let keep = paid.min(bytes);
        self.unpaid = bytes.saturating_sub(keep);
        let rest = paid.saturating_sub(keep);
        drop(self.paid.as_mut().and_then(|paid| paid.split(rest)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn places_are_counted_and_free_again() {
        let all = Connections::new(2);
        let (first, second) = (all.admit().unwrap(), all.admit().unwrap());
        assert!(all.admit().is_none());
        assert_eq!(all.open(), 2);
        drop(first);
        assert!(all.admit().is_some());
        let mut gone = pin!(all.all_gone());
        assert!(poll(gone.as_mut()).is_pending());
        drop(second);
        assert!(poll(gone.as_mut()).is_ready());
    }

    #[test]
    fn reading_pauses_at_the_limit_and_goes_on_below() {
        let budget = Budget::new(10);
        let (mut a, mut b, mut c) = (budget.share(), budget.share(), budget.share());
        a.add(6);
        b.add(4);
        // One may pass; the next one waits.
        assert!(poll(pin!(b.room())).is_ready());
        assert!(b.holds_others_up());
        {
            let mut waits = pin!(c.room());
            assert!(poll(waits.as_mut()).is_pending());
            a.hold(0);
            assert!(poll(waits.as_mut()).is_ready());
        }
        assert!(!c.holds_others_up());
    }

    #[test]
    fn one_free_byte_lets_one_of_all_who_wait_read_and_debts_come_first() {
        let budget = Budget::new(10);
        let [mut all, mut passes, mut b, mut c] = [(); 4].map(|()| budget.share());
        all.add(10);
        assert!(poll(pin!(passes.room())).is_ready());
        // Read a little while nothing was left.
        b.add(3);
        let free = || budget.bytes.available_permits();
        {
            let (mut b, mut c) = (pin!(b.room()), pin!(c.room()));
            assert!(poll(b.as_mut()).is_pending());
            assert!(poll(c.as_mut()).is_pending());
            all.hold(8);
            assert!(poll(c.as_mut()).is_ready());
            assert!(poll(b.as_mut()).is_pending());
            all.hold(7);
            assert!(poll(b.as_mut()).is_pending());
            all.hold(5);
            assert!(poll(b.as_mut()).is_ready());
        }
        assert_eq!((b.unpaid, free()), (0, 1));
        assert!(!c.holds_others_up() && !b.holds_others_up());
    }

    #[test]
    fn whoever_got_on_lets_the_next_one_pass() {
        let budget = Budget::new(1);
        let (mut a, mut b) = (budget.share(), budget.share());
        a.add(1);
        assert!(poll(pin!(a.room())).is_ready());
        let mut waits = Box::pin(b.room());
        assert!(poll(waits.as_mut()).is_pending());
        a.hold(1);
        assert!(poll(waits.as_mut()).is_pending());
        a.got_on();
        assert!(poll(waits.as_mut()).is_ready());
    }

    #[test]
    fn bytes_are_given_back_to_the_last() {
        let budget = Budget::new(10);
        let free = || budget.bytes.available_permits();
        let mut share = budget.share();
        // (comes in, is held after, is free after)
        let table = [
            (4, 4, 6),
            (0, 1, 9),
            (5, 6, 4),
            (4, 3, 7),
            (7, 10, 0),
            (20, 30, 0),
            (0, 25, 0),
            (0, 6, 4),
            (7, 13, 0),
            (0, 9, 1),
        ];
        for (come, held, left) in table {
            share.add(come);
            share.hold(held);
            assert_eq!(free(), left, "{come} came, {held} held");
        }
        share.hold(2);
        share.hold(0);
        assert_eq!(free(), 10);
        // What others held is free, and this one owes more than that: nothing is.
        let mut other = budget.share();
        other.add(10);
        share.add(13);
        drop(other);
        assert_eq!(free(), 10);
        share.settle();
        assert!(share.is_short());
        share.hold(3);
        assert_eq!(free(), 7);
        share.hold(0);
        share.add(7);
        drop(share);
        assert_eq!(free(), 10);
    }
}
