//! The file of an export: a head that says what it is, a record a line, and an end that says how many there are and
//! what all bytes before it hash to. So a file that was cut or changed is known.
//!
//! ```text
//! {"onced_export":1,"version":"0.1.0","store":"0b5f...","at":"2026-01-02T03:04:05.678Z","namespace":null}
//! {"namespace":"default","key":"evt_1", ...}
//! {"end":{"records":1,"granted":42,"sha256":"..."}}
//! ```

use std::io::{self, BufRead, Read};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The format that is written; a later one is refused.
pub(super) const FORMAT: u64 = 1;
/// The longest line: more than any record has, bodies at their highest limit.
const MAX_LINE: u64 = 256 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) onced_export: u64,
    pub(super) version: String,
    /// The id of the store that the records are in.
    pub(super) store: String,
    /// When it began.
    pub(super) at: String,
    /// Of one namespace only.
    pub(super) namespace: Option<String>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    end: End,
}

/// What the last line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    pub(super) records: u64,
    /// The highest token that the store may have granted.
    pub(super) granted: u64,
    pub(super) sha256: String,
}

/// What all lines so far hash to.
#[derive(Clone, Default)]
pub(super) struct Sum(Sha256);

impl Sum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn hex(&self) -> String {
        let digest = self.0.clone().finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The first line, with its end.
pub(super) fn head_line(head: &Head) -> Vec<u8> {
    line(head)
}

/// The last line, with its end.
pub(super) fn end_line(end: End) -> Vec<u8> {
    line(&Last { end })
}

fn line(what: &impl Serialize) -> Vec<u8> {
    // Text and numbers always serialise.
    let mut line = serde_json::to_vec(what).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A file that was looked through.
pub(super) struct Found {
    pub(super) head: Head,
    /// Absent where it was cut.
    pub(super) end: Option<End>,
    /// Whole lines of records.
    pub(super) records: u64,
    /// The last of them, without its end.
    pub(super) last: Vec<u8>,
    /// Bytes of the whole lines, the last one excluded where it is the end.
    pub(super) bytes: u64,
    pub(super) sum: Sum,
}

/// Looks a file through, up to its end or to where it was cut.
///
/// # Errors
/// What is wrong with it, by the number of its line.
pub(super) fn look(reader: impl Read, mut each: impl FnMut(u64)) -> Result<Found, String> {
    let mut reader = io::BufReader::with_capacity(1 << 20, reader);
    let mut line = Vec::new();
    let first = next(&mut reader, &mut line).map_err(|error| error.to_string())?;
    let head: Head = match serde_json::from_slice(&line) {
        Ok(head) if first == Next::Line => head,
        _ => return Err("line 1: it is not the head of an export of onced".to_owned()),
    };
    if head.onced_export != FORMAT {
        let format = head.onced_export;
        return Err(format!(
            "line 1: it has format {format}, and this onced reads {FORMAT}; use the onced that wrote it, or a later one"
        ));
    }
    let mut found = Found {
        head,
        end: None,
        records: 0,
        last: Vec::new(),
        bytes: line.len() as u64,
        sum: Sum::default(),
    };
    found.sum.add(&line);
    for number in 2_u64.. {
        match next(&mut reader, &mut line).map_err(|error| format!("line {number}: {error}"))? {
            // What comes behind the last whole line was cut.
            Next::Over | Next::Cut => break,
            Next::Line => {}
        }
        if let Ok(Last { end }) = serde_json::from_slice(&line) {
            check_end(&end, &found)?;
            if next(&mut reader, &mut Vec::new()).map_err(|error| error.to_string())? != Next::Over
            {
                return Err(format!(
                    "line {}: something comes behind the end",
                    number + 1
                ));
            }
            found.end = Some(end);
            break;
        }
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(&line) {
            return Err(format!("line {number}: it is damaged: {error}"));
        }
        found.sum.add(&line);
        found.bytes += line.len() as u64;
        found.records += 1;
        line.pop();
        std::mem::swap(&mut found.last, &mut line);
        each(1);
    }
    Ok(found)
}

fn check_end(end: &End, found: &Found) -> Result<(), String> {
    if end.records != found.records {
        let (said, there) = (end.records, found.records);
        return Err(format!(
            "its end says {said} records, and there are {there}"
        ));
    }
    if end.sha256 != found.sum.hex() {
        return Err(
            "its lines are not those that were written: the checksum is another".to_owned(),
        );
    }
    Ok(())
}

/// What came of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line,
    /// Without its end.
    Cut,
    Over,
}

/// Reads a line with its end into an empty buffer.
///
/// # Errors
/// It cannot be read, or is too long.
pub(super) fn next(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Next> {
    line.clear();
    reader.take(MAX_LINE).read_until(b'\n', line)?;
    match line.last() {
        None => Ok(Next::Over),
        Some(b'\n') => Ok(Next::Line),
        Some(_) if line.len() as u64 >= MAX_LINE => Err(io::Error::other("it is too long")),
        Some(_) => Ok(Next::Cut),
    }
}
