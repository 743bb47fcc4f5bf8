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

/// The signals that the process takes.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGHUP: to read the configuration again.
    Reload,
    /// To end: the signal's name, and the exit code that shells use for it.
    Stop(&'static str, i32),
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
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one; an end goes before a reload.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            _ = self.term.recv() => Asked::Stop("SIGTERM", 128 + 15),
            _ = self.interrupt.recv() => Asked::Stop("SIGINT", 128 + 2),
            _ = self.hangup.recv() => Asked::Reload,
        }
    }

    /// Waits for the next one that asks for an end.
    pub async fn stop(&mut self) -> (&'static str, i32) {
        loop {
            if let Asked::Stop(name, code) = self.next().await {
                return (name, code);
            }
        }
    }
}
