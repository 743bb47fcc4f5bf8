//! Field cases: reports of people who do this job, retold against the real binary, each a test named after its
//! case. The table in the manual's chapter "What we test" gives each its verdict.

mod claims;
mod keys;
mod leases;
mod service;
mod storage;
mod table;
mod time;
mod wire;

use std::sync::{Arc, Barrier};
use std::thread;

use crate::support::http::Answer;
use crate::support::redis::Reply;
use crate::support::{Http, Server};

/// A server of a test's own, its data gone with the test.
struct Case {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

impl Case {
    fn start() -> Case {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"));
        Case {
            folder,
            server: Some(server),
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// `kill -9`, and a start at once.
    fn crash(&mut self) {
        self.server.take().unwrap().kill9();
        self.server = Some(Server::start(&self.folder.path().join("data")));
    }

    /// A polite stop, and a start.
    fn restart(&mut self) {
        assert_eq!(self.server.take().unwrap().term().code(), 0);
        self.server = Some(Server::start(&self.folder.path().join("data")));
    }
}

/// Claims over HTTP; `options` is a query.
fn claim(http: &mut Http, key: &str, options: &str) -> Answer {
    http.post(&format!("/v1/claims/default/{key}?{options}"), b"")
}

fn token(answer: &Answer) -> u64 {
    let json = answer.json();
    json["token"]
        .as_u64()
        .unwrap_or_else(|| panic!("no token: {json}"))
}

/// A request with headers of its own, its answer read.
fn send(http: &mut Http, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    http.send(&[head.as_bytes(), body].concat());
    http.answer()
        .unwrap_or_else(|| panic!("{method} {path}: no answer"))
}

/// Runs so many clients at once, all behind one barrier, and gives what each brings back.
fn at_once<T: Send + 'static>(
    clients: usize,
    mut client: impl FnMut(usize) -> Box<dyn FnOnce() -> T + Send>,
) -> Vec<T> {
    let barrier = Arc::new(Barrier::new(clients));
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let (work, barrier) = (client(number), barrier.clone());
            thread::spawn(move || {
                barrier.wait();
                work()
            })
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

fn ok() -> Reply {
    Reply::Status("OK".into())
}

/// A key as one segment of a path: every byte that is not plain is escaped.
fn escaped(key: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut path = String::new();
    for byte in key {
        if byte.is_ascii_alphanumeric() {
            path.push(char::from(*byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}
