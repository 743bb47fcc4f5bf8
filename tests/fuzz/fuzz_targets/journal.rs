//! A journal with patches over it: recovery and inspection end, say the same of the same bytes, and never give
//! an entry that was not appended.

#![no_main]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use onced::journal::create::create;
use onced::journal::disk::RealDisk;
use onced::journal::frame::Frame;
use onced::journal::inspect::inspect;
use onced::journal::recovery;
use onced::journal::writer::Options;
use onced::model::record::Lsn;
use onced::model::time::Span;

const STORE: [u8; 16] = [7; 16];
const ENTRIES: u64 = 40;

struct Journal {
    dir: tempfile::TempDir,
    files: Vec<(PathBuf, Vec<u8>)>,
}

fn entry(number: u64) -> Vec<u8> {
    let letter = b'a' + (number % 26) as u8;
    let mut bytes = vec![letter; 100 + (number as usize * 37) % 900];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes
}

fn journal() -> &'static Journal {
    static MADE: OnceLock<Journal> = OnceLock::new();
    MADE.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(if memory.is_dir() {
            memory
        } else {
            Path::new("/tmp")
        });
        let dir = dir.expect("a folder");
        let disk = Arc::new(RealDisk::open(dir.path()).expect("a disk"));
        let options = Options {
            segment_size: 16_384,
            spares: 1,
            audit_age: Span::from_secs(3600),
            audit_bytes: 1 << 40,
        };
        let made = create(disk, STORE, Lsn(1), options).expect("a journal");
        let (mut writer, preparer, room) = made;
        for number in 1..=ENTRIES {
            while room.wants_spares() {
                preparer.prepare().expect("a spare");
            }
            let mut frame = Frame::new(writer.next_lsn());
            frame.push(&entry(number));
            writer.append(&mut frame).expect("a frame");
        }
        drop((writer, preparer));
        let mut files = Vec::new();
        for file in fs::read_dir(dir.path()).expect("files") {
            let path = file.expect("a file").path();
            if path.extension().is_none_or(|ext| ext != "tmp") {
                let bytes = fs::read(&path).expect("bytes");
                files.push((path, bytes));
            }
        }
        files.sort();
        Journal { dir, files }
    })
}

fuzz_target!(|data: &[u8]| {
    let journal = journal();
    // Patches: file, two bytes of offset, length, and the bytes.
    let mut touched = Vec::new();
    let mut rest = data;
    while let [file, high, low, length, bytes @ ..] = rest {
        let (path, kept) = &journal.files[usize::from(*file) % journal.files.len()];
        let length = usize::from(*length).min(bytes.len());
        let (patch, after) = bytes.split_at(length);
        rest = after;
        let at = usize::from(u16::from_be_bytes([*high, *low])) % kept.len();
        let patch = &patch[..length.min(kept.len() - at)];
        let file = File::options().write(true).open(path).expect("the file");
        file.write_all_at(patch, at as u64).expect("written");
        touched.push((file, at, patch.len(), kept));
    }
    let disk = Arc::new(RealDisk::open(journal.dir.path()).expect("a disk"));
    let read = || {
        let mut found = Vec::new();
        let failed = match recovery::open(disk.clone(), STORE, Lsn(0)) {
            Err(error) => Some(error.to_string()),
            Ok(mut recovery) => loop {
                match recovery.next_frame() {
                    Ok(Some(frame)) => {
                        for (lsn, bytes) in frame.entries() {
                            assert_eq!(bytes, entry(lsn.0), "an entry that nobody appended");
                            found.push(lsn.0);
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error.to_string()),
                }
            },
        };
        (found, failed)
    };
    let (found, failed) = read();
    assert_eq!(
        (&found, &failed),
        (&read().0, &read().1),
        "the same bytes, another answer"
    );
    assert!(found.len() as u64 <= ENTRIES);
    for (at, lsn) in found.iter().enumerate() {
        assert_eq!(*lsn, at as u64 + 1, "no gap");
    }
    let mut count = 0;
    let _ = inspect(&*disk, &STORE, Some(Lsn(0)), &mut |_, lsn, bytes: &[u8]| {
        assert_eq!(bytes, entry(lsn.0), "an entry that nobody appended");
        count += 1;
        Ok(())
    });
    if touched.is_empty() {
        assert_eq!((found.len() as u64, failed), (ENTRIES, None));
    }
    for (file, at, length, kept) in touched.into_iter().rev() {
        file.write_all_at(&kept[at..at + length], at as u64)
            .expect("written back");
    }
});
