//! A server of its own: asked by many at once, killed in the middle, and on a full disk.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Came, Trial};
use crate::cli::Failure;
use crate::cli::client::{Answer, Request, Server};
use crate::cli::own::Own;
use crate::engine::clock::Timer;

/// Who claim one key at once.
const CLIENTS: usize = 50;
/// Who claim while the server is killed, and for how long.
const WRITERS: usize = 8;
const LOAD: Duration = Duration::from_millis(1500);
/// Claims that are asked for again after the kill, at most.
const ASKED: usize = 2000;
/// The small file system, and what is claimed with on it.
const SMALL: &str = "96m";
const PAYLOAD: usize = 60_000;
/// More payloads than have room there.
const PAYLOADS: usize = 4000;

fn post(
    server: &Server,
    path: &str,
    query: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
) -> Result<Answer, Failure> {
    server.send(&Request {
        method: "POST",
        path: path.to_owned(),
        query,
        body,
        content_type: None,
        wait: Duration::ZERO,
    })
}

fn claim(server: &Server, key: &str) -> Result<Answer, Failure> {
    let once = vec![("mode", b"once".to_vec())];
    post(
        server,
        &format!("/v1/claims/selftest/{key}"),
        once,
        Vec::new(),
    )
}

fn token(answer: &Answer) -> Option<u64> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    body["token"].as_u64()
}

fn said(answer: &Answer) -> &str {
    answer.outcome.as_deref().unwrap_or("nothing")
}

/// Many first claims of one key at the same moment: one acquires.
pub(super) fn one_winner(folder: &Path) -> Result<Trial, Failure> {
    const NAME: &str = "one winner";
    let own = Own::start(&folder.join("one"))?;
    let client = own.client();
    let (at_once, won, lost) = (Barrier::new(CLIENTS), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                at_once.wait();
                let answer = post(&client, "/v1/claims/selftest/one", Vec::new(), Vec::new());
                match answer.as_ref().ok().map(said) {
                    Some("acquired") => won.fetch_add(1, Ordering::Relaxed),
                    Some("busy") => lost.fetch_add(1, Ordering::Relaxed),
                    _ => 0,
                };
            });
        }
    });
    let (won, lost) = (won.into_inner(), lost.into_inner());
    let whole = won == 1 && lost == CLIENTS as u64 - 1;
    let came = if whole { Came::Held } else { Came::Failed };
    let text =
        format!("of {CLIENTS} first claims at once {won} acquired and {lost} were refused as busy");
    Ok(Trial {
        figures: json!({"acquired": won, "busy": lost}),
        ..Trial::of(NAME, came, text)
    })
}

/// Killed in the middle of claims, it has each that it acknowledged.
pub(super) fn kill(folder: &Path) -> Result<Trial, Failure> {
    const NAME: &str = "kill -9";
    let data = folder.join("kill");
    let mut own = Own::start(&data)?;
    let client = own.client();
    let (told, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (client, told, over) = (&client, &told, &over);
            scope.spawn(move || {
                for number in 0_u64.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("{writer}-{number}");
                    let Ok(answer) = claim(client, &key) else {
                        break;
                    };
                    if let ("acquired", Some(token)) = (said(&answer), token(&answer)) {
                        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                        told.push((key, token));
                    }
                }
            });
        }
        std::thread::sleep(LOAD);
        own.kill();
        over.store(true, Ordering::Relaxed);
    });
    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    let again = Timer::start();
    let own = Own::start(&data)?;
    let took = again.elapsed();
    let client = own.client();
    // The last ones were on their way when it was killed.
    let asked = told.iter().rev().take(ASKED);
    let (mut lost, mut looked) = (0_u64, 0_u64);
    for (key, granted) in asked {
        let answer = claim(&client, key)?;
        looked += 1;
        if said(&answer) != "done" || token(&answer) != Some(*granted) {
            lost += 1;
        }
    }
    let acknowledged = told.len();
    let came = match (lost, looked) {
        (0, 1..) => Came::Held,
        _ => Came::Failed,
    };
    let text = format!(
        "{acknowledged} claims were acknowledged before it; of the last {looked} of them {lost} are lost; ready again in \
         {took:.0?}"
    );
    Ok(Trial {
        figures: json!({
            "acknowledged": acknowledged, "asked": looked, "lost": lost, "ready_ms": took.as_millis() as u64,
        }),
        ..Trial::of(NAME, came, text)
    })
}

/// On a small file system of its own: when that is full, new work is refused and old work is finished.
pub(super) fn full(folder: &Path) -> Result<Trial, Failure> {
    const NAME: &str = "full disk";
    let small = folder.join("small");
    let cannot = |why: String| {
        let text =
            format!("not tried: {why}; it needs `unshare` of util-linux and user namespaces");
        Ok(Trial::of(NAME, Came::Skipped, text))
    };
    if let Err(error) = std::fs::create_dir(&small) {
        return cannot(error.to_string());
    }
    let mount = "mount -t tmpfs -o size=\"$1\" tmpfs \"$2\" && shift 2 && exec \"$@\"";
    let probe = unshared(mount, &small).arg("true").output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(output) => return cannot(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => return cannot(error.to_string()),
    }
    let limits = [
        "--max-payload",
        "64KiB",
        "--max-result",
        "64KiB",
        "--recent-memory",
        "1MiB",
    ];
    let serve = Own::command(&small.join("data"), &limits)?;
    let mut inside = unshared(mount, &small);
    inside.arg(serve.get_program()).args(serve.get_args());
    let own = Own::spawn(inside)?;
    let client = own.client();
    let held = post(&client, "/v1/claims/selftest/held", Vec::new(), Vec::new())?;
    let token = token(&held).unwrap_or(0).to_string();
    claim(&client, "known")?;
    let store = || vec![("store", b"true".to_vec())];
    let mut refused = None;
    for number in 0..PAYLOADS {
        let path = format!("/v1/claims/selftest/fill-{number}");
        let answer = post(&client, &path, store(), vec![0x5a; PAYLOAD])?;
        if said(&answer) != "acquired" {
            refused = Some(answer);
            break;
        }
    }
    let Some(refused) = refused else {
        let text = format!("{PAYLOADS} payloads were taken, and it never got full");
        return Ok(Trial::of(NAME, Came::Failed, text));
    };
    let known = claim(&client, "known")?;
    let finished = post(
        &client,
        "/v1/claims/selftest/held/complete",
        vec![("token", token.into_bytes())],
        b"result".to_vec(),
    )?;
    let answers = (said(&refused), said(&known), said(&finished));
    let came = match answers {
        ("full", "done", "completed") => Came::Held,
        _ => Came::Failed,
    };
    let (new, known, finished) = answers;
    let text = format!(
        "on a full disk of {SMALL} a new claim is answered `{new}`, a known key `{known}`, and work in hand `{finished}`"
    );
    Ok(Trial::of(NAME, came, text))
}

/// A command with a small file system of its own, mounted there.
fn unshared(mount: &str, at: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        mount,
        "sh",
        SMALL,
    ]);
    command.arg(at);
    command
}
