//! The sweep: tables in which nothing can be alive are dropped whole.

use std::sync::Arc;

use super::codec::encode_state;
use super::error::StoreError;
use super::layout::{META, Place};
use super::open::{STATE_KEY, Store, counts_key, unwritable};
use super::shared::{Fault, bytewise};
use crate::model::time::Timestamp;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Tables dropped.
    pub tables: usize,
    /// Records that went with them.
    pub records: u64,
}

impl Store {
    /// Drops the tables whose bucket ended more than a minute before `now`. No record is deleted one by
    /// one for its age.
    ///
    /// `now` must not be later than the moment at which the last checkpoint was frozen: a record whose
    /// expiry was moved since is in memory alone, and its large bodies may still lie in such a table.
    ///
    /// `mark` is for the caller, and takes the place of the last checkpoint's: what is dropped stays past its
    /// retention only if the instant at which it was is remembered with it.
    ///
    /// # Errors
    /// As [`Store::checkpoint`].
    pub fn sweep(&mut self, now: Timestamp, mark: &[u8]) -> Result<Swept, StoreError> {
        let over: Vec<Place> = self
            .tables
            .keys()
            .copied()
            .filter(|place| place.is_over(now))
            .collect();
        if over.is_empty() {
            return Ok(Swept::default());
        }
        let mut state = self.state.clone();
        state.commits += 1;
        state.mark = mark.to_vec();
        let drop_tables = || -> Result<(), Fault> {
            let transaction = self.shared.begin_write()?;
            {
                let mut meta = transaction.open_table(bytewise(META))?;
                for place in &over {
                    transaction.delete_table(bytewise(&place.name()))?;
                    transaction.delete_table(bytewise(&place.body_name()))?;
                    meta.remove(counts_key(*place).as_slice())?;
                }
                let state = encode_state(STATE_KEY, &state).map_err(unwritable)?;
                meta.insert(STATE_KEY, state.as_slice())?;
            }
            Ok(transaction.commit()?)
        };
        drop_tables().map_err(|fault| self.shared.failed("sweep", fault))?;
        self.state = state;
        let mut swept = Swept {
            tables: over.len(),
            records: 0,
        };
        for place in &over {
            swept.records += self.tables.remove(place).map_or(0, |live| live.counts.rows);
            self.covers.leave(*place);
        }
        Arc::make_mut(&mut *self.shared.namespaces.lock()).retain(|_, tables| {
            tables.retain(|place, _| !place.is_over(now));
            !tables.is_empty()
        });
        self.shared.publish(&self.tables, &self.covers, true);
        Ok(swept)
    }
}
