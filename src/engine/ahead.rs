//! What the store thread does where a checkpoint finds no space: deleting has to be a way out.

use super::checkpoint::Keeper;
use super::{EngineError, Inner};
use crate::store::StoreError;

/// How many records go at a time ahead of their checkpoint; fewer where so many find no space.
const AHEAD: usize = 512;

impl Keeper {
    /// A checkpoint did not fit, and what was removed since it was frozen may be what makes it fit: so that goes from
    /// the store first, as many at a time as there is space for. Whether anything went.
    pub(super) fn remove_ahead(&mut self, inner: &Inner) -> Result<bool, EngineError> {
        let (through, mut removals) = {
            let core = inner.core.lock();
            let through = core.gather.durable();
            (through, core.recent.removals(self.removed, through))
        };
        if removals.is_empty() {
            return Ok(false);
        }
        // Neighbours share pages.
        removals.sort_unstable();
        let (mut rest, mut most, mut any) = (removals.as_slice(), AHEAD, false);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(most));
            match self.store.remove_ahead(part) {
                Ok(gone) => {
                    any |= !gone.is_empty();
                    let stored = inner.reader.counts();
                    inner.core.lock().went(&gone, stored);
                    (rest, most) = (after, (most * 2).min(AHEAD));
                }
                Err(StoreError::Full { .. }) => {
                    self.make_space(inner)?;
                    most /= 8;
                    if most == 0 {
                        if !self.reserve.free_last()? {
                            return Ok(any);
                        }
                        most = 1;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.removed = through;
        match self.store.reclaim() {
            Err(StoreError::Full { .. }) => drop(self.make_space(inner)?),
            other => other?,
        }
        Ok(any)
    }
}
