//! `stats`: the server's figures, once or again and again.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::{Request, Server};
use super::{Exit, Failure, events, show};

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(2);

/// Show what the server counts: answers, times, sizes
#[derive(Args, Debug)]
pub(super) struct Stats {
    /// Look again every two seconds
    #[arg(long)]
    watch: bool,

    #[command(flatten)]
    server: Server,
}

impl Stats {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = Request {
            method: "GET",
            path: "/v1/stats".to_owned(),
            query: Vec::new(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        loop {
            let answer = self.server.send(&request)?;
            if answer.outcome.as_deref() != Some("ok") {
                return events::refused(&answer);
            }
            let read_on = if self.server.json {
                show::more(&[&*answer.body, b"\n"].concat())?
            } else {
                let figures: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let mut text = text(&figures);
                if self.watch {
                    // Clears the screen first.
                    text.insert_str(0, "\x1b[H\x1b[2J");
                }
                show::more(text.as_bytes())?
            };
            if !self.watch || !read_on {
                return Ok(Exit::Success);
            }
            std::thread::sleep(EVERY);
        }
    }
}

/// A line for each figure; those without a value are left out.
fn text(figures: &Value) -> String {
    let mut out = String::new();
    for (name, value) in figures.as_object().into_iter().flatten() {
        match value {
            Value::Array(samples) => {
                for sample in samples {
                    let labels = sample.as_object().into_iter().flatten();
                    let labels: Vec<_> = labels
                        .filter(|(label, _)| *label != "value")
                        .map(|(label, text)| format!("{label}={}", show::plain(text)))
                        .collect();
                    let name = format!("{name} {}", labels.join(" "));
                    line(&mut out, &name, sample.get("value").unwrap_or(&Value::Null));
                }
            }
            value => line(&mut out, name, value),
        }
    }
    out
}

fn line(out: &mut String, name: &str, value: &Value) {
    match value {
        Value::Object(spread) => {
            let of = |name: &str| spread.get(name).map(show::plain).unwrap_or_default();
            if of("count") != "0" {
                let (half, most) = (of("p50"), of("p99"));
                let count = of("count");
                out.push_str(&format!(
                    "{name}: {count}, half up to {half}, 99 % up to {most}\n"
                ));
            }
        }
        value if value.as_f64() == Some(0.0) => {}
        value => out.push_str(&format!("{name}: {}\n", show::plain(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_lines_and_nothing_counted_is_no_line() {
        let figures = serde_json::json!({
            "answers": [{"ns": "a", "verb": "claim", "outcome": "busy", "value": 3}],
            "commit_seconds": {"count": 2, "sum": 0.1, "p50": 0.05, "p99": null},
            "late_completions": 0,
            "full": 1,
            "refusals": [{"limit": "full", "value": 0}],
        });
        assert_eq!(
            text(&figures),
            "answers ns=a outcome=busy verb=claim: 3\ncommit_seconds: 2, half up to 0.05, 99 % up to null\nfull: 1\n"
        );
    }
}
