//! Backups: one file, streamed, that says of every part of itself whether it is what was written.
//!
//! ```text
//! preamble   "onced backup" | format | store id | LSN | crc32               44 bytes
//! chunks     length | crc32 | up to 64 KiB of content                       over and over
//! end        length 0 | crc32
//! ```
//!
//! Numbers are little-endian. The crc32 of a chunk runs over the preamble without its own, the chunk's number, its
//! length and its content: a chunk of another backup, one that is missing, or two in the wrong order are found as
//! surely as a bit that flipped. The content is a row after another, cut into chunks wherever one is full:
//!
//! ```text
//! state      next token | records | bodies | mark
//! rows       policies first, then each record, followed by its large bodies: the rows of the store, key and value
//! end        how many of each, and the wrapping sum of the hashes of the records' keys
//! ```
//!
//! Rows are what the store keeps, each with its own version and checksum: a later version reads them as it reads an
//! older store. What begins with another format number is refused by that alone.

mod chunk;
mod error;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use error::BackupError;
pub use read::{Backup, Item, verify};
pub use write::Copied;

use crate::model::record::{Lsn, Token};

/// The format this version writes, and the highest it reads.
pub const BACKUP_FORMAT: u32 = 1;

const MAGIC: [u8; 12] = *b"onced backup";
/// Bytes of the preamble.
const PREAMBLE: usize = MAGIC.len() + 4 + 16 + 8 + 4;
/// Bytes of content in a chunk, at most.
const CHUNK: usize = 64 << 10;
/// Bytes of a key or value, at most: a body at the highest limit that can be configured is half of it.
const MAX_FIELD: usize = 64 << 20;

/// How each part of the content begins.
const STATE: u8 = 1;
const POLICY: u8 = 2;
const RECORD: u8 = 3;
const BODY: u8 = 4;
const END: u8 = 5;

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The store it was taken of.
    pub store_id: [u8; 16],
    /// The recovery point: everything up to this LSN is in it, and nothing after it.
    pub lsn: Lsn,
    /// No token from this one on was granted up to there.
    pub next_token: Token,
    /// What the engine put beside the checkpoint: its clocks.
    pub mark: Vec<u8>,
}

/// How much is in a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Policies of namespaces.
    pub policies: u64,
    /// Records.
    pub records: u64,
    /// Large bodies beside them.
    pub bodies: u64,
    /// The wrapping sum of the hashes of the records' keys.
    pub sum: u64,
}
