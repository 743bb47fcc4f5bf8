//! Segments: their names and their headers.
//!
//! The header is the first 4096 bytes of a segment, little endian:
//!
//! ```text
//! 0 magic 8 | 8 version u32 | 12 zero u32 | 16 store id 16 | 32 number u64 | 40 size u64
//! 48 first LSN u64 | 56 LSN before u64 | 64 mark before 48 | 112 zeros | 4092 crc32 of all before
//! ```
//!
//! "LSN before" and "mark before" tell where the journal ended when the segment was begun. The first LSN is the
//! next one, or above it where a start left LSNs out. So each header says how the segment before it ended,
//! with or without an end frame in it.
//!
//! A later format gets a new [`VERSION`]; this release reads version 1 alone and refuses others by number.

use super::Mark;
use super::disk::{Disk, DiskFile};
use super::error::{Cause, JournalError};
use super::frame::{self, MARK_LEN, u32_at, u64_at};
use crate::model::record::Lsn;
use std::sync::Arc;

/// What tells one store's files from another's: 16 bytes drawn when the store is made.
pub type StoreId = [u8; 16];

/// Bytes of a segment before its first frame.
pub const HEADER_LEN: usize = 4096;

/// The format version of segments and of the `highest` file.
pub const VERSION: u32 = 1;

/// The smallest segment that works at all; real ones are larger.
pub const MIN_SEGMENT_SIZE: u64 = 16 * 1024;

/// The largest segment: its frames hold the largest payload and result.
pub const MAX_SEGMENT_SIZE: u64 = 512 * 1024 * 1024;

/// What a segment has at most where frames need no more.
const USUAL_SEGMENT_SIZE: u64 = 64 * 1024 * 1024;

/// The usual size of segments on a file system of so many bytes: a 32nd of it, at most 64 MiB, in whole pages.
#[must_use]
pub const fn segment_size(file_system: u64) -> u64 {
    let share = file_system / 32 / 4096 * 4096;
    if share > USUAL_SEGMENT_SIZE {
        USUAL_SEGMENT_SIZE
    } else if share < MIN_SEGMENT_SIZE {
        MIN_SEGMENT_SIZE
    } else {
        share
    }
}

/// The name of a segment's file.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:016}.seg")
}

/// The number in a segment's file name; `None` for other files.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    let known = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if known { digits.parse().ok() } else { None }
}

/// The name of a spare: a whole preallocated file that is not a segment yet.
pub(super) fn spare_name(number: u64) -> String {
    format!("spare-{number:08}.tmp")
}

/// The name under which a spare is allocated. Renamed when it is whole, so that what a crash leaves half
/// allocated is never taken for a spare.
pub(super) fn unfinished_name(number: u64) -> String {
    format!("alloc-{number:08}.tmp")
}

/// The number in the name of a spare; `None` for other files.
pub(super) fn spare_number_of(name: &str) -> Option<u64> {
    name.strip_prefix("spare-")?
        .strip_suffix(".tmp")?
        .parse()
        .ok()
}

/// Whether a file is what a crash left of an allocation.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.starts_with("alloc-") && name.ends_with(".tmp")
}

/// The segment that a frame is in, as far as its checksum depends on it.
#[derive(Clone)]
pub(super) struct Place(crc32fast::Hasher);

impl Place {
    pub(super) fn new(store_id: &StoreId, number: u64) -> Place {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(store_id);
        hasher.update(&number.to_le_bytes());
        Place(hasher)
    }

    /// The crc of a frame's bytes at this offset, over all but the crc itself (bytes 4 to 7).
    pub(super) fn crc(&self, offset: u64, frame: &[u8]) -> u32 {
        let mut hasher = self.head(offset, frame);
        hasher.update(frame.get(8..).unwrap_or_default());
        hasher.finalize()
    }

    /// The same, with the crc of the bytes from the eighth on already known.
    pub(super) fn crc_of_parts(&self, offset: u64, frame: &[u8], rest: crc32fast::Hasher) -> u32 {
        let mut hasher = self.head(offset, frame);
        hasher.combine(&rest);
        hasher.finalize()
    }

    fn head(&self, offset: u64, frame: &[u8]) -> crc32fast::Hasher {
        let mut hasher = self.0.clone();
        hasher.update(&offset.to_le_bytes());
        hasher.update(frame.get(..4).unwrap_or_default());
        hasher
    }
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) store_id: StoreId,
    pub(super) number: u64,
    /// Bytes of the whole file.
    pub(super) size: u64,
    pub(super) first_lsn: Lsn,
    /// Where the journal ended when the segment was begun.
    pub(super) lsn_before: Lsn,
    pub(super) mark_before: Mark,
}

const MAGIC: [u8; 8] = *b"ONCEDSEG";
const CRC_AT: usize = HEADER_LEN - 4;

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        let mark = frame::encode_mark(&self.mark_before);
        let fields: [&[u8]; 9] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &[0; 4],
            &self.store_id,
            &self.number.to_le_bytes(),
            &self.size.to_le_bytes(),
            &self.first_lsn.0.to_le_bytes(),
            &self.lsn_before.0.to_le_bytes(),
            &mark,
        ];
        frame::put(&mut bytes, 0, &fields);
        let crc = crc32fast::hash(bytes.get(..CRC_AT).unwrap_or_default());
        frame::put(&mut bytes, CRC_AT, &[&crc.to_le_bytes()]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Header, Undecodable> {
        check(bytes, &MAGIC, CRC_AT)?;
        (|| {
            Some(Header {
                store_id: *bytes.get(16..)?.first_chunk()?,
                number: u64_at(bytes, 32)?,
                size: u64_at(bytes, 40)?,
                first_lsn: Lsn(u64_at(bytes, 48)?),
                lsn_before: Lsn(u64_at(bytes, 56)?),
                mark_before: frame::decode_mark(bytes.get(64..64 + MARK_LEN)?)?,
            })
        })()
        .ok_or(Undecodable::Broken("it is too short"))
    }
}

/// Why bytes are not what they should be.
pub(super) enum Undecodable {
    Newer(u32),
    Broken(&'static str),
}

impl Undecodable {
    fn cause(self, drops: String) -> Cause {
        match self {
            Undecodable::Newer(version) => Cause::Newer { version },
            Undecodable::Broken(reason) => Cause::Damage {
                offset: 0,
                reason: reason.into(),
                drops,
            },
        }
    }
}

/// Magic, version and crc: what headers and slots have in common.
pub(super) fn check(bytes: &[u8], magic: &[u8; 8], crc_at: usize) -> Result<(), Undecodable> {
    if bytes.get(..8) != Some(magic) {
        return Err(Undecodable::Broken(
            "it does not begin as a file of the journal",
        ));
    }
    match u32_at(bytes, 8) {
        Some(VERSION) => {}
        // A later format may have its checksum elsewhere, so the version is believed before that.
        Some(version) if version > VERSION => return Err(Undecodable::Newer(version)),
        _ => return Err(Undecodable::Broken("its format version was never used")),
    }
    if bytes.get(..crc_at).map(crc32fast::hash) != u32_at(bytes, crc_at) {
        return Err(Undecodable::Broken("its checksum is wrong"));
    }
    Ok(())
}

/// Opens a segment, and reads and checks its header. `store_id` of `None` takes any store's.
pub(super) fn open(
    disk: &dyn Disk,
    number: u64,
    store_id: Option<&StoreId>,
) -> Result<(Header, Arc<dyn DiskFile>), JournalError> {
    const OPERATION: &str = "read the header of segment";
    let name = file_name(number);
    let path = disk.path().join(&name);
    let failed = |cause| JournalError::new(OPERATION, path.clone(), cause);
    let io = |error| JournalError::io(OPERATION, path.clone(), error);
    let damaged = |offset, reason: String| {
        failed(Cause::Damage {
            offset,
            reason,
            drops: drops_from_segment(number),
        })
    };
    let file = disk.open(&name).map_err(io)?;
    let len = file.len().map_err(io)?;
    if len < HEADER_LEN as u64 {
        return Err(damaged(len, "it is shorter than a header".into()));
    }
    let mut bytes = vec![0; HEADER_LEN];
    file.read_at(0, &mut bytes).map_err(io)?;
    let header =
        Header::decode(&bytes).map_err(|error| failed(error.cause(drops_from_segment(number))))?;
    if store_id.is_some_and(|store_id| *store_id != header.store_id) {
        return Err(failed(Cause::Foreign));
    }
    if header.number != number {
        return Err(damaged(
            32,
            format!("it is segment {} under another name", header.number),
        ));
    }
    if header.size != len {
        return Err(damaged(
            len,
            format!("its length is {len} bytes and should be {}", header.size),
        ));
    }
    if !(MIN_SEGMENT_SIZE..=MAX_SEGMENT_SIZE).contains(&len) {
        return Err(damaged(40, format!("a segment never has {len} bytes")));
    }
    if header.first_lsn <= header.lsn_before {
        return Err(damaged(
            48,
            "its first LSN is not above the one before".into(),
        ));
    }
    Ok((header, file))
}

/// What repair drops where a whole segment cannot be used.
pub(super) fn drops_from_segment(number: u64) -> String {
    format!("every entry after segment {}", number.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::{BootTime, Timestamp};

    fn header() -> Header {
        Header {
            store_id: *b"sixteen-byte-id!",
            number: 3,
            size: 0x0010_0000,
            first_lsn: Lsn(0x0101),
            lsn_before: Lsn(0x0100),
            mark_before: Mark {
                time: Timestamp::from_millis(1),
                boot: BootTime::from_millis(2),
                wall_ms: 3,
                boot_clock_ms: 4,
                boot_id: [5; 16],
            },
        }
    }

    #[test]
    fn the_bytes_of_a_header_are_these() {
        let bytes = header().encode();
        let expected: Vec<u8> = [
            &b"ONCEDSEG"[..],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            b"sixteen-byte-id!",
            &[3, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0x10, 0, 0, 0, 0, 0],
            &[1, 1, 0, 0, 0, 0, 0, 0],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[3, 0, 0, 0, 0, 0, 0, 0],
            &[4, 0, 0, 0, 0, 0, 0, 0],
            &[5; 16],
        ]
        .concat();
        assert_eq!(&bytes[..112], expected);
        assert!(bytes[112..4092].iter().all(|byte| *byte == 0));
        assert_eq!(&bytes[4092..], GOLDEN_CRC.to_le_bytes());
        assert_eq!(bytes.len(), HEADER_LEN);
        assert!(Header::decode(&bytes).ok() == Some(header()));
    }

    /// Changes only with the format version.
    const GOLDEN_CRC: u32 = 0x39B7_5FA2;

    #[test]
    fn a_header_with_any_bit_flipped_is_refused() {
        let bytes = header().encode();
        for bit in (0..112 * 8).chain(CRC_AT * 8..HEADER_LEN * 8) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_later_format_is_refused_by_its_number_whatever_its_checksum() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        assert!(matches!(Header::decode(&bytes), Err(Undecodable::Newer(2))));
        bytes[8] = 0;
        assert!(matches!(
            Header::decode(&bytes),
            Err(Undecodable::Broken(_))
        ));
    }

    #[test]
    fn file_names_are_these_and_no_others() {
        assert_eq!(file_name(1), "0000000000000001.seg");
        assert_eq!(number_of("0000000000000001.seg"), Some(1));
        for name in [
            "1.seg",
            "000000000000000a.seg",
            "+000000000000001.seg",
            "0000000000000001",
        ] {
            assert_eq!(number_of(name), None, "{name}");
        }
        assert_eq!(spare_number_of(&spare_name(12)), Some(12));
        assert_eq!(spare_number_of("spare-x.tmp"), None);
        assert!(is_unfinished(&unfinished_name(3)) && !is_unfinished(&spare_name(3)));
    }

    #[test]
    fn a_segment_is_a_32nd_of_the_file_system_within_bounds() {
        let table = [
            (u64::MAX, 64 << 20),
            (2 << 30, 64 << 20),
            (1 << 30, 32 << 20),
            ((1 << 30) + 4095 * 32, 32 << 20),
            (64 << 20, 2 << 20),
            (0, MIN_SEGMENT_SIZE),
        ];
        for (file_system, expected) in table {
            assert_eq!(segment_size(file_system), expected, "{file_system}");
        }
        // (bytes of a frame, of the file system) -> of a segment
        let table = [
            (2 << 20, 64 << 30, 64 << 20),
            (16 << 20, 64 << 30, 64 << 20),
            ((16 << 20) + 1, 64 << 30, 65 << 20),
            ((64 << 20) + (64 << 10), 64 << 30, 257 << 20),
            ((64 << 20) + (64 << 10), 4 << 30, 64 << 20),
            (3 << 20, 256 << 20, 12 << 20),
            (1 << 40, u64::MAX, 64 << 20),
            (u64::MAX, u64::MAX, 64 << 20),
        ];
        for (frame, total, expected) in table {
            let options = crate::journal::writer::Options::for_file_system(total);
            let size = options.holding(frame, total).segment_size;
            assert_eq!(size, expected, "{frame} on {total}");
        }
    }
}
