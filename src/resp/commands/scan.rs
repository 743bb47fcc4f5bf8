//! `SCAN`: cursors are ids into a bounded table of positions (SPEC 7).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Call, Next, Question, Refusal};
use crate::engine::Engine;
use crate::model::command::{List, MAX_LIST};
use crate::resp::frame::integer;
use crate::resp::render::unavailable;
use crate::resp::reply::Writer;
use crate::resp::{Face, glob};

/// How many positions are remembered, over all connections. A scan under way has two: the one it goes on
/// from, and the one before, so that a page whose answer was lost can be asked for again.
const MAX_POSITIONS: usize = 1024;
/// The longest pattern, in bytes: matching takes the product of pattern and key.
const MAX_PATTERN: usize = 512;
/// Keys looked at where `COUNT` is not given, as in Redis.
const DEFAULT_COUNT: usize = 10;

/// One page of a scan.
#[derive(Clone, Debug)]
pub(in crate::resp) struct Scan {
    namespace: &'static str,
    cursor: u64,
    pattern: Option<Bytes>,
    count: usize,
    /// Records are strings to Redis's eyes; other types have no keys.
    strings: bool,
}

impl Scan {
    /// Where it looks.
    pub(super) fn namespace(&self) -> &'static str {
        self.namespace
    }
}

/// Where scans stand.
#[derive(Debug, Default)]
pub(in crate::resp) struct Positions {
    last: u64,
    positions: BTreeMap<u64, Position>,
}

#[derive(Clone, Debug)]
struct Position {
    namespace: &'static str,
    after: Bytes,
    /// The cursor this one went on from.
    previous: u64,
}

impl Positions {
    /// Where the scan of that cursor goes on; `None` where it is not known (any more).
    fn find(&mut self, scan: &Scan) -> Option<Bytes> {
        let position = self.positions.get(&scan.cursor)?;
        if position.namespace != scan.namespace {
            return None;
        }
        let (after, previous) = (position.after.clone(), position.previous);
        // The client has seen the page before, so it will not ask for it again.
        self.positions.remove(&previous);
        Some(after)
    }

    /// A cursor to go on from; the oldest makes room.
    fn keep(&mut self, scan: &Scan, after: Bytes) -> u64 {
        self.last = self.last.saturating_add(1);
        let position = Position {
            namespace: scan.namespace,
            after,
            previous: scan.cursor,
        };
        self.positions.insert(self.last, position);
        if self.positions.len() > MAX_POSITIONS {
            self.positions.pop_first();
        }
        self.last
    }
}

pub(super) fn scan(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let cursor = integer(call.arg(1)).and_then(|cursor| u64::try_from(cursor).ok());
    let mut scan = Scan {
        namespace: call.connection.namespace(),
        cursor: cursor.ok_or(INVALID_CURSOR)?,
        pattern: None,
        count: DEFAULT_COUNT,
        strings: true,
    };
    let mut options = call.args.get(2..).unwrap_or_default();
    while let Some((option, rest)) = options.split_first() {
        let (value, rest) = rest.split_first().ok_or(Refusal::SYNTAX)?;
        options = rest;
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" if value.len() > MAX_PATTERN => {
                return Err(Refusal::new("ERR a pattern has at most 512 bytes"));
            }
            b"MATCH" => scan.pattern = Some(value.clone()),
            b"COUNT" => {
                let count = integer(value).ok_or(Refusal::NOT_AN_INTEGER)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                scan.count = count.ok_or(Refusal::SYNTAX)?.min(MAX_LIST);
            }
            b"TYPE" => scan.strings = value.eq_ignore_ascii_case(b"string"),
            _ => return Err(Refusal::SYNTAX),
        }
    }
    Ok(Next::Ask(Question::Scan(scan)))
}

const INVALID_CURSOR: Refusal = Refusal::new("ERR invalid cursor");

pub(super) async fn answer(scan: Scan, face: &Face, engine: &Engine, reply: &mut Writer<'_>) {
    let after = match scan.cursor {
        0 => None,
        _ => match face.positions.lock().find(&scan) {
            Some(after) => Some(after),
            None => return reply.error(INVALID_CURSOR.text()),
        },
    };
    if !scan.strings {
        return page(reply, 0, &[]);
    }
    let pattern = scan.pattern.as_deref().unwrap_or(b"*");
    let list = List {
        namespace: scan.namespace.into(),
        state: None,
        prefix: Bytes::copy_from_slice(glob::prefix(pattern)),
        due: false,
        after,
        limit: scan.count,
    };
    let found = match engine.list(list).await {
        Ok(found) => found,
        Err(error) => return reply.error(&unavailable(error)),
    };
    let keys: Vec<&[u8]> = found
        .records
        .iter()
        .map(|(key, _)| key.key())
        .filter(|key| glob::matches(pattern, key))
        .collect();
    let next = match found.next {
        Some(after) => face.positions.lock().keep(&scan, after),
        None => 0,
    };
    page(reply, next, &keys);
}

fn page(reply: &mut Writer<'_>, cursor: u64, keys: &[&[u8]]) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(keys.len());
    for key in keys {
        reply.bulk(key);
    }
}
