//! Reads the frames of one segment, one after the other, believing none before it verifies.

use super::disk::DiskFile;
use super::frame::{HEAD_LEN, Head, max_frame, u32_at, u64_at, verify};
use super::segment::{Place, StoreId};
use crate::model::record::Lsn;
use crc32fast::Hasher;
use std::io;
use std::sync::Arc;

/// What is read at once: large enough that small frames cost no call each.
const CHUNK: u64 = 256 * 1024;

/// A position in a segment. Memory: one chunk, or one frame where that is larger.
pub(super) struct Cursor {
    file: Arc<dyn DiskFile>,
    place: Place,
    size: u64,
    offset: u64,
    window: Window,
    /// Where the frame of the last step is.
    frame: (u64, usize),
}

/// What is at a position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A frame that verifies; its bytes are [`Cursor::frame`].
    Frame(Head),
    /// The end frame.
    End(Head),
    /// Nothing that verifies. The position stays.
    Bad,
}

impl Cursor {
    pub(super) fn new(
        file: Arc<dyn DiskFile>,
        store_id: &StoreId,
        number: u64,
        size: u64,
        offset: u64,
    ) -> Cursor {
        let place = Place::new(store_id, number);
        let window = Window {
            start: 0,
            data: Vec::new(),
        };
        Cursor {
            file,
            place,
            size,
            offset,
            window,
            frame: (offset, 0),
        }
    }

    /// Where the next frame would be.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads what is at the position, and goes past it if it verifies.
    pub(super) fn step(&mut self) -> io::Result<Step> {
        let offset = self.offset;
        let room = self.size.saturating_sub(offset);
        let bytes = self
            .window
            .bytes(&*self.file, self.size, offset, HEAD_LEN)?;
        let Some(head) = Head::decode(bytes).filter(|head| head.plausible(room, self.size)) else {
            return Ok(Step::Bad);
        };
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        let bytes = self.window.bytes(&*self.file, self.size, offset, length)?;
        if !verify(&head, bytes, &self.place, offset) {
            return Ok(Step::Bad);
        }
        self.frame = (offset, length);
        self.offset = offset.saturating_add(u64::from(head.length));
        Ok(if head.is_end() {
            Step::End(head)
        } else {
            Step::Frame(head)
        })
    }

    /// The wire form of the frame that the last step found.
    pub(super) fn frame(&self) -> &[u8] {
        self.window
            .held(self.frame.0, self.frame.1)
            .unwrap_or_default()
    }

    /// Forgets what was read ahead: more may have been written since.
    pub(super) fn forget(&mut self) {
        self.window.data.clear();
        self.frame.1 = 0;
    }

    /// How many bytes at the position are a frame with this LSN that was begun and does not verify; 0 if what
    /// is there does not look like one.
    pub(super) fn torn_len(&mut self, expected: Lsn) -> io::Result<u64> {
        let room = self.size.saturating_sub(self.offset);
        let bytes = self
            .window
            .bytes(&*self.file, self.size, self.offset, HEAD_LEN)?;
        Ok(Head::decode(bytes)
            .filter(|head| head.first_lsn == expected && head.plausible(room, self.size))
            .map_or(0, |head| u64::from(head.length)))
    }

    /// The offset of the first frame behind the position that verifies, with an LSN that could follow there.
    ///
    /// Linear in what is left of the segment, whatever bytes are there: a place is looked at closer only if a
    /// frame could begin in it, and then its checksum costs two blocks and not the length it claims.
    pub(super) fn later_frame(&self, expected: Lsn) -> io::Result<Option<u64>> {
        let last = expected.0.saturating_add(self.size / 4);
        let shortest = HEAD_LEN as u64;
        let longest = max_frame(self.size);
        let mut sums: Option<Sums> = None;
        let mut start = self.offset.saturating_add(1);
        let mut chunk = Vec::new();
        while start.saturating_add(shortest) <= self.size {
            // Chunks overlap by a head, so that none is missed between two.
            let len = (self.size - start).min(CHUNK + shortest);
            chunk.resize(usize::try_from(len).unwrap_or(0), 0);
            self.file.read_at(start, &mut chunk)?;
            // What was never written is most of what there is, and quickly passed.
            let written = chunk.iter().any(|byte| *byte != 0);
            let places = if written {
                chunk.windows(HEAD_LEN)
            } else {
                [].windows(HEAD_LEN)
            };
            for (offset, bytes) in (start..).zip(places) {
                let length = u64::from(u32_at(bytes, 0).unwrap_or(0));
                if length < shortest || length > longest {
                    continue;
                }
                let lsn = u64_at(bytes, 8).unwrap_or(0);
                if lsn < expected.0 || lsn > last {
                    continue;
                }
                let room = self.size - offset;
                let Some(head) = Head::decode(bytes).filter(|head| head.plausible(room, self.size))
                else {
                    continue;
                };
                let sums = match &mut sums {
                    Some(sums) => sums,
                    none => none.insert(Sums::of(&*self.file, self.offset, self.size)?),
                };
                let rest = sums.between(&*self.file, offset + 8, offset + length)?;
                if self.place.crc_of_parts(offset, bytes, rest) == head.crc {
                    return Ok(Some(offset));
                }
            }
            start = start.saturating_add(CHUNK);
        }
        Ok(None)
    }
}

/// A part of a file, held in memory.
struct Window {
    start: u64,
    data: Vec<u8>,
}

impl Window {
    /// The bytes at an offset, read if they are not held; none where they would go beyond `limit`.
    fn bytes(
        &mut self,
        file: &dyn DiskFile,
        limit: u64,
        offset: u64,
        len: usize,
    ) -> io::Result<&[u8]> {
        let left = limit.saturating_sub(offset);
        if left < len as u64 {
            return Ok(&[]);
        }
        if self.held(offset, len).is_none() {
            let ahead = left.min(CHUNK.max(len as u64));
            self.data.resize(usize::try_from(ahead).unwrap_or(len), 0);
            self.start = offset;
            if let Err(error) = file.read_at(offset, &mut self.data) {
                self.data.clear();
                return Err(error);
            }
        }
        Ok(self.held(offset, len).unwrap_or_default())
    }

    fn held(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.data.get(from..from.checked_add(len)?)
    }
}

/// The crc of a file up to each of its blocks: from two of them follows that of any part in between.
struct Sums {
    base: u64,
    upto: Vec<u32>,
}

const BLOCK: usize = 256;

impl Sums {
    fn of(file: &dyn DiskFile, base: u64, end: u64) -> io::Result<Sums> {
        let mut hasher = Hasher::new();
        let mut upto = vec![0];
        let mut chunk = Vec::new();
        let mut at = base;
        while at < end {
            let len = (end - at).min(CHUNK);
            chunk.resize(usize::try_from(len).unwrap_or(0), 0);
            file.read_at(at, &mut chunk)?;
            // What is left behind the last whole block is summed when it is asked for.
            for block in chunk.chunks_exact(BLOCK) {
                hasher.update(block);
                upto.push(hasher.clone().finalize());
            }
            at += len;
        }
        Ok(Sums { base, upto })
    }

    /// The crc of the bytes from one offset to another.
    fn between(&self, file: &dyn DiskFile, from: u64, to: u64) -> io::Result<Hasher> {
        // crc(a b) is crc(a), moved on by the length of b, xor crc(b).
        let len = to.saturating_sub(from);
        let mut moved = Hasher::new_with_initial_len(self.upto(file, from)?, 0);
        moved.combine(&Hasher::new_with_initial_len(0, len));
        let crc = moved.finalize() ^ self.upto(file, to)?;
        Ok(Hasher::new_with_initial_len(crc, len))
    }

    fn upto(&self, file: &dyn DiskFile, offset: u64) -> io::Result<u32> {
        let ahead = offset.saturating_sub(self.base);
        let blocks = ahead / BLOCK as u64;
        let known = usize::try_from(blocks)
            .ok()
            .and_then(|blocks| self.upto.get(blocks));
        let mut hasher =
            Hasher::new_with_initial_len(known.copied().unwrap_or(0), blocks * BLOCK as u64);
        let mut block = [0; BLOCK];
        let rest = usize::try_from(ahead % BLOCK as u64).unwrap_or(0);
        if let Some(part) = block.get_mut(..rest) {
            file.read_at(offset - rest as u64, part)?;
            hasher.update(part);
        }
        Ok(hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::disk::Disk;
    use crate::journal::frame::Frame;
    use crate::journal::sim::{Rng, SimDisk, seed};

    const STORE: StoreId = [3; 16];
    const SIZE: u64 = 65_536;

    /// A cursor at 4096 in a segment of random bytes, with one frame of LSN `lsn` at `offset`.
    fn noise_with_frame(rng: &mut Rng, offset: u64, lsn: u64) -> Cursor {
        let disk = SimDisk::new(1 << 20);
        let file = disk.create("f", SIZE).unwrap();
        let mut noise: Vec<u8> = (0..SIZE).map(|_| rng.below(256) as u8).collect();
        // Half of it looks like heads: plausible lengths and LSNs, as hostile entries could have.
        for at in (4096..40_000).step_by(24) {
            noise[at..at + 4].copy_from_slice(&(100 + rng.below(9000) as u32).to_le_bytes());
            noise[at + 8..at + 16].copy_from_slice(&(50 + rng.below(9)).to_le_bytes());
            noise[at + 16..at + 20].copy_from_slice(&1u32.to_le_bytes());
        }
        file.write_at(0, &noise).unwrap();
        let mut frame = Frame::new(Lsn(lsn));
        frame.push(&vec![0xAB; rng.below(9000) as usize]);
        file.write_at(offset, frame.seal(&Place::new(&STORE, 5), offset))
            .unwrap();
        Cursor::new(file, &STORE, 5, SIZE, 4096)
    }

    #[test]
    fn a_later_frame_is_found_wherever_it_begins_and_only_one_that_could_follow() {
        let seed = seed();
        let mut rng = Rng::new(seed);
        for _ in 0..50 {
            let offset = 4097 + rng.below(SIZE - 4097 - 9100);
            let found = noise_with_frame(&mut rng, offset, 52)
                .later_frame(Lsn(50))
                .unwrap();
            assert_eq!(found, Some(offset), "seed {seed}");
            let older = noise_with_frame(&mut rng, offset, 49)
                .later_frame(Lsn(50))
                .unwrap();
            assert_eq!(older, None, "seed {seed}");
        }
    }

    #[test]
    fn the_crc_of_a_part_follows_from_the_sums() {
        let seed = seed();
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(1 << 20);
        let file = disk.create("f", 20_000).unwrap();
        let bytes: Vec<u8> = (0..20_000).map(|_| rng.below(256) as u8).collect();
        file.write_at(0, &bytes).unwrap();
        let sums = Sums::of(&*file, 1000, 20_000).unwrap();
        for _ in 0..200 {
            let from = 1000 + rng.below(19_000);
            let to = from + rng.below(20_000 - from + 1);
            let crc = sums.between(&*file, from, to).unwrap().finalize();
            let expected = crc32fast::hash(&bytes[from as usize..to as usize]);
            assert_eq!(crc, expected, "{from}..{to}, seed {seed}");
        }
    }
}
