//! Bytes on disk: records, bodies, journal entries, policies and what `meta` keeps.
//!
//! The only file that names bincode. Every value is `version byte | fields | crc32`, little-endian, the
//! crc over the table's key and what stands before it; entries have no crc of their own, because their
//! journal frame has one. A field is added by raising the version: the new version writes the new rows,
//! and reads the old ones with what the field meant before it was there.
//!
//! The rows are mirrors, so that nothing in the model derives a serialisation. They borrow what they are
//! read from: the scan at start checks millions of them without an allocation.

use bincode::de::read::{Reader as _, SliceReader};
use bincode::de::{BorrowDecoder, Decoder as _, DecoderImpl};
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{BorrowDecode, Encode, config};
use smallvec::SmallVec;
use std::fmt;

use super::entry::{Decision, Entry};
use crate::model::body::{Digest, sha256};
use crate::model::policy::Policy;
use crate::model::record::{HISTORY, Lsn, Record, Token};
use crate::model::time::{Span, Timestamp};

/// The version of every row this file writes, and the highest it reads.
const VERSION: u8 = 1;
const CRC: usize = 4;

/// Why bytes are not what they should be, or a value cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// Too short for a version and a checksum.
    Short,
    /// Written by a later version.
    Version(u8),
    /// Key or value are not what was written.
    Checksum,
    /// Not of the form this version writes.
    Malformed,
    /// Well formed, and something no store ever writes; what.
    Rule(&'static str),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::Short => f.write_str("too short"),
            CodecError::Version(version) => {
                write!(f, "of version {version}, which is unknown here")
            }
            CodecError::Checksum => f.write_str("the checksum differs"),
            CodecError::Malformed => f.write_str("not in the form it was written in"),
            CodecError::Rule(rule) => write!(f, "impossible: {rule}"),
        }
    }
}

impl std::error::Error for CodecError {}

type Decoded<T> = Result<T, CodecError>;

// ---------------------------------------------------------------------------------------------------
// Records

/// Which of a record's bodies. An earlier result was a result when its row was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// What the next holder needs.
    Payload,
    /// What finishing left behind.
    Result,
}

/// A record's reference to a row of a body table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyRef {
    pub(super) part: Part,
    pub(super) lsn: Lsn,
    pub(super) size: u32,
    pub(super) digest: Digest,
}

/// The value of a record under that table key. Bytes of large bodies are not in it.
///
/// # Errors
/// What no store may hold: a record that breaks a rule.
pub fn encode_record(key: &[u8], record: &Record, into: &mut Vec<u8>) -> Result<(), CodecError> {
    let row = RecordRow::of(record, None)?;
    row.check()?;
    seal(key, &row, into)
}

/// A record's value, checked; nothing is copied until [`RecordView::to_record`].
pub(super) fn view_record<'a>(key: &[u8], value: &'a [u8]) -> Decoded<RecordView<'a>> {
    let row: RecordRow<'a> = unseal(key, value)?;
    row.check()?;
    if row
        .bodies()
        .any(|(_, body)| matches!(body.content, ContentRow::New { .. }))
    {
        return Err(CodecError::Rule(
            "the bytes of a large body inside a record",
        ));
    }
    Ok(RecordView(row))
}

/// A record as it lies on disk.
pub(super) struct RecordView<'a>(RecordRow<'a>);

impl RecordView<'_> {
    /// The record; large bodies without their bytes.
    pub(super) fn to_record(&self) -> Decoded<Record> {
        self.0.build(Lsn(0))
    }

    /// Whether it is open, and else when it expires (`None`: never).
    pub(super) fn lies(&self) -> Lies {
        match (self.0.state, self.0.expires_at()) {
            (2, Some(at)) => Lies::Until(Timestamp::from_millis(at)),
            (2, None) => Lies::Forever,
            _ => Lies::Open,
        }
    }

    /// How long a record that expires is kept from its last step on. A claim's is its own: with a sliding window
    /// the time since completion grows and says nothing. A string's runs from its change.
    pub(super) fn kept(&self, expires_at: Timestamp) -> Span {
        match (self.0.kind, self.0.retention) {
            (0, Some(span)) => Span::from_millis(span),
            _ => expires_at.since(Timestamp::from_millis(self.0.changed_at())),
        }
    }

    /// The token of its last grant.
    pub(super) fn token(&self) -> u64 {
        self.0.token
    }

    /// Of two records of one key, the later one has the higher: its grant, its generation, its last change.
    pub(super) fn age(&self) -> (u64, u32, u64) {
        (self.0.token, self.0.generation, self.0.changed_at())
    }

    /// The bodies it refers to.
    pub(super) fn refs(&self) -> impl Iterator<Item = BodyRef> + '_ {
        self.0
            .bodies()
            .filter_map(|(part, body)| match body.content {
                ContentRow::Large { size, digest, lsn } => Some(BodyRef {
                    part,
                    lsn: Lsn(lsn),
                    size,
                    digest,
                }),
                _ => None,
            })
    }
}

/// What decides a record's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    Open,
    Until(Timestamp),
    Forever,
}

/// Instants that are mostly close to others are kept as differences (one byte in place of nine), wrapping,
/// so that every number comes back: the smaller the rows, the fewer pages a checkpoint writes.
#[derive(Encode, BorrowDecode)]
pub(super) struct RecordRow<'a> {
    pub(super) kind: u8,
    pub(super) state: u8,
    /// Bits, see the constants below.
    pub(super) flags: u8,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) generation: u32,
    pub(super) fingerprint: PrintRow<'a>,
    pub(super) claim_id: Option<&'a str>,
    pub(super) owner: Option<&'a str>,
    pub(super) claimed_at: u64,
    pub(super) lease: u64,
    pub(super) lease_end: u64,
    pub(super) retention: Option<u64>,
    pub(super) max_attempts: Option<u32>,
    pub(super) not_before: u64,
    /// After `claimed_at`.
    pub(super) changed: i64,
    /// After `changed_at`.
    pub(super) completed: Option<i64>,
    /// After `changed_at` and the retention.
    pub(super) expires: Option<i64>,
    pub(super) last_error: Option<&'a str>,
    pub(super) payload: Option<BodyRow<'a>>,
    pub(super) result: Option<ResultRow<'a>>,
    pub(super) earlier_result: Option<ResultRow<'a>>,
    pub(super) history: Facts<'a>,
}

pub(super) const BY_LEASE_END: u8 = 1;
pub(super) const ONCE: u8 = 2;
pub(super) const EFFECT: u8 = 4;
pub(super) const SLIDING: u8 = 8;
pub(super) const HOLD: u8 = 16;
pub(super) const ALL_FLAGS: u8 = 31;

#[derive(Encode, BorrowDecode)]
pub(super) enum PrintRow<'a> {
    None,
    Given(&'a str),
    Raw(Digest),
    Json(Digest),
}

#[derive(Encode, BorrowDecode)]
pub(super) struct BodyRow<'a> {
    /// `None` is [`DEFAULT_CONTENT_TYPE`](crate::model::body::DEFAULT_CONTENT_TYPE).
    pub(super) content_type: Option<&'a str>,
    pub(super) content: ContentRow<'a>,
}

#[derive(Encode, BorrowDecode)]
pub(super) enum ContentRow<'a> {
    Inline(&'a [u8]),
    Large {
        size: u32,
        digest: Digest,
        lsn: u64,
    },
    /// In entries only: the bytes this very entry makes durable.
    New {
        digest: Digest,
        bytes: &'a [u8],
    },
}

#[derive(Encode, BorrowDecode)]
pub(super) struct ResultRow<'a> {
    pub(super) status: Option<u16>,
    pub(super) body: BodyRow<'a>,
}

#[derive(Clone, Copy, Encode, BorrowDecode)]
pub(super) struct FactRow<'a> {
    /// After the fact before it, the first after `claimed_at`.
    pub(super) after: i64,
    pub(super) event: u8,
    /// Above the record's.
    pub(super) token: i64,
    pub(super) attempt: u32,
    pub(super) by: ByRow<'a>,
}

#[derive(Clone, Copy, Encode, BorrowDecode)]
pub(super) enum ByRow<'a> {
    Nobody,
    /// The record's owner, which is there.
    Owner,
    Name(&'a str),
}

/// A history; a short one, the common case, without an allocation. No longer than that: a row is moved several times
/// while it is read, and the scan at start reads millions.
#[derive(Default)]
pub(super) struct Facts<'a>(SmallVec<[FactRow<'a>; 2]>);

impl<'a> Facts<'a> {
    pub(super) fn push(&mut self, fact: FactRow<'a>) -> Decoded<()> {
        if self.0.len() == HISTORY {
            return Err(CodecError::Rule("a history of more than 8 facts"));
        }
        self.0.push(fact);
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &FactRow<'a>> {
        self.0.iter()
    }
}

impl Encode for Facts<'_> {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        u8::try_from(self.0.len())
            .unwrap_or(u8::MAX)
            .encode(encoder)?;
        self.iter().try_for_each(|fact| fact.encode(encoder))
    }
}

impl<'a, 'de: 'a, C> BorrowDecode<'de, C> for Facts<'a> {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(
        decoder: &mut D,
    ) -> Result<Self, DecodeError> {
        let mut facts = Facts::default();
        for _ in 0..u8::borrow_decode(decoder)? {
            let fact = FactRow::borrow_decode(decoder)?;
            let pushed = facts.push(fact);
            pushed.map_err(|_| DecodeError::Other("a history that is too long"))?;
        }
        Ok(facts)
    }
}

// ---------------------------------------------------------------------------------------------------
// Bodies

/// The key of a body's row. The LSN and part at its end have a fixed length, so it splits one way only.
pub(super) fn body_key(record: &[u8], lsn: Lsn, part: Part) -> Vec<u8> {
    let mut key = Vec::with_capacity(record.len() + 9);
    key.extend_from_slice(record);
    key.extend_from_slice(&lsn.0.to_be_bytes());
    key.push(match part {
        Part::Payload => 0,
        Part::Result => 1,
    });
    key
}

/// Takes the key of a body's row apart again.
pub(super) fn split_body_key(key: &[u8]) -> Option<(&[u8], Lsn, Part)> {
    let (rest, part) = key.split_last_chunk::<1>()?;
    let (record, lsn) = rest.split_last_chunk::<8>()?;
    let part = match part {
        [0] => Part::Payload,
        [1] => Part::Result,
        _ => return None,
    };
    Some((record, Lsn(u64::from_be_bytes(*lsn)), part))
}

/// The value of a body's row under that key.
pub(super) fn encode_body(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes.len() + 1 + CRC);
    value.push(VERSION);
    value.extend_from_slice(bytes);
    append_crc(key, 0, &mut value);
    value
}

/// The bytes of a body's row, checked against its checksum and against what the record says of them.
pub(super) fn decode_body<'a>(key: &[u8], value: &'a [u8], body: &BodyRef) -> Decoded<&'a [u8]> {
    let bytes = checked(key, value)?;
    if bytes.len() != body.size as usize || sha256(bytes) != body.digest {
        return Err(CodecError::Rule(
            "a body that is not the one its record refers to",
        ));
    }
    Ok(bytes)
}

// ---------------------------------------------------------------------------------------------------
// Journal entries

#[derive(Encode, BorrowDecode)]
pub(super) struct EntryRow<'a> {
    pub(super) lsn: u64,
    pub(super) change: ChangeRow<'a>,
    pub(super) decision: DecisionRow<'a>,
}

/// The number of [`ChangeRow::Put`].
const PUT: u32 = 2;

#[derive(Encode, BorrowDecode)]
#[allow(clippy::large_enum_variant)] // lives on the stack for a moment; boxing it would allocate
pub(super) enum ChangeRow<'a> {
    None(&'a [u8]),
    Tally(&'a str),
    Put(&'a [u8], RecordRow<'a>),
    Remove(&'a [u8]),
    Policy(&'a str, Option<PolicyRow>),
}

#[derive(Encode, BorrowDecode)]
pub(super) struct DecisionRow<'a> {
    pub(super) at: u64,
    pub(super) verb: u8,
    pub(super) outcome: u8,
    pub(super) reason: Option<u8>,
    pub(super) event: Option<u8>,
    pub(super) token: Option<u64>,
    pub(super) attempt: u32,
    pub(super) generation: u32,
    pub(super) by: Option<&'a str>,
    pub(super) count: u32,
}

/// Appends the entry of a record that was written to what a journal frame will carry, and to `row` the value that
/// the store will keep of it: the same fields, encoded once, but for bytes of large bodies.
///
/// # Errors
/// As [`encode_entry`].
pub fn encode_put(
    lsn: Lsn,
    key: &[u8],
    record: &Record,
    decision: &Decision,
    into: &mut Vec<u8>,
    row: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let fields = RecordRow::of(record, Some(lsn))?;
    fields.check()?;
    let decision = DecisionRow::of(decision)?;
    decision.check()?;
    into.push(VERSION);
    append(&lsn.0, into)?;
    append(&PUT, into)?;
    append(&key, into)?;
    let start = into.len();
    append(&fields, into)?;
    let brings = |(_, body): (Part, &BodyRow<'_>)| matches!(body.content, ContentRow::New { .. });
    if fields.bodies().any(brings) {
        encode_record(key, record, row)?;
    } else {
        let begin = row.len();
        row.push(VERSION);
        row.extend_from_slice(into.get(start..).unwrap_or_default());
        append_crc(key, begin, row);
    }
    append(&decision, into)
}

/// Appends an entry to what a journal frame will carry. A large body's bytes go with the entry that is
/// the first to have them, whose LSN they are known by from then on.
///
/// # Errors
/// What no entry may hold: an unknown verb or outcome, a record that breaks a rule.
pub fn encode_entry(entry: &Entry, into: &mut Vec<u8>) -> Result<(), CodecError> {
    let row = EntryRow::of(entry)?;
    row.check()?;
    into.push(VERSION);
    append(&row, into)
}

/// The entry that is the whole of `bytes`. Bodies that are not new with it have no bytes, only their LSN.
///
/// # Errors
/// Anything else than what [`encode_entry`] wrote. Never panics, whatever the bytes.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, CodecError> {
    let (version, fields) = bytes.split_first().ok_or(CodecError::Short)?;
    if *version != VERSION {
        return Err(CodecError::Version(*version));
    }
    let row: EntryRow<'_> = take_all(fields)?;
    row.check()?;
    row.build()
}

// ---------------------------------------------------------------------------------------------------
// What `meta` keeps

#[derive(Encode, BorrowDecode)]
pub(super) struct PolicyRow {
    pub(super) lease: u64,
    pub(super) retention: Option<u64>,
    pub(super) sliding: bool,
    pub(super) max_attempts: u32,
    pub(super) hold: bool,
    pub(super) backoff: u64,
    pub(super) backoff_max: u64,
    pub(super) json: bool,
    pub(super) forget_open_after: Option<u64>,
}

/// A policy under its key in `meta`.
pub(super) fn encode_policy(key: &[u8], policy: &Policy) -> Decoded<Vec<u8>> {
    let row = PolicyRow::of(policy);
    row.build()?;
    let mut value = Vec::new();
    seal(key, &row, &mut value)?;
    Ok(value)
}

/// Reads it back.
pub(super) fn decode_policy(key: &[u8], value: &[u8]) -> Decoded<Policy> {
    unseal::<PolicyRow>(key, value)?.build()
}

/// What holds for the whole store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreState {
    pub(super) store_id: [u8; 16],
    /// Transactions committed since creation: tells whether a commit that failed happened all the same.
    pub(super) commits: u64,
    pub(super) checkpoint: Lsn,
    pub(super) next_token: Token,
    pub(super) mark: Vec<u8>,
}

#[derive(Encode, BorrowDecode)]
struct StateRow<'a> {
    store_id: [u8; 16],
    commits: u64,
    checkpoint: u64,
    next_token: u64,
    mark: &'a [u8],
}

/// The state of the store under its key in `meta`.
pub(super) fn encode_state(key: &[u8], state: &StoreState) -> Decoded<Vec<u8>> {
    let row = StateRow {
        store_id: state.store_id,
        commits: state.commits,
        checkpoint: state.checkpoint.0,
        next_token: state.next_token.get(),
        mark: &state.mark,
    };
    let mut value = Vec::new();
    seal(key, &row, &mut value)?;
    Ok(value)
}

/// Reads it back.
pub(super) fn decode_state(key: &[u8], value: &[u8]) -> Decoded<StoreState> {
    let row: StateRow<'_> = unseal(key, value)?;
    Ok(StoreState {
        store_id: row.store_id,
        commits: row.commits,
        checkpoint: Lsn(row.checkpoint),
        next_token: Token::new(row.next_token).ok_or(CodecError::Rule("a token that is none"))?,
        mark: row.mark.to_vec(),
    })
}

/// What a table holds, kept beside it and recomputed at every start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, BorrowDecode)]
pub(super) struct TableCounts {
    /// Records.
    pub(super) rows: u64,
    /// The wrapping sum of their keys' hashes.
    pub(super) sum: u64,
    /// Rows of the paired body table.
    pub(super) bodies: u64,
}

/// The counts of a table under its key in `meta`.
pub(super) fn encode_counts(key: &[u8], counts: &TableCounts) -> Decoded<Vec<u8>> {
    let mut value = Vec::new();
    seal(key, counts, &mut value)?;
    Ok(value)
}

/// Reads them back.
pub(super) fn decode_counts(key: &[u8], value: &[u8]) -> Decoded<TableCounts> {
    unseal(key, value)
}

// ---------------------------------------------------------------------------------------------------
// Envelope

fn seal(key: &[u8], row: &impl Encode, into: &mut Vec<u8>) -> Decoded<()> {
    let start = into.len();
    into.push(VERSION);
    append(row, into)?;
    append_crc(key, start, into);
    Ok(())
}

fn unseal<'a, T: BorrowDecode<'a, ()>>(key: &[u8], value: &'a [u8]) -> Decoded<T> {
    take_all(checked(key, value)?)
}

fn append(row: &impl Encode, into: &mut Vec<u8>) -> Decoded<()> {
    bincode::encode_into_writer(row, Appender(into), config::standard())
        .map_err(|_| CodecError::Malformed)
}

/// Appends without the detour over [`std::io::Write`] and its errors.
struct Appender<'a>(&'a mut Vec<u8>);

impl bincode::enc::write::Writer for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// The row that is the whole of `fields`.
fn take_all<'a, T: BorrowDecode<'a, ()>>(fields: &'a [u8]) -> Decoded<T> {
    // Not by the library's function for it, which moves the row once more to tell how much it read.
    let mut decoder = DecoderImpl::new(SliceReader::new(fields), config::standard(), ());
    match T::borrow_decode(&mut decoder) {
        Ok(row) if decoder.reader().peek_read(1).is_none() => Ok(row),
        _ => Err(CodecError::Malformed),
    }
}

fn append_crc(key: &[u8], start: usize, value: &mut Vec<u8>) {
    let crc = crc(key, value.get(start..).unwrap_or_default());
    value.extend_from_slice(&crc.to_le_bytes());
}

/// What stands between version and checksum, once both are right.
fn checked<'a>(key: &[u8], value: &'a [u8]) -> Decoded<&'a [u8]> {
    let (sealed, sum) = value.split_last_chunk::<CRC>().ok_or(CodecError::Short)?;
    let (version, fields) = sealed.split_first().ok_or(CodecError::Short)?;
    if crc(key, sealed) != u32::from_le_bytes(*sum) {
        return Err(CodecError::Checksum);
    }
    if *version != VERSION {
        return Err(CodecError::Version(*version));
    }
    Ok(fields)
}

fn crc(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
