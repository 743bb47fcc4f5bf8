//! The journal: what makes a decision durable, and the audit trail of all of them.
//!
//! A *frame* is one group commit of opaque entries, numbered by [`Lsn`](crate::model::record::Lsn). Frames are
//! appended to a *segment*, a preallocated file; a full segment is closed by an end frame and the next one is
//! begun in a *spare*. What the journal keeps to:
//!
//! * A frame is durable when [`writer::Writer::append`] returns, and is written only after the one before it is.
//! * Every checksum is seeded by store, segment number and place, so nothing left over in a recycled segment
//!   ever verifies, nor does a frame that was copied into another's entries.
//! * A segment number is used once. The highest ever begun is recorded, so a lost segment is noticed.
//! * Nobody appends to an old tail: every start begins a fresh segment, whose header says where the journal ended. On a
//!   disk without space for one it goes on in the newest, once what lies behind the last frame is zeros on the disk.
//! * Nothing needs space that is not allocated yet, except making a spare.
//!
//! In reading order: [`disk`] is all that the journal asks of a file system, [`frame`] and [`segment`] are the
//! bytes, [`recovery`] reads them at start and, as [`create`] does for a new store, hands out the [`writer`], with the [`prepare::Preparer`] that
//! makes its spares and the [`room::Room`] that says how much fits; [`read`] is the audit trail. [`inspect`] reads
//! all of it and says what is wrong, [`repair`] drops that.
//!
//! Deliberately absent: threads (the engine has them), clocks (marks come in with the frames), and the meaning
//! of entries.

pub mod create;
pub mod disk;
pub mod error;
pub mod frame;
pub mod inspect;
pub mod prepare;
pub mod read;
pub mod recovery;
pub mod repair;
pub mod room;
pub mod segment;
pub mod writer;

mod cursor;
mod highest;
mod shared;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use crate::model::time::{BootTime, Timestamp};

/// The clocks as they stood when a frame was made: what a restart continues time from (SPEC 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mark {
    /// Engine time.
    pub time: Timestamp,
    /// The store's boot line, continued over restarts.
    pub boot: BootTime,
    /// The wall clock, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// The system's boot clock, in milliseconds, as read: comparable only under the same `boot_id`.
    pub boot_clock_ms: u64,
    /// The system's boot id.
    pub boot_id: [u8; 16],
}
