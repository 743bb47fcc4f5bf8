//! Our own load: the same from one connection's pipeline to many connections, over both faces, in one thread.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::samples::{Latencies, scattered};

/// How a claim is sent.
#[derive(Clone, Copy, Debug)]
pub enum Face {
    /// `SET key pending NX EX seconds`.
    Resp { seconds: u32 },
    /// `POST /v1/claims/bench/key`, with this query.
    Http { query: &'static str },
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub face: Face,
    /// Connections.
    pub clients: usize,
    /// Requests that each sends before it reads.
    pub pipeline: u64,
    /// The number of the first key; each key is claimed once.
    pub first: u64,
    /// At most so many keys.
    pub keys: u64,
    /// At most so long.
    pub time: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Done {
    pub answered: u64,
    /// Answered with "you are the one".
    pub acquired: u64,
    pub took: Duration,
    /// Of a pipeline, from the first byte out to the last byte in.
    pub latencies: Latencies,
}

impl Done {
    /// Claims per second.
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64()
    }
}

/// No end but the other one.
pub const NO_END: Duration = Duration::from_secs(24 * 3600);

/// Runs a load to its end; `answered` can be watched meanwhile.
pub fn run(load: Load, answered: &Arc<AtomicU64>) -> Outcome<Done> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let next = Arc::new(AtomicU64::new(0));
        let mut streams = Vec::new();
        for _ in 0..load.clients {
            let stream = tokio::net::TcpStream::connect(load.address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let begun = Instant::now();
        let mut clients = JoinSet::new();
        for stream in streams {
            clients.spawn(client(load, stream, next.clone(), begun, answered.clone()));
        }
        let mut done = Done::default();
        while let Some(client) = clients.join_next().await {
            let client = client?.map_err(|text| format!("a client of the load: {text}"))?;
            done.answered += client.answered;
            done.acquired += client.acquired;
            done.latencies.extend(client.latencies);
        }
        done.took = begun.elapsed();
        Ok(done)
    })
}

async fn client(
    load: Load,
    mut stream: tokio::net::TcpStream,
    next: Arc<AtomicU64>,
    begun: Instant,
    total: Arc<AtomicU64>,
) -> Result<Done, String> {
    let mut done = Done::default();
    let (mut output, mut input) = (Vec::new(), BytesMut::with_capacity(16 << 10));
    let failed = |error: std::io::Error| error.to_string();
    while begun.elapsed() < load.time {
        let first = next.fetch_add(load.pipeline, Ordering::Relaxed);
        let count = load.keys.saturating_sub(first).min(load.pipeline);
        if count == 0 {
            break;
        }
        output.clear();
        for number in first..first + count {
            load.face.request(load.first + number, &mut output);
        }
        let sent = Instant::now();
        stream.write_all(&output).await.map_err(failed)?;
        let mut missing = count;
        while missing > 0 {
            match load.face.answer(&mut input)? {
                Some(acquired) => {
                    done.acquired += u64::from(acquired);
                    missing -= 1;
                }
                None => {
                    if stream.read_buf(&mut input).await.map_err(failed)? == 0 {
                        return Err("the server closed the connection".to_owned());
                    }
                }
            }
        }
        done.latencies.add(sent.elapsed());
        done.answered += count;
        total.fetch_add(count, Ordering::Relaxed);
    }
    Ok(done)
}

impl Face {
    /// Appends the claim of that key.
    fn request(self, number: u64, output: &mut Vec<u8>) {
        let key = scattered(number);
        // Writing into memory does not fail.
        let _ = match self {
            Face::Resp { seconds } => {
                let seconds = seconds.to_string();
                let length = seconds.len();
                write!(
                    output,
                    "*6\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n$7\r\npending\r\n$2\r\nNX\r\n$2\r\nEX\r\n\
                     ${length}\r\n{seconds}\r\n"
                )
            }
            Face::Http { query } => write!(
                output,
                "POST /v1/claims/bench/key:{key:012}{query} HTTP/1.1\r\nhost: localhost\r\n\
                 content-length: 0\r\n\r\n"
            ),
        };
    }

    /// Takes one answer out, if all of it is there: whether the claim acquired.
    fn answer(self, input: &mut BytesMut) -> Result<Option<bool>, String> {
        match self {
            Face::Resp { .. } => {
                let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
                    return Ok(None);
                };
                let line = input.split_to(end + 1);
                match line.as_ref() {
                    b"+OK\r\n" => Ok(Some(true)),
                    b"$-1\r\n" => Ok(Some(false)),
                    other => Err(format!("answered {}", other.escape_ascii())),
                }
            }
            Face::Http { .. } => {
                let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                    return Ok(None);
                };
                let head = std::str::from_utf8(&input[..end]).map_err(|error| error.to_string())?;
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    let found = name.eq_ignore_ascii_case("content-length");
                    found.then(|| value.trim().parse::<usize>().ok())?
                });
                let length = length.ok_or_else(|| format!("answered without a length: {head}"))?;
                let acquired = match head.split(' ').nth(1) {
                    Some("201") => true,
                    Some("200" | "409") => false,
                    _ => return Err(format!("answered {head}")),
                };
                if input.len() < end + 4 + length {
                    return Ok(None);
                }
                input.advance(end + 4 + length);
                Ok(Some(acquired))
            }
        }
    }
}

/// How many of these keys a server does not know: they are claimed again.
pub fn missing(address: SocketAddr, first: u64, keys: u64) -> Outcome<u64> {
    let load = Load {
        address,
        face: Face::Resp { seconds: 86_400 },
        clients: 4,
        pipeline: 64,
        first,
        keys,
        time: NO_END,
    };
    Ok(run(load, &Arc::default())?.acquired)
}

/// One word of Redis's protocol, and the number it is answered with.
pub fn ask(address: SocketAddr, command: &str) -> Outcome<u64> {
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    stream
        .get_mut()
        .write_all(format!("{command}\r\n").as_bytes())?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let number = line
        .trim()
        .strip_prefix(':')
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{command} was answered {line:?}").into())
}

/// A client of its own beside a load: one claim at a time, each of a new key.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<(Duration, Duration)>, String>>,
}

/// Where the keys of probes begin: far from those of loads.
const PROBED: u64 = 1 << 40;

impl Probe {
    pub fn start(address: SocketAddr) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            probe(address, &stopped).map_err(|error| format!("the probe: {error}"))
        });
        Probe { stop, thread }
    }

    /// When each claim was sent, counted from the start, and how long it took.
    pub fn stop(self) -> Outcome<Vec<(Duration, Duration)>> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.join().map_err(|_| "the probe panicked")?;
        Ok(joined?)
    }
}

fn probe(address: SocketAddr, stop: &AtomicBool) -> std::io::Result<Vec<(Duration, Duration)>> {
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    stream.get_ref().set_nodelay(true)?;
    let face = Face::Resp { seconds: 86_400 };
    let begun = Instant::now();
    let (mut request, mut line) = (Vec::new(), String::new());
    let mut samples = Vec::new();
    for number in PROBED.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        request.clear();
        line.clear();
        face.request(number, &mut request);
        let sent = Instant::now();
        stream.get_mut().write_all(&request)?;
        stream.read_line(&mut line)?;
        if line != "+OK\r\n" && line != "$-1\r\n" {
            return Err(std::io::Error::other(format!("answered {line:?}")));
        }
        samples.push((sent.duration_since(begun), sent.elapsed()));
        // A client now and then, not one more that drives the server as fast as it can.
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(samples)
}
