//! What is known of a key (SPEC 1, 2).

use super::body::{Body, Content, Digest, LargeContent};
use super::time::{BootTime, Span, Timestamp};
use std::fmt;

/// Position of an entry in the journal: 1 for the first, one more for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// Fencing token: positive, below 2^53, strictly increasing over the whole store, never granted twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The first token of a store.
    pub const FIRST: Token = Token(1);
    /// The last one: 2^53 - 1, exact in every client's number type.
    pub const MAX: Token = Token((1 << 53) - 1);

    /// A token of that number, if it is one.
    #[must_use]
    pub const fn new(number: u64) -> Option<Token> {
        if number >= 1 && number <= Token::MAX.0 {
            Some(Token(number))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one after it; `None` where all are used up.
    #[must_use]
    pub const fn next(self) -> Option<Token> {
        Token::new(self.0 + 1)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a record came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A claim.
    Claim,
    /// A Redis string command: always `done`, its result the value.
    String,
}

/// The states of SPEC 2; absent is the lack of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Leased.
    Pending,
    /// The last attempt failed, the next may start at `not_before`.
    Retry,
    /// Finished.
    Done,
    /// The holder vanished and the side effect may have happened.
    InDoubt,
    /// Attempts used up, or buried.
    Dead,
}

impl State {
    /// Every state, in SPEC's order.
    pub const ALL: [State; 5] = [
        State::Pending,
        State::Retry,
        State::Done,
        State::InDoubt,
        State::Dead,
    ];

    /// Its name on every face.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Retry => "retry",
            State::Done => "done",
            State::InDoubt => "in_doubt",
            State::Dead => "dead",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// What the end of a lease means (SPEC 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLeaseEnd {
    /// The next claim takes over.
    Retry,
    /// The outcome is in doubt: never handed out automatically.
    Hold,
}

impl OnLeaseEnd {
    /// Its name on every face.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OnLeaseEnd::Retry => "retry",
            OnLeaseEnd::Hold => "hold",
        }
    }

    /// The value of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<OnLeaseEnd> {
        [OnLeaseEnd::Retry, OnLeaseEnd::Hold]
            .into_iter()
            .find(|value| value.name() == name)
    }
}

/// How long a finished record is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// So long after it finished.
    For(Span),
    /// Until it is forgotten by hand.
    Forever,
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retention::For(span) => span.fmt(f),
            Retention::Forever => f.write_str("forever"),
        }
    }
}

/// Whether a duplicate restarts retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Retention counts from completion.
    Fixed,
    /// A duplicate restarts it, in steps of an eighth.
    Sliding,
}

impl Window {
    /// Its name on every face.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Window::Fixed => "fixed",
            Window::Sliding => "sliding",
        }
    }

    /// The value of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Window> {
        [Window::Fixed, Window::Sliding]
            .into_iter()
            .find(|value| value.name() == name)
    }
}

/// Identity of a request body, kept with how it came about (SPEC 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// Given by the client.
    Given(Box<str>),
    /// SHA-256 of the payload's bytes.
    Raw(Digest),
    /// SHA-256 of the payload's canonical JSON.
    Json(Digest),
}

impl Fingerprint {
    /// The name of its kind on every face.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Fingerprint::Given(_) => "given",
            Fingerprint::Raw(_) => "raw",
            Fingerprint::Json(_) => "json",
        }
    }
}

/// The text given, or the digest in lower-case hex.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fingerprint::Given(text) => f.write_str(text),
            Fingerprint::Raw(digest) | Fingerprint::Json(digest) => {
                digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// What a finished attempt left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptResult {
    /// The bytes and their type.
    pub body: Body,
    /// An optional HTTP-like status.
    pub status: Option<u16>,
}

/// What happened to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Acquired as new.
    Acquired,
    /// Acquired after the lease of another holder had ended.
    TakenOver,
    /// Acquired for another attempt after a failed or released one.
    Retried,
    /// Acquired as the first attempt after a replay.
    AcquiredByReplay,
    /// The lease ended without a word from its holder.
    LeaseEnded,
    /// The holder announced the side effect.
    EffectAnnounced,
    /// Finished by its holder (or in one step by mode `once`, or written by a string command).
    Completed,
    /// The attempt failed.
    Failed,
    /// Put aside by its holder.
    Buried,
    /// Given back: nothing happened.
    Released,
    /// An operator asked for another round.
    Replayed,
    /// Completed by hand, without a token.
    CompletedByHand,
    /// Failed by hand, without a token.
    FailedByHand,
    /// Put aside by an operator.
    BuriedByHand,
    /// A complete arrived with an ended token: a possible double execution.
    LateCompletion,
    /// Turned to in-doubt by a restore.
    Restored,
}

impl Event {
    /// Every event.
    pub const ALL: [Event; 16] = [
        Event::Acquired,
        Event::TakenOver,
        Event::Retried,
        Event::AcquiredByReplay,
        Event::LeaseEnded,
        Event::EffectAnnounced,
        Event::Completed,
        Event::Failed,
        Event::Buried,
        Event::Released,
        Event::Replayed,
        Event::CompletedByHand,
        Event::FailedByHand,
        Event::LateCompletion,
        Event::Restored,
        Event::BuriedByHand,
    ];

    /// Its name on every face.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Event::Acquired => "acquired",
            Event::TakenOver => "taken_over",
            Event::Retried => "retried",
            Event::AcquiredByReplay => "acquired_by_replay",
            Event::LeaseEnded => "lease_ended",
            Event::EffectAnnounced => "effect_announced",
            Event::Completed => "completed",
            Event::Failed => "failed",
            Event::Buried => "buried",
            Event::Released => "released",
            Event::Replayed => "replayed",
            Event::CompletedByHand => "completed_by_hand",
            Event::FailedByHand => "failed_by_hand",
            Event::LateCompletion => "late_completion",
            Event::Restored => "restored",
            Event::BuriedByHand => "buried_by_hand",
        }
    }

    /// Whether a token was granted in this event.
    #[must_use]
    pub const fn grants(self) -> bool {
        matches!(
            self,
            Event::Acquired | Event::TakenOver | Event::Retried | Event::AcquiredByReplay
        )
    }
}

/// One fact of a record's past, without bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When, in engine time.
    pub at: Timestamp,
    /// What.
    pub event: Event,
    /// The token it concerns.
    pub token: Token,
    /// The attempt it concerns.
    pub attempt: u32,
    /// Name of the credential, where there was one; else the claim's owner.
    pub by: Option<Box<str>>,
}

/// How many facts a record remembers.
pub const HISTORY: usize = 8;

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Claim or string.
    pub kind: Kind,
    /// The state as written. How it shows at an instant is `Shown`'s business (SPEC 2).
    pub state: State,
    /// The end of the lease was written down, with the state that it led to (`pending` for an orphan,
    /// `in_doubt` or `dead`): the holder's token is still accepted, and the state is derived anew at every
    /// question, so that writing it down changed no answer.
    pub by_lease_end: bool,
    /// Finished in the step that acquired it (mode `once`).
    pub once: bool,
    /// The token granted last.
    pub token: Token,
    /// Attempts handed out in this generation.
    pub attempt: u32,
    /// 1, and one more at every replay.
    pub generation: u32,
    /// Set by the first claim that acquired with one.
    pub fingerprint: Option<Fingerprint>,
    /// Of the attempt granted last.
    pub claim_id: Option<Box<str>>,
    /// Of the attempt granted last.
    pub owner: Option<Box<str>>,
    /// When the last attempt was granted.
    pub claimed_at: Timestamp,
    /// The lease in force.
    pub lease: Span,
    /// Its end, on the boot clock.
    pub lease_end: BootTime,
    /// Resolved when the claim was acquired.
    pub retention: Retention,
    /// Resolved when the claim was acquired.
    pub window: Window,
    /// Resolved when the claim was acquired.
    pub on_lease_end: OnLeaseEnd,
    /// Given with a claim, else the policy's value is read when used.
    pub max_attempts: Option<u32>,
    /// The holder announced the side effect.
    pub effect_announced: bool,
    /// When the next attempt may start (`retry` only), on the boot clock.
    pub not_before: BootTime,
    /// When it was last changed: what `forget_open_after` counts from.
    pub changed_at: Timestamp,
    /// When it finished (`done` only).
    pub completed_at: Option<Timestamp>,
    /// When retention is over (`done` only); `None` is forever.
    pub expires_at: Option<Timestamp>,
    /// Text of the last failure; "lease ended" after a crash.
    pub last_error: Option<Box<str>>,
    /// What the next holder needs (kept when `store=true`).
    pub payload: Option<Body>,
    /// What finishing left behind (`done` only).
    pub result: Option<KeptResult>,
    /// The result a replay put aside.
    pub earlier_result: Option<KeptResult>,
    /// The last [`HISTORY`] facts, oldest first.
    pub history: Vec<HistoryEntry>,
}

impl Record {
    fn bodies(&self) -> impl Iterator<Item = &Body> {
        let results = self.result.iter().chain(&self.earlier_result);
        results.map(|kept| &kept.body).chain(&self.payload)
    }

    fn bodies_mut(&mut self) -> impl Iterator<Item = &mut Body> {
        let results = self.result.iter_mut().chain(&mut self.earlier_result);
        results.map(|kept| &mut kept.body).chain(&mut self.payload)
    }

    /// Its bodies that are kept beside it.
    pub fn large_bodies(&self) -> impl Iterator<Item = &LargeContent> {
        self.bodies().filter_map(|body| match &body.content {
            Content::Large(large) => Some(&**large),
            Content::Inline(_) => None,
        })
    }

    /// The same, to be changed.
    pub fn large_bodies_mut(&mut self) -> impl Iterator<Item = &mut LargeContent> {
        self.bodies_mut()
            .filter_map(|body| match &mut body.content {
                Content::Large(large) => Some(&mut **large),
                Content::Inline(_) => None,
            })
    }

    /// Whether it refers to large bodies whose bytes are not at hand.
    #[must_use]
    pub fn lacks_bodies(&self) -> bool {
        self.large_bodies().any(|large| large.bytes.is_none())
    }

    /// Puts bytes that are at hand into the large bodies that lack them. One entry can bring two bodies: the
    /// digest tells them apart.
    pub fn attach_bodies(&mut self, held: &[LargeContent]) {
        if held.is_empty() {
            return;
        }
        for large in self
            .large_bodies_mut()
            .filter(|large| large.bytes.is_none())
        {
            let found =
                (held.iter()).find(|held| (held.lsn, held.digest) == (large.lsn, large.digest));
            large.bytes = found.and_then(|held| held.bytes.clone());
        }
    }

    /// Takes the bytes out of its large bodies.
    pub fn detach_bodies(&mut self) -> Vec<LargeContent> {
        let here = self
            .large_bodies_mut()
            .filter(|large| large.bytes.is_some());
        here.map(|large| {
            let held = large.clone();
            large.bytes = None;
            held
        })
        .collect()
    }

    /// Its large bodies whose bytes are at hand.
    #[must_use]
    pub fn held_bodies(&self) -> Vec<LargeContent> {
        let held = self.large_bodies().filter(|large| large.bytes.is_some());
        held.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_stays_small_in_memory() {
        // Tens of thousands of them wait for a checkpoint at a time.
        assert!(size_of::<Record>() <= 512, "{}", size_of::<Record>());
        assert!(
            size_of::<HistoryEntry>() <= 40,
            "{}",
            size_of::<HistoryEntry>()
        );
    }
}
