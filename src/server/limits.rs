//! What all connections share: how many there may be, and how many bytes they may have in flight (SPEC 10).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

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
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    used: AtomicUsize,
    freed: Notify,
    /// Connections that all hold a part of a request could wait for each other for ever. So one of them
    /// at a time may read on beyond the limit, until its request is whole and decided.
    pass: Arc<Semaphore>,
}

/// One connection's part of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    shared: Arc<Shared>,
    bytes: usize,
    pass: Option<OwnedSemaphorePermit>,
}

/// Leave to look again, or to pass.
#[derive(Debug)]
pub struct Room(Option<OwnedSemaphorePermit>);

impl Budget {
    /// Reading pauses at `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Budget {
        Budget(Arc::new(Shared {
            limit,
            used: AtomicUsize::new(0),
            freed: Notify::new(),
            pass: Arc::new(Semaphore::new(1)),
        }))
    }

    /// An empty part.
    #[must_use]
    pub fn share(&self) -> Share {
        Share {
            shared: Arc::clone(&self.0),
            bytes: 0,
            pass: None,
        }
    }
}

impl Shared {
    fn has_room(&self) -> bool {
        self.used.load(Ordering::Acquire) < self.limit
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        if self.has_room() {
            self.freed.notify_one();
        }
    }
}

impl Share {
    /// Whether this connection may read now.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.pass.is_some() || self.shared.has_room()
    }

    /// Whether it may only because it holds the pass: others wait for it.
    #[must_use]
    pub fn holds_others_up(&self) -> bool {
        self.pass.is_some()
    }

    /// Whether others wait for bytes to be given back.
    #[must_use]
    pub fn is_short(&self) -> bool {
        !self.shared.has_room()
    }

    /// Waits until this connection may read.
    pub async fn room(&mut self) {
        while !self.may_read() {
            let room = self.wait().await;
            self.enter(room);
        }
    }

    /// What [`Share::room`] waits for, apart from the share; what comes of it goes to [`Share::enter`].
    pub fn wait(&self) -> impl Future<Output = Room> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            let freed = shared.freed.notified();
            tokio::pin!(freed);
            // Waiting begins before the look, so that what is given back between is not missed.
            freed.as_mut().enable();
            if shared.has_room() {
                return Room(None);
            }
            let pass = tokio::select! {
                () = freed => None,
                pass = Arc::clone(&shared.pass).acquire_owned() => pass.ok(),
            };
            // One was woken, but there may be room for several.
            if shared.has_room() {
                shared.freed.notify_one();
            }
            Room(pass)
        }
    }

    /// The wait is over.
    pub fn enter(&mut self, room: Room) {
        if room.0.is_some() {
            self.pass = room.0;
        }
    }

    /// This connection holds `bytes` from now on, and has got on: it lets the pass go.
    pub fn hold(&mut self, bytes: usize) {
        self.pass = None;
        self.set(bytes);
    }

    /// `bytes` more have come in.
    pub fn add(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_add(bytes));
    }

    fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if let Some(more) = bytes.checked_sub(before) {
            self.shared.used.fetch_add(more, Ordering::AcqRel);
        } else {
            self.shared.give_back(before.saturating_sub(bytes));
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold(0);
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
        b.add(6);
        assert!(!c.may_read());
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
    fn whoever_got_on_lets_the_next_one_pass() {
        let budget = Budget::new(1);
        let (mut a, mut b) = (budget.share(), budget.share());
        a.add(5);
        b.add(5);
        assert!(poll(pin!(a.room())).is_ready());
        let mut waits = Box::pin(b.room());
        assert!(poll(waits.as_mut()).is_pending());
        a.hold(5);
        assert!(poll(waits.as_mut()).is_ready());
    }

    #[test]
    fn a_connection_that_goes_gives_its_bytes_back() {
        let budget = Budget::new(1);
        let mut share = budget.share();
        share.add(100);
        assert!(share.is_short());
        drop(share);
        assert!(!budget.share().is_short());
        assert_eq!(budget.0.used.load(Ordering::Relaxed), 0);
    }
}
