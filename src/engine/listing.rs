//! Listings: pages of the store, read in short transactions, with memory laid over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::gather::Durable;
use super::{Engine, Page, Unavailable};
use crate::model::command::List;
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Shown, Verdict};
use crate::model::policy::Policy;
use crate::model::record::{Lsn, Record, State};
use crate::model::shown::show;
use crate::model::time::Now;
use crate::store::{OwnedRow, Row, Scan, Which};

/// Rows read from the store in one transaction.
const SLICE: usize = 1000;

/// One slice of store and memory, as they stood at one instant.
pub(super) struct Slice {
    pub(super) records: BTreeMap<RecordKey, Arc<Record>>,
    /// Where the store's part ends; `None`: it ends with the namespace.
    pub(super) end: Option<Bytes>,
    pub(super) policy: Policy,
    pub(super) now: Now,
    pub(super) durable: Option<Durable>,
}

impl Engine {
    /// A page of records in key order. What it shows is durable.
    ///
    /// # Errors
    /// [`Unavailable::Stopping`]; a failing store stops the process.
    pub async fn list(&self, list: List) -> Result<Page, Unavailable> {
        let mut records = Vec::new();
        let mut after = list.after.clone();
        loop {
            let slice = self.slice(&list, Which::All, after.as_ref()).await?;
            if let Some(durable) = slice.durable {
                durable.await.map_err(|_| Unavailable::Stopping)?;
            }
            for (key, record) in slice.records {
                let Some(shown) = show(&record, &slice.policy, slice.now) else {
                    continue;
                };
                if !wanted(&list, &shown, slice.now) {
                    continue;
                }
                if records.len() == list.limit {
                    let last = records
                        .last()
                        .map(|(key, _): &(RecordKey, Outcome)| key.key());
                    return Ok(Page {
                        next: last.map(Bytes::copy_from_slice),
                        records,
                    });
                }
                let outcome = Outcome {
                    verdict: Verdict::Found,
                    record: Some(shown),
                    removed: false,
                    now: slice.now,
                };
                records.push((key, outcome));
            }
            match slice.end {
                Some(end) => after = Some(end),
                None => {
                    return Ok(Page {
                        records,
                        next: None,
                    });
                }
            }
        }
    }

    /// How many records a namespace has. Those past their retention may be included until their bucket is
    /// over.
    ///
    /// # Errors
    /// [`Unavailable::Stopping`]: the engine failed or is stopping.
    pub async fn count(&self, namespace: &str) -> Result<u64, Unavailable> {
        let (count, durable) = {
            let mut core = self.running()?;
            let now = core.clock.now();
            let rows = core.stored.of(namespace, now.time);
            let stored = rows.open.saturating_add(rows.done);
            let balance = core.recent.balance(namespace, now.time);
            let last = Lsn(core.next_lsn.0.saturating_sub(1));
            (
                stored.saturating_add_signed(balance),
                core.gather.wait(last),
            )
        };
        if let Some(durable) = durable {
            durable.await.map_err(|_| Unavailable::Stopping)?;
        }
        Ok(count)
    }

    /// Of the store only the tables asked for, of memory everything.
    pub(super) async fn slice(
        &self,
        list: &List,
        which: Which,
        after: Option<&Bytes>,
    ) -> Result<Slice, Unavailable> {
        loop {
            let number = self.running()?.checkpoints;
            let reader = self.inner.reader.clone();
            let (namespace, prefix) = (list.namespace.clone(), list.prefix.clone());
            let from = after.cloned();
            let page = self
                .blocking(move || {
                    reader.scan(&Scan {
                        namespace: &namespace,
                        prefix: &prefix,
                        after: from.as_deref(),
                        limit: SLICE,
                        which,
                    })
                })
                .await?;
            let mut core = self.running()?;
            if core.checkpoints != number {
                continue;
            }
            let last = page.records.last().filter(|_| page.more);
            let end = last.map(|(key, _)| Bytes::copy_from_slice(key.key()));
            let prefix = [list.namespace.as_bytes(), b"\0", &list.prefix].concat();
            let namespace = list.namespace.len().saturating_add(1);
            let inside = |row: &Row<'_>| {
                let key = row.key().get(namespace..).unwrap_or_default();
                row.key().starts_with(&prefix)
                    && after.is_none_or(|after| *key > **after)
                    && end.as_ref().is_none_or(|end| *key <= **end)
            };
            let rows = core.recent.rows().filter(inside);
            let rows: Vec<_> = rows.map(|row| row.to_owned()).collect();
            let last = rows.iter().map(OwnedRow::lsn).max().unwrap_or_default();
            let (durable, now) = (core.gather.wait(last), core.clock.now());
            let policy = core.policies.get(&list.namespace).clone();
            drop(core);
            let stored = page.records.into_iter();
            let mut records: BTreeMap<RecordKey, Arc<Record>> = stored
                .map(|(key, record)| (key, Arc::new(record)))
                .collect();
            for row in rows {
                let (key, record) = row.into_record().map_err(|error| {
                    tracing::error!(%error, "a recent record cannot be read; the machine's memory may be failing");
                    Unavailable::Defect
                })?;
                match record {
                    Some(record) => records.insert(key, Arc::new(record)),
                    None => records.remove(&key),
                };
            }
            return Ok(Slice {
                records,
                end,
                policy,
                now,
                durable,
            });
        }
    }
}

fn wanted(list: &List, shown: &Shown, now: Now) -> bool {
    let due =
        shown.orphaned || (shown.state == State::Retry && shown.record.not_before <= now.boot);
    list.state.is_none_or(|state| state == shown.state) && (!list.due || due)
}
