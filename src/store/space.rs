//! How much room there is in the store's own file.

use super::error::StoreError;
use super::open::Store;
use super::shared::Fault;

impl Store {
    /// Bytes of pages in the file that are free: what the next records can take without new space of the file system.
    /// Reads all pages that have rows, so not for every day.
    ///
    /// # Errors
    /// [`StoreError::Full`]: [`Store::reopen`], as after a checkpoint. Anything else is final.
    pub fn free_inside(&mut self) -> Result<u64, StoreError> {
        const OPERATION: &str = "measure the store";
        let measure = || -> Result<u64, Fault> {
            // What a commit gives up is free after the next one.
            self.shared.begin_write()?.commit()?;
            let transaction = self.shared.begin_write()?;
            let stats = transaction.stats()?;
            transaction.abort()?;
            let pages = stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes();
            let taken = stats.allocated_pages() * stats.page_size() as u64;
            Ok(pages.saturating_sub(taken))
        };
        measure().map_err(|fault| self.shared.failed(OPERATION, fault))
    }
}
