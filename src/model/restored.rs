//! What a restore does to a record (SPEC 9).

use super::record::{Event, Record, State};
use super::time::Timestamp;

impl Record {
    /// The record as it stands in a store that goes on from an earlier point in time: what became of it after that
    /// point is not known. `pending`, orphans included, is `in_doubt` from here on. No token of before is accepted
    /// any more, not even one whose lease had ended: somebody else may have been granted a later one that was
    /// forgotten with the rest. Tells whether anything changed.
    pub fn doubt(&mut self, at: Timestamp) -> bool {
        let pending = self.state == State::Pending;
        if !pending && !self.by_lease_end {
            return false;
        }
        self.state = if pending { State::InDoubt } else { self.state };
        self.by_lease_end = false;
        self.changed_at = at.max(self.changed_at);
        self.note(Event::Restored, self.changed_at, None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::{HISTORY, Kind, OnLeaseEnd, Retention, Token, Window};
    use crate::model::time::{BootTime, Span};

    fn pending() -> Record {
        Record {
            kind: Kind::Claim,
            state: State::Pending,
            by_lease_end: false,
            once: false,
            token: Token::FIRST,
            attempt: 1,
            generation: 1,
            fingerprint: None,
            claim_id: None,
            owner: None,
            claimed_at: Timestamp::from_millis(1000),
            lease: Span::from_secs(60),
            lease_end: BootTime::from_millis(61_000),
            retention: Retention::Forever,
            window: Window::Fixed,
            on_lease_end: OnLeaseEnd::Retry,
            max_attempts: None,
            effect_announced: false,
            not_before: BootTime::from_millis(0),
            changed_at: Timestamp::from_millis(1000),
            completed_at: None,
            expires_at: None,
            last_error: None,
            payload: None,
            result: None,
            earlier_result: None,
            history: Vec::new(),
        }
    }

    #[test]
    fn what_somebody_held_is_in_doubt_and_what_nobody_held_stays() {
        let like = pending();
        // (state, by the end of a lease) -> (state, changed)
        let table = [
            (State::Pending, false, State::InDoubt, true),
            (State::Pending, true, State::InDoubt, true),
            (State::InDoubt, true, State::InDoubt, true),
            (State::Dead, true, State::Dead, true),
            (State::InDoubt, false, State::InDoubt, false),
            (State::Dead, false, State::Dead, false),
            (State::Retry, false, State::Retry, false),
        ];
        for (state, by_lease_end, expected, changed) in table {
            let mut record = like.clone();
            record.state = state;
            record.by_lease_end = by_lease_end;
            let before = record.clone();
            let at = Timestamp::from_millis(before.changed_at.as_millis() + 5);
            assert_eq!(record.doubt(at), changed, "{state:?} {by_lease_end}");
            assert_eq!((record.state, record.by_lease_end), (expected, false));
            if changed {
                let last = record.history.last().unwrap();
                assert_eq!((last.event, last.at), (Event::Restored, at));
                assert!(record.history.len() <= HISTORY);
                assert!(!record.doubt(at), "once is enough");
            } else {
                assert_eq!(record, before);
            }
        }
    }
}
