//! Export and import (SPEC 8): records as lines of JSON, page by page.
//!
//! * [`row`]: between a record and its line.

mod row;

use bytes::Bytes;

use self::row::Row;
use super::Face;
use super::json::Object;
use super::params::{Params, cursor};
use super::problem::Refusal;
use crate::engine::Exported;
use crate::model::imported::{Import, MAX_IMPORTED};
use crate::model::key::RecordKey;
use crate::model::outcome::{Imported, Verdict};
use crate::model::record::{State, Token};

/// The most lines of an import.
pub const MAX_LINES: usize = 1000;
/// The most bytes of an import, but for a record that is longer alone.
pub const MAX_IMPORT: usize = 8 << 20;

/// Where a page goes on after this record.
pub(super) fn after(params: &Params<'_>) -> Result<Option<RecordKey>, Refusal> {
    let Some(joined) = params.bytes("cursor") else {
        return Ok(None);
    };
    let key = RecordKey::from_joined(Bytes::copy_from_slice(joined));
    key.map(Some).ok_or_else(|| {
        Refusal::bad_input("cursor: not one of an export; take `next` of the page before")
    })
}

/// The lines of a page; the last one says where the next page begins, which tokens may have been granted, and by which store.
pub(super) fn lines(page: &Exported) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    for (key, outcome) in &page.records {
        let Some(shown) = &outcome.record else {
            continue;
        };
        let row = Row::of(key, &shown.record, outcome.now).ok_or_else(|| {
            Refusal::unavailable("a payload or result could not be read; try again")
        })?;
        // A row always serialises, and writing to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut out, &row);
        out.push(b'\n');
    }
    let mut object = Object::begin(&mut out);
    match &page.next {
        Some(key) => object.text("next", &cursor(&Bytes::copy_from_slice(key.joined()))),
        None => object.null("next"),
    }
    object.number("granted", page.granted.get());
    object.text("store", &page.store);
    object.text("at", &page.now.time.to_string());
    object.end();
    out.push(b'\n');
    Ok(out)
}

/// How many bytes an import may have where bodies may have so many.
pub(super) const fn limit(payload: usize, result: usize) -> usize {
    // A record has up to three bodies, and none takes more than twice its bytes.
    let largest = payload.saturating_add(result.saturating_mul(2));
    let largest = largest.saturating_mul(2).saturating_add(256 << 10);
    if largest > MAX_IMPORT {
        largest
    } else {
        MAX_IMPORT
    }
}

/// A line that was read, and the number it has in its file.
struct Read {
    number: u64,
    key: RecordKey,
    import: Import,
}

/// Stores the records of these lines.
///
/// # Errors
/// A line that is none: named by its number, and nothing of all of them stored. What refuses a record refuses the
/// import; what was stored before it stays, and does no harm when all of them come again.
pub(super) async fn import(
    face: &Face,
    params: &Params<'_>,
    bytes: &Bytes,
    by: Option<Box<str>>,
) -> Result<Vec<u8>, Refusal> {
    let first = params.number("first").unwrap_or(1_u64);
    let granted = params.token("granted").unwrap_or(Token::FIRST);
    if granted > MAX_IMPORTED {
        return Err(Refusal::bad_input("granted: a token is below 2^52"));
    }
    let limits = (face.options.payload_limit, face.options.result_limit);
    let read = read(bytes, first, granted, limits)?;
    let names: Vec<_> = read
        .iter()
        .map(|line| (line.number, line.key.clone()))
        .collect();
    let pending: Vec<_> = read
        .iter()
        .map(|line| line.import.record.state == State::Pending)
        .collect();
    let records = read
        .into_iter()
        .map(|line| (line.key, line.import))
        .collect();
    let answers = face.engine.import(records, by).await;
    let (mut imported, mut there, mut expired, mut in_doubt) = (0, 0, 0, 0);
    let mut differ = Vec::new();
    for ((line, answer), pending) in names.iter().zip(answers).zip(pending) {
        match answer?.verdict {
            Verdict::Imported(Imported::Stored) => {
                imported += 1;
                in_doubt += u64::from(pending);
            }
            Verdict::Imported(Imported::There) => there += 1,
            Verdict::Imported(Imported::Expired) => expired += 1,
            Verdict::Conflict(_) => differ.push(line),
            verdict => {
                let (number, name) = (line.0, verdict.name());
                return Err(Refusal::bad_input(format!("line {number}: {name}")));
            }
        }
    }
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object.number("imported", imported);
    object.number("there", there);
    object.number("expired", expired);
    object.number("in_doubt", in_doubt);
    object.raw("differ", |out| {
        out.push(b'[');
        for (at, (number, key)) in differ.into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let mut object = Object::begin(out);
            object.number("line", *number);
            object.text("namespace", key.namespace());
            object.key(key.key());
            object.end();
        }
        out.push(b']');
    });
    object.end();
    Ok(out)
}

fn read(
    bytes: &[u8],
    first: u64,
    granted: Token,
    (payload, result): (usize, usize),
) -> Result<Vec<Read>, Refusal> {
    let mut read = Vec::new();
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    for (at, line) in (0..).zip(lines.split(|byte| *byte == b'\n')) {
        let number = first.saturating_add(at);
        let bad = |why: String| Refusal::bad_input(format!("line {number}: {why}"));
        if read.len() == MAX_LINES {
            let why = format!("more than {MAX_LINES} lines; send them in parts");
            return Err(bad(why));
        }
        let row: super::document::Object<Row<'_>> =
            serde_json::from_slice(line).map_err(|error| bad(format!("no record: {error}")))?;
        let (key, import) = row.0.import(granted).map_err(bad)?;
        import
            .check()
            .map_err(|rule| bad(format!("no store writes such a record: {rule}")))?;
        let record = &import.record;
        let long = |what, limit| {
            bad(format!(
                "a {what} has at most {limit} bytes here; raise --max-{what} first"
            ))
        };
        if record
            .payload
            .iter()
            .any(|body| body.content.len() > payload)
        {
            return Err(long("payload", payload));
        }
        let mut results = record.result.iter().chain(&record.earlier_result);
        if results.any(|kept| kept.body.content.len() > result) {
            return Err(long("result", result));
        }
        read.push(Read {
            number,
            key,
            import,
        });
    }
    Ok(read)
}
