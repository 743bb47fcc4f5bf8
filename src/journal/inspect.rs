//! Reads a whole journal that nobody has open and tells everything that is wrong with it, and what repair would
//! drop for each. Nothing is written.
//!
//! What recovery reads has to be whole: from the segment that holds the LSN after the checkpoint to the end. The
//! first fault there is where the journal is cut. The segments before are the audit trail alone: a fault there
//! costs the trail up to it. A fault in what the checkpoint covers, with frames that go on behind it, costs the
//! trail as well and no entry.

use super::disk::Disk;
use super::error::{Cause, JournalError};
use super::highest::{HIGHEST, Highest};
use super::recovery::{TornTail, list};
use super::repair::{Cut, Plan};
use super::segment::{self, HEADER_LEN, Header, StoreId, file_name};
use crate::model::record::Lsn;
use std::path::PathBuf;

mod frames;

use self::frames::Ended;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: Option<u64>,
    /// What is wrong.
    pub reason: String,
    /// What repair does about it.
    pub remedy: Remedy,
}

/// What repair does about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It drops this.
    Drops(String),
    /// Nothing: what to do instead.
    Beyond(String),
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// In the checkpoint: the audit trail.
    Covered,
    /// After the checkpoint: what a start redoes.
    Ahead,
    /// Behind the first fault: what repair drops.
    Dropped,
}

/// What an inspection found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// What is wrong; empty for a sound journal.
    pub findings: Vec<Finding>,
    /// Segments there are.
    pub segments: usize,
    /// Frames that verify, and that repair keeps.
    pub frames: u64,
    /// Entries in them.
    pub entries: u64,
    /// The first LSN there is.
    pub first: Option<Lsn>,
    /// The last LSN that repair keeps.
    pub last: Lsn,
    /// A frame that a crash left unfinished at the end: the next start cuts it off.
    pub torn: Option<TornTail>,
    /// What repair would do.
    pub plan: Plan,
}

/// Takes an entry's place and bytes; says why they cannot be an entry.
pub type Visit<'a> = &'a mut dyn FnMut(Region, Lsn, &[u8]) -> Result<(), String>;

/// Reads every frame of the journal, and hands out every entry: those of [`Region::Ahead`] are what repair redoes,
/// up to [`Plan::kept`]. Without a checkpoint (the store cannot be read) everything counts as covered.
///
/// # Errors
/// `Io` where the system fails to read; damage is a finding.
pub fn inspect(
    disk: &dyn Disk,
    store_id: &StoreId,
    checkpoint: Option<Lsn>,
    visit: Visit<'_>,
) -> Result<Inspection, JournalError> {
    let mut inspector = Inspector {
        disk,
        store_id,
        checkpoint,
        visit,
        found: Inspection::default(),
    };
    inspector.run()?;
    Ok(inspector.found)
}

struct Inspector<'a> {
    disk: &'a dyn Disk,
    store_id: &'a StoreId,
    checkpoint: Option<Lsn>,
    visit: Visit<'a>,
    found: Inspection,
}

/// A segment, and its header where that is sound.
struct Segment {
    number: u64,
    header: Option<Header>,
}

impl Inspector<'_> {
    fn run(&mut self) -> Result<(), JournalError> {
        let highest = self.highest()?;
        let numbers = list(self.disk)?;
        let mut segments = Vec::new();
        let mut headers = Vec::new();
        for number in &numbers {
            let header = match segment::open(self.disk, *number, Some(self.store_id)) {
                Ok((header, _)) => Some(header),
                Err(error) => {
                    headers.push((*number, failed_reading(error)?));
                    None
                }
            };
            segments.push(Segment {
                number: *number,
                header,
            });
        }
        self.found.segments = segments.len();
        self.found.first = segments
            .iter()
            .find_map(|segment| Some(segment.header?.first_lsn));
        let start = self.checkpoint.and_then(|checkpoint| {
            segments.iter().rposition(|segment| {
                segment
                    .header
                    .is_some_and(|header| header.first_lsn.0 <= checkpoint.0.saturating_add(1))
            })
        });
        let audit = match (start, self.checkpoint) {
            (Some(start), _) => start,
            (None, Some(_)) => 0,
            (None, None) => segments.len(),
        };
        for (number, error) in headers {
            let is_audit = numbers
                .iter()
                .position(|n| *n == number)
                .is_some_and(|at| at < audit);
            self.bad_header(number, error, is_audit);
        }
        self.audit(&segments, audit)?;
        let Some(checkpoint) = self.checkpoint else {
            return Ok(());
        };
        self.found.last = checkpoint;
        self.found.plan.top = checkpoint;
        match start {
            Some(start) => self.follow(&segments, start, highest, checkpoint)?,
            None => self.nothing_kept(&segments, highest, checkpoint)?,
        }
        self.found.plan.kept = self.found.last;
        Ok(())
    }

    /// The highest segment number recorded, if that can be read.
    fn highest(&mut self) -> Result<Option<u64>, JournalError> {
        match Highest::open(self.disk, Some(self.store_id), false) {
            Ok(highest) => {
                self.found.plan.recorded = highest.number;
                Ok(Some(highest.number))
            }
            Err(error) => {
                let finding = finding(&failed_reading(error)?, None);
                self.found.plan.highest = matches!(finding.remedy, Remedy::Drops(_));
                self.found.findings.push(finding);
                Ok(None)
            }
        }
    }

    fn bad_header(&mut self, number: u64, error: JournalError, is_audit: bool) {
        if is_audit {
            self.found.plan.audit_through = self.found.plan.audit_through.max(number);
            self.found
                .findings
                .push(finding(&error, Some(trail_up_to(number))));
        } else {
            self.found.findings.push(finding(&error, None));
        }
    }

    /// Reads the segments that only the audit trail needs.
    fn audit(&mut self, segments: &[Segment], count: usize) -> Result<(), JournalError> {
        for (at, segment) in segments.iter().enumerate().take(count) {
            let following = segments.get(at + 1);
            let adjacent = following.filter(|next| next.number == segment.number.saturating_add(1));
            if let (Some(_), None) = (following, adjacent) {
                self.damaged_trail(
                    segment.number,
                    &file_name(segment.number + 1),
                    None,
                    "it is missing",
                );
            }
            let Some(header) = segment.header else {
                continue;
            };
            let until = adjacent.and_then(|next| Some((next.number, next.header?.lsn_before)));
            let begin = (HEADER_LEN as u64, header.first_lsn);
            let ended = self.frames(&header, begin, until, following.is_none())?;
            if let Some(fault) = ended.fault {
                let name = file_name(segment.number);
                self.damaged_trail(segment.number, &name, Some(ended.offset), &fault);
            }
        }
        Ok(())
    }

    fn damaged_trail(&mut self, number: u64, name: &str, offset: Option<u64>, reason: &str) {
        self.found.plan.audit_through = self.found.plan.audit_through.max(number);
        self.found.findings.push(Finding {
            path: self.disk.path().join(name),
            offset,
            reason: reason.to_owned(),
            remedy: Remedy::Drops(trail_up_to(number)),
        });
    }

    /// Reads what recovery reads, and beyond.
    fn follow(
        &mut self,
        segments: &[Segment],
        start: usize,
        highest: Option<u64>,
        checkpoint: Lsn,
    ) -> Result<(), JournalError> {
        let mut end = Ended {
            offset: HEADER_LEN as u64,
            next: Lsn(0),
            fault: None,
        };
        let mut number = 0;
        for (at, segment) in segments.iter().enumerate().skip(start) {
            let first = at == start;
            if !first && segment.number != number + 1 {
                let reason = "it is missing".to_owned();
                self.cut(
                    segments,
                    number,
                    &end,
                    Some((number + 1, reason)),
                    checkpoint,
                )?;
                return Ok(());
            }
            let Some(header) = segment.header else {
                self.cut(segments, number, &end, None, checkpoint)?;
                return Ok(());
            };
            if !first && header.first_lsn > end.next && header.first_lsn.0 - 1 > checkpoint.0 {
                end.fault = Some(format!(
                    "LSNs {} to {} were left out as in the checkpoint, which is at {}",
                    end.next.0,
                    header.first_lsn.0 - 1,
                    checkpoint.0
                ));
                self.cut(segments, number, &end, None, checkpoint)?;
                return Ok(());
            }
            number = segment.number;
            let following = segments.get(at + 1);
            let until = following
                .filter(|next| next.number == number + 1)
                .and_then(|next| Some((next.number, next.header?.lsn_before)));
            end = self.frames(
                &header,
                (HEADER_LEN as u64, header.first_lsn),
                until,
                following.is_none(),
            )?;
            while let Some(resumed) = self.resume(&header, &end, checkpoint)? {
                let reason = end.fault.take().unwrap_or_default();
                self.damaged_trail(number, &file_name(number), Some(end.offset), &reason);
                // Its frames stay behind a fault that a start does not pass: they go on elsewhere.
                self.found.plan.rebuilds = true;
                end = self.frames(&header, resumed, until, following.is_none())?;
            }
            if end.fault.is_some() {
                self.cut(segments, number, &end, None, checkpoint)?;
                return Ok(());
            }
            self.found.last = Lsn(end.next.0.saturating_sub(1));
        }
        self.check_end(segments, number, end, highest, checkpoint)
    }

    /// No segment is missing at the end, and the journal goes at least as far as the checkpoint.
    fn check_end(
        &mut self,
        segments: &[Segment],
        number: u64,
        mut end: Ended,
        highest: Option<u64>,
        checkpoint: Lsn,
    ) -> Result<(), JournalError> {
        let last = Lsn(end.next.0.saturating_sub(1));
        self.found.plan.top = self.found.plan.top.max(last);
        if let Some(missing) = highest.filter(|highest| *highest > number) {
            let reason = "it is missing".to_owned();
            return self.cut(segments, number, &end, Some((missing, reason)), checkpoint);
        }
        if last < checkpoint {
            end.fault = Some(format!(
                "the journal ends with LSN {}, and the checkpoint is at {}",
                last.0, checkpoint.0
            ));
            return self.cut(segments, number, &end, None, checkpoint);
        }
        if let Some(recorded) = highest.filter(|highest| *highest < number) {
            // A crash may have come between a segment and its record, so the one without frames is in order.
            let in_use = end.offset > HEADER_LEN as u64 || number > recorded + 1;
            if in_use {
                self.found.plan.highest = true;
                self.found.findings.push(Finding {
                    path: self.disk.path().join(HIGHEST),
                    offset: Some(0),
                    reason: format!(
                        "the highest segment recorded is {recorded}, and segment {number} is in use"
                    ),
                    remedy: Remedy::Drops(
                        "no entry: the highest segment there is will be recorded".into(),
                    ),
                });
            }
        }
        if self.found.plan.rebuilds {
            self.found.plan.cut = Some(Cut {
                keep: Some((number, end.offset)),
            });
        }
        Ok(())
    }

    /// The journal is cut where its reading ended. `missing` names a segment that is not there.
    fn cut(
        &mut self,
        segments: &[Segment],
        number: u64,
        end: &Ended,
        missing: Option<(u64, String)>,
        checkpoint: Lsn,
    ) -> Result<(), JournalError> {
        self.found.last = Lsn(end.next.0.saturating_sub(1));
        self.found.plan.top = self.found.plan.top.max(self.found.last);
        self.found.torn = None;
        let at = segments
            .iter()
            .position(|segment| segment.number == number)
            .unwrap_or(0);
        let mut readable = 0;
        for (behind, segment) in segments.iter().skip(at).enumerate() {
            if let Some(header) = &segment.header {
                let begin = match behind {
                    0 => (end.offset, end.next),
                    _ => (HEADER_LEN as u64, header.first_lsn),
                };
                readable += self.salvage(header, begin)?;
            }
        }
        let after: Vec<u64> = segments
            .iter()
            .skip(at + 1)
            .map(|segment| segment.number)
            .collect();
        let place = (number, end.offset);
        let drops = self.tail(place, end.next, &after, readable, checkpoint);
        let (name, offset, reason) = match (missing, &end.fault) {
            (Some((number, reason)), _) => (file_name(number), None, reason),
            (None, Some(fault)) => (file_name(number), Some(end.offset), fault.clone()),
            // A header that is damaged was found already: that finding says what goes.
            (None, None) => {
                let path = after
                    .first()
                    .map(|number| self.disk.path().join(file_name(*number)));
                self.drops_at(path, drops);
                self.found.plan.cut = Some(Cut { keep: Some(place) });
                return Ok(());
            }
        };
        self.found.findings.push(Finding {
            path: self.disk.path().join(name),
            offset,
            reason,
            remedy: Remedy::Drops(drops),
        });
        self.found.plan.cut = Some(Cut { keep: Some(place) });
        Ok(())
    }

    /// Not even the segment with the LSN after the checkpoint is there.
    fn nothing_kept(
        &mut self,
        segments: &[Segment],
        highest: Option<u64>,
        checkpoint: Lsn,
    ) -> Result<(), JournalError> {
        let mut readable = 0;
        for header in segments.iter().filter_map(|segment| segment.header) {
            readable += self.salvage(&header, (HEADER_LEN as u64, header.first_lsn))?;
        }
        let mut drops = format!(
            "every entry after the checkpoint at LSN {}: all segments",
            checkpoint.0
        );
        self.found.plan.loses = true;
        drops.push_str(&entries_text(readable, self.found.plan.top));
        let lowest = segments.first().map(|segment| segment.number);
        match segments.first() {
            Some(segment) if segment.header.is_none() => {
                let path = self.disk.path().join(file_name(segment.number));
                self.drops_at(Some(path), drops);
            }
            _ => {
                let number = match lowest {
                    Some(lowest) => lowest.saturating_sub(1),
                    None => highest.unwrap_or(1).max(1),
                };
                self.found.findings.push(Finding {
                    path: self.disk.path().join(file_name(number)),
                    offset: None,
                    reason: "it is missing".into(),
                    remedy: Remedy::Drops(drops),
                });
            }
        }
        self.found.plan.cut = Some(Cut { keep: None });
        Ok(())
    }

    /// Makes the finding of a file say what is dropped for it.
    fn drops_at(&mut self, path: Option<PathBuf>, drops: String) {
        let finding = self
            .found
            .findings
            .iter_mut()
            .find(|finding| Some(&finding.path) == path.as_ref());
        if let Some(finding) = finding
            && matches!(finding.remedy, Remedy::Drops(_))
        {
            finding.remedy = Remedy::Drops(drops);
        }
    }

    /// What a cut drops, in words.
    fn tail(
        &mut self,
        (number, offset): (u64, u64),
        next: Lsn,
        after: &[u64],
        readable: u64,
        checkpoint: Lsn,
    ) -> String {
        self.found.plan.loses = true;
        if readable == 0 && after.is_empty() && next <= checkpoint {
            return format!(
                "no entry that is known of: the journal goes on after the checkpoint at LSN {}",
                checkpoint.0
            );
        }
        let segments = match after {
            [] => String::new(),
            [one] => format!(" and segment {one}"),
            [first, .., last] => format!(" and segments {first} to {last}"),
        };
        format!(
            "every entry from LSN {} on: segment {number} from offset {offset} on{segments}{}",
            next.0,
            entries_text(readable, self.found.plan.top)
        )
    }
}

fn trail_up_to(number: u64) -> String {
    format!("no entry that is needed: the audit trail up to segment {number}")
}

fn entries_text(readable: u64, top: Lsn) -> String {
    match readable {
        0 => String::new(),
        1 => format!("; one entry of it can be read, LSN {}", top.0),
        _ => format!(
            "; {readable} entries of it can be read, up to LSN {}",
            top.0
        ),
    }
}

/// Lets through what the system refused to read; damage goes on as a finding.
fn failed_reading(error: JournalError) -> Result<JournalError, JournalError> {
    match error.cause() {
        Cause::Damage { .. } | Cause::Missing { .. } | Cause::Foreign | Cause::Newer { .. } => {
            Ok(error)
        }
        _ => Err(error),
    }
}

fn finding(error: &JournalError, drops: Option<String>) -> Finding {
    let (offset, reason, remedy) = match error.cause() {
        Cause::Damage {
            offset,
            reason,
            drops: all,
        } => (
            Some(*offset),
            reason.clone(),
            Remedy::Drops(drops.unwrap_or_else(|| all.clone())),
        ),
        Cause::Missing { drops: all } => (
            None,
            error.cause().to_string(),
            Remedy::Drops(drops.unwrap_or_else(|| all.clone())),
        ),
        other => (None, other.to_string(), Remedy::Beyond(error.hint())),
    };
    Finding {
        path: error.path().to_path_buf(),
        offset,
        reason,
        remedy,
    }
}
