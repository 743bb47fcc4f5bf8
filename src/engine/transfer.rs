//! Records on their way from one store to another (SPEC 8): pages of an export, and what an import stores.
//!
//! An export is no point in time, as a backup is: each record is as it stood when its page was read.

use super::{Engine, Unavailable, Unit};
use crate::model::command::{Command, List, MAX_LIST, Verb};
use crate::model::imported::{Import, MAX_IMPORTED};
use crate::model::key::RecordKey;
use crate::model::outcome::Outcome;
use crate::model::record::Token;
use crate::model::time::Now;

/// Bytes of bodies after which a page ends.
const ENOUGH: usize = 4 << 20;

/// A page of an export.
#[derive(Debug)]
pub struct Exported {
    /// The records, by namespace and key, as `get` answers them.
    pub records: Vec<(RecordKey, Outcome)>,
    /// Where the next page begins, if there may be more: after this one.
    pub next: Option<RecordKey>,
    /// No token above it was granted so far.
    pub granted: Token,
    /// The id of the store that they are in.
    pub store: String,
    /// When it was read.
    pub now: Now,
}

impl Engine {
    /// The next records after that one, of all namespaces or of one. What they show is durable.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub async fn export_page(
        &self,
        only: Option<&str>,
        after: Option<&RecordKey>,
    ) -> Result<Exported, Unavailable> {
        let mut names: Vec<Box<str>> = {
            let core = self.running()?;
            let wanted = |name: &str| {
                after.is_none_or(|after| name >= after.namespace())
                    && only.is_none_or(|only| only == name)
            };
            let names = core.namespaces.iter();
            names.filter(|name| wanted(name)).cloned().collect()
        };
        names.sort_unstable();
        let mut page = Exported {
            records: Vec::new(),
            next: None,
            granted: Token::FIRST,
            store: String::new(),
            now: Now::default(),
        };
        let mut bytes = 0_usize;
        // The last one that was looked at: it may be gone before its bodies were read.
        let mut last = None;
        'page: for namespace in names {
            let inside = after.filter(|after| after.namespace() == &*namespace);
            let list = List {
                namespace,
                state: None,
                prefix: bytes::Bytes::new(),
                due: false,
                after: inside.map(|after| bytes::Bytes::copy_from_slice(after.key())),
                limit: MAX_LIST.saturating_sub(page.records.len()),
            };
            let found = self.list(list).await?;
            let more = found.next.is_some();
            for (key, outcome) in found.records {
                if bytes >= ENOUGH {
                    page.next = last;
                    break 'page;
                }
                last = Some(key.clone());
                let Some(outcome) = self.with_bodies(&key, outcome).await? else {
                    continue;
                };
                bytes = bytes.saturating_add(size(&outcome));
                page.records.push((key, outcome));
            }
            if more || page.records.len() >= MAX_LIST {
                page.next = last;
                break;
            }
        }
        let mut core = self.running()?;
        let granted = Token::new(core.next_token.get().saturating_sub(1));
        page.granted = granted.unwrap_or(Token::FIRST);
        page.store = super::open::hex(&core.store_id);
        page.now = core.clock.now();
        Ok(page)
    }

    /// The same record with the bytes of its large bodies, if it is still there.
    async fn with_bodies(
        &self,
        key: &RecordKey,
        outcome: Outcome,
    ) -> Result<Option<Outcome>, Unavailable> {
        let lacks = |outcome: &Outcome| {
            let shown = outcome.record.as_ref();
            shown.is_some_and(|shown| shown.record.lacks_bodies())
        };
        if !lacks(&outcome) {
            return Ok(Some(outcome));
        }
        let get = Unit::One(Command::new(key.clone(), Verb::Get));
        let answer = self.submit(vec![get]).await.pop();
        let outcome = answer.unwrap_or(Err(Unavailable::Stopping))?;
        Ok(outcome.record.is_some().then_some(outcome))
    }

    /// Stores records of another store. Tokens go on above those that they came with, above `granted` of theirs and
    /// above the wall clock in microseconds, as after a restore (SPEC 9). `by` is the operator's name, for the audit.
    pub async fn import(
        &self,
        records: Vec<(RecordKey, Import)>,
        by: Option<Box<str>>,
    ) -> Vec<Result<Outcome, Unavailable>> {
        let now = self.now();
        let wall = now.to_wall(now.time).as_millis().saturating_add(1);
        let wall = Token::new(wall.saturating_mul(1000)).unwrap_or(MAX_IMPORTED);
        let units = records.into_iter().map(|(key, mut import)| {
            let facts = import.record.history.iter().map(|fact| fact.token);
            let own = facts.chain([import.record.token, import.granted]).max();
            import.granted = own.unwrap_or(Token::FIRST).max(wall.min(MAX_IMPORTED));
            let mut command = Command::new(key, Verb::Import(Box::new(import))).without_bodies();
            command.by.clone_from(&by);
            Unit::One(command)
        });
        self.submit(units.collect()).await
    }
}

/// What it adds to a page, about.
fn size(outcome: &Outcome) -> usize {
    let bodies = outcome.record.iter().flat_map(|shown| {
        let record = &shown.record;
        let results = record.result.iter().chain(&record.earlier_result);
        let bodies = results.map(|kept| &kept.body).chain(&record.payload);
        bodies.map(|body| body.content.len())
    });
    bodies.sum()
}
