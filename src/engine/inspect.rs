//! A data directory that nobody has open, looked at as a whole: what is wrong with it, and what repair would drop.
//! The store and the journal know their own files; here one is held against the other.

use std::io;
use std::path::{Path, PathBuf};

use super::open::{
    DATA, JOURNAL, MARKER, STORE, StoreId, directory, exists, hex, journal_disk, read_marker,
};
use super::{EngineError, Options};
use crate::journal::inspect as journal_inspect;
use crate::journal::inspect::Region;
pub use crate::journal::inspect::Remedy;
use crate::journal::repair::Plan;
use crate::model::body::{Body, Content};
use crate::model::key::RecordKey;
use crate::model::record::{Lsn, Record, Token};
use crate::store::{
    self, Change, CompactError, Compacted, Entry, Facts, Fix, Part, StoreError, Wanted,
    decode_entry,
};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: Option<u64>,
    /// The table in it.
    pub table: Option<Box<str>>,
    /// The key in that, escaped.
    pub key: Option<Box<str>>,
    /// What is wrong.
    pub reason: String,
    /// What repair does about it.
    pub remedy: Remedy,
}

/// What an inspection found.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// What is wrong; empty for a sound directory.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub more: u64,
    /// What is worth knowing and in order.
    pub notes: Vec<String>,
    /// What the store holds; `None` where it cannot be read.
    pub store: Option<StoreCounts>,
    /// What the journal holds; `None` where it cannot be read.
    pub journal: Option<JournalCounts>,
    pub(super) repair: Repair,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Tables of records.
    pub tables: usize,
    /// Records.
    pub records: u64,
    /// Bodies beside them.
    pub bodies: u64,
    /// Everything up to here is in it; `None` where that cannot be read.
    pub checkpoint: Option<Lsn>,
}

/// What a journal holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounts {
    /// Segments.
    pub segments: usize,
    /// Frames that verify, up to the first fault.
    pub frames: u64,
    /// Entries in them.
    pub entries: u64,
    /// The first LSN.
    pub first: Option<Lsn>,
    /// The last LSN, up to the first fault.
    pub last: Lsn,
}

/// What repair does, beside what the findings say.
#[derive(Clone, Debug, Default)]
pub(super) struct Repair {
    pub(super) marker: bool,
    pub(super) fixes: Vec<Fix>,
    pub(super) facts: Option<Facts>,
    pub(super) plan: Plan,
    /// The highest token that was seen anywhere.
    pub(super) highest_token: u64,
    /// The next token has to be raised above it.
    pub(super) raises: bool,
    /// Entries of the journal refer to bodies that the store does not have: a start could not redo them.
    pub(super) lacks: bool,
}

impl Repair {
    /// Whether the journal is brought to the store by the repair and not by the next start. After something was
    /// dropped from the store, entries may refer to it.
    pub(super) fn redoes(&self) -> bool {
        self.plan.cuts() || self.raises || self.lacks || !self.fixes.is_empty()
    }
}

impl Inspection {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0
    }

    /// Whether repair can make a directory of it that starts.
    #[must_use]
    pub fn can_be_repaired(&self) -> bool {
        let beyond = |finding: &Finding| matches!(finding.remedy, Remedy::Beyond(_));
        self.more == 0 && !self.findings.iter().any(beyond)
    }

    /// What is true after a repair that somebody has to know, beside what is dropped.
    #[must_use]
    pub fn consequences(&self) -> Vec<String> {
        let mut told = Vec::new();
        if self.repair.plan.cuts() && self.repair.plan.loses() {
            told.push(format!(
                "decisions up to LSN {} stay; work that was decided after that may run again, and tokens go on \
                 above all that may have been granted",
                self.repair.plan.kept().0
            ));
            told.push(
                "what is pending becomes in_doubt: its end may be among what is dropped".to_owned(),
            );
        }
        if self.repair.fixes.iter().any(Fix::drops) {
            told.push("the work of records that are dropped may run again".to_owned());
        }
        told
    }

    fn find(&mut self, file: PathBuf, reason: impl ToString, remedy: Remedy) {
        self.findings.push(Finding {
            file,
            offset: None,
            table: None,
            key: None,
            reason: reason.to_string(),
            remedy,
        });
    }
}

/// Looks at everything in a data directory that the caller holds.
///
/// # Errors
/// There is no store in it, another process has it open, or the system fails to read it. Damage is a finding.
pub fn inspect(dir: &Path, options: &Options) -> Result<Inspection, EngineError> {
    super::restore::refuse_unfinished(dir)?;
    inspect_unfinished(dir, options)
}

/// The same, of a directory that nobody may start on yet.
pub(super) fn inspect_unfinished(dir: &Path, options: &Options) -> Result<Inspection, EngineError> {
    let mut found = Inspection::default();
    let data = dir.join(DATA);
    let marker = inspect_marker(dir, &mut found)?;
    if !exists(&data)? {
        let Some(id) = marker else {
            return Err(directory(
                "find a store in",
                dir,
                io::ErrorKind::NotFound.into(),
            ));
        };
        let reason = format!(
            "it is missing, and the directory was used by store {}",
            hex(&id)
        );
        found.find(data, reason, restore("mount it, or restore a backup"));
        return Ok(found);
    }
    let facts = inspect_store(&data.join(STORE), options, &mut found)?;
    if let (Some(id), Some(facts)) = (marker, facts)
        && id != facts.store_id
    {
        let next = "put back what belongs together, or restore a backup";
        let reason = "it belongs to another store than the rest of the data directory";
        found.find(dir.join(MARKER), reason, restore(next));
    }
    inspect_journal(
        &data,
        facts.as_ref().map_or(marker, |facts| Some(facts.store_id)),
        facts.as_ref(),
        options,
        &mut found,
    )?;
    Ok(found)
}

fn restore(next: &str) -> Remedy {
    Remedy::Beyond(next.to_owned())
}

fn inspect_marker(dir: &Path, found: &mut Inspection) -> Result<Option<StoreId>, EngineError> {
    let path = dir.join(MARKER);
    match read_marker(dir) {
        Ok(Some(id)) => Ok(Some(id)),
        Ok(None) => {
            let note = format!("{} is missing; the next start writes it", path.display());
            found.notes.push(note);
            Ok(None)
        }
        Err(error @ EngineError::Marker { .. }) => {
            let remedy = Remedy::Drops("nothing: it is written anew".to_owned());
            found.find(path, error, remedy);
            found.repair.marker = true;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn inspect_store(
    path: &Path,
    options: &Options,
    found: &mut Inspection,
) -> Result<Option<Facts>, EngineError> {
    if !exists(path)? {
        found.find(
            path.to_owned(),
            "it is missing",
            restore("restore a backup"),
        );
        return Ok(None);
    }
    let report = match store::check(path, options.store) {
        Ok(report) => report,
        Err(StoreError::Damage {
            table, key, reason, ..
        }) => {
            found.findings.push(Finding {
                file: path.to_owned(),
                offset: None,
                table,
                key,
                reason: reason.into(),
                remedy: restore("restore a backup: below a damaged page nothing can be trusted"),
            });
            return Ok(None);
        }
        Err(error @ (StoreError::Newer { .. } | StoreError::NotAStore { .. })) => {
            let next = match error {
                StoreError::Newer { .. } => error.hint(),
                _ => "put the store back, or restore a backup",
            };
            let reason = match &error {
                StoreError::NotAStore { reason, .. } => reason.to_string(),
                StoreError::Newer { found, known, .. } => {
                    format!("it has format {found}, and this version knows formats up to {known}")
                }
                other => other.to_string(),
            };
            found.find(path.to_owned(), reason, restore(next));
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    found.more = report.more;
    found.store = Some(StoreCounts {
        tables: report.tables,
        records: report.records,
        bodies: report.bodies,
        checkpoint: report.facts.map(|facts| facts.checkpoint),
    });
    found.repair.highest_token = report.highest_token;
    found.repair.facts = report.facts;
    for finding in report.findings {
        let remedy = match &finding.fix {
            Some(fix) => Remedy::Drops(fix.to_string()),
            None => restore("restore a backup"),
        };
        found.repair.fixes.extend(finding.fix);
        found.findings.push(Finding {
            file: path.to_owned(),
            offset: None,
            table: Some(finding.table),
            key: finding.key,
            reason: finding.reason.into(),
            remedy,
        });
    }
    Ok(report.facts)
}

/// Tokens as the journal has them.
#[derive(Default)]
struct Tokens {
    /// The highest of an entry that the store has.
    covered: u64,
    /// The highest of an entry after that.
    ahead: u64,
    /// What a redo of those raises the next token above.
    granted: u64,
    /// The highest behind a fault.
    dropped: u64,
}

fn inspect_journal(
    data: &Path,
    store_id: Option<StoreId>,
    facts: Option<&Facts>,
    options: &Options,
    found: &mut Inspection,
) -> Result<(), EngineError> {
    let path = data.join(JOURNAL);
    if !exists(&path)? {
        found.find(path, "it is missing", restore("restore a backup"));
        return Ok(());
    }
    let Some(store_id) = store_id else {
        let note = "the journal was not read: neither the store nor the marker says whose it is";
        found.notes.push(note.to_owned());
        return Ok(());
    };
    let disk = journal_disk(data)?;
    let checkpoint = facts.map(|facts| facts.checkpoint);
    let mut tokens = Tokens::default();
    let mut wanted = Vec::new();
    let mut visit = |region, lsn, bytes: &[u8]| {
        let entry = see(&mut tokens, region, lsn, bytes)?;
        if let (Region::Ahead, Change::Put(key, record), Some(checkpoint)) =
            (region, &entry.change, checkpoint)
        {
            wanted.extend(bodies_in_store(key, record, checkpoint));
        }
        Ok(())
    };
    let journal = journal_inspect::inspect(&*disk, &store_id, checkpoint, &mut visit)?;
    found.journal = Some(JournalCounts {
        segments: journal.segments,
        frames: journal.frames,
        entries: journal.entries,
        first: journal.first,
        last: journal.last,
    });
    found
        .findings
        .extend(journal.findings.into_iter().map(|finding| Finding {
            file: finding.path,
            offset: finding.offset,
            table: None,
            key: None,
            reason: finding.reason,
            remedy: finding.remedy,
        }));
    if let Some(torn) = journal.torn {
        found.notes.push(format!(
            "{} bytes at offset {} of {} were not written whole, so nobody was told of them; the next start \
             cuts them off",
            torn.bytes,
            torn.offset,
            torn.path.display()
        ));
    }
    if let Some(facts) = facts {
        let path = data.join(STORE);
        compare_tokens(&path, facts, &tokens, found);
        compare_bodies(&path, wanted, options, found)?;
    }
    found.repair.plan = journal.plan;
    Ok(())
}

/// Notes the tokens of an entry, if it is one.
fn see(tokens: &mut Tokens, region: Region, lsn: Lsn, bytes: &[u8]) -> Result<Entry, String> {
    let entry = decode_entry(bytes).map_err(|error| error.to_string())?;
    if entry.lsn != lsn {
        return Err(format!("it says that it is entry {}", entry.lsn.0));
    }
    let decided = entry.decision.token.map_or(0, Token::get);
    let token = match &entry.change {
        Change::Put(_, record) => decided.max(record.token.get()),
        _ => decided,
    };
    let highest = match region {
        Region::Covered => &mut tokens.covered,
        Region::Ahead => {
            tokens.granted = tokens.granted.max(decided);
            &mut tokens.ahead
        }
        Region::Dropped => &mut tokens.dropped,
    };
    *highest = token.max(*highest);
    Ok(entry)
}

/// The bodies that a record of an entry leaves to the store: they came with entries that it has.
pub(super) fn bodies_in_store(key: &RecordKey, record: &Record, checkpoint: Lsn) -> Vec<Wanted> {
    let results = [&record.result, &record.earlier_result];
    let results = results.into_iter().flatten();
    let results = results.map(|kept| (Part::Result, &kept.body));
    let payload = record.payload.iter().map(|body| (Part::Payload, body));
    let wanted = |(part, body): (Part, &Body)| match &body.content {
        Content::Large(large) if large.bytes.is_none() => {
            let lsn = large.lsn.filter(|lsn| *lsn <= checkpoint)?;
            let (key, large) = (key.clone(), large.clone());
            Some(Wanted {
                key,
                part,
                lsn,
                large: *large,
            })
        }
        _ => None,
    };
    payload.chain(results).filter_map(wanted).collect()
}

/// The store has every body that entries after its checkpoint leave to it.
fn compare_bodies(
    path: &Path,
    mut wanted: Vec<Wanted>,
    options: &Options,
    found: &mut Inspection,
) -> Result<(), EngineError> {
    let place = |body: &Wanted| (body.key.clone(), body.lsn, body.part);
    wanted.sort_unstable_by_key(place);
    wanted.dedup_by_key(|body| place(body));
    if wanted.is_empty() {
        return Ok(());
    }
    for body in store::lacking(path, wanted, options.store)? {
        found.repair.lacks = true;
        found.findings.push(Finding {
            file: path.to_owned(),
            offset: None,
            table: None,
            key: Some(body.key.joined().escape_ascii().to_string().into()),
            reason: format!(
                "the journal refers to a body of LSN {} that is not there as it was written",
                body.lsn.0
            ),
            remedy: Remedy::Drops("the body: its record stays".to_owned()),
        });
    }
    Ok(())
}

/// After the next start no token is granted that was seen anywhere.
fn compare_tokens(path: &Path, facts: &Facts, tokens: &Tokens, found: &mut Inspection) {
    let known = found.repair.highest_token.max(tokens.covered);
    let (next, seen) = if known >= facts.next_token.get() {
        (facts.next_token.get(), known)
    } else {
        let next = facts.next_token.get().max(tokens.granted.saturating_add(1));
        (next, tokens.ahead)
    };
    if seen >= next {
        found.repair.raises = true;
        let reason = format!("token {seen} was granted, and the next one would be {next}");
        let remedy = Remedy::Drops("nothing: the next token is raised".to_owned());
        found.find(path.to_owned(), reason, remedy);
    }
    found.repair.highest_token = known.max(tokens.ahead).max(tokens.dropped);
}

/// Copies the store of a data directory that the caller holds into a new file, in its place. `free` is how many
/// bytes its file system has to spare.
///
/// # Errors
/// The store is as it was.
pub fn compact(dir: &Path, options: &Options, free: u64) -> Result<Compacted, CompactError> {
    store::compact(dir.join(DATA).join(STORE), options.store, free)
}
