//! The repair of a data directory: drops what an inspection named.
//!
//! The store comes first, in one transaction. Then what is kept of the journal is redone into it, as a start does,
//! and the LSNs and tokens of the rest are given up. The journal is touched last, when the store needs nothing of
//! it any more.

use std::path::Path;
use std::sync::Arc;

use super::inspect::{Inspection, Repair, bodies_in_store};
use super::open::{
    DATA, Redone, STORE, Target, checkpoint_redone, journal_disk, mark_bytes, position, redo_entry,
    write_marker,
};
use super::{EngineError, Options};
use crate::journal::disk::Disk;
use crate::journal::inspect::{self, Region};
use crate::journal::repair::{self as journal_repair, Plan};
use crate::model::body::{Body, Content};
use crate::model::key::RecordKey;
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Record, Token};
use crate::model::time::Timestamp;
use crate::store::{
    self, Change, Checkpoint, KeyHasher, Memtable, Opened, Part, Reader, Scan, Store, Which,
    decode_entry,
};

/// Bytes of kept entries after which a repair brings them to the store.
const REDO_BYTES: usize = 16 << 20;
/// Records that are looked at in one go.
const PAGE: usize = 1000;

/// Does what an inspection said. Killed at any moment it leaves a directory that is refused or sound, never one
/// that has lost more; repair it again then.
///
/// # Errors
/// What the system says, want of space among it.
pub fn repair(dir: &Path, found: &Inspection, options: &Options) -> Result<(), EngineError> {
    let data = dir.join(DATA);
    let path = data.join(STORE);
    let repair = &found.repair;
    let Some(facts) = &repair.facts else {
        return Ok(());
    };
    if !repair.fixes.is_empty() {
        store::repair(&path, &repair.fixes, options.store)?;
    }
    if repair.redoes() {
        bring_to_store(&data, repair, options)?;
    }
    if !repair.plan.is_empty() {
        let disk = journal_disk(&data)?;
        journal_repair::repair(disk, &facts.store_id, &repair.plan, options.journal.clone())?;
    }
    if repair.marker {
        write_marker(dir, &facts.store_id)?;
    }
    Ok(())
}

/// Redoes what is kept of the journal, and gives up the LSNs and tokens of the rest.
fn bring_to_store(data: &Path, repair: &Repair, options: &Options) -> Result<(), EngineError> {
    let (mut store, opened) = Store::open(data.join(STORE), options.store)?;
    let mut redone = Redone::of(&opened);
    let plan = &repair.plan;
    redo(
        &*journal_disk(data)?,
        plan,
        &opened,
        &mut store,
        &mut redone,
    )?;
    let mut next_token = redone
        .next_token
        .get()
        .max(repair.highest_token.saturating_add(1));
    if plan.loses() {
        // As a restore does: what was granted behind the fault is not known, and the clock is above it.
        let (reading, _) = options.clock.read();
        next_token = next_token.max(reading.wall.saturating_mul(1000));
    }
    let position = match plan.mark().map(position) {
        Some(last) if redone.position.is_none_or(|known| last.time >= known.time) => Some(last),
        _ => redone.position,
    };
    let (lsn, next_token) = (
        plan.top().max(redone.lsn),
        Token::new(next_token).unwrap_or(Token::MAX),
    );
    let mark = position.map(mark_bytes).unwrap_or(opened.mark.clone());
    if plan.loses() {
        let at = position.map_or(Timestamp::default(), |position| position.time);
        doubt_pending(&mut store, &opened, at, |changes| Checkpoint {
            lsn,
            next_token,
            mark: mark.clone(),
            policies: Vec::new(),
            changes: Arc::new(changes),
        })?;
    }
    store.checkpoint(Checkpoint {
        lsn,
        next_token,
        mark,
        policies: changed_policies(&opened, &redone),
        changes: Arc::new(Memtable::new(KeyHasher::new(&opened.store_id))),
    })?;
    Ok(store.close()?)
}

/// What became of work in hand may be among what is dropped: as in a restore, nobody gets it automatically, and no
/// token of before is accepted.
fn doubt_pending(
    store: &mut Store,
    opened: &Opened,
    at: Timestamp,
    checkpoint: impl Fn(Memtable) -> Checkpoint,
) -> Result<(), EngineError> {
    let reader = store.reader();
    for namespace in reader.namespaces() {
        let mut after: Option<RecordKey> = None;
        loop {
            let page = reader.scan(&Scan {
                namespace: &namespace,
                prefix: b"",
                after: after.as_ref().map(RecordKey::key),
                limit: PAGE,
                which: Which::Open,
            })?;
            let mut changes = Memtable::new(KeyHasher::new(&opened.store_id));
            after = page.records.last().map(|(key, _)| key.clone());
            for (key, mut record) in page.records {
                if record.doubt(at) {
                    changes
                        .put_record(opened.checkpoint, &key, Some(&record))
                        .map_err(|error| EngineError::Entry {
                            lsn: opened.checkpoint.0,
                            reason: error.to_string(),
                        })?;
                }
            }
            if !changes.is_empty() {
                store.checkpoint(checkpoint(changes))?;
            }
            if !page.more || after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn redo(
    disk: &dyn Disk,
    plan: &Plan,
    opened: &Opened,
    store: &mut Store,
    redone: &mut Redone,
) -> Result<(), EngineError> {
    let reader = store.reader();
    let mut failed = None;
    let mut visit = |region, lsn: Lsn, bytes: &[u8]| {
        if region != Region::Ahead || lsn > plan.kept() || failed.is_some() {
            return Ok(());
        }
        let mut redo = || -> Result<(), EngineError> {
            let mut entry = decode_entry(bytes).map_err(|error| EngineError::Entry {
                lsn: lsn.0,
                reason: error.to_string(),
            })?;
            if let Change::Put(key, record) = &mut entry.change {
                let record = Arc::make_mut(record);
                forget_missing(&reader, opened.checkpoint, key, record)?;
            }
            redo_entry(redone, entry)?;
            if redone.recent.active_bytes() >= REDO_BYTES {
                checkpoint_redone(
                    &mut Target {
                        store,
                        reserve: None,
                    },
                    redone,
                )?;
            }
            Ok(())
        };
        if let Err(error) = redo() {
            failed = Some(error);
        }
        Ok(())
    };
    inspect::inspect(disk, &opened.store_id, Some(opened.checkpoint), &mut visit)?;
    if let Some(error) = failed {
        return Err(error);
    }
    checkpoint_redone(
        &mut Target {
            store,
            reserve: None,
        },
        redone,
    )
}

/// Takes off a record what it refers to in the store and what is not there: repair dropped it.
fn forget_missing(
    reader: &Reader,
    checkpoint: Lsn,
    key: &RecordKey,
    record: &mut Record,
) -> Result<(), EngineError> {
    for body in bodies_in_store(key, record, checkpoint) {
        if reader.body(key, body.part, &body.large)?.is_some() {
            continue;
        }
        let is_it = |held: &Body| matches!(&held.content, Content::Large(large) if large.lsn == Some(body.lsn));
        match body.part {
            Part::Payload => drop(record.payload.take_if(|held| is_it(held))),
            Part::Result => {
                drop(record.result.take_if(|kept| is_it(&kept.body)));
                drop(record.earlier_result.take_if(|kept| is_it(&kept.body)));
            }
        }
    }
    Ok(())
}

fn changed_policies(opened: &Opened, redone: &Redone) -> Vec<(Box<str>, Option<Policy>)> {
    let now = redone.policies.iter();
    let set = now.map(|(name, policy)| (name.as_str().into(), Some(policy.clone())));
    let gone = opened.policies.iter().filter_map(|(name, _)| {
        let is_gone = !redone.policies.contains_key(&**name);
        is_gone.then(|| (name.clone(), None))
    });
    set.chain(gone).collect()
}
