//! The redis crate with its default settings.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::{Commands, Connection, ExistenceCheck, RedisResult, SetExpiry, SetOptions, Value};

type Check = (&'static str, fn() -> RedisResult<()>);

const CHECKS: [Check; 6] = [
    ("connect", connect),
    ("race", race),
    ("release", release),
    ("expire", expire),
    ("once", once),
    ("restart", restart),
];

fn main() {
    for (name, check) in CHECKS {
        check().unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("ok {name}");
    }
}

fn client() -> redis::Client {
    let port = std::env::var("PEER_REDIS").expect("PEER_REDIS");
    redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("an address")
}

/// Whether the key was free.
fn take(on: &mut Connection, key: &str, value: &str, expiry: SetExpiry) -> RedisResult<bool> {
    let options = SetOptions::default()
        .conditional_set(ExistenceCheck::NX)
        .with_expiration(expiry);
    let answer: Option<String> = on.set_options(key, value, options)?;
    Ok(answer.is_some())
}

fn connect() -> RedisResult<()> {
    for _ in 0..1000 {
        let answer: String = redis::cmd("PING").query(&mut client().get_connection()?)?;
        assert_eq!(answer, "PONG");
    }
    Ok(())
}

fn race() -> RedisResult<()> {
    let runners: Vec<_> = (0..20)
        .map(|n| {
            std::thread::spawn(move || {
                let mut on = client().get_connection()?;
                take(&mut on, "race", &format!("client-{n}"), SetExpiry::EX(60))
            })
        })
        .collect();
    let mut won = Vec::new();
    for (n, runner) in runners.into_iter().enumerate() {
        if runner.join().expect("a thread")? {
            won.push(format!("client-{n}"));
        }
    }
    let kept: String = client().get_connection()?.get("race")?;
    assert_eq!(won, [kept]);
    Ok(())
}

fn release() -> RedisResult<()> {
    let mut on = client().get_connection()?;
    assert!(take(&mut on, "release", "a", SetExpiry::EX(60))?);
    assert!(!take(&mut on, "release", "b", SetExpiry::EX(60))?);
    assert_eq!(on.del::<_, i64>("release")?, 1);
    assert!(take(&mut on, "release", "b", SetExpiry::EX(60))?);
    Ok(())
}

fn expire() -> RedisResult<()> {
    let mut on = client().get_connection()?;
    let start = Instant::now();
    assert!(take(&mut on, "expire", "a", SetExpiry::PX(200))?);
    while on.get::<_, Option<String>>("expire")?.is_some() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "it never expired"
        );
    }
    assert!(
        start.elapsed() >= Duration::from_millis(190),
        "it expired early"
    );
    assert!(take(&mut on, "expire", "b", SetExpiry::PX(200))?);
    Ok(())
}

fn once() -> RedisResult<()> {
    let mut on = client().get_connection()?;
    let mut ask = |words: &str| -> RedisResult<HashMap<String, Value>> {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().expect("a name"));
        words
            .fold(&mut command, |command, word| command.arg(word))
            .query(&mut on)
    };
    let outcome = |answer: &HashMap<String, Value>| -> String {
        redis::from_redis_value_ref(&answer["outcome"]).expect("a text")
    };
    let first = ask("ONCE.CLAIM evt LEASE 30000 OWNER worker-1")?;
    assert_eq!(outcome(&first), "acquired");
    let Value::Int(token) = first["token"] else {
        panic!("{first:?}")
    };
    assert_eq!(outcome(&ask("ONCE.CLAIM evt")?), "busy");
    assert_eq!(
        outcome(&ask(&format!("ONCE.COMPLETE evt {token} RESULT paid"))?),
        "completed"
    );
    assert_eq!(outcome(&ask("ONCE.CLAIM evt")?), "done");
    assert_eq!(on.get::<_, String>("evt")?, "paid");
    Ok(())
}

fn restart() -> RedisResult<()> {
    let client = client();
    let mut on = client.get_connection()?;
    assert!(take(&mut on, "restart", "a", SetExpiry::EX(600))?);
    let server = std::env::var("PEER_SERVER").expect("PEER_SERVER");
    let restarted = Command::new(server)
        .arg("restart")
        .status()
        .expect("a process");
    assert!(restarted.success());
    // A connection of this crate ends with its server; the client opens another.
    let lost = take(&mut on, "restart", "b", SetExpiry::EX(600)).expect_err("a lost connection");
    assert!(lost.is_connection_dropped() || lost.is_io_error(), "{lost}");
    let mut on = client.get_connection()?;
    assert!(!take(&mut on, "restart", "b", SetExpiry::EX(600))?);
    assert_eq!(on.get::<_, String>("restart")?, "a");
    Ok(())
}
