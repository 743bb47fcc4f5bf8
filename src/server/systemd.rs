//! What the service manager is told; nothing where there is none (no `NOTIFY_SOCKET`).

use sd_notify::NotifyState;

/// Every face answers.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The end has begun.
pub fn stopping() {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("answering what is in hand"),
    ]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot tell the service manager: {error}");
    }
}
