//! Recent records as rows: encoded once, kept in an arena, handed to the store as they are.
//!
//! A record as a struct takes six times its row and a dozen allocations, and would be encoded a second time on
//! its way to the store. Here the row lies behind its key in a chunk of memory with others; chunks go as a
//! whole when the store has them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::codec::{BodyRef, CodecError, RecordView, encode_record, view_record};
use super::filter::KeyHasher;
use crate::model::body::LargeContent;
use crate::model::key::RecordKey;
use crate::model::record::{Lsn, Record};

/// Bytes of a chunk; what is larger gets one of its own.
const CHUNK: usize = 64 << 10;
/// LSN, flags, length of the key, length of the value.
const HEAD: usize = 8 + 1 + 2 + 4;
/// What the index takes for each key, at its usual load.
const INDEXED: usize = 32;

/// The key has no record.
const REMOVED: u8 = 1;
/// The record has large bodies, or had since the table was begun.
const LARGE: u8 = 2;

/// Changes by key: the last one of each.
pub struct Memtable {
    hasher: KeyHasher,
    chunks: Vec<Vec<u8>>,
    /// Empty ones, of a time before.
    free: Vec<Vec<u8>>,
    index: HashTable<Spot>,
    /// The bytes of large bodies that are here, by where their record is.
    bodies: BTreeMap<(u32, u32), Vec<LargeContent>>,
    bytes: usize,
}

/// Where a change lies, with the hash of its key.
#[derive(Clone, Copy)]
struct Spot {
    hash: u64,
    chunk: u32,
    at: u32,
}

impl Spot {
    const fn place(self) -> (u32, u32) {
        (self.chunk, self.at)
    }
}

/// What became of one key.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) lsn: Lsn,
    pub(super) value: Option<&'a [u8]>,
    /// Large bodies whose bytes are here.
    pub(super) bodies: &'a [LargeContent],
    large: bool,
}

/// A change to take in.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The entry that made it so.
    pub lsn: Lsn,
    /// The record's row, as [`encode_put`](super::encode_put) makes it; `None`: there is no record any more.
    pub value: Option<&'a [u8]>,
    /// Whether the record has large bodies.
    pub large: bool,
    /// Those of them whose bytes are at hand.
    pub bodies: Vec<LargeContent>,
}

impl Memtable {
    /// An empty one, for the store whose id the hasher was made of.
    #[must_use]
    pub fn new(hasher: KeyHasher) -> Memtable {
        Memtable {
            hasher,
            chunks: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            bodies: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// One with these changes, all of one entry.
    ///
    /// # Errors
    /// As [`Memtable::put_record`].
    pub fn of(
        store_id: &[u8; 16],
        lsn: Lsn,
        changes: impl IntoIterator<Item = (RecordKey, Option<Arc<Record>>)>,
    ) -> Result<Memtable, CodecError> {
        let mut table = Memtable::new(KeyHasher::new(store_id));
        for (key, record) in changes {
            table.put_record(lsn, &key, record.as_deref())?;
        }
        Ok(table)
    }

    /// Forgets all changes and keeps the memory: what the system hands out anew it clears first, which costs more
    /// than all that is done with it here.
    pub fn clear(&mut self) {
        self.index.clear();
        self.bodies.clear();
        self.bytes = 0;
        for mut chunk in self.chunks.drain(..) {
            if chunk.capacity() == CHUNK {
                chunk.clear();
                self.free.push(chunk);
            }
        }
    }

    /// The hash of a joined key.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// The hasher it was made with.
    #[must_use]
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// What became of a key, by its hash.
    #[must_use]
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<Row<'_>> {
        let found = self.index.find(hash, |spot| {
            spot.hash == hash && key_at(&self.chunks, *spot) == key
        })?;
        self.row(*found)
    }

    /// Takes a change in, in place of the one before it.
    pub fn put(&mut self, hash: u64, key: &[u8], mut write: Write<'_>) {
        let chunks = &self.chunks;
        let entry = self.index.entry(
            hash,
            |spot| spot.hash == hash && key_at(chunks, *spot) == key,
            |spot| spot.hash,
        );
        let held: usize = write.bodies.iter().map(held).sum();
        let spot = match entry {
            Entry::Occupied(mut entry) => {
                let old = *entry.get();
                write.large |=
                    split(&self.chunks, old).is_some_and(|(head, _)| head.flags & LARGE != 0);
                if let Some(gone) = self.bodies.remove(&old.place()) {
                    let gone: usize = gone.iter().map(self::held).sum();
                    self.bytes = self.bytes.saturating_sub(gone);
                }
                if overwrite(&mut self.chunks, old, &write) {
                    old
                } else {
                    let (spot, taken) = append(&mut self.chunks, &mut self.free, hash, key, &write);
                    self.bytes = self.bytes.saturating_add(taken);
                    *entry.get_mut() = spot;
                    spot
                }
            }
            Entry::Vacant(entry) => {
                let (spot, taken) = append(&mut self.chunks, &mut self.free, hash, key, &write);
                self.bytes = self.bytes.saturating_add(taken).saturating_add(INDEXED);
                entry.insert(spot);
                spot
            }
        };
        if !write.bodies.is_empty() {
            self.bytes = self.bytes.saturating_add(held);
            self.bodies.insert(spot.place(), write.bodies);
        }
    }

    /// Takes in what became of a key: its record, or that it has none any more.
    ///
    /// # Errors
    /// What no store may hold: a record that breaks a rule.
    pub fn put_record(
        &mut self,
        lsn: Lsn,
        key: &RecordKey,
        record: Option<&Record>,
    ) -> Result<(), CodecError> {
        let key: &[u8] = key.joined();
        let mut row = Vec::new();
        if let Some(record) = record {
            encode_record(key, record, &mut row)?;
        }
        let write = Write {
            lsn,
            value: record.map(|_| row.as_slice()),
            large: record.is_some_and(|record| record.large_bodies().next().is_some()),
            bodies: record.map(Record::held_bodies).unwrap_or_default(),
        };
        self.put(self.hash(key), key, write);
        Ok(())
    }

    /// Takes in a change of another table, and what an older change of its key held of its bodies.
    pub fn put_row(&mut self, row: Row<'_>, older: Option<Row<'_>>) {
        let older = older.filter(|older| older.key == row.key);
        let mut bodies = row.bodies.to_vec();
        let kept = older
            .iter()
            .filter(|_| row.is_record())
            .flat_map(|older| older.bodies);
        for body in kept {
            let same = |held: &LargeContent| (held.lsn, held.digest) == (body.lsn, body.digest);
            if !bodies.iter().any(same) {
                bodies.push(body.clone());
            }
        }
        let write = Write {
            lsn: row.lsn,
            value: row.value,
            large: row.large || older.is_some_and(|older| older.large),
            bodies,
        };
        self.put(row.hash, row.key, write);
    }

    /// All changes, each key once, in no order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.index.iter().filter_map(|spot| self.row(*spot))
    }

    /// All changes, in key order.
    pub(super) fn sorted(&self) -> Sorted<'_> {
        let spots = || self.index.iter().copied();
        // Keys of a batch begin alike. What follows, as a number, decides nearly every comparison without a look
        // at the keys, which lie all over memory.
        let mut keys = spots().map(|spot| key_at(&self.chunks, spot));
        let first = keys.next().unwrap_or_default();
        let alike = keys.fold(first.len(), |alike, key| {
            let pairs = first.iter().zip(key).take(alike);
            pairs.take_while(|(a, b)| a == b).count()
        });
        let mut order: Vec<(u64, Spot)> = Vec::with_capacity(self.len());
        order.extend(spots().map(|spot| (number_after(alike, key_at(&self.chunks, spot)), spot)));
        order.sort_unstable_by(|(a, one), (b, other)| {
            let keys = || key_at(&self.chunks, *one).cmp(key_at(&self.chunks, *other));
            a.cmp(b).then_with(keys)
        });
        Sorted { table: self, order }
    }

    /// How many keys changed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes of memory, about: what was overwritten by something longer is among them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn row(&self, spot: Spot) -> Option<Row<'_>> {
        let (head, rest) = split(&self.chunks, spot)?;
        let bodies = if head.flags & LARGE == 0 {
            None
        } else {
            self.bodies.get(&spot.place())
        };
        Some(Row {
            key: rest.get(..head.key)?,
            hash: spot.hash,
            lsn: head.lsn,
            value: match head.flags & REMOVED {
                0 => Some(rest.get(head.key..head.key.checked_add(head.value)?)?),
                _ => None,
            },
            bodies: bodies.map(Vec::as_slice).unwrap_or_default(),
            large: head.flags & LARGE != 0,
        })
    }
}

/// Changes in key order.
pub(super) struct Sorted<'a> {
    table: &'a Memtable,
    order: Vec<(u64, Spot)>,
}

impl<'a> Sorted<'a> {
    /// The change of that number.
    pub(super) fn get(&self, index: usize) -> Option<Row<'a>> {
        self.table.row(self.order.get(index)?.1)
    }

    /// The hashes of the keys.
    pub(super) fn hashes(&self) -> impl ExactSizeIterator<Item = u64> {
        self.order.iter().map(|(_, spot)| spot.hash)
    }

    /// All of them.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'a>> {
        self.order
            .iter()
            .filter_map(|(_, spot)| self.table.row(*spot))
    }
}

/// Up to 8 bytes of a key, as a number that orders as they do.
fn number_after(start: usize, key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(key.get(start..).unwrap_or_default()) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

impl<'a> Row<'a> {
    /// The joined name of the record.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The same, taken apart.
    #[must_use]
    pub fn name(&self) -> Option<RecordKey> {
        RecordKey::from_joined(Bytes::copy_from_slice(self.key))
    }

    /// The hash of the name.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The entry that made it so.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Whether there is a record.
    #[must_use]
    pub fn is_record(&self) -> bool {
        self.value.is_some()
    }

    /// Whether the record has large bodies, or an earlier one of the key in this table had.
    #[must_use]
    pub fn has_large_bodies(&self) -> bool {
        self.large
    }

    /// Bytes of the record, those of its bodies that are here included.
    #[must_use]
    pub fn size(&self) -> usize {
        let bodies: usize = self.bodies.iter().map(held).sum();
        self.value.map_or(0, <[u8]>::len).saturating_add(bodies)
    }

    /// Bytes of large bodies that are here.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bodies.iter().map(held).sum()
    }

    /// The record, with the bodies that are here.
    ///
    /// # Errors
    /// Memory does not hold what was put there.
    pub fn record(&self) -> Result<Option<Record>, CodecError> {
        let Some(view) = self.view()? else {
            return Ok(None);
        };
        let mut record = view.to_record()?;
        record.attach_bodies(self.bodies);
        Ok(Some(record))
    }

    /// Whether the record has large bodies that became durable up to that LSN.
    ///
    /// # Errors
    /// As [`Row::record`].
    pub fn has_bodies_of(&self, up_to: Lsn) -> Result<bool, CodecError> {
        if !self.large {
            return Ok(false);
        }
        let view = self.view()?;
        Ok(view.is_some_and(|view| view.refs().any(|body| body.lsn <= up_to)))
    }

    /// Whether the record has large bodies whose bytes are not here.
    ///
    /// # Errors
    /// As [`Row::record`].
    pub fn lacks_bodies(&self) -> Result<bool, CodecError> {
        if !self.large {
            return Ok(false);
        }
        let view = self.view()?;
        Ok(view.is_some_and(|view| view.refs().any(|body| self.body(&body).is_none())))
    }

    /// The bytes of a body, where they are here.
    pub(super) fn body(&self, body: &BodyRef) -> Option<&'a Bytes> {
        let is_it = |held: &&LargeContent| held.lsn == Some(body.lsn) && held.digest == body.digest;
        self.bodies.iter().find(is_it)?.bytes.as_ref()
    }

    pub(super) fn view(&self) -> Result<Option<RecordView<'a>>, CodecError> {
        self.value
            .map(|value| view_record(self.key, value))
            .transpose()
    }
}

/// A row, taken out of its table.
#[derive(Clone, Debug)]
pub struct OwnedRow {
    key: Box<[u8]>,
    lsn: Lsn,
    value: Option<Box<[u8]>>,
    bodies: Vec<LargeContent>,
}

impl Row<'_> {
    /// A copy that needs no lock; large bodies are shared.
    #[must_use]
    pub fn to_owned(&self) -> OwnedRow {
        OwnedRow {
            key: self.key.into(),
            lsn: self.lsn,
            value: self.value.map(Into::into),
            bodies: self.bodies.to_vec(),
        }
    }
}

impl OwnedRow {
    /// The entry that made it so.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Its name, and the record if there is one.
    ///
    /// # Errors
    /// As [`Row::record`].
    pub fn into_record(self) -> Result<(RecordKey, Option<Record>), CodecError> {
        let record = match &self.value {
            Some(value) => {
                let mut record = view_record(&self.key, value)?.to_record()?;
                record.attach_bodies(&self.bodies);
                Some(record)
            }
            None => None,
        };
        let key = RecordKey::from_joined(self.key.into());
        let key = key.ok_or(CodecError::Rule("a key that is none"))?;
        Ok((key, record))
    }
}

struct Head {
    lsn: Lsn,
    flags: u8,
    key: usize,
    value: usize,
}

fn head(key: usize, write: &Write<'_>) -> [u8; HEAD] {
    let flags =
        if write.value.is_none() { REMOVED } else { 0 } | if write.large { LARGE } else { 0 };
    // A key has at most 1100 bytes, and a row some tens of thousands: see the limits of the model.
    let key = u16::try_from(key).unwrap_or(u16::MAX).to_le_bytes();
    let value = write.value.map_or(0, <[u8]>::len);
    let value = u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    let lsn = write.lsn.0.to_le_bytes();
    let mut bytes = [0; HEAD];
    let fields = lsn.iter().chain([&flags]).chain(&key).chain(&value);
    for (to, from) in bytes.iter_mut().zip(fields) {
        *to = *from;
    }
    bytes
}

/// The head of a change and what follows it in its chunk.
fn split(chunks: &[Vec<u8>], spot: Spot) -> Option<(Head, &[u8])> {
    let bytes = chunks.get(spot.chunk as usize)?.get(spot.at as usize..)?;
    let (lsn, rest) = bytes.split_first_chunk::<8>()?;
    let (flags, rest) = rest.split_first()?;
    let (key, rest) = rest.split_first_chunk::<2>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let head = Head {
        lsn: Lsn(u64::from_le_bytes(*lsn)),
        flags: *flags,
        key: usize::from(u16::from_le_bytes(*key)),
        value: u32::from_le_bytes(*value) as usize,
    };
    Some((head, rest))
}

fn key_at(chunks: &[Vec<u8>], spot: Spot) -> &[u8] {
    split(chunks, spot)
        .and_then(|(head, rest)| rest.get(..head.key))
        .unwrap_or_default()
}

/// Writes a change over the one before it, where it is not longer.
fn overwrite(chunks: &mut [Vec<u8>], spot: Spot, write: &Write<'_>) -> bool {
    let Some((old, _)) = split(chunks, spot) else {
        return false;
    };
    let value = write.value.unwrap_or_default();
    if value.len() > old.value {
        return false;
    }
    let place = chunks
        .get_mut(spot.chunk as usize)
        .and_then(|chunk| chunk.get_mut(spot.at as usize..));
    let Some((head_place, rest)) = place.and_then(|bytes| bytes.split_first_chunk_mut::<HEAD>())
    else {
        return false;
    };
    let Some(value_place) = rest
        .get_mut(old.key..)
        .and_then(|rest| rest.get_mut(..value.len()))
    else {
        return false;
    };
    value_place.copy_from_slice(value);
    *head_place = head(old.key, write);
    true
}

/// Writes a change behind the others; the bytes it took.
fn append(
    chunks: &mut Vec<Vec<u8>>,
    free: &mut Vec<Vec<u8>>,
    hash: u64,
    key: &[u8],
    write: &Write<'_>,
) -> (Spot, usize) {
    let value = write.value.unwrap_or_default();
    let wanted = HEAD.saturating_add(key.len()).saturating_add(value.len());
    let fits = |chunk: &Vec<u8>| chunk.capacity().saturating_sub(chunk.len()) >= wanted;
    let mut waste = 0;
    if !chunks.last().is_some_and(fits) {
        waste = chunks
            .last()
            .map_or(0, |chunk| chunk.capacity().saturating_sub(chunk.len()));
        let used = free.pop_if(|chunk| chunk.capacity() >= wanted);
        chunks.push(used.unwrap_or_else(|| Vec::with_capacity(wanted.max(CHUNK))));
    }
    let number = chunks.len().saturating_sub(1);
    let mut at = 0;
    if let Some(chunk) = chunks.last_mut() {
        at = chunk.len();
        chunk.extend_from_slice(&head(key.len(), write));
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value);
    }
    // Memory for recent writes is bounded far below what these numbers hold.
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let spot = Spot {
        hash,
        chunk: small(number),
        at: small(at),
    };
    (spot, wanted.saturating_add(waste))
}

fn held(large: &LargeContent) -> usize {
    large.bytes.as_ref().map_or(0, Bytes::len)
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("keys", &self.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::samples::{Dice, key, pending};
    use std::collections::BTreeMap;

    fn empty() -> Memtable {
        Memtable::new(KeyHasher::new(b"0123456789abcdef"))
    }

    fn get(table: &Memtable, key: &RecordKey) -> Option<(Lsn, Option<Record>)> {
        let row = table.get(table.hash(key.joined()), key.joined())?;
        assert_eq!(row.key(), key.joined());
        Some((row.lsn(), row.record().unwrap()))
    }

    #[test]
    fn the_last_change_of_a_key_is_what_it_has() {
        let mut dice = Dice::seeded();
        let mut table = empty();
        let mut expected: BTreeMap<RecordKey, (Lsn, Option<Record>)> = BTreeMap::new();
        for number in 1..5000 {
            let name = key(format!("k{}", dice.below(400)));
            let record = (dice.below(4) > 0).then(|| dice.record());
            table
                .put_record(Lsn(number), &name, record.as_ref())
                .unwrap();
            expected.insert(name, (Lsn(number), record));
        }
        assert_eq!(table.len(), expected.len());
        for (name, change) in &expected {
            assert_eq!(get(&table, name).as_ref(), Some(change), "{name:?}");
        }
        let rows: BTreeMap<_, _> = table
            .rows()
            .map(|row| (row.name().unwrap(), (row.lsn(), row.record().unwrap())))
            .collect();
        assert_eq!(rows, expected);
        assert_eq!(get(&table, &key("other")), None);
    }

    #[test]
    fn a_record_renewed_in_place_takes_no_more_memory() {
        let mut table = empty();
        table
            .put_record(Lsn(1), &key("k"), Some(&pending(7)))
            .unwrap();
        let bytes = table.bytes();
        for lsn in 2..1000 {
            table
                .put_record(Lsn(lsn), &key("k"), Some(&pending(7)))
                .unwrap();
        }
        assert_eq!(table.bytes(), bytes);
        assert!(bytes < 300, "{bytes}");
    }

    #[test]
    fn bytes_of_bodies_count_while_they_are_here() {
        let mut table = empty();
        let mut large = pending(7);
        large.payload = Some(crate::store::samples::body(&[7; 100_000], Some(Lsn(1))));
        table.put_record(Lsn(1), &key("k"), Some(&large)).unwrap();
        assert!(table.bytes() > 100_000);
        let row = get(&table, &key("k")).unwrap().1.unwrap();
        assert!(!row.lacks_bodies());
        table.put_record(Lsn(2), &key("k"), None).unwrap();
        assert!(table.bytes() < 1000, "{}", table.bytes());
    }

    #[test]
    fn a_bit_that_flips_in_memory_is_seen() {
        let mut table = empty();
        table
            .put_record(Lsn(1), &key("k"), Some(&pending(7)))
            .unwrap();
        let last = table.chunks.first_mut().and_then(|chunk| chunk.last_mut());
        *last.unwrap() ^= 1;
        let row = table.rows().next().unwrap();
        assert_eq!(row.record(), Err(CodecError::Checksum));
    }
}
