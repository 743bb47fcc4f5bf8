//! A load as `benches/compare` makes it: claims of new keys, each once, from many connections in one thread.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::engine::clock::Timer;

/// How long a record of the bench is remembered: the shortest that there is.
pub(super) const RETENTION_MS: u32 = 1000;
/// How long an answer may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a claim is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// `ONCE.CLAIM key ONCE RETENTION ms NS namespace`.
    Resp,
    /// `POST /v1/claims/namespace/key?mode=once&retention=`.
    Http,
}

/// A load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) address: String,
    pub(super) face: Face,
    /// Connections.
    pub(super) clients: usize,
    /// Requests that each sends before it reads.
    pub(super) pipeline: u64,
    pub(super) time: Duration,
    pub(super) namespace: String,
    /// What every key begins with: no two loads have it in common.
    pub(super) prefix: String,
    pub(super) secret: Option<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) answered: u64,
    pub(super) took: Duration,
    /// In microseconds, sorted; of a pipeline from the first byte out to the last byte in.
    latencies: Vec<u32>,
}

impl Done {
    /// Claims per second.
    pub(super) fn rate(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64().max(0.001)
    }

    /// In microseconds: what so many of a thousand are not above. 0 where there are none.
    pub(super) fn per_mille(&self, rank: usize) -> u32 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (self.latencies.len() * rank / 1000).min(last);
        self.latencies.get(at).copied().unwrap_or(0)
    }
}

/// Runs a load to its end.
///
/// # Errors
/// A connection broke, or an answer was not the one to a new key.
pub(super) fn run(load: Load) -> Result<Done, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let load = Arc::new(load);
        let next = Arc::new(AtomicU64::new(0));
        let mut streams = Vec::new();
        for _ in 0..load.clients {
            streams.push(connect(&load).await?);
        }
        let begun = Timer::start();
        let mut clients = JoinSet::new();
        for stream in streams {
            clients.spawn(client(load.clone(), stream, next.clone(), begun));
        }
        let mut done = Done::default();
        while let Some(client) = clients.join_next().await {
            let client = client.map_err(|error| error.to_string())??;
            done.answered += client.answered;
            done.latencies.extend(client.latencies);
        }
        done.took = begun.elapsed();
        done.latencies.sort_unstable();
        Ok(done)
    })
}

async fn connect(load: &Load) -> Result<TcpStream, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", load.address);
    let mut stream = TcpStream::connect(&load.address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    if let (Face::Resp, Some(secret)) = (load.face, &load.secret) {
        let length = secret.len();
        let auth = format!("*2\r\n$4\r\nAUTH\r\n${length}\r\n{secret}\r\n");
        stream.write_all(auth.as_bytes()).await.map_err(failed)?;
        let mut said = [0; 5];
        stream.read_exact(&mut said).await.map_err(failed)?;
        if said != *b"+OK\r\n" {
            return Err("the Redis face does not take the secret".to_owned());
        }
    }
    Ok(stream)
}

async fn client(
    load: Arc<Load>,
    mut stream: TcpStream,
    next: Arc<AtomicU64>,
    begun: Timer,
) -> Result<Done, String> {
    let mut done = Done::default();
    let (mut output, mut input) = (Vec::new(), BytesMut::with_capacity(16 << 10));
    let failed = |error: std::io::Error| error.to_string();
    while begun.elapsed() < load.time {
        let first = next.fetch_add(load.pipeline, Ordering::Relaxed);
        output.clear();
        for number in first..first + load.pipeline {
            load.request(scattered(number), &mut output);
        }
        let sent = Timer::start();
        stream.write_all(&output).await.map_err(failed)?;
        let mut missing = load.pipeline;
        while missing > 0 {
            if load.face.answer(&mut input)? {
                missing -= 1;
                continue;
            }
            let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut input)).await;
            match read.map_err(|_| "no answer in 30 seconds".to_owned())? {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let micros = sent.elapsed().as_micros();
        done.latencies
            .push(u32::try_from(micros).unwrap_or(u32::MAX));
        done.answered += load.pipeline;
    }
    Ok(done)
}

/// Keys that follow each other for us, and lie anywhere for a tree.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Load {
    /// Appends the claim of that key.
    fn request(&self, key: u64, output: &mut Vec<u8>) {
        let key = format!("{}:{key:016x}", self.prefix);
        let namespace = &self.namespace;
        // Writing into memory does not fail.
        let _ = match self.face {
            Face::Resp => {
                let retention = RETENTION_MS.to_string();
                let words = [
                    "ONCE.CLAIM",
                    &key,
                    "ONCE",
                    "RETENTION",
                    &retention,
                    "NS",
                    namespace,
                ];
                let _ = write!(output, "*{}\r\n", words.len());
                words
                    .iter()
                    .try_for_each(|word| write!(output, "${}\r\n{word}\r\n", word.len()))
            }
            Face::Http => {
                let _ = write!(
                    output,
                    "POST /v1/claims/{namespace}/{key}?mode=once&retention={RETENTION_MS}ms HTTP/1.1\r\n\
                     host: localhost\r\ncontent-length: 0\r\n"
                );
                let _ = match &self.secret {
                    Some(secret) => write!(output, "authorization: Bearer {secret}\r\n"),
                    None => Ok(()),
                };
                write!(output, "\r\n")
            }
        };
    }
}

impl Face {
    /// Takes one answer out, if all of it is there; it has to be that of a new key.
    fn answer(self, input: &mut BytesMut) -> Result<bool, String> {
        match self {
            Face::Resp => {
                let Some(length) = reply(input, 0)? else {
                    return Ok(false);
                };
                let answer = input.split_to(length);
                match answer.windows(10).any(|word| word == b"\nacquired\r") {
                    true => Ok(true),
                    false => Err(format!("answered {}", answer.escape_ascii())),
                }
            }
            Face::Http => {
                let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                    return Ok(false);
                };
                let head = String::from_utf8_lossy(input.get(..end).unwrap_or_default());
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    let found = name.eq_ignore_ascii_case("content-length");
                    found.then(|| value.trim().parse::<usize>().ok())?
                });
                let length = length.ok_or_else(|| format!("answered without a length: {head}"))?;
                if head.split(' ').nth(1) != Some("201") {
                    return Err(format!("answered {head}"));
                }
                let whole = (end + 4).saturating_add(length);
                if input.len() < whole {
                    return Ok(false);
                }
                input.advance(whole);
                Ok(true)
            }
        }
    }
}

/// How deep arrays may nest: those of our server do once.
const DEEP: u32 = 4;

/// The length of the reply that the bytes begin with, if all of it is there.
fn reply(bytes: &[u8], depth: u32) -> Result<Option<usize>, String> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let head = bytes.get(..end.saturating_sub(1)).unwrap_or_default();
    let count = || {
        let digits = std::str::from_utf8(head.get(1..).unwrap_or_default()).ok();
        digits.and_then(|digits| digits.parse::<i64>().ok())
    };
    let mut length = end + 1;
    match (head.first(), count()) {
        (Some(b'+' | b'-' | b':'), _) => {}
        (Some(b'$'), Some(count)) => {
            let rest = usize::try_from(count).map_or(0, |count| count.saturating_add(2));
            length = length.saturating_add(rest);
        }
        (Some(b'*'), Some(count)) if depth < DEEP => {
            for _ in 0..count {
                let rest = bytes.get(length..).unwrap_or_default();
                match reply(rest, depth + 1)? {
                    Some(one) => length += one,
                    None => return Ok(None),
                }
            }
        }
        _ => return Err(format!("answered {}", head.escape_ascii())),
    }
    Ok((bytes.len() >= length).then_some(length))
}
