//! The tools for a directory that no server has: the real binary on directories damaged in every way.

mod check;
mod compact;
mod damaged_journal;
mod damaged_store;
mod space;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onced::journal::disk::RealDisk;
use onced::journal::frame::Frame;
use onced::journal::prepare::Preparer;
use onced::journal::recovery;
use onced::journal::room::Room;
use onced::journal::writer::{Options as JournalOptions, Writer};
use onced::model::key::RecordKey;
use onced::model::record::{Lsn, Record, Token};
use onced::model::time::Span;
use onced::store::{
    self, Bodies, Change, Checkpoint, Decision, Entry, Memtable, Opened, Options, Store,
    encode_entry,
};

use crate::support::redis::Reply;
use crate::support::{Server, onced};

/// What a tool printed and how it ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(verb: &str, dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = onced();
    command.arg(verb).arg("--data-dir").arg(dir).args(arguments);
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Every file with its bytes, but for the lock, which names its last holder.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.file_name().unwrap() != "lock" {
                // Spares are large, and nothing of theirs is to be kept.
                let spare = path.extension().is_some_and(|ext| ext == "tmp");
                let bytes = if spare {
                    Vec::new()
                } else {
                    fs::read(&path).unwrap()
                };
                found.insert(path, bytes);
            }
        }
    }
    found
}

/// A directory with the records `s0` to `s9` in its store, all done for an hour, and no server on it.
fn used(folder: &tempfile::TempDir) -> PathBuf {
    let dir = folder.path().join("data");
    let server = Server::start(&dir);
    let mut redis = server.redis();
    for n in 0..10 {
        let set = redis.command(&format!("SET s{n} v{n} NX EX 3600"));
        assert_eq!(set, Reply::Status("OK".into()));
    }
    assert_eq!(server.term().code(), 0);
    dir
}

fn store_file(dir: &Path) -> PathBuf {
    dir.join("data/store.redb")
}

fn segment(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("data/journal/{number:016}.seg"))
}

/// The numbers of the segments there are.
fn segments(dir: &Path) -> Vec<u64> {
    let names = fs::read_dir(dir.join("data/journal")).unwrap();
    let number = |name: std::ffi::OsString| -> Option<u64> {
        name.to_str()?.strip_suffix(".seg")?.parse().ok()
    };
    let mut numbers: Vec<u64> = names
        .filter_map(|entry| number(entry.unwrap().file_name()))
        .collect();
    numbers.sort_unstable();
    numbers
}

fn key(name: &str) -> RecordKey {
    RecordKey::new("default", name.as_bytes()).unwrap()
}

/// Small segments, so that few entries fill several.
const SEGMENT: u64 = 16_384;

/// A journal that is written entry by entry, as the server would, and left as a crash leaves it.
struct Journal {
    dir: PathBuf,
    writer: Writer,
    preparer: Preparer,
    room: Arc<Room>,
    /// A record of the store, which entries resemble.
    like: Record,
    /// Where each frame lies: segment, offset.
    frames: Vec<(u64, u64)>,
    first: u64,
    next_token: u64,
}

impl Journal {
    /// Goes on behind what the store of the directory has.
    fn open(dir: &Path) -> Journal {
        let facts = store::check(store_file(dir), Options::default())
            .unwrap()
            .facts
            .unwrap();
        let like = {
            let (store, _) = Store::open(store_file(dir), Options::default()).unwrap();
            store
                .reader()
                .get(&key("s0"), Bodies::All)
                .unwrap()
                .unwrap()
        };
        let disk = Arc::new(RealDisk::open(&dir.join("data/journal")).unwrap());
        let mut recovery = recovery::open(disk, facts.store_id, facts.checkpoint).unwrap();
        while recovery.next_frame().unwrap().is_some() {}
        let options = JournalOptions {
            segment_size: SEGMENT,
            spares: 2,
            audit_age: Span::from_secs(3600),
            audit_bytes: 1 << 40,
        };
        let next = Lsn(facts.checkpoint.0 + 1);
        let (writer, preparer, room) = recovery.into_writer(next, options).unwrap();
        Journal {
            dir: dir.to_owned(),
            writer,
            preparer,
            room,
            like,
            frames: Vec::new(),
            first: next.0,
            next_token: facts.next_token.get(),
        }
    }

    fn record(&self, number: usize) -> Record {
        let mut record = self.like.clone();
        record.token = Token::new(self.next_token + number as u64).unwrap();
        record
    }

    /// Appends frames of one entry each, until there are so many: entry n grants the key `j<n>`.
    fn append(&mut self, count: usize) {
        while self.frames.len() < count {
            let number = self.frames.len();
            let record = self.record(number);
            let entry = Entry {
                lsn: self.writer.next_lsn(),
                decision: Decision {
                    at: record.changed_at,
                    verb: "set",
                    outcome: "ok",
                    reason: None,
                    event: None,
                    token: Some(record.token),
                    attempt: 1,
                    generation: 1,
                    by: Some("x".repeat(900).into()),
                    count: 1,
                },
                change: Change::Put(key(&format!("j{number}")), Arc::new(record)),
            };
            let mut bytes = Vec::new();
            encode_entry(&entry, &mut bytes).unwrap();
            self.append_bytes(&bytes);
        }
    }

    /// Appends a frame of one entry, whatever it is.
    fn append_bytes(&mut self, entry: &[u8]) {
        let mut frame = Frame::new(self.writer.next_lsn());
        frame.push(entry);
        while self.room.wants_spares() {
            self.preparer.prepare().unwrap();
        }
        self.writer.append(&mut frame).unwrap();
        let newest = *segments(&self.dir).last().unwrap();
        let offset = match self.frames.last() {
            Some((number, offset)) if *number == newest => {
                offset + length(&segment(&self.dir, newest), *offset)
            }
            _ => 4096,
        };
        self.frames.push((newest, offset));
    }

    /// Brings the first so many entries to the store, as a checkpoint does.
    fn checkpoint(&self, count: usize) {
        self.checkpoint_with(count, self.next_token + count as u64);
    }

    /// The same, with a next token of its own.
    fn checkpoint_with(&self, count: usize, next_token: u64) {
        let (mut store, opened) = Store::open(store_file(&self.dir), Options::default()).unwrap();
        let change = |number| {
            let record = Some(Arc::new(self.record(number)));
            (key(&format!("j{number}")), record)
        };
        store
            .checkpoint(Checkpoint {
                lsn: Lsn(self.first + count as u64 - 1),
                next_token: Token::new(next_token).unwrap(),
                mark: opened.mark.clone(),
                policies: Vec::new(),
                changes: changes(&opened, (0..count).map(change)),
            })
            .unwrap();
        store.close().unwrap();
    }
}

/// Changes for a checkpoint of that store.
fn changes(
    opened: &Opened,
    changes: impl Iterator<Item = (RecordKey, Option<Arc<Record>>)>,
) -> Arc<Memtable> {
    Arc::new(Memtable::of(&opened.store_id, opened.checkpoint, changes).unwrap())
}

/// The length of the frame that begins there.
fn length(path: &Path, offset: u64) -> u64 {
    let bytes = fs::read(path).unwrap();
    let at = usize::try_from(offset).unwrap();
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
}

/// Changes one byte of a file.
fn flip(path: &Path, offset: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(offset).unwrap()] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

/// A server does not start on it, for damage.
fn assert_refused(dir: &Path, what: &str) {
    match Server::try_start(dir, &[]) {
        Ok(server) => panic!("{what}: it started: {}", server.ready),
        Err(output) => assert_eq!(output.code(), 13, "{what}: {output:?}"),
    }
}

/// A server starts on it and has these keys, and not those; and grants tokens above `token`.
fn assert_starts(dir: &Path, there: &[String], gone: &[String], token: u64, what: &str) {
    let server = Server::start(dir);
    let mut redis = server.redis();
    for (keys, count) in [(there, 1), (gone, 0)] {
        for name in keys {
            let exists = redis.command(&format!("EXISTS {name}"));
            assert_eq!(exists, Reply::Integer(count), "{what}: {name}");
        }
    }
    let claimed = server.http().post("/v1/claims/default/fresh", b"");
    assert_eq!(claimed.status, 201, "{what}");
    let granted = claimed.json()["token"].as_u64().unwrap();
    assert!(granted > token, "{what}: token {granted} after {token}");
    assert_eq!(server.term().code(), 0, "{what}");
    let clean = run("check", dir, &[]);
    assert_eq!(clean.code, 0, "{what}: {clean:?}");
}

fn stored() -> Vec<String> {
    (0..10).map(|n| format!("s{n}")).collect()
}

fn journaled(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("j{n}")).collect()
}
