//! One command and its reply, as far as it is needed to tell them apart, and latencies.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Outcome;

/// A connection of the Redis protocol.
pub struct Redis(BufReader<TcpStream>);

impl Redis {
    pub async fn connect(address: SocketAddr) -> Outcome<Redis> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Redis(BufReader::new(stream)))
    }

    /// Sends a command; the lines and texts of its reply, its arrays flattened.
    pub async fn command(&mut self, words: &[&str]) -> Outcome<Vec<String>> {
        let mut wire = format!("*{}\r\n", words.len());
        for word in words {
            wire.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(wire.as_bytes()).await?;
        let mut missing = 1;
        let mut parts = Vec::new();
        while missing > 0 {
            missing -= 1;
            let mut line = String::new();
            if self.0.read_line(&mut line).await? == 0 {
                return Err("the server closed a connection".into());
            }
            let line = line.trim_end();
            let (kind, rest) = line.split_at_checked(1).ok_or("an empty line")?;
            match kind {
                "-" => return Err(format!("{words:?}: {rest}").into()),
                "*" => missing += rest.parse::<usize>()?,
                "$" if rest != "-1" => {
                    let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                    self.0.read_exact(&mut bytes).await?;
                    bytes.truncate(bytes.len() - 2);
                    parts.push(String::from_utf8_lossy(&bytes).into_owned());
                }
                _ => parts.push(rest.to_owned()),
            }
        }
        Ok(parts)
    }
}

/// The member of a flat reply.
pub fn member<'a>(parts: &'a [String], name: &str) -> Option<&'a str> {
    let at = parts.iter().position(|part| part == name)?;
    parts.get(at + 1).map(String::as_str)
}

/// Latencies of a while.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In milliseconds: what so many of a thousand are not above.
    pub fn per_mille(&self, rank: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * rank / 1000).min(sorted.len().saturating_sub(1));
        sorted
            .get(at)
            .map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    }
}
