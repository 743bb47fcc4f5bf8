//! Where checkpointed records lie: one redb database, tables by the time records expire.
//!
//! The journal makes decisions durable, the store receives the same records later, sorted, in large
//! transactions. It is synchronous, has no threads of its own and asks no clock. [`Store`] is the one writer;
//! a [`Reader`] can be cloned to wherever records are looked up.
//!
//! * A record is in exactly one table; which one, `layout` says.
//! * Every value carries a crc32 of key and value, checked at every read; `meta` keeps counts and sums, which
//!   the scan at every start recomputes. Damage is refused, never answered around.
//! * A full disk is a state: [`StoreError::Full`], then [`Store::reopen`].
//!
//! Deliberately absent: any knowledge of what a record means. Expiry is the caller's question; the sweep only
//! drops tables in which nothing can be alive.

mod ahead;
mod backend;
mod backup;
mod bodies;
mod check;
mod checkpoint;
mod codec;
mod compact;
mod entry;
mod entry_rows;
mod error;
mod filter;
mod filters;
mod layout;
mod memtable;
mod open;
mod read;
mod repair;
mod rows;
mod scan;
mod shared;
mod space;
mod sweep;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

pub use ahead::{Gone, Removal};
pub use backend::Source;
pub use backup::{
    BACKUP_FORMAT, Backup, BackupError, Contents, Copied, Head, Item, verify as verify_backup,
};
pub use check::{Facts, Finding, Report, Wanted, check, check_backend, lacking};
pub use checkpoint::{Checkpoint, Committed};
pub use codec::{CodecError, Part, decode_entry, encode_entry, encode_put, encode_record};
pub use compact::{CompactError, Compacted, compact, remove_leftover};
pub use entry::{Change, Decision, Entry, OUTCOMES, VERBS};
pub use error::StoreError;
pub use filter::{FilterStats, KeyHasher};
pub use memtable::{Memtable, OwnedRow, Row, Write};
pub use open::{FORMAT, Opened, Options, Store};
pub use read::{Bodies, Counts, Page, Reader, Rows, Scan, Several, Which};
pub use repair::{Fix, repair, repair_backend};
pub use sweep::Swept;

#[cfg(test)]
pub(crate) use filter::without_filters;

/// What a simulation implements to stand in for the disk.
pub use redb::StorageBackend;
