//! Healthy clients beside thousands that are idle, slow or deaf.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::server::Server;
use crate::wire::{Latencies, Redis, member};

const HEALTHY: usize = 8;
const TIME: Duration = Duration::from_secs(10);

/// The latency of the healthy alone, and beside each crowd.
pub async fn run(server: &Server, idle: usize) -> Outcome<()> {
    println!(
        "{HEALTHY} healthy clients, a durable claim every 5 ms each, beside        p50 ms  p99 ms  p99.9   MiB memory  files"
    );
    measure(server, "nobody", 1).await?;

    let mut crowd = Vec::new();
    for number in 0..idle {
        let address = if number % 2 == 0 {
            server.redis
        } else {
            server.http
        };
        let mut stream = TcpStream::connect(address).await?;
        // So that it is a client, not only a connection.
        let asked: &[u8] = match number % 2 {
            0 => b"PING\r\n",
            _ => b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        };
        stream.write_all(asked).await?;
        crowd.push(stream);
    }
    measure(server, &format!("{idle} idle connections"), 2).await?;
    drop(crowd);
    gone(server, 200).await?;

    waiting(server, idle).await?;
    gone(server, 200).await?;

    let slow = idle / 2;
    let mut dripping = JoinSet::new();
    for _ in 0..slow {
        dripping.spawn(drip(server.http));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    measure(server, &format!("{slow} heads that never end"), 3).await?;
    dripping.shutdown().await;
    gone(server, 200).await?;

    let mut redis = Redis::connect(server.redis).await?;
    let value = "x".repeat(500_000);
    redis
        .command(&["SET", "large", &value, "EX", "3600"])
        .await?;
    let mut deaf = Vec::new();
    for _ in 0..500 {
        let mut stream = TcpStream::connect(server.redis).await?;
        let asked = b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n".repeat(100);
        // The server stops reading from those who do not read; so this may not go out whole.
        let _ = tokio::time::timeout(Duration::from_millis(20), stream.write_all(&asked)).await;
        deaf.push(stream);
    }
    measure(server, "500 that ask for 50 MB each and never read", 4).await?;
    drop(deaf);
    gone(server, 200).await?;
    measure(server, "nobody, again", 6).await
}

/// Claims over HTTP that wait for one key, which its holder completes then.
async fn waiting(server: &Server, count: usize) -> Outcome<()> {
    let mut redis = Redis::connect(server.redis).await?;
    let held = redis
        .command(&["ONCE.CLAIM", "held", "LEASE", "3600000"])
        .await?;
    let token = member(&held, "token").ok_or("the key was not free")?;
    let mut crowd = JoinSet::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(server.http).await?;
        let asked = b"POST /v1/claims/default/held?wait=1m HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(asked).await?;
        crowd.spawn(async move {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        });
    }
    measure(server, &format!("{count} claims that wait for one key"), 5).await?;
    if let Some(answer) = crowd.try_join_next() {
        return Err(format!("a claim did not wait: {:?}", answer??).into());
    }
    let begun = Instant::now();
    redis
        .command(&["ONCE.COMPLETE", "held", token, "RESULT", "paid"])
        .await?;
    while let Some(answer) = crowd.join_next().await {
        let answer = answer??;
        if !answer.contains("\r\nonced-outcome: done\r\n") {
            return Err(format!("a claim that waited was not told the end: {answer:?}").into());
        }
    }
    println!("  all of them told {:?} after the end", begun.elapsed());
    Ok(())
}

/// A head whose end never comes: a byte now and then, and a new connection when it is cut.
async fn drip(address: SocketAddr) {
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
        let mut sent = stream.write_all(head).await;
        while sent.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            sent = stream.write_all(b"x").await;
        }
    }
}

/// Returns when the server has closed its side of the crowd.
async fn gone(server: &Server, files: usize) -> Outcome<()> {
    let begun = Instant::now();
    while server.sample()?.files > files {
        if begun.elapsed() > Duration::from_secs(30) {
            return Err("connections of clients that have gone stay open".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn measure(server: &Server, beside: &str, round: usize) -> Outcome<()> {
    let mut clients = JoinSet::new();
    for number in 0..HEALTHY {
        let address = server.redis;
        clients.spawn(async move {
            healthy(address, round, number)
                .await
                .map_err(|error| error.to_string())
        });
    }
    let mut all = Latencies::default();
    while let Some(client) = clients.join_next().await {
        for latency in client?? {
            all.add(latency);
        }
    }
    let sample = server.sample()?;
    println!(
        "  {beside:<60} {:11.2} {:7.2} {:6.1} {:12.1} {:6}",
        all.per_mille(500),
        all.per_mille(990),
        all.per_mille(999),
        sample.memory as f64 / 1_048_576.0,
        sample.files,
    );
    if all.len() < HEALTHY * 100 {
        return Err(format!("only {} claims were answered", all.len()).into());
    }
    Ok(())
}

async fn healthy(address: SocketAddr, round: usize, number: usize) -> Outcome<Vec<Duration>> {
    let mut redis = Redis::connect(address).await?;
    let begun = Instant::now();
    let mut latencies = Vec::new();
    while begun.elapsed() < TIME {
        let key = format!("healthy:{round}:{number}:{}", latencies.len());
        let sent = Instant::now();
        redis.command(&["SET", &key, "v", "NX", "EX", "60"]).await?;
        latencies.push(sent.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(latencies)
}
