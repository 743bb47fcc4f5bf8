//! How much room there is in the store's own file.

use super::error::StoreError;
use super::open::Store;
use super::shared::Fault;
use std::os::unix::fs::MetadataExt as _;

impl Store {
    /// What a commit gives up is free after the next one: this is one without anything in it.
    ///
    /// # Errors
    /// As [`Store::free_inside`].
    pub fn reclaim(&mut self) -> Result<(), StoreError> {
        let commit = || Ok::<_, Fault>(self.shared.begin_write()?.commit()?);
        commit().map_err(|fault| self.shared.failed("reclaim pages of the store", fault))
    }

    /// Bytes of pages in the file that are free and that the file system has given space for: what the next records can
    /// take without more of it. Reads all pages that have rows, so not for every day.
    ///
    /// # Errors
    /// [`StoreError::Full`]: [`Store::reopen`], as after a checkpoint. Anything else is final.
    pub fn free_inside(&mut self) -> Result<u64, StoreError> {
        const OPERATION: &str = "measure the store";
        self.reclaim()?;
        let measure = || -> Result<u64, Fault> {
            let transaction = self.shared.begin_write()?;
            let stats = transaction.stats()?;
            transaction.abort()?;
            let pages = stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes();
            let taken = stats.allocated_pages() * stats.page_size() as u64;
            // The file grows by far more than it needs at a time, and takes space where it is written to.
            Ok(pages.min(self.backed()).saturating_sub(taken))
        };
        measure().map_err(|fault| self.shared.failed(OPERATION, fault))
    }
    /// Bytes that the file system has given to the file. Of a simulation, whatever it has.
    fn backed(&self) -> u64 {
        let file = std::fs::metadata(&self.shared.path);
        file.map_or(u64::MAX, |file| file.blocks().saturating_mul(512))
    }
}
