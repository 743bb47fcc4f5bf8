//! Between the model and the rows of `codec`: journal entries and policies.

use bytes::Bytes;
use std::sync::Arc;

use super::codec::{
    ChangeRow, CodecError, ContentRow, DecisionRow, EntryRow, PolicyRow, RecordRow,
};
use super::entry::{Change, Decision, Entry, OUTCOMES, VERBS};
use super::rows::{MAX_BY, event_code, event_of, retention_of, retention_row};
use crate::model::body::sha256;
use crate::model::key::{RecordKey, check_namespace};
use crate::model::outcome::Reason;
use crate::model::policy::{self, FingerprintKind, Policy};
use crate::model::record::{Lsn, OnLeaseEnd, Token, Window};
use crate::model::time::{Span, Timestamp};

type Decoded<T> = Result<T, CodecError>;

impl<'a> EntryRow<'a> {
    pub(super) fn of(entry: &'a Entry) -> Decoded<EntryRow<'a>> {
        Ok(EntryRow {
            lsn: entry.lsn.0,
            change: match &entry.change {
                Change::None(key) => ChangeRow::None(key.joined()),
                Change::Tally(namespace) => ChangeRow::Tally(namespace),
                Change::Put(key, record) => {
                    ChangeRow::Put(key.joined(), RecordRow::of(record, Some(entry.lsn))?)
                }
                Change::Remove(key) => ChangeRow::Remove(key.joined()),
                Change::Policy(namespace, policy) => {
                    ChangeRow::Policy(namespace, policy.as_ref().map(PolicyRow::of))
                }
            },
            decision: DecisionRow::of(&entry.decision)?,
        })
    }

    /// What holds of every entry.
    pub(super) fn check(&self) -> Decoded<()> {
        match &self.change {
            ChangeRow::Put(_, record) => record.check()?,
            ChangeRow::Tally(namespace) | ChangeRow::Policy(namespace, _) => {
                check_namespace(namespace)
                    .map_err(|_| CodecError::Rule("a namespace that is none"))?;
            }
            ChangeRow::None(_) | ChangeRow::Remove(_) => {}
        }
        self.decision.check()
    }

    pub(super) fn build(&self) -> Decoded<Entry> {
        let lsn = Lsn(self.lsn);
        let key = |joined: &[u8]| {
            RecordKey::from_joined(Bytes::copy_from_slice(joined))
                .ok_or(CodecError::Rule("a key that is none"))
        };
        let change = match &self.change {
            ChangeRow::None(joined) => Change::None(key(joined)?),
            ChangeRow::Tally(namespace) => Change::Tally((*namespace).into()),
            ChangeRow::Put(joined, record) => {
                record.check_bodies(lsn)?;
                Change::Put(key(joined)?, Arc::new(record.build(lsn)?))
            }
            ChangeRow::Remove(joined) => Change::Remove(key(joined)?),
            ChangeRow::Policy(namespace, policy) => Change::Policy(
                (*namespace).into(),
                policy.as_ref().map(PolicyRow::build).transpose()?,
            ),
        };
        Ok(Entry {
            lsn,
            change,
            decision: self.decision.build()?,
        })
    }
}

impl<'a> DecisionRow<'a> {
    pub(super) fn of(decision: &'a Decision) -> Decoded<DecisionRow<'a>> {
        let code = |names: &[&str], name: &str| {
            names
                .iter()
                .position(|known| *known == name)
                .and_then(|code| u8::try_from(code).ok())
        };
        Ok(DecisionRow {
            at: decision.at.as_millis(),
            verb: code(&VERBS, decision.verb).ok_or(CodecError::Rule("an unknown verb"))?,
            outcome: code(&OUTCOMES, decision.outcome)
                .ok_or(CodecError::Rule("an unknown outcome"))?,
            reason: decision.reason.map(reason_code),
            event: decision.event.map(event_code),
            token: decision.token.map(Token::get),
            attempt: decision.attempt,
            generation: decision.generation,
            by: decision.by.as_deref(),
            count: decision.count,
        })
    }

    /// What holds of every decision.
    pub(super) fn check(&self) -> Decoded<()> {
        match self.by {
            Some(by) if by.len() > MAX_BY => Err(CodecError::Rule("too long a name")),
            _ => Ok(()),
        }
    }
}

impl RecordRow<'_> {
    /// A frame's checksum covers the bytes; this covers whoever wrote the frame.
    fn check_bodies(&self, entry: Lsn) -> Decoded<()> {
        for (_, body) in self.bodies() {
            match body.content {
                ContentRow::New { digest, bytes } if sha256(bytes) != digest => {
                    return Err(CodecError::Rule("a new body with another digest"));
                }
                ContentRow::Large { lsn, .. } if lsn >= entry.0 => {
                    return Err(CodecError::Rule("a body of an entry that is yet to come"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl DecisionRow<'_> {
    fn build(&self) -> Decoded<Decision> {
        let name = |names: &[&'static str], code: u8| names.get(usize::from(code)).copied();
        let token = |number| Token::new(number).ok_or(CodecError::Rule("a token that is none"));
        Ok(Decision {
            at: Timestamp::from_millis(self.at),
            verb: name(&VERBS, self.verb).ok_or(CodecError::Rule("an unknown verb"))?,
            outcome: name(&OUTCOMES, self.outcome).ok_or(CodecError::Rule("an unknown outcome"))?,
            reason: self.reason.map(reason_of).transpose()?,
            event: self.event.map(event_of).transpose()?,
            token: self.token.map(token).transpose()?,
            attempt: self.attempt,
            generation: self.generation,
            by: self.by.map(Into::into),
            count: self.count,
        })
    }
}

impl PolicyRow {
    pub(super) fn of(policy: &Policy) -> PolicyRow {
        PolicyRow {
            lease: policy.lease.as_millis(),
            retention: retention_row(policy.retention),
            sliding: policy.window == Window::Sliding,
            max_attempts: policy.max_attempts,
            hold: policy.on_lease_end == OnLeaseEnd::Hold,
            backoff: policy.backoff.as_millis(),
            backoff_max: policy.backoff_max.as_millis(),
            json: policy.fingerprint == FingerprintKind::Json,
            forget_open_after: retention_row(policy.forget_open_after),
        }
    }

    /// The policy, its ranges checked (SPEC 5).
    pub(super) fn build(&self) -> Decoded<Policy> {
        let range = |_| CodecError::Rule("a policy outside its range");
        let delay = |millis| policy::check_delay(Span::from_millis(millis)).map_err(range);
        Ok(Policy {
            lease: policy::check_lease(Span::from_millis(self.lease)).map_err(range)?,
            retention: policy::check_retention(retention_of(self.retention)).map_err(range)?,
            window: if self.sliding {
                Window::Sliding
            } else {
                Window::Fixed
            },
            max_attempts: policy::check_attempts(self.max_attempts).map_err(range)?,
            on_lease_end: if self.hold {
                OnLeaseEnd::Hold
            } else {
                OnLeaseEnd::Retry
            },
            backoff: delay(self.backoff)?,
            backoff_max: delay(self.backoff_max)?,
            fingerprint: if self.json {
                FingerprintKind::Json
            } else {
                FingerprintKind::Raw
            },
            forget_open_after: retention_of(self.forget_open_after),
        })
    }
}

const REASONS: [Reason; 5] = [
    Reason::New,
    Reason::Resumed,
    Reason::Takeover,
    Reason::Retry,
    Reason::Replay,
];

fn reason_code(reason: Reason) -> u8 {
    match reason {
        Reason::New => 0,
        Reason::Resumed => 1,
        Reason::Takeover => 2,
        Reason::Retry => 3,
        Reason::Replay => 4,
    }
}

fn reason_of(code: u8) -> Decoded<Reason> {
    REASONS
        .get(usize::from(code))
        .copied()
        .ok_or(CodecError::Rule("a reason that does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_the_list_they_index_agree() {
        for reason in REASONS {
            assert_eq!(reason_of(reason_code(reason)), Ok(reason));
        }
    }
}
