//! What is around onced here: the clock, and the server that runs.

use std::time::Duration;

use serde_json::json;

use super::{Came, Trial};
use crate::cli::Failure;
use crate::cli::client::{Request, Server};
use crate::engine::clock::{Source, Timer};
use crate::model::time::Timestamp;

/// How long the clocks are watched.
const WATCHED: Duration = Duration::from_millis(500);
/// How far they may drift apart meanwhile.
const APART: u64 = 100;
/// Before onced was written, and long after it: 2025 and 2100.
const PLAUSIBLE: std::ops::Range<u64> = 1_735_689_600_000..4_102_444_800_000;

/// Whether the wall clock tells a plausible time and goes as fast as the machine's own.
pub(super) fn clock() -> Trial {
    const NAME: &str = "clock";
    let source = Source::system();
    let (before, _) = source.read();
    let timer = Timer::start();
    std::thread::sleep(WATCHED);
    let passed = u64::try_from(timer.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (after, _) = source.read();
    let wall = after.wall.saturating_sub(before.wall);
    let boot = after.boot.saturating_sub(before.boot);
    let at = Timestamp::from_millis(after.wall);
    let (came, text) = if !PLAUSIBLE.contains(&after.wall) {
        (
            Came::Failed,
            format!("it says {at}: set it, retention follows it"),
        )
    } else if boot.abs_diff(passed) > APART {
        (
            Came::Failed,
            format!("the boot clock went {boot} ms in {passed}: leases count on it"),
        )
    } else if wall.abs_diff(passed) > APART {
        (
            Came::Warning,
            format!("the wall clock went {wall} ms in {passed}: something sets it"),
        )
    } else {
        (
            Came::Held,
            format!("it says {at}, and goes as the boot clock does"),
        )
    };
    Trial {
        figures: json!({"wall_ms": wall, "boot_ms": boot, "passed_ms": passed}),
        ..Trial::of(NAME, came, text)
    }
}

/// The server that the client verbs would ask; where that is `localhost`, over both of its addresses.
pub(super) fn server(server: &Server) -> Vec<Trial> {
    let ways = server.ways();
    let mut trials = Vec::new();
    let (mut reached, mut refused) = (0_u32, Vec::new());
    for way in ways {
        match probe(&way) {
            Ok(trial) => {
                reached += 1;
                trials.push(trial);
            }
            Err(failure) => refused.push((way.url().to_owned(), failure)),
        }
    }
    if reached == 0 {
        let url = server.url();
        let text = format!(
            "none is reached at {url}, so none was tried; start it, or say where it is with --url"
        );
        return vec![Trial::of("server", Came::Skipped, text)];
    }
    for (url, failure) in refused {
        // One of the two is enough for a client that tries both.
        let text = format!("{url} is not reached, and another address is: {failure}");
        trials.push(Trial::of("server", Came::Warning, text));
    }
    trials
}

/// Asks whether it runs and whether it answers. `Err`: nobody is there.
fn probe(server: &Server) -> Result<Trial, Failure> {
    let mut said = Vec::new();
    for path in ["/healthz", "/readyz"] {
        let request = Request {
            method: "GET",
            path: path.to_owned(),
            query: Vec::new(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        let answer = match server.send(&request) {
            Ok(answer) => answer,
            Err(failure) if said.is_empty() && server.is_deaf() => return Err(failure),
            Err(failure) => return Ok(Trial::of("server", Came::Failed, failure.to_string())),
        };
        said.push((path, answer.status, answer.outcome));
    }
    let url = server.url();
    let whole = said
        .iter()
        .all(|(_, status, outcome)| *status == 200 && outcome.as_deref() == Some("ok"));
    let came = if whole { Came::Held } else { Came::Failed };
    let each = |(path, status, _): &(&str, u16, Option<String>)| format!("{path} {status}");
    let said: Vec<_> = said.iter().map(each).collect();
    let text = match whole {
        true => format!("{url} runs and answers"),
        false => format!(
            "{url} answers, but not as a server that is ready: {}",
            said.join(", ")
        ),
    };
    Ok(Trial::of("server", came, text))
}
