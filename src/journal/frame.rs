//! A frame: one group commit, as one buffer that goes to the disk as it is.
//!
//! ```text
//! length u32 | crc32 u32 | first LSN u64 | count u32 | mark 48 bytes | entries: (length u32 | bytes) * count
//! ```
//!
//! Little endian; `length` is that of the whole frame. The crc covers everything but itself, seeded by the
//! store id, the segment's number and the frame's offset. A count of `u32::MAX` is an end frame: no entries,
//! nothing follows in its segment, and its LSN is the one the next segment goes on with.

use super::Mark;
use super::segment::Place;
use crate::model::record::Lsn;
use crate::model::time::{BootTime, Timestamp};

/// Bytes of a frame before its first entry.
pub const HEAD_LEN: usize = 68;

/// Bytes that an entry takes in a frame beyond its own.
pub const ENTRY_HEAD_LEN: usize = 4;

/// The count that says end frame.
const END: u32 = u32::MAX;

/// The most bytes that a frame may have, head included: a quarter of a segment, so that what is lost at the end
/// of a segment is bounded.
#[must_use]
pub const fn max_frame(segment_size: u64) -> u64 {
    segment_size / 4
}

/// One group commit of opaque entries with consecutive LSNs. Without entries it carries its mark alone.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The wire form; the head is filled in when the frame is sealed.
    buf: Vec<u8>,
    first_lsn: Lsn,
    count: u32,
    mark: Mark,
}

impl Frame {
    /// An empty frame; its first entry will have this LSN.
    #[must_use]
    pub fn new(first_lsn: Lsn) -> Frame {
        Frame {
            buf: vec![0; HEAD_LEN],
            first_lsn,
            count: 0,
            mark: Mark::default(),
        }
    }

    /// Empties the frame for the next commit, keeping its buffer.
    pub fn clear(&mut self, first_lsn: Lsn) {
        self.buf.truncate(HEAD_LEN);
        self.first_lsn = first_lsn;
        self.count = 0;
        self.mark = Mark::default();
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: &[u8]) {
        // An entry beyond u32 makes the frame larger than any segment, so append refuses it.
        let len = u32::try_from(entry.len()).unwrap_or(u32::MAX);
        self.buf.extend_from_slice(&len.to_le_bytes());
        self.buf.extend_from_slice(entry);
        self.count = self.count.saturating_add(1);
    }

    /// Sets the clocks that the frame carries.
    pub fn set_mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    /// The clocks that the frame carries.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// The LSN of the first entry.
    #[must_use]
    pub fn first_lsn(&self) -> Lsn {
        self.first_lsn
    }

    /// The LSN after the last entry; that of the first where there is none.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0.saturating_add(u64::from(self.count)))
    }

    /// Its length on disk in bytes, head included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of its entries.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The entries with their LSNs, in order.
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        Entries::of(self.first_lsn, &self.buf)
    }

    /// Fills in the head for this place in the journal, and hands out the wire form.
    pub(super) fn seal(&mut self, place: &Place, offset: u64) -> &[u8] {
        let count = self.count;
        self.seal_as(count, place, offset)
    }

    /// The frame that closes a segment.
    pub(super) fn end(next_lsn: Lsn, mark: Mark, place: &Place, offset: u64) -> Vec<u8> {
        let mut frame = Frame::new(next_lsn);
        frame.set_mark(mark);
        frame.seal_as(END, place, offset);
        frame.buf
    }

    /// The frame whose wire form was read and verified.
    pub(super) fn from_wire(head: &Head, bytes: &[u8]) -> Frame {
        Frame {
            buf: bytes.to_vec(),
            first_lsn: head.first_lsn,
            count: head.count,
            mark: head.mark,
        }
    }

    fn seal_as(&mut self, count: u32, place: &Place, offset: u64) -> &[u8] {
        let length = u32::try_from(self.buf.len()).unwrap_or(u32::MAX);
        let mark = encode_mark(&self.mark);
        let fields: [&[u8]; 5] = [
            &length.to_le_bytes(),
            &[0; 4],
            &self.first_lsn.0.to_le_bytes(),
            &count.to_le_bytes(),
            &mark,
        ];
        put(&mut self.buf, 0, &fields);
        let crc = place.crc(offset, &self.buf);
        put(&mut self.buf, 4, &[&crc.to_le_bytes()]);
        &self.buf
    }
}

/// The entries of a frame with their LSNs.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    lsn: u64,
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    /// The entries in a frame's wire form. What does not divide into entries ends the sequence; a verified
    /// frame divides exactly.
    pub(super) fn of(first_lsn: Lsn, wire: &'a [u8]) -> Entries<'a> {
        Entries {
            lsn: first_lsn.0,
            rest: wire.get(HEAD_LEN..).unwrap_or_default(),
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Lsn, &'a [u8]);

    fn next(&mut self) -> Option<(Lsn, &'a [u8])> {
        let (len, rest) = self.rest.split_first_chunk::<ENTRY_HEAD_LEN>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (entry, rest) = rest.split_at_checked(len)?;
        let lsn = Lsn(self.lsn);
        self.lsn = self.lsn.saturating_add(1);
        self.rest = rest;
        Some((lsn, entry))
    }
}

/// A frame's head as it was read: nothing in it is to be believed before [`verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: u32,
    pub(super) crc: u32,
    pub(super) first_lsn: Lsn,
    pub(super) count: u32,
    pub(super) mark: Mark,
}

impl Head {
    /// Reads the head at the start of `bytes`; `None` where they are too short.
    pub(super) fn decode(bytes: &[u8]) -> Option<Head> {
        Some(Head {
            length: u32_at(bytes, 0)?,
            crc: u32_at(bytes, 4)?,
            first_lsn: Lsn(u64_at(bytes, 8)?),
            count: u32_at(bytes, 16)?,
            mark: decode_mark(bytes.get(20..HEAD_LEN)?)?,
        })
    }

    /// Whether a frame with this head can be there at all, with `room` bytes left in a segment of this size.
    pub(super) fn plausible(&self, room: u64, segment_size: u64) -> bool {
        let length = u64::from(self.length);
        let least = if self.is_end() {
            HEAD_LEN as u64
        } else {
            HEAD_LEN as u64 + u64::from(self.count) * ENTRY_HEAD_LEN as u64
        };
        let most = if self.is_end() {
            least
        } else {
            max_frame(segment_size).min(room)
        };
        least <= length && length <= most && length <= room
    }

    /// Whether it is that of an end frame.
    pub(super) fn is_end(&self) -> bool {
        self.count == END
    }

    /// The LSN after the last entry.
    pub(super) fn next_lsn(&self) -> Lsn {
        let count = if self.is_end() { 0 } else { self.count };
        Lsn(self.first_lsn.0.saturating_add(u64::from(count)))
    }
}

/// Whether `bytes` are a whole frame that was written at this place: the crc is right, and the entries fill the
/// frame exactly.
pub(super) fn verify(head: &Head, bytes: &[u8], place: &Place, offset: u64) -> bool {
    if place.crc(offset, bytes) != head.crc {
        return false;
    }
    if head.is_end() {
        return bytes.len() == HEAD_LEN;
    }
    let mut entries = Entries::of(head.first_lsn, bytes);
    let count = entries.by_ref().count();
    entries.rest.is_empty() && u32::try_from(count) == Ok(head.count)
}

/// A mark's bytes on disk, in frames and in segment headers.
pub(super) fn encode_mark(mark: &Mark) -> [u8; MARK_LEN] {
    let mut bytes = [0; MARK_LEN];
    let fields: [&[u8]; 5] = [
        &mark.time.as_millis().to_le_bytes(),
        &mark.boot.as_millis().to_le_bytes(),
        &mark.wall_ms.to_le_bytes(),
        &mark.boot_clock_ms.to_le_bytes(),
        &mark.boot_id,
    ];
    put(&mut bytes, 0, &fields);
    bytes
}

/// The mark in `bytes`; `None` where they are too short.
pub(super) fn decode_mark(bytes: &[u8]) -> Option<Mark> {
    Some(Mark {
        time: Timestamp::from_millis(u64_at(bytes, 0)?),
        boot: BootTime::from_millis(u64_at(bytes, 8)?),
        wall_ms: u64_at(bytes, 16)?,
        boot_clock_ms: u64_at(bytes, 24)?,
        boot_id: bytes.get(32..MARK_LEN)?.try_into().ok()?,
    })
}

/// Bytes of an encoded mark.
pub(super) const MARK_LEN: usize = 48;

/// Writes fields one after the other from `at` on; what would not fit is left out.
pub(super) fn put(bytes: &mut [u8], at: usize, fields: &[&[u8]]) {
    let places = bytes.iter_mut().skip(at);
    for (place, byte) in places.zip(fields.iter().copied().flatten()) {
        *place = *byte;
    }
}

/// The number at an offset; `None` where the bytes are too short.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The number at an offset; `None` where the bytes are too short.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            time: Timestamp::from_millis(0x0102),
            boot: BootTime::from_millis(0x0304),
            wall_ms: 0x0506,
            boot_clock_ms: 0x0708,
            boot_id: *b"boot-id-16-bytes",
        }
    }

    fn frame(entries: &[&[u8]]) -> Frame {
        let mut frame = Frame::new(Lsn(7));
        frame.set_mark(mark());
        for entry in entries {
            frame.push(entry);
        }
        frame
    }

    fn verifies(bytes: &[u8], place: &Place, offset: u64) -> bool {
        Head::decode(bytes).is_some_and(|head| {
            head.plausible(bytes.len() as u64, 1 << 20) && verify(&head, bytes, place, offset)
        })
    }

    #[test]
    fn the_bytes_of_a_frame_are_these() {
        let place = Place::new(&[9; 16], 3);
        let mut frame = frame(&[b"ab", b""]);
        let wire = frame.seal(&place, 4096).to_vec();
        let expected: Vec<u8> = [
            &[78, 0, 0, 0][..],
            &GOLDEN_CRC.to_le_bytes(),
            &[7, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0],
            &[0x02, 0x01, 0, 0, 0, 0, 0, 0],
            &[0x04, 0x03, 0, 0, 0, 0, 0, 0],
            &[0x06, 0x05, 0, 0, 0, 0, 0, 0],
            &[0x08, 0x07, 0, 0, 0, 0, 0, 0],
            b"boot-id-16-bytes",
            &[2, 0, 0, 0, b'a', b'b'],
            &[0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(wire, expected);
        assert_eq!(frame.len(), 78);
        // The crc by its definition: store id, segment number, offset, then the frame without the crc.
        let mut covered = [&[9; 16][..], &3u64.to_le_bytes(), &4096u64.to_le_bytes()].concat();
        covered.extend_from_slice(&wire[..4]);
        covered.extend_from_slice(&wire[8..]);
        assert_eq!(crc32fast::hash(&covered), GOLDEN_CRC);
    }

    /// Changes only with the format version.
    const GOLDEN_CRC: u32 = 0xEF79_6968;

    #[test]
    fn a_frame_reads_back_as_it_was_made() {
        let place = Place::new(&[1; 16], 1);
        let mut made = frame(&[b"one", b"", &[0xFF; 300]]);
        let wire = made.seal(&place, 5000).to_vec();
        let head = Head::decode(&wire).unwrap();
        assert!(verifies(&wire, &place, 5000));
        let read = Frame::from_wire(&head, &wire);
        assert_eq!(read.mark(), mark());
        assert_eq!(
            (read.first_lsn(), read.next_lsn(), read.count()),
            (Lsn(7), Lsn(10), 3)
        );
        let entries: Vec<_> = read
            .entries()
            .map(|(lsn, entry)| (lsn.0, entry.len()))
            .collect();
        assert_eq!(entries, [(7, 3), (8, 0), (9, 300)]);
        assert!(made.entries().eq(read.entries()));
    }

    #[test]
    fn a_cleared_frame_is_as_new() {
        let place = Place::new(&[1; 16], 1);
        let mut reused = frame(&[b"one", b"two"]);
        reused.seal(&place, 4096);
        reused.clear(Lsn(7));
        assert!(reused.is_empty());
        reused.push(b"x");
        let mut fresh = Frame::new(Lsn(7));
        fresh.push(b"x");
        assert_eq!(reused.seal(&place, 4096), fresh.seal(&place, 4096));
    }

    #[test]
    fn a_frame_verifies_only_whole_unchanged_and_in_its_place() {
        let place = Place::new(&[1; 16], 1);
        let wire = frame(&[b"one", b"two"]).seal(&place, 4096).to_vec();
        assert!(verifies(&wire, &place, 4096));
        assert!(!verifies(&wire, &place, 4097), "another offset");
        assert!(
            !verifies(&wire, &Place::new(&[1; 16], 2), 4096),
            "another segment"
        );
        assert!(
            !verifies(&wire, &Place::new(&[2; 16], 1), 4096),
            "another store"
        );
        for len in 0..wire.len() {
            assert!(!verifies(&wire[..len], &place, 4096), "cut at {len}");
        }
        for bit in 0..wire.len() * 8 {
            let mut flipped = wire.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!verifies(&flipped, &place, 4096), "bit {bit}");
        }
    }

    #[test]
    fn an_end_frame_is_told_apart_and_has_no_entries() {
        let place = Place::new(&[1; 16], 1);
        let wire = Frame::end(Lsn(12), mark(), &place, 9000);
        let head = Head::decode(&wire).unwrap();
        assert!(head.is_end() && verifies(&wire, &place, 9000));
        assert_eq!((wire.len(), head.next_lsn()), (HEAD_LEN, Lsn(12)));
        assert!(!Head { length: 69, ..head }.plausible(1000, 1 << 20));
    }

    #[test]
    fn a_head_of_any_bytes_is_implausible_where_the_frame_could_not_be() {
        let head = Head {
            length: 100,
            crc: 0,
            first_lsn: Lsn(1),
            count: 2,
            mark: Mark::default(),
        };
        let table = [
            (head, 100, 1 << 20, true),
            (head, 99, 1 << 20, false),
            (head, 100, 396, false),
            (Head { length: 75, ..head }, 100, 1 << 20, false),
            (Head { length: 76, ..head }, 100, 1 << 20, true),
            (
                Head {
                    length: 0,
                    count: 0,
                    ..head
                },
                100,
                1 << 20,
                false,
            ),
            (
                Head {
                    length: u32::MAX,
                    count: u32::MAX - 1,
                    ..head
                },
                u64::MAX,
                u64::MAX,
                false,
            ),
        ];
        for (head, room, segment_size, expected) in table {
            assert_eq!(
                head.plausible(room, segment_size),
                expected,
                "{head:?} {room}"
            );
        }
    }
}
