//! Repair: makes a store start again by dropping what its check named, and nothing else.
//!
//! All of it is one transaction: a repair that is killed has done all or nothing. Pages that are not what was
//! written are beyond it, because nothing below them can be trusted then.

use redb::{ReadableTable, ReadableTableMetadata, Table, TableHandle, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use super::backend::{self, Source};
use super::codec::{
    Part, TableCounts, body_key, decode_body, encode_counts, encode_record, encode_state,
    split_body_key, view_record,
};
use super::error::StoreError;
use super::filter::KeyHasher;
use super::layout::{Bounds, Chooser, META, Place};
use super::open::{Options, STATE_KEY, TABLE_KEYS, counts_key, read_state, unwritable};
use super::shared::{Fault, bytewise, explain, open_database};
use crate::model::body::{Body, Content};
use crate::model::record::{Lsn, Record};

const OPERATION: &str = "repair the store";

/// What repair does about one finding; its text says what is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix(pub(super) Action);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The record cannot be read, or there is a later one of its key.
    Record(Place, Box<[u8]>),
    /// The record is sound and lies in the wrong table.
    Move(Place, Box<[u8]>),
    /// The record is sound, and this body of it is not.
    Reference(Place, Box<[u8]>, Lsn, Part),
    /// The row of a body that no record refers to.
    Body(Place, Box<[u8]>),
    /// A table of bodies whose records are not there.
    Bodies(Place),
    /// The row of a policy in `meta`.
    Policy(Box<[u8]>),
    /// What `meta` says of tables is not what they hold.
    Count,
}

impl Fix {
    /// Whether something that may have been sound is lost by it.
    #[must_use]
    pub fn drops(&self) -> bool {
        !matches!(self.0, Action::Move(..) | Action::Count)
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Action::Record(..) => "the record and its bodies",
            Action::Move(..) => "nothing: the record goes to the table it belongs in",
            Action::Reference(..) => "the body: its record stays",
            Action::Body(..) => "the body",
            Action::Bodies(..) => "the table of bodies",
            Action::Policy(..) => "the policy: the defaults hold again",
            Action::Count => {
                "nothing more: the tables are counted anew, and what is gone stays gone"
            }
        })
    }
}

/// Does what the fixes say in one transaction, and counts all tables anew.
///
/// # Errors
/// Nothing was changed then, [`StoreError::Full`] included.
pub fn repair(path: impl AsRef<Path>, fixes: &[Fix], options: Options) -> Result<(), StoreError> {
    let path = path.as_ref();
    repair_source(&backend::file(path), path, fixes, options)
}

/// As [`repair`], of the storage of a backend.
///
/// # Errors
/// As there.
pub fn repair_backend(source: &Source, fixes: &[Fix], options: Options) -> Result<(), StoreError> {
    repair_source(source, Path::new("the backend"), fixes, options)
}

fn repair_source(
    source: &Source,
    path: &Path,
    fixes: &[Fix],
    options: Options,
) -> Result<(), StoreError> {
    let (database, failure) = open_database(source, path, options.cache, OPERATION)?;
    let mend = || -> Result<(), Fault> {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        mend(&transaction, fixes, options)?;
        transaction.commit()?;
        Ok(database.close()?)
    };
    mend().map_err(|fault| explain(OPERATION, path, &failure, fault))
}

fn mend(transaction: &WriteTransaction, fixes: &[Fix], options: Options) -> Result<(), Fault> {
    let mut state = read_state(&transaction.open_table(bytewise(META))?)?;
    let names = transaction.list_tables()?;
    let mut mender = Mender {
        transaction,
        names: names.map(|table| table.name().to_owned()).collect(),
    };
    for Fix(action) in fixes {
        match action {
            Action::Record(place, key) => mender.drop_record(*place, key)?,
            Action::Bodies(place) => mender.drop_table(&place.body_name())?,
            Action::Policy(key) => {
                drop(transaction.open_table(bytewise(META))?.remove(&**key)?);
            }
            _ => {}
        }
    }
    // Where there were two records of a key, the other one is gone by now.
    let mut chooser = mender.chooser(options)?;
    let mut moved = BTreeMap::new();
    for Fix(action) in fixes {
        if let Action::Move(place, key) = action {
            let to = mender.move_record(*place, key, &mut chooser)?;
            moved.insert((*place, &**key), to);
        }
    }
    // And a record may have come to where its body was all the time.
    for Fix(action) in fixes {
        match action {
            Action::Reference(place, key, lsn, part) => {
                let place = moved.get(&(*place, &**key)).unwrap_or(place);
                mender.drop_reference(*place, key, *lsn, *part)?;
            }
            Action::Body(place, row) => mender.drop_body(*place, row)?,
            _ => {}
        }
    }
    mender.count(&KeyHasher::new(&state.store_id))?;
    state.commits += 1;
    let state = encode_state(STATE_KEY, &state).map_err(unwritable)?;
    transaction
        .open_table(bytewise(META))?
        .insert(STATE_KEY, state.as_slice())?;
    Ok(())
}

/// A row's key and value.
type Row = (Vec<u8>, Vec<u8>);
type Rows<'a> = Table<'a, &'static [u8], &'static [u8]>;

struct Mender<'a> {
    transaction: &'a WriteTransaction,
    /// The tables there are: opening another one would make it.
    names: BTreeSet<String>,
}

impl<'a> Mender<'a> {
    fn open(&self, name: &str) -> Result<Option<Rows<'a>>, Fault> {
        if !self.names.contains(name) {
            return Ok(None);
        }
        Ok(Some(self.transaction.open_table(bytewise(name))?))
    }

    fn make(&mut self, name: &str) -> Result<Rows<'a>, Fault> {
        self.names.insert(name.to_owned());
        Ok(self.transaction.open_table(bytewise(name))?)
    }

    fn drop_table(&mut self, name: &str) -> Result<(), Fault> {
        if self.names.remove(name) {
            self.transaction.delete_table(bytewise(name))?;
        }
        Ok(())
    }

    fn drop_record(&self, place: Place, key: &[u8]) -> Result<(), Fault> {
        if let Some(mut table) = self.open(&place.name())? {
            table.remove(key)?;
        }
        drop(self.take_bodies(place, key)?);
        Ok(())
    }

    /// Takes all bodies of a record out of their table, also where the record cannot be read.
    fn take_bodies(&self, place: Place, key: &[u8]) -> Result<Vec<Row>, Fault> {
        let mut taken = Vec::new();
        let Some(mut table) = self.open(&place.body_name())? else {
            return Ok(taken);
        };
        for row in table.range(key..)? {
            let (row, value) = row?;
            if !row.value().starts_with(key) {
                break;
            }
            if split_body_key(row.value()).is_some_and(|(whose, ..)| whose == key) {
                taken.push((row.value().to_vec(), value.value().to_vec()));
            }
        }
        for (row, _) in &taken {
            table.remove(row.as_slice())?;
        }
        Ok(taken)
    }

    /// Takes a body off its record, which stays: that work was done is worth more than what it returned.
    fn drop_reference(&self, place: Place, key: &[u8], lsn: Lsn, part: Part) -> Result<(), Fault> {
        let Some(mut table) = self.open(&place.name())? else {
            return Ok(());
        };
        let value = table.get(key)?.map(|value| value.value().to_vec());
        let Some(view) = value
            .as_deref()
            .and_then(|value| view_record(key, value).ok())
        else {
            return Ok(());
        };
        let row = body_key(key, lsn, part);
        let mut bodies = self.open(&place.body_name())?;
        if let Some(bodies) = &mut bodies {
            let value = bodies.get(row.as_slice())?;
            let mut refs = view
                .refs()
                .filter(|body| (body.lsn, body.part) == (lsn, part));
            if let (Some(value), Some(body), None) = (value, refs.next(), refs.next())
                && decode_body(&row, value.value(), &body).is_ok()
            {
                return Ok(());
            }
            bodies.remove(row.as_slice())?;
        }
        if let Ok(mut record) = view.to_record() {
            forget_body(&mut record, lsn, part);
            let mut value = Vec::new();
            encode_record(key, &record, &mut value).map_err(unwritable)?;
            table.insert(key, value.as_slice())?;
        }
        Ok(())
    }

    /// Drops the row of a body that no record refers to.
    fn drop_body(&self, place: Place, row: &[u8]) -> Result<(), Fault> {
        let (table, bodies) = (self.open(&place.name())?, self.open(&place.body_name())?);
        let (Some(table), Some(mut bodies)) = (table, bodies) else {
            return Ok(());
        };
        if let Some((key, lsn, part)) = split_body_key(row)
            && let Some(value) = table.get(key)?
            && let Ok(view) = view_record(key, value.value())
            && view.refs().any(|body| (body.lsn, body.part) == (lsn, part))
        {
            return Ok(());
        }
        bodies.remove(row)?;
        Ok(())
    }

    fn chooser(&self, options: Options) -> Result<Chooser, Fault> {
        let mut rows = Vec::new();
        for place in self.places() {
            if let Some(table) = self.open(&place.name())? {
                rows.push((place, table.len()?));
            }
        }
        Ok(Chooser::new(Bounds::of(options), rows))
    }

    /// Puts a record where it belongs; returns where it is now.
    fn move_record(
        &mut self,
        from: Place,
        key: &[u8],
        chooser: &mut Chooser,
    ) -> Result<Place, Fault> {
        let Some(mut source) = self.open(&from.name())? else {
            return Ok(from);
        };
        let value = source.get(key)?.map(|value| value.value().to_vec());
        let Some(value) = value else {
            return Ok(from);
        };
        let Ok(record) = view_record(key, &value) else {
            return Ok(from);
        };
        let to = chooser.choose(&record);
        if to == from {
            return Ok(from);
        }
        source.remove(key)?;
        drop(source);
        self.make(&to.name())?.insert(key, value.as_slice())?;
        let bodies = self.take_bodies(from, key)?;
        if !bodies.is_empty() {
            let mut table = self.make(&to.body_name())?;
            for (row, value) in bodies {
                table.insert(row.as_slice(), value.as_slice())?;
            }
        }
        Ok(to)
    }

    fn places(&self) -> Vec<Place> {
        self.names
            .iter()
            .filter_map(|name| Place::parse(name))
            .collect()
    }

    /// Writes what all tables hold to `meta`, and drops those that are empty.
    fn count(&mut self, hasher: &KeyHasher) -> Result<(), Fault> {
        drop(self.make(&Place::Open.name())?);
        let mut counted = Vec::new();
        for place in self.places() {
            let mut counts = TableCounts::default();
            if let Some(table) = self.open(&place.name())? {
                for row in table.iter()? {
                    counts.rows += 1;
                    counts.sum = counts.sum.wrapping_add(hasher.hash(row?.0.value()));
                }
            }
            if let Some(table) = self.open(&place.body_name())? {
                counts.bodies = table.len()?;
            }
            if counts.rows == 0 && place != Place::Open {
                self.drop_table(&place.name())?;
                self.drop_table(&place.body_name())?;
            } else {
                counted.push((counts_key(place), counts));
            }
        }
        let mut meta = self.transaction.open_table(bytewise(META))?;
        let mut old = Vec::new();
        for row in meta.range(TABLE_KEYS..)? {
            let (key, _) = row?;
            if !key.value().starts_with(TABLE_KEYS) {
                break;
            }
            old.push(key.value().to_vec());
        }
        for key in old {
            meta.remove(key.as_slice())?;
        }
        for (key, counts) in counted {
            let value = encode_counts(&key, &counts).map_err(unwritable)?;
            meta.insert(key.as_slice(), value.as_slice())?;
        }
        Ok(())
    }
}

/// Takes the bodies of that LSN and part off a record.
fn forget_body(record: &mut Record, lsn: Lsn, part: Part) {
    let is_it = |body: &Body| match &body.content {
        Content::Large(large) => large.lsn == Some(lsn),
        Content::Inline(_) => false,
    };
    match part {
        Part::Payload => drop(record.payload.take_if(|body| is_it(body))),
        Part::Result => {
            drop(record.result.take_if(|kept| is_it(&kept.body)));
            drop(record.earlier_result.take_if(|kept| is_it(&kept.body)));
        }
    }
}
