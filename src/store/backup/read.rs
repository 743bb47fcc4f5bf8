//! Reading a backup: row by row, everything checked, never more memory than a record with its bodies takes.

use std::path::Path;

use bytes::Bytes;

use super::chunk::Reader;
use super::{BODY, BackupError, Contents, END, Head, MAX_FIELD, POLICY, RECORD, STATE};
use crate::model::key::RecordKey;
use crate::model::policy::Policy;
use crate::model::record::{Record, Token};
use crate::store::codec::{
    BodyRef, body_key, decode_body, decode_policy, split_body_key, view_record,
};
use crate::store::filter::KeyHasher;
use crate::store::open::POLICY_KEYS;

/// A backup that is being read.
pub struct Backup {
    reader: Reader,
    head: Head,
    promised: (u64, u64),
    found: Contents,
    hasher: KeyHasher,
    /// How the part begins that was read already.
    ahead: Option<u8>,
    ended: bool,
}

/// What is in a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The policy of a namespace.
    Policy(Box<str>, Policy),
    /// A record, with the bytes of all its bodies.
    Record(RecordKey, Box<Record>),
}

/// Reads all of a backup, and tells what is in it.
///
/// # Errors
/// It is not whole, or not what was written: see [`BackupError`].
pub fn verify(path: &Path) -> Result<(Head, Contents), BackupError> {
    let mut backup = Backup::open(path)?;
    while backup.next_item()?.is_some() {}
    Ok((backup.head, backup.found))
}

impl Backup {
    /// Opens a backup and reads what it is of.
    ///
    /// # Errors
    /// As [`verify`], as far as its beginning shows it.
    pub fn open(path: &Path) -> Result<Backup, BackupError> {
        let mut reader = Reader::open(path)?;
        let mut bytes = Vec::new();
        reader.take(1, &mut bytes)?;
        if bytes != [STATE] {
            return Err(reader.damaged("it does not begin with the state of a store"));
        }
        let next_token = Token::new(number(&mut reader)?);
        let next_token = next_token.ok_or_else(|| reader.damaged("a token that is none"))?;
        let promised = (number(&mut reader)?, number(&mut reader)?);
        let mark = field(&mut reader)?;
        let mark = bytes_of(&mut reader, mark)?;
        Ok(Backup {
            head: Head {
                store_id: reader.store_id,
                lsn: reader.lsn,
                next_token,
                mark,
            },
            hasher: KeyHasher::new(&reader.store_id),
            promised,
            found: Contents::default(),
            reader,
            ahead: None,
            ended: false,
        })
    }

    /// What it is of.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What was read of it so far; all there is once [`Backup::next_item`] gave `None`.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.found
    }

    /// The next policy or record; `None` once all was read, and is what its end record says.
    ///
    /// # Errors
    /// As [`verify`].
    pub fn next_item(&mut self) -> Result<Option<Item>, BackupError> {
        if self.ended {
            return Ok(None);
        }
        match self.tag()? {
            POLICY => self.policy().map(Some),
            RECORD => self.record().map(Some),
            END => self.end().map(|()| None),
            BODY => Err(self.reader.damaged("a body that no record refers to")),
            other => Err(self
                .reader
                .damaged(format!("a row of unknown kind {other}"))),
        }
    }

    fn tag(&mut self) -> Result<u8, BackupError> {
        if let Some(tag) = self.ahead.take() {
            return Ok(tag);
        }
        let mut tag = Vec::with_capacity(1);
        self.reader.take(1, &mut tag)?;
        Ok(tag.first().copied().unwrap_or_default())
    }

    fn row(&mut self) -> Result<(Vec<u8>, Vec<u8>), BackupError> {
        let (key, value) = (field(&mut self.reader)?, field(&mut self.reader)?);
        let key = bytes_of(&mut self.reader, key)?;
        Ok((key, bytes_of(&mut self.reader, value)?))
    }

    fn policy(&mut self) -> Result<Item, BackupError> {
        let (key, value) = self.row()?;
        let namespace = key.strip_prefix(POLICY_KEYS).unwrap_or_default();
        let namespace = std::str::from_utf8(namespace).unwrap_or_default();
        crate::model::key::check_namespace(namespace)
            .map_err(|error| self.reader.damaged(format!("a policy: {error}")))?;
        let policy = decode_policy(&key, &value)
            .map_err(|error| self.reader.damaged(format!("a policy: {error}")))?;
        self.found.policies = self.found.policies.saturating_add(1);
        Ok(Item::Policy(namespace.into(), policy))
    }

    fn record(&mut self) -> Result<Item, BackupError> {
        let (joined, value) = self.row()?;
        let name = RecordKey::from_joined(Bytes::copy_from_slice(&joined))
            .ok_or_else(|| self.reader.damaged("a key that is none"))?;
        let bad = |reader: &Reader, error: &dyn std::fmt::Display| {
            let key = joined.escape_ascii();
            reader.damaged(format!("key {key}: {error}"))
        };
        let view = view_record(&joined, &value).map_err(|error| bad(&self.reader, &error))?;
        let mut record = view
            .to_record()
            .map_err(|error| bad(&self.reader, &error))?;
        let mut wanted: Vec<BodyRef> = Vec::new();
        for body in view.refs() {
            let is_it = |known: &BodyRef| (known.part, known.lsn) == (body.part, body.lsn);
            if !wanted.iter().any(is_it) {
                wanted.push(body);
            }
        }
        for body in &wanted {
            if self.tag()? != BODY {
                return Err(bad(&self.reader, &"a body is missing"));
            }
            let (key, value) = self.row()?;
            let is_it =
                split_body_key(&key).is_some() && key == body_key(&joined, body.lsn, body.part);
            if !is_it {
                return Err(bad(&self.reader, &"another body than it refers to"));
            }
            let bytes =
                decode_body(&key, &value, body).map_err(|error| bad(&self.reader, &error))?;
            let bytes = Bytes::copy_from_slice(bytes);
            for large in record.large_bodies_mut() {
                if large.lsn == Some(body.lsn) && large.digest == body.digest {
                    large.bytes = Some(bytes.clone());
                }
            }
            self.found.bodies = self.found.bodies.saturating_add(1);
        }
        if record.lacks_bodies() {
            return Err(bad(&self.reader, &"a body is missing"));
        }
        self.found.records = self.found.records.saturating_add(1);
        self.found.sum = self.found.sum.wrapping_add(self.hasher.hash(&joined));
        Ok(Item::Record(name, Box::new(record)))
    }

    fn end(&mut self) -> Result<(), BackupError> {
        let told = Contents {
            policies: number(&mut self.reader)?,
            records: number(&mut self.reader)?,
            bodies: number(&mut self.reader)?,
            sum: number(&mut self.reader)?,
        };
        if told != self.found || self.promised != (told.records, told.bodies) {
            let reason = format!(
                "{} records and {} bodies are there where {} and {} were written, or other ones",
                self.found.records, self.found.bodies, told.records, told.bodies
            );
            return Err(self.reader.damaged(reason));
        }
        self.reader.end()?;
        self.ended = true;
        Ok(())
    }
}

fn number(reader: &mut Reader) -> Result<u64, BackupError> {
    let bytes = bytes_of(reader, 8)?;
    let bytes = bytes.first_chunk::<8>().copied().unwrap_or_default();
    Ok(u64::from_le_bytes(bytes))
}

/// The length of what follows.
fn field(reader: &mut Reader) -> Result<usize, BackupError> {
    let bytes = bytes_of(reader, 4)?;
    let bytes = bytes.first_chunk::<4>().copied().unwrap_or_default();
    let length = u32::from_le_bytes(bytes) as usize;
    if length > MAX_FIELD {
        return Err(reader.damaged("a row that is longer than any is written"));
    }
    Ok(length)
}

fn bytes_of(reader: &mut Reader, count: usize) -> Result<Vec<u8>, BackupError> {
    let mut bytes = Vec::new();
    reader.take(count, &mut bytes)?;
    Ok(bytes)
}
