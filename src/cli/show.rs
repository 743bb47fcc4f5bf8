//! Answers for people, and the exit code that scripts go by (SPEC 8).

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::client::{Answer, Request, Server};
use super::{Exit, Failure};

/// Sends the request, prints its answer and tells the exit code.
///
/// # Errors
/// There was no answer, or it could not be printed.
pub(super) fn answer(server: &Server, request: &Request) -> Result<Exit, Failure> {
    let answer = server.send(request)?;
    if request.method == "GET" {
        more(&whole(server, &answer))?;
        return Ok(exit(&answer));
    }
    shown(server, &answer)
}

/// Prints an answer and tells the exit code.
///
/// # Errors
/// It could not be printed.
pub(super) fn shown(server: &Server, answer: &Answer) -> Result<Exit, Failure> {
    print(&whole(server, answer))?;
    Ok(exit(answer))
}

fn whole(server: &Server, answer: &Answer) -> Vec<u8> {
    if server.json {
        [&*answer.body, b"\n"].concat()
    } else {
        text(answer).into_bytes()
    }
}

/// Prints to standard output.
///
/// # Errors
/// Nobody reads it: what was decided is decided, but the caller does not know.
pub(super) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    let printed = stdout.write_all(bytes).and_then(|()| stdout.flush());
    printed.map_err(|error| {
        let next = "ask again with `onced get`";
        Failure::new(Exit::Failure, "cannot print the answer", error, next)
    })
}

/// Prints a text that may be longer than a screen. Whoever stops reading (`| head`) has read enough.
///
/// # Errors
/// It cannot be written, for another reason.
pub(super) fn page(bytes: &[u8]) -> Result<(), Failure> {
    more(bytes).map(|_| ())
}

/// The same, and tells whether anybody reads on.
///
/// # Errors
/// As [`page`].
pub(super) fn more(bytes: &[u8]) -> Result<bool, Failure> {
    let mut stdout = io::stdout();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            let next = "say where to with > FILE";
            Err(Failure::new(Exit::Failure, "cannot print", error, next))
        }
    }
}

/// The exit code of an answer.
pub(super) fn exit(answer: &Answer) -> Exit {
    match answer.outcome.as_deref() {
        Some("done") => Exit::Duplicate,
        Some("stale") => Exit::Stale,
        Some("mismatch") => Exit::Mismatch,
        Some("busy" | "backoff" | "full" | "unavailable") => Exit::Unavailable,
        Some("in_doubt") => Exit::InDoubt,
        Some("dead") => Exit::Dead,
        Some("bad_input") => Exit::Usage,
        // Without an outcome it was no onced that answered.
        Some(_) if (200..300).contains(&answer.status) => Exit::Success,
        _ => Exit::Failure,
    }
}

/// One line that says it, then what else is known, a line for each fact.
fn text(answer: &Answer) -> String {
    let Ok(Value::Object(mut facts)) = serde_json::from_slice(&answer.body) else {
        let outcome = answer
            .outcome
            .as_deref()
            .unwrap_or("an answer that is not onced's");
        return format!("{outcome} (HTTP {})\n", answer.status);
    };
    if let Some(Value::Array(records)) = facts.get("records") {
        return table(records, facts.get("next"));
    }
    let outcome = take_text(&mut facts, "outcome").or_else(|| answer.outcome.clone());
    let mut out = outcome.unwrap_or_else(|| answer.status.to_string());
    if let Some(reason) = take_text(&mut facts, "reason") {
        out.push_str(&format!(" ({reason})"));
    }
    if let Some(detail) = take_text(&mut facts, "detail") {
        out.push_str(&format!(": {detail}"));
    }
    out.push('\n');
    for name in ["type", "title", "status"] {
        if facts.get("result").is_none() {
            facts.remove(name);
        }
    }
    for (name, value) in &facts {
        lines(&mut out, name, value);
    }
    out
}

fn take_text(facts: &mut Map<String, Value>, name: &str) -> Option<String> {
    match facts.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Facts in facts get the names of both; what is absent is left out.
fn lines(out: &mut String, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(facts) => {
            for (inner, value) in facts {
                // One level is all there is; anything deeper shows as it came.
                out.push_str(&format!("{name}.{inner}: {}\n", plain(value)));
            }
        }
        Value::Array(items) => {
            for item in items {
                out.push_str(&format!("{name}: {}\n", plain(item)));
            }
        }
        other => out.push_str(&format!("{name}: {}\n", plain(other))),
    }
}

/// A text without its quotes, unless it could be taken for something else on a terminal.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.chars().any(char::is_control) => text.clone(),
        other => other.to_string(),
    }
}

fn table(records: &[Value], next: Option<&Value>) -> String {
    let columns = ["key", "state", "attempt", "token", "owner", "last_error"];
    let cell = |record: &Value, name: &str| {
        let value = record
            .get(name)
            .or_else(|| (name == "key").then(|| record.get("key_base64"))?);
        value
            .filter(|value| !value.is_null())
            .map(plain)
            .unwrap_or_default()
    };
    let mut rows = vec![columns.map(str::to_owned)];
    rows.extend(
        records
            .iter()
            .map(|record| columns.map(|name| cell(record, name))),
    );
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    if let Some(Value::String(next)) = next {
        out.push_str(&format!("more: --cursor {next}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(status: u16, outcome: &str, body: &str) -> Answer {
        Answer {
            status,
            outcome: Some(outcome.to_owned()),
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        let table = [
            (201, "acquired", Exit::Success),
            (200, "completed", Exit::Success),
            (200, "ok", Exit::Success),
            (200, "done", Exit::Duplicate),
            (412, "stale", Exit::Stale),
            (422, "mismatch", Exit::Mismatch),
            (409, "busy", Exit::Unavailable),
            (409, "backoff", Exit::Unavailable),
            (507, "full", Exit::Unavailable),
            (503, "unavailable", Exit::Unavailable),
            (409, "in_doubt", Exit::InDoubt),
            (409, "dead", Exit::Dead),
            (404, "not_found", Exit::Failure),
            (409, "conflict", Exit::Failure),
            (413, "too_large", Exit::Failure),
            (400, "bad_input", Exit::Usage),
        ];
        for (status, outcome, expected) in table {
            assert_eq!(exit(&made(status, outcome, "")), expected, "{outcome}");
        }
        let other = Answer {
            status: 200,
            outcome: None,
            body: Vec::new(),
        };
        assert_eq!(exit(&other), Exit::Failure, "somebody else's answer");
    }

    #[test]
    fn answers_read_as_text() {
        let acquired =
            r#"{"outcome":"acquired","reason":"new","key":"k","token":1,"payload":false}"#;
        let text_of = |body| text(&made(201, "acquired", body));
        assert_eq!(
            text_of(acquired),
            "acquired (new)\nkey: k\npayload: false\ntoken: 1\n"
        );
        let busy = r#"{"type":"/x","title":"t","status":409,"detail":"wait","outcome":"busy","owner":"a"}"#;
        assert_eq!(text_of(busy), "busy: wait\nowner: a\n");
        let forged = r#"{"outcome":"acquired","owner":"a\u001b[2Jb"}"#;
        assert_eq!(text_of(forged), "acquired\nowner: \"a\\u001b[2Jb\"\n");
        let list =
            r#"{"records":[{"key":"k","state":"pending","attempt":1,"token":7}],"next":"k"}"#;
        assert_eq!(
            text_of(list),
            "key  state    attempt  token  owner  last_error\nk    pending  1        7\nmore: --cursor k\n"
        );
    }
}
