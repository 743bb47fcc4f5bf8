//! What the tests of this layer are made of.

use bytes::Bytes;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use crate::model::body::{Body, Content, INLINE_LIMIT};
use crate::model::key::RecordKey;
use crate::model::record::{
    Event, Fingerprint, HISTORY, HistoryEntry, KeptResult, Kind, Lsn, OnLeaseEnd, Record,
    Retention, State, Token, Window,
};
use crate::model::time::{BootTime, Span, Timestamp};

/// Reproducible chance (SplitMix64).
pub(super) struct Dice(u64);

impl Dice {
    /// Of the seed in `SEED`, else of a fresh one, which is printed.
    pub(super) fn seeded() -> Dice {
        let fresh = || {
            std::collections::hash_map::RandomState::new()
                .build_hasher()
                .finish()
        };
        let seed = std::env::var("SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(fresh);
        println!("SEED={seed}");
        Dice(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        if self.coin() { Some(make(self)) } else { None }
    }

    /// A number that is small as often as it is large.
    fn number(&mut self, most: u64) -> u64 {
        let bits = self.below(64);
        (self.next() >> bits).min(most)
    }

    fn text(&mut self, from: u64, to: u64) -> Box<str> {
        let len = from + self.below(to - from + 1);
        (0..len)
            .map(|_| char::from(b' ' + self.below(95) as u8))
            .collect::<String>()
            .into()
    }

    pub(super) fn bytes(&mut self, len: u64) -> Bytes {
        (0..len)
            .map(|_| self.next() as u8)
            .collect::<Vec<_>>()
            .into()
    }

    fn body(&mut self) -> Body {
        let len = match self.below(4) {
            0 => 0,
            1 => self.below(200),
            2 => INLINE_LIMIT as u64,
            _ => INLINE_LIMIT as u64 + 1 + self.below(2000),
        };
        let mut content = Content::new(self.bytes(len));
        if let Content::Large(large) = &mut content {
            large.lsn = Some(Lsn(self.number(1 << 40)));
            large.bytes = None;
        }
        Body {
            content_type: self.content_type(),
            content,
        }
    }

    fn content_type(&mut self) -> Box<str> {
        if self.coin() {
            crate::model::body::DEFAULT_CONTENT_TYPE.into()
        } else {
            self.text(1, 40)
        }
    }

    fn result(&mut self) -> KeptResult {
        KeptResult {
            body: self.body(),
            status: self.maybe(|dice| 100 + dice.below(500) as u16),
        }
    }

    fn time(&mut self) -> Timestamp {
        Timestamp::from_millis(self.number(u64::MAX))
    }

    /// Any record that a table may hold: large bodies have an LSN and no bytes.
    pub(super) fn record(&mut self) -> Record {
        let kind = if self.below(4) == 0 {
            Kind::String
        } else {
            Kind::Claim
        };
        let state = match kind {
            Kind::String => State::Done,
            Kind::Claim => State::ALL[self.below(5) as usize],
        };
        let done = state == State::Done;
        Record {
            kind,
            state,
            by_lease_end: matches!(state, State::InDoubt | State::Dead) && self.coin(),
            once: self.coin(),
            token: Token::new(1 + self.number(Token::MAX.get() - 1)).unwrap(),
            attempt: self.number(u32::MAX.into()) as u32,
            generation: 1 + self.number(1000) as u32,
            fingerprint: match self.below(4) {
                0 => None,
                1 => Some(Fingerprint::Given(self.text(1, 128))),
                2 => Some(Fingerprint::Raw(crate::model::body::sha256(
                    &self.next().to_le_bytes(),
                ))),
                _ => Some(Fingerprint::Json(crate::model::body::sha256(
                    &self.next().to_le_bytes(),
                ))),
            },
            claim_id: self.maybe(|dice| dice.text(1, 128)),
            owner: self.maybe(|dice| dice.text(1, 128)),
            claimed_at: self.time(),
            lease: Span::from_millis(self.number(u64::MAX)),
            lease_end: BootTime::from_millis(self.number(u64::MAX)),
            retention: match self.maybe(|dice| dice.number(u64::MAX)) {
                Some(millis) => Retention::For(Span::from_millis(millis)),
                None => Retention::Forever,
            },
            window: if self.coin() {
                Window::Fixed
            } else {
                Window::Sliding
            },
            on_lease_end: if self.coin() {
                OnLeaseEnd::Retry
            } else {
                OnLeaseEnd::Hold
            },
            max_attempts: self.maybe(|dice| dice.number(1_000_000) as u32),
            effect_announced: self.coin(),
            not_before: BootTime::from_millis(self.number(u64::MAX)),
            changed_at: self.time(),
            completed_at: if done { Some(self.time()) } else { None },
            expires_at: if done { self.maybe(Dice::time) } else { None },
            last_error: self.maybe(|dice| dice.text(0, 300)),
            payload: self.maybe(Dice::body),
            result: if done { self.maybe(Dice::result) } else { None },
            earlier_result: self.maybe(Dice::result),
            history: (0..self.below(HISTORY as u64 + 1))
                .map(|_| HistoryEntry {
                    at: self.time(),
                    event: Event::ALL[self.below(15) as usize],
                    token: Token::new(1 + self.number(1 << 40)).unwrap(),
                    attempt: self.number(100) as u32,
                    by: self.maybe(|dice| dice.text(0, 40)),
                })
                .collect(),
        }
    }
}

pub(super) fn key(name: impl AsRef<[u8]>) -> RecordKey {
    RecordKey::new("ns", name.as_ref()).unwrap()
}

/// A plain claim under way.
pub(super) fn pending(token: u64) -> Record {
    Record {
        kind: Kind::Claim,
        state: State::Pending,
        by_lease_end: false,
        once: false,
        token: Token::new(token).unwrap(),
        attempt: 1,
        generation: 1,
        fingerprint: None,
        claim_id: None,
        owner: Some("worker-1".into()),
        claimed_at: Timestamp::from_millis(1_000_000),
        lease: Span::from_secs(60),
        lease_end: BootTime::from_millis(60_000),
        retention: Retention::For(Span::from_secs(3600)),
        window: Window::Fixed,
        on_lease_end: OnLeaseEnd::Retry,
        max_attempts: None,
        effect_announced: false,
        not_before: BootTime::default(),
        changed_at: Timestamp::from_millis(1_000_000),
        completed_at: None,
        expires_at: None,
        last_error: None,
        payload: None,
        result: None,
        earlier_result: None,
        history: vec![HistoryEntry {
            at: Timestamp::from_millis(1_000_000),
            event: Event::Acquired,
            token: Token::new(token).unwrap(),
            attempt: 1,
            by: Some("worker-1".into()),
        }],
    }
}

/// A finished claim, which expires at that millisecond.
pub(super) fn done(token: u64, at: Timestamp, expires: u64) -> Record {
    Record {
        state: State::Done,
        changed_at: at,
        completed_at: Some(at),
        expires_at: Some(Timestamp::from_millis(expires)),
        result: Some(KeptResult {
            body: body(b"ok", None),
            status: Some(200),
        }),
        ..pending(token)
    }
}

/// A body; a large one is new with that entry.
pub(super) fn body(bytes: &[u8], lsn: Option<Lsn>) -> Body {
    let mut content = Content::new(Bytes::copy_from_slice(bytes));
    if let Content::Large(large) = &mut content {
        large.lsn = lsn;
    }
    Body {
        content_type: "text/plain".into(),
        content,
    }
}

/// The same record as a later checkpoint has it: without the bytes of large bodies.
pub(super) fn without_bytes(record: &Record) -> Record {
    let mut record = record.clone();
    let results = [&mut record.result, &mut record.earlier_result];
    let bodies = results.into_iter().flatten().map(|kept| &mut kept.body);
    for body in record.payload.iter_mut().chain(bodies) {
        if let Content::Large(large) = &mut body.content {
            large.bytes = None;
        }
    }
    record
}

pub(super) fn arc(record: Record) -> Option<Arc<Record>> {
    Some(Arc::new(record))
}
