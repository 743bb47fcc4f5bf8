//! What the service manager is told; nothing where there is none (no `NOTIFY_SOCKET`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::JoinHandle;

use crate::engine::Engine;

/// How much longer a start or stop may take, said again while it takes that long.
const EXTENSION: Duration = Duration::from_secs(30);
/// How often it is said.
const AGAIN: Duration = Duration::from_secs(10);
/// How often at most: who is not through after an hour hangs.
const TIMES: usize = 360;

/// Every face answers.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is read again; [`ready`] says when that is over.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("cannot tell the service manager of the reload: {error}"),
    }
}

/// The end has begun.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Asks for more time while something takes longer than the service manager's timeout, until it is dropped.
pub struct Patience(#[allow(dead_code, reason = "the thread ends with it")] Sender<()>);

impl Patience {
    /// Says what is done, and every ten seconds that it goes on. A thread of its own: the one that works is busy.
    #[must_use]
    pub fn ask(status: &'static str) -> Patience {
        let (held, dropped) = channel();
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            std::thread::spawn(move || {
                tell(&[NotifyState::Status(status)]);
                let micros = u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX);
                for _ in 0..TIMES {
                    tell(&[NotifyState::ExtendTimeoutUsec(micros)]);
                    if dropped.recv_timeout(AGAIN) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
        }
        Patience(held)
    }
}

/// Tells a watchdog, if one waits, that the runtime serves and the engine decides, or that the disk is waited for: a
/// restart would wait for it too. Ends when the task does.
pub fn watchdog(engine: &Engine) -> JoinHandle<()> {
    let engine = engine.clone();
    tokio::spawn(async move {
        let Some(limit) = sd_notify::watchdog_enabled() else {
            return;
        };
        let serves = Arc::new(AtomicBool::new(true));
        let _life = feed(limit / 3, serves.clone(), engine.clone());
        let mut beat = tokio::time::interval((limit / 6).max(Duration::from_millis(1)));
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            // Under the lock under which everything is decided.
            let _ = engine.now();
            serves.store(true, Ordering::Relaxed);
        }
    })
}

/// Feeds the watchdog from a thread of its own, which a runtime that waits for the disk does not hold up, until what
/// is returned is dropped.
fn feed(every: Duration, serves: Arc<AtomicBool>, engine: Engine) -> Sender<()> {
    let (held, dropped) = channel();
    std::thread::spawn(move || {
        loop {
            if serves.swap(false, Ordering::Relaxed) || engine.waits_for_disk() {
                tell(&[NotifyState::Watchdog]);
            }
            if dropped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    });
    held
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot tell the service manager: {error}");
    }
}
