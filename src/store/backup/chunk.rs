//! The outer layer of a backup: content in chunks, each with a checksum that holds it to its place.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use crc32fast::Hasher;

use super::{BACKUP_FORMAT, BackupError, CHUNK, MAGIC, PREAMBLE};
use crate::model::record::Lsn;

/// What goes before a chunk's content.
const CHUNK_HEAD: usize = 8;

/// The checksum of each chunk begins with the preamble and the chunk's number.
#[derive(Clone)]
struct Seal {
    preamble: Hasher,
    number: u64,
}

impl Seal {
    /// Of a preamble without its own checksum: together with that, all preambles have the same.
    fn of(preamble: &[u8]) -> Seal {
        let mut hasher = Hasher::new();
        hasher.update(preamble);
        Seal {
            preamble: hasher,
            number: 0,
        }
    }

    fn next(&mut self, length: [u8; 4], content: &[u8]) -> u32 {
        let mut hasher = self.preamble.clone();
        hasher.update(&self.number.to_le_bytes());
        hasher.update(&length);
        hasher.update(content);
        self.number = self.number.wrapping_add(1);
        hasher.finalize()
    }
}

/// The other end takes no more.
pub(super) struct Stopped;

/// Cuts content into chunks, and hands each on as it is full.
pub(super) struct Writer<'a> {
    seal: Seal,
    /// A chunk on its way, its head included.
    chunk: Vec<u8>,
    sink: &'a mut dyn FnMut(Bytes) -> bool,
}

impl<'a> Writer<'a> {
    /// Hands on the preamble. `sink` answers whether it goes on.
    pub(super) fn begin(
        store_id: &[u8; 16],
        lsn: Lsn,
        sink: &'a mut dyn FnMut(Bytes) -> bool,
    ) -> Result<Writer<'a>, Stopped> {
        let mut preamble = Vec::with_capacity(PREAMBLE);
        preamble.extend_from_slice(&MAGIC);
        preamble.extend_from_slice(&BACKUP_FORMAT.to_le_bytes());
        preamble.extend_from_slice(store_id);
        preamble.extend_from_slice(&lsn.0.to_le_bytes());
        let seal = Seal::of(&preamble);
        let crc = crc32fast::hash(&preamble);
        preamble.extend_from_slice(&crc.to_le_bytes());
        if !sink(preamble.into()) {
            return Err(Stopped);
        }
        Ok(Writer {
            seal,
            chunk: vec![0; CHUNK_HEAD],
            sink,
        })
    }

    pub(super) fn put(&mut self, mut content: &[u8]) -> Result<(), Stopped> {
        while !content.is_empty() {
            let room = (CHUNK + CHUNK_HEAD).saturating_sub(self.chunk.len());
            let (now, later) = content.split_at(room.min(content.len()));
            self.chunk.extend_from_slice(now);
            content = later;
            if self.chunk.len() >= CHUNK + CHUNK_HEAD {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Hands on what is left, and the end.
    pub(super) fn end(mut self) -> Result<(), Stopped> {
        if self.chunk.len() > CHUNK_HEAD {
            self.flush()?;
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        let mut chunk = std::mem::replace(&mut self.chunk, vec![0; CHUNK_HEAD]);
        if let Some((head, content)) = chunk.split_at_mut_checked(CHUNK_HEAD) {
            // At most 64 KiB.
            let length = u32::try_from(content.len())
                .unwrap_or(u32::MAX)
                .to_le_bytes();
            let crc = self.seal.next(length, content).to_le_bytes();
            for (to, from) in head.iter_mut().zip(length.into_iter().chain(crc)) {
                *to = from;
            }
        }
        if (self.sink)(chunk.into()) {
            Ok(())
        } else {
            Err(Stopped)
        }
    }
}

/// Reads content out of a file, chunk by chunk, each checked before a byte of it is used.
pub(super) struct Reader {
    file: BufReader<File>,
    path: PathBuf,
    seal: Seal,
    pub(super) store_id: [u8; 16],
    pub(super) lsn: Lsn,
    chunk: Vec<u8>,
    /// How much of the chunk was used.
    used: usize,
    /// Where the next chunk begins in the file.
    offset: u64,
    ended: bool,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Reader, BackupError> {
        let failed = |source| BackupError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::with_capacity(CHUNK, File::open(path).map_err(failed)?);
        let mut preamble = Vec::with_capacity(PREAMBLE);
        let all = (&mut file).take(PREAMBLE as u64);
        { all }.read_to_end(&mut preamble).map_err(failed)?;
        let (store_id, lsn) = check_preamble(&preamble, path)?;
        Ok(Reader {
            file,
            path: path.to_owned(),
            seal: Seal::of(preamble.get(..PREAMBLE - 4).unwrap_or_default()),
            store_id,
            lsn,
            chunk: Vec::new(),
            used: 0,
            offset: PREAMBLE as u64,
            ended: false,
        })
    }

    pub(super) fn damaged(&self, reason: impl ToString) -> BackupError {
        BackupError::damaged(&self.path, self.offset, reason)
    }

    /// Appends that many bytes of content. Memory is taken as they come, whatever the number says.
    pub(super) fn take(&mut self, mut count: usize, into: &mut Vec<u8>) -> Result<(), BackupError> {
        while count > 0 {
            if self.used >= self.chunk.len() && !self.next_chunk()? {
                return Err(self.damaged("its content ends in the middle of a row"));
            }
            let rest = self.chunk.get(self.used..).unwrap_or_default();
            let now = rest.get(..count).unwrap_or(rest);
            into.extend_from_slice(now);
            self.used = self.used.saturating_add(now.len());
            count = count.saturating_sub(now.len());
        }
        Ok(())
    }

    /// Makes sure that nothing follows.
    pub(super) fn end(&mut self) -> Result<(), BackupError> {
        if self.used < self.chunk.len() || self.next_chunk()? {
            return Err(self.damaged("it goes on after its end record"));
        }
        let mut more = [0];
        match self.read(&mut more)? {
            0 => Ok(()),
            _ => Err(self.damaged("something was appended to it")),
        }
    }

    /// Reads the next chunk. `false`: that was the end.
    fn next_chunk(&mut self) -> Result<bool, BackupError> {
        if self.ended {
            return Ok(false);
        }
        let mut head = [0; CHUNK_HEAD];
        self.fill(&mut head)?;
        let [a, b, c, d, e, f, g, h] = head;
        let (length, crc) = ([a, b, c, d], u32::from_le_bytes([e, f, g, h]));
        let size = u32::from_le_bytes(length) as usize;
        if size > CHUNK {
            return Err(self.damaged("a chunk that is longer than any is written"));
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(size, 0);
        self.fill(&mut chunk)?;
        if self.seal.next(length, &chunk) != crc {
            return Err(self.damaged("the checksum of a chunk differs"));
        }
        let read = (CHUNK_HEAD as u64).saturating_add(size as u64);
        self.offset = self.offset.saturating_add(read);
        self.chunk = chunk;
        self.used = 0;
        self.ended = size == 0;
        Ok(size > 0)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest)? {
                0 => {
                    return Err(BackupError::Cut {
                        path: self.path.clone(),
                        offset: self.offset,
                    });
                }
                read => filled = filled.saturating_add(read),
            }
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, BackupError> {
        loop {
            match self.file.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => {
                    return other.map_err(|source| BackupError::Io {
                        path: self.path.clone(),
                        source,
                    });
                }
            }
        }
    }
}

/// The format comes before the checksum: what a later version wrote is named as that.
fn check_preamble(preamble: &[u8], path: &Path) -> Result<([u8; 16], Lsn), BackupError> {
    let cut = || BackupError::Cut {
        path: path.to_owned(),
        offset: preamble.len() as u64,
    };
    let known = preamble.len().min(MAGIC.len());
    if preamble.is_empty() || preamble.get(..known) != MAGIC.get(..known) {
        let path = path.to_owned();
        return Err(BackupError::NotABackup { path });
    }
    let rest = preamble.get(known..).unwrap_or_default();
    let (format, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (store_id, rest) = rest.split_first_chunk::<16>().ok_or_else(cut)?;
    let (lsn, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    let (crc, _) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let found = u32::from_le_bytes(*format);
    let sealed = preamble.get(..PREAMBLE - 4).unwrap_or_default();
    let sound = crc32fast::hash(sealed) == u32::from_le_bytes(*crc);
    match found {
        _ if !sound && found <= BACKUP_FORMAT => Err(BackupError::damaged(
            path,
            0,
            "the checksum of its head differs",
        )),
        0 => Err(BackupError::damaged(path, 0, "format 0, which none has")),
        found if found > BACKUP_FORMAT && sound => Err(BackupError::Newer {
            path: path.to_owned(),
            found,
            known: BACKUP_FORMAT,
        }),
        found if found > BACKUP_FORMAT => Err(BackupError::damaged(
            path,
            0,
            format!(
                "the checksum of its head differs, unless a later version wrote it: it says format {found}"
            ),
        )),
        _ => Ok((*store_id, Lsn(u64::from_le_bytes(*lsn)))),
    }
}
