//! Taking a backup: a logical copy in one read transaction.

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, TableError};

use super::chunk::{Stopped, Writer};
use super::{BODY, Contents, END, POLICY, RECORD, STATE};
use crate::model::record::Lsn;
use crate::store::codec::{TableCounts, body_key, decode_policy, view_record};
use crate::store::error::StoreError;
use crate::store::filter::KeyHasher;
use crate::store::layout::{META, Place};
use crate::store::open::{POLICY_KEYS, read_state};
use crate::store::read::Reader;
use crate::store::scan::list_tables;
use crate::store::shared::{Fault, bytewise, damage};

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// What came of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// All of it was handed on.
    Whole {
        /// The recovery point.
        lsn: Lsn,
        /// What is in it.
        contents: Contents,
    },
    /// Whoever takes it wanted no more.
    Stopped,
    /// A full disk latched the database in between.
    Latched,
}

/// Why a copy does not go on.
enum Halt {
    Stopped,
    Fault(Fault),
}

impl From<Stopped> for Halt {
    fn from(_: Stopped) -> Halt {
        Halt::Stopped
    }
}

impl<E: Into<Fault>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Fault(error.into())
    }
}

impl Reader {
    /// Hands a backup of the last checkpoint to `sink`, piece by piece, for as long as that answers `true`. Every
    /// record and body is checked on its way. The file cannot reuse what is freed meanwhile, so it has to come to an
    /// end: that is for `sink` to see to.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn back_up(&self, sink: &mut dyn FnMut(Bytes) -> bool) -> Result<Copied, StoreError> {
        let mut begun = false;
        self.shared().read("take a backup", |transaction, _| {
            // What was handed on cannot be taken back, so it is not begun again.
            if std::mem::replace(&mut begun, true) {
                return Ok(Copied::Latched);
            }
            match copy(transaction, self.hasher(), sink) {
                Ok((lsn, contents)) => Ok(Copied::Whole { lsn, contents }),
                Err(Halt::Stopped) => Ok(Copied::Stopped),
                Err(Halt::Fault(fault)) => Err(fault),
            }
        })
    }
}

fn copy(
    transaction: &ReadTransaction,
    hasher: &KeyHasher,
    sink: &mut dyn FnMut(Bytes) -> bool,
) -> Result<(Lsn, Contents), Halt> {
    let meta = transaction.open_table(bytewise(META))?;
    let state = read_state(&meta)?;
    let tables = list_tables(transaction)?;
    let counted = |count: fn(&TableCounts) -> u64| tables.values().map(count).sum::<u64>();
    let mut writer = Writer::begin(&state.store_id, state.checkpoint, sink)?;
    writer.put(&[STATE])?;
    writer.put(&state.next_token.get().to_le_bytes())?;
    writer.put(&counted(|counts| counts.rows).to_le_bytes())?;
    writer.put(&counted(|counts| counts.bodies).to_le_bytes())?;
    writer.put(&length(&state.mark))?;
    writer.put(&state.mark)?;
    let mut contents = Contents::default();
    for row in meta.range(POLICY_KEYS..)? {
        let (key, value) = row?;
        let (key, value) = (key.value(), value.value());
        if !key.starts_with(POLICY_KEYS) {
            break;
        }
        decode_policy(key, value).map_err(|error| damage(META, Some(key), error))?;
        put_row(&mut writer, POLICY, key, value)?;
        contents.policies += 1;
    }
    for (place, counts) in &tables {
        let before = contents;
        copy_table(transaction, *place, hasher, &mut writer, &mut contents)?;
        let copied = (
            contents.records - before.records,
            contents.bodies - before.bodies,
            contents.sum.wrapping_sub(before.sum),
        );
        if copied != (counts.rows, counts.bodies, counts.sum) {
            let reason = format!(
                "{} records and {} bodies are there where {} and {} were written, or other ones",
                copied.0, copied.1, counts.rows, counts.bodies
            );
            return Err(damage(&place.name(), None, reason).into());
        }
    }
    writer.put(&[END])?;
    for number in [
        contents.policies,
        contents.records,
        contents.bodies,
        contents.sum,
    ] {
        writer.put(&number.to_le_bytes())?;
    }
    writer.end()?;
    Ok((state.checkpoint, contents))
}

fn copy_table(
    transaction: &ReadTransaction,
    place: Place,
    hasher: &KeyHasher,
    writer: &mut Writer<'_>,
    contents: &mut Contents,
) -> Result<(), Halt> {
    let (name, body_name) = (place.name(), place.body_name());
    let table: Rows = transaction.open_table(bytewise(&name))?;
    let bodies: Option<Rows> = match transaction.open_table(bytewise(&body_name)) {
        Ok(bodies) => Some(bodies),
        Err(TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    for row in table.iter()? {
        let (key, value) = row?;
        let (key, value) = (key.value(), value.value());
        let view = view_record(key, value).map_err(|error| damage(&name, Some(key), error))?;
        put_row(writer, RECORD, key, value)?;
        contents.records += 1;
        contents.sum = contents.sum.wrapping_add(hasher.hash(key));
        let mut seen = Vec::new();
        for body in view.refs() {
            // A result and an earlier one may be the same row.
            if seen.contains(&(body.part, body.lsn)) {
                continue;
            }
            seen.push((body.part, body.lsn));
            let body_key = body_key(key, body.lsn, body.part);
            let found = match &bodies {
                Some(bodies) => bodies.get(body_key.as_slice())?,
                None => None,
            };
            let found =
                found.ok_or_else(|| damage(&body_name, Some(&body_key), "a body is missing"))?;
            crate::store::codec::decode_body(&body_key, found.value(), &body)
                .map_err(|error| damage(&body_name, Some(&body_key), error))?;
            put_row(writer, BODY, &body_key, found.value())?;
            contents.bodies += 1;
        }
    }
    Ok(())
}

fn put_row(writer: &mut Writer<'_>, tag: u8, key: &[u8], value: &[u8]) -> Result<(), Stopped> {
    writer.put(&[tag])?;
    writer.put(&length(key))?;
    writer.put(&length(value))?;
    writer.put(key)?;
    writer.put(value)
}

/// Keys, rows and bodies are bounded far below what this holds.
fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}
