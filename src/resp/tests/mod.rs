//! Whole sessions: bytes in, bytes out, in front of an engine in memory.

mod access;
mod clients;
mod manual;
mod once;
mod scripts;
mod strings;
mod transactions;
mod wire;

use std::sync::Arc;

use bytes::BytesMut;
use tempfile::TempDir;

use super::{Face, Flow, Options, Session};
use crate::engine::clock::{ManualClock, Source};
use crate::engine::{self, Engine};

/// 2026-01-02T03:04:05.678Z.
const START: u64 = 1_767_323_045_678;

/// An engine with a clock that is moved by hand, and one connection to it.
pub(super) struct Desk {
    clock: Arc<ManualClock>,
    engine: Engine,
    face: Arc<Face>,
    session: Session,
    /// Kept until the engine is gone: it goes on writing there.
    _dir: TempDir,
}

impl Desk {
    pub(super) fn new() -> Desk {
        Desk::with(Options::default())
    }

    fn with(options: Options) -> Desk {
        let clock = ManualClock::new(START, 5_000_000);
        let dir = tempfile::tempdir().expect("a folder");
        let mut engine = engine::Options {
            clock: Source::Manual(clock.clone()),
            ..engine::Options::default()
        };
        engine.journal.segment_size = 16 << 20;
        let (engine, _) = Engine::open(dir.path(), engine).expect("an engine");
        // Under a clock that stands still nobody would ever have waited long enough.
        engine.stop_waiting();
        let face = Arc::new(Face::new(options));
        let session = Session::new(face.clone(), "peer".to_owned());
        Desk {
            clock,
            engine,
            face,
            session,
            _dir: dir,
        }
    }

    /// The engine closed and opened again: what it knew is in the store alone.
    fn restart(&mut self) {
        self.engine.close().expect("it closes");
        let mut options = engine::Options {
            clock: Source::Manual(self.clock.clone()),
            ..engine::Options::default()
        };
        options.journal.segment_size = 16 << 20;
        self.engine = Engine::open(self._dir.path(), options)
            .expect("an engine")
            .0;
        self.engine.stop_waiting();
        self.reconnect();
    }

    /// Another connection in place of this one.
    fn reconnect(&mut self) {
        self.session = Session::new(self.face.clone(), "peer".to_owned());
    }

    /// As it was at first, but for what the engine remembers of tokens.
    pub(super) fn empty(&mut self) {
        for database in [0, 5] {
            self.face = Arc::new(Face::new(Options::default()));
            self.reconnect();
            self.say(&format!("SELECT {database}"));
            let (page, _) = self.talk(b"SCAN 0 COUNT 1000\r\n", usize::MAX);
            let page = String::from_utf8(page).expect("keys of the cases are text");
            let keys: Vec<&str> = page.split("\r\n").skip(5).step_by(2).collect();
            for key in keys {
                if !key.is_empty() {
                    assert_eq!(self.say(&format!("DEL '{key}'")), ":1", "{page}");
                }
            }
        }
        self.face = Arc::new(Face::new(Options::default()));
        self.reconnect();
    }

    /// Everything that comes back when the bytes arrive in pieces of that size, and whether the connection
    /// is then closed.
    pub(super) fn talk(&mut self, bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        self.talk_in(&pieces)
    }

    fn talk_in(&mut self, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let (mut input, mut all) = (BytesMut::new(), Vec::new());
            for piece in pieces {
                input.extend_from_slice(piece);
                loop {
                    let mut output = BytesMut::new();
                    let serve = self.session.serve(&self.engine, &mut input, &mut output);
                    let flow = serve.await;
                    all.extend_from_slice(&output);
                    match flow {
                        Flow::More => {}
                        Flow::Continue => break,
                        Flow::Close => return (all, true),
                    }
                }
            }
            (all, false)
        })
    }

    /// Sends lines of inline commands; the answer, its line ends shown as blanks between its parts.
    fn say(&mut self, lines: &str) -> String {
        let lines: String = lines
            .lines()
            .map(|line| format!("{}\r\n", line.trim()))
            .collect();
        let (answer, closed) = self.talk(lines.as_bytes(), usize::MAX);
        let text = String::from_utf8_lossy(&answer).replace("\r\n", " ");
        format!("{}{}", text.trim_end(), if closed { " closed" } else { "" })
    }

    #[track_caller]
    fn check(&mut self, table: &[(&str, &str)]) {
        for (line, expected) in table {
            assert_eq!(self.say(line), *expected, "{line}");
        }
    }
}

/// A request as clients send it.
fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// How many replies these bytes are; panics where they are none.
fn replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let mut missing = 1_usize;
        while missing > 0 {
            let end = bytes.iter().position(|b| *b == b'\n').expect("a line end");
            let (line, rest) = bytes.split_at(end + 1);
            let number = || -> i64 {
                let text = std::str::from_utf8(&line[1..end - 1]).expect("a number");
                text.parse().expect("a number")
            };
            missing -= 1;
            bytes = rest;
            match line[0] {
                b'+' | b'-' | b':' | b'_' | b'#' => {}
                b'$' | b'=' if number() < 0 => {}
                b'$' | b'=' => bytes = &bytes[usize::try_from(number()).expect("a length") + 2..],
                b'*' | b'~' | b'>' => missing += usize::try_from(number()).unwrap_or(0),
                b'%' => missing += 2 * usize::try_from(number()).expect("a size"),
                other => panic!("no reply begins with {other}"),
            }
        }
        count += 1;
    }
    count
}
