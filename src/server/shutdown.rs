//! The end on request: SIGTERM or SIGINT stops politely, a second one at once.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::error::{Exit, Failure};

/// How long what is in hand may take to be answered.
pub const GRACE: Duration = Duration::from_secs(10);

/// What everybody who serves watches. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Lets everybody know.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// A stop that has not been called yet.
#[must_use]
pub fn stop() -> (Stopper, Stop) {
    let (stopper, stop) = watch::channel(false);
    (Stopper(stopper), Stop(stop))
}

impl Stopper {
    /// From here on [`Stop::called`] returns.
    pub fn call(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// The same as a channel: true once the end has begun.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.clone()
    }

    /// Returns once the end has begun; also when nobody is left to call it.
    pub async fn called(mut self) {
        let _ = self.0.wait_for(|called| *called).await;
    }
}

/// The signals that end the process.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over; before this they end the process at once.
    ///
    /// # Errors
    /// The system has no room for them.
    pub fn listen() -> Result<Signals, Failure> {
        let take = |kind| {
            signal(kind).map_err(|error| {
                let attempt = "cannot listen for signals";
                Failure::new(
                    Exit::Failure,
                    attempt,
                    error,
                    "check the limits of this process",
                )
            })
        };
        Ok(Signals {
            term: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one: its name, and the exit code that shells use for it.
    pub async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.term.recv() => ("SIGTERM", 128 + 15),
            _ = self.interrupt.recv() => ("SIGINT", 128 + 2),
        }
    }
}
