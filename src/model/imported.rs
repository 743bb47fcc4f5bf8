//! Records that come from another store (SPEC 8, 9): what one has to be, what it becomes here, and when it is here
//! already.
//!
//! It is the restore of one record: what became of it in its own store after it was written down is not known, so
//! its holder's token ends, `pending` is `in_doubt` ([`Record::doubt`]), and the tokens of this store go on above
//! all that the other one may have granted.

use super::body::Body;
use super::command::{MAX_CONTENT_TYPE, MAX_ERROR, MAX_NAME, STATUS_RANGE};
use super::policy::MAX_ATTEMPTS;
use super::record::{Fingerprint, HISTORY, Kind, Record, State, Token};
use super::time::{BootTime, Now, Timestamp};

/// The highest token that a record may come with: below half of all there are, so that nothing that is imported uses
/// them up.
pub const MAX_IMPORTED: Token = match Token::new((1 << 52) - 1) {
    Some(token) => token,
    None => Token::MAX,
};
/// The longest name of an operator in a history, in bytes.
const MAX_BY: usize = 1024;

/// A record of another store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The record; its instants on the boot clock mean nothing here.
    pub record: Record,
    /// When its next attempt may start (`retry` only), in engine time.
    pub not_before: Timestamp,
    /// The highest token that its store may have granted: those of this store go on above it.
    pub granted: Token,
}

impl Import {
    /// What can be refused without looking at the record that is here.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), &'static str> {
        let record = &self.record;
        let rule = |holds: bool, broken| if holds { Ok(()) } else { Err(broken) };
        let done = record.state == State::Done;
        rule(
            record.token <= MAX_IMPORTED && self.granted <= MAX_IMPORTED,
            "a token is below 2^52",
        )?;
        rule(
            record.kind == Kind::Claim || done,
            "a string record is done",
        )?;
        rule(
            done == record.completed_at.is_some(),
            "a record that is done has completed_at_ms, and no other has",
        )?;
        rule(
            done || (record.expires_at.is_none() && record.result.is_none()),
            "only a record that is done expires or has a result",
        )?;
        rule(record.generation >= 1, "the first generation is 1")?;
        rule(
            !record.by_lease_end
                || matches!(record.state, State::Pending | State::InDoubt | State::Dead),
            "the end of a lease leads to pending, in_doubt or dead",
        )?;
        rule(
            record.max_attempts.is_none_or(|most| most <= MAX_ATTEMPTS),
            "max_attempts is at most 1000000",
        )?;
        let given = match &record.fingerprint {
            Some(Fingerprint::Given(text)) => Some(&**text),
            _ => None,
        };
        for name in [record.claim_id.as_deref(), record.owner.as_deref(), given] {
            rule(
                name.is_none_or(|name| (1..=MAX_NAME).contains(&name.len())),
                "a claim id, an owner and a fingerprint have 1 to 128 bytes",
            )?;
        }
        rule(
            record
                .last_error
                .as_ref()
                .is_none_or(|text| text.len() <= MAX_ERROR),
            "an error text has at most 4096 bytes",
        )?;
        for kept in record.result.iter().chain(&record.earlier_result) {
            check_type(&kept.body)?;
            rule(
                kept.status
                    .is_none_or(|status| STATUS_RANGE.contains(&status)),
                "a status is 100 to 599",
            )?;
        }
        record.payload.iter().try_for_each(check_type)?;
        rule(
            record.history.len() <= HISTORY,
            "a history has at most 8 facts",
        )?;
        for fact in &record.history {
            rule(
                fact.token <= self.granted,
                "a token is below that of the header",
            )?;
            rule(
                fact.by.as_ref().is_none_or(|by| by.len() <= MAX_BY),
                "a name in a history has at most 1024 bytes",
            )?;
        }
        Ok(())
    }

    /// The record as it is written down here.
    #[must_use]
    pub fn settled(&self, now: Now) -> Record {
        let mut record = self.record.clone();
        // Its age is known; when it was put in doubt here is not its own fact, and would tell two imports apart.
        record.doubt(record.changed_at);
        record.lease_end = BootTime::default();
        record.not_before = match record.state {
            State::Retry => now.boot.after(self.not_before.since(now.time)),
            _ => BootTime::default(),
        };
        record
    }
}

fn check_type(body: &Body) -> Result<(), &'static str> {
    let text = &body.content_type;
    let visible = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if text.is_empty() || text.len() > MAX_CONTENT_TYPE || !visible {
        return Err("a content type has 1 to 256 printable ASCII characters");
    }
    Ok(())
}

/// Whether they say the same: all but instants on the boot clock, which each store has of its own.
#[must_use]
pub fn same(here: &Record, there: &Record) -> bool {
    let plain = |record: &Record| {
        let mut record = record.clone();
        record.lease_end = BootTime::default();
        record.not_before = BootTime::default();
        record
    };
    plain(here) == plain(there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::body::Content;
    use crate::model::record::{Event, HistoryEntry, OnLeaseEnd, Retention, Window};
    use crate::model::time::Span;

    fn import() -> Import {
        let token = Token::FIRST;
        let at = Timestamp::from_millis(1000);
        Import {
            record: Record {
                kind: Kind::Claim,
                state: State::Pending,
                by_lease_end: false,
                once: false,
                token,
                attempt: 1,
                generation: 1,
                fingerprint: None,
                claim_id: None,
                owner: None,
                claimed_at: at,
                lease: Span::from_secs(60),
                lease_end: BootTime::from_millis(7),
                retention: Retention::Forever,
                window: Window::Fixed,
                on_lease_end: OnLeaseEnd::Retry,
                max_attempts: None,
                effect_announced: false,
                not_before: BootTime::from_millis(9),
                changed_at: at,
                completed_at: None,
                expires_at: None,
                last_error: None,
                payload: None,
                result: None,
                earlier_result: None,
                history: vec![HistoryEntry {
                    at,
                    event: Event::Acquired,
                    token,
                    attempt: 1,
                    by: None,
                }],
            },
            not_before: Timestamp::default(),
            granted: token,
        }
    }

    #[test]
    fn what_was_pending_is_in_doubt_and_twice_the_same() {
        let import = import();
        let now = |millis| Now {
            time: Timestamp::from_millis(millis),
            boot: BootTime::from_millis(millis),
            ..Now::default()
        };
        let (first, second) = (import.settled(now(5000)), import.settled(now(9000)));
        assert_eq!(first.state, State::InDoubt);
        assert_eq!(
            first.history.last().map(|fact| fact.event),
            Some(Event::Restored)
        );
        assert!(same(&first, &second) && !same(&first, &import.record));
    }

    #[test]
    fn a_record_that_no_store_writes_is_refused() {
        type Spoil = fn(&mut Import);
        let spoils: [Spoil; 9] = [
            |it| it.record.token = Token::MAX,
            |it| it.record.kind = Kind::String,
            |it| it.record.state = State::Done,
            |it| it.record.expires_at = Some(Timestamp::default()),
            |it| it.record.generation = 0,
            |it| it.record.owner = Some("".into()),
            |it| it.record.last_error = Some("x".repeat(4097).into()),
            |it| {
                it.record.payload = Some(Body {
                    content_type: "\n".into(),
                    content: Content::new("x".into()),
                });
            },
            |it| it.record.history = vec![it.record.history[0].clone(); 9],
        ];
        assert_eq!(import().check(), Ok(()));
        for (at, spoil) in spoils.into_iter().enumerate() {
            let mut import = import();
            spoil(&mut import);
            assert!(import.check().is_err(), "spoil {at}");
        }
    }
}
