//! `onced check`.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::progress::Progress;
use super::{Exit, Failure, show};
use crate::engine::inspect::{self, Finding, Inspection, Remedy};
use crate::engine::{EngineError, Options, repair};
use crate::server::data_dir::DataDir;
use crate::server::storage;

/// Check a data directory that no server has open: every record, body, frame and entry
#[derive(Args, Debug)]
pub(super) struct Check {
    /// The data directory
    #[arg(long, env = "ONCED_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,

    /// Drop what is damaged, so that the server starts: says first what goes, and asks
    #[arg(long)]
    repair: bool,

    /// Repair without asking
    #[arg(long, requires = "repair")]
    yes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of a repair that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    NotAsked,
    NothingToDo,
    Done,
    Impossible,
    Declined,
}

impl Check {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let dir = DataDir::hold_existing(&self.data_dir)?;
        let options = storage::offline(&dir)?;
        let look = || {
            let _progress = Progress::of("checking every record, frame and entry", None);
            inspect::inspect(dir.path(), &options).map_err(|error| explain(&error))
        };
        let found = look()?;
        if !self.json {
            show::print(list(&found, self.repair).as_bytes())?;
        }
        let repair = self.repair(&dir, &found, &options)?;
        let left = match repair {
            Repair::Done => Some(look()?),
            _ => None,
        };
        let now = left.as_ref().unwrap_or(&found);
        let text = if self.json {
            format!("{}\n", json_of(&found, repair, left.as_ref()))
        } else {
            // What is left after a repair is a defect, and not to be kept from anybody.
            let rest = left
                .as_ref()
                .map_or_else(String::new, |left| list(left, false));
            format!("{rest}{}\n", closing(now, repair))
        };
        show::print(text.as_bytes())?;
        Ok(if now.is_clean() {
            Exit::Success
        } else {
            Exit::Damaged
        })
    }

    fn repair(
        &self,
        dir: &DataDir,
        found: &Inspection,
        options: &Options,
    ) -> Result<Repair, Failure> {
        if !self.repair {
            return Ok(Repair::NotAsked);
        }
        if found.is_clean() {
            return Ok(Repair::NothingToDo);
        }
        if !found.can_be_repaired() {
            return Ok(Repair::Impossible);
        }
        dir.check_owner()?;
        let agreed = self.yes || (self.may_ask() && ask()?);
        if !agreed {
            return Ok(Repair::Declined);
        }
        repair::repair(dir.path(), found, options).map_err(|error| explain(&error))?;
        Ok(Repair::Done)
    }

    /// Whoever reads JSON has seen nothing yet that could be agreed to.
    fn may_ask(&self) -> bool {
        !self.json && io::stdin().is_terminal() && io::stdout().is_terminal()
    }
}

fn explain(error: &EngineError) -> Failure {
    storage::failure(error)
}

fn ask() -> Result<bool, Failure> {
    let failed = |error| Failure::new(Exit::Failure, "cannot ask", error, "give --yes");
    let mut stderr = io::stderr();
    write!(stderr, "Repair, and drop this? Type yes: ")
        .and_then(|()| stderr.flush())
        .map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim() == "yes")
}

/// A line for each finding; with what repair would do where that is asked for.
fn list(found: &Inspection, repair: bool) -> String {
    let mut text = String::new();
    for note in &found.notes {
        line(&mut text, &format!("note: {note}"));
    }
    for finding in &found.findings {
        line(
            &mut text,
            &format!("{}: {}", place(finding), finding.reason),
        );
    }
    if found.more > 0 {
        line(&mut text, &format!("and {} more", found.more));
    }
    if repair && !found.is_clean() {
        for finding in &found.findings {
            let remedy = match &finding.remedy {
                Remedy::Drops(what) => format!("repair drops {what}"),
                Remedy::Beyond(next) => format!("repair cannot help; {next}"),
            };
            line(&mut text, &format!("{}: {remedy}", place(finding)));
        }
        for told in found.consequences() {
            line(&mut text, &format!("then {told}"));
        }
    }
    text
}

fn place(finding: &Finding) -> String {
    let mut text = finding.file.display().to_string();
    if let Some(offset) = finding.offset {
        let _ = write!(text, ", offset {offset}");
    }
    if let Some(table) = &finding.table {
        let _ = write!(text, ", table {table}");
    }
    if let Some(key) = &finding.key {
        let _ = write!(text, ", key {key}");
    }
    text
}

/// One line, whatever the names in it hold.
fn line(text: &mut String, what: &str) {
    text.extend(what.chars().map(|c| if c.is_control() { ' ' } else { c }));
    text.push('\n');
}

fn closing(now: &Inspection, repair: Repair) -> String {
    let mut text = match (now.findings.len() as u64 + now.more, repair) {
        (0, Repair::Done) => "repaired, and clean".to_owned(),
        (0, _) => "clean".to_owned(),
        (1, _) => "1 finding".to_owned(),
        (count, _) => format!("{count} findings"),
    };
    if let Some(store) = now.store {
        let (records, tables, bodies) = (store.records, store.tables, store.bodies);
        let _ = write!(
            text,
            "; {records} records in {tables} tables, {bodies} bodies"
        );
    }
    if let Some(journal) = now.journal {
        let (segments, frames, entries) = (journal.segments, journal.frames, journal.entries);
        let _ = write!(
            text,
            "; {segments} segments of the journal, {frames} frames, {entries} entries up to LSN {}",
            journal.last.0
        );
    }
    let next = match repair {
        _ if now.is_clean() => "",
        Repair::NotAsked if now.can_be_repaired() => {
            "; restore a backup, or see with --repair what would be dropped"
        }
        Repair::NotAsked | Repair::NothingToDo | Repair::Impossible => {
            "; nothing was changed: repair cannot help, restore a backup"
        }
        Repair::Declined => "; nothing was changed: --yes repairs",
        Repair::Done => "; the repair left this: restore a backup, and report it as a defect",
    };
    text.push_str(next);
    text
}

fn json_of(found: &Inspection, repair: Repair, left: Option<&Inspection>) -> Value {
    let now = left.unwrap_or(found);
    let findings = |found: &Inspection| -> Vec<Value> {
        let one = |finding: &Finding| {
            let (drops, next) = match &finding.remedy {
                Remedy::Drops(what) => (Some(what), None),
                Remedy::Beyond(next) => (None, Some(next)),
            };
            json!({
                "file": finding.file.display().to_string(), "offset": finding.offset,
                "table": finding.table, "key": finding.key, "reason": finding.reason,
                "repair_drops": drops, "next": next,
            })
        };
        found.findings.iter().map(one).collect()
    };
    let mut all = json!({
        "clean": now.is_clean(),
        "findings": findings(found),
        "more": found.more,
        "notes": found.notes,
        "can_be_repaired": !found.is_clean() && found.can_be_repaired(),
        "consequences": found.consequences(),
        "repaired": repair == Repair::Done,
        "store": now.store.map(|store| json!({
            "tables": store.tables, "records": store.records, "bodies": store.bodies,
            "checkpoint": store.checkpoint.map(|lsn| lsn.0),
        })),
        "journal": now.journal.map(|journal| json!({
            "segments": journal.segments, "frames": journal.frames, "entries": journal.entries,
            "first_lsn": journal.first.map(|lsn| lsn.0), "last_lsn": journal.last.0,
        })),
    });
    if let (Some(left), Some(all)) = (left, all.as_object_mut()) {
        all.insert("left".to_owned(), findings(left).into());
    }
    all
}
