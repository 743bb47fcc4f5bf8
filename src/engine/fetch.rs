//! Records that are read from the store before a decision, outside the lock, and the memory they may take.
//!
//! What a client asks for in one pipeline can be gigabytes of payloads and results. So a batch ends early once what
//! was read for it has reached [`ENOUGH`], and large bodies count as bytes in flight (SPEC 10) from before they
//! are read until the last answer that holds them is gone.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::core::{Asked, Fetched, Found};
use super::{Engine, EngineError, Hold, PATIENCE, REDOS, Unavailable};
use crate::model::key::RecordKey;
use crate::model::record::Record;
use crate::store::{Several, StoreError};

/// A batch ends early when so many bytes were read for it.
const ENOUGH: usize = 1 << 20;
/// The most bytes of large bodies that one unit or program may read, or those of the largest record where that is
/// more.
pub const MAX_READ: usize = 64 << 20;

/// Reads for one batch or program, again wherever a checkpoint overtook them.
pub(super) struct Fetch<'e> {
    engine: &'e Engine,
    fetched: Fetched,
    redos: u32,
    hold: Option<Hold<'e>>,
}

impl<'e> Fetch<'e> {
    pub(super) fn new(engine: &'e Engine) -> Fetch<'e> {
        Fetch {
            engine,
            fetched: Fetched::default(),
            redos: 0,
            hold: None,
        }
    }

    /// What was read.
    pub(super) fn fetched(&self) -> &Fetched {
        &self.fetched
    }

    /// Lets checkpoints drop their frozen map again: one of them makes the room that is waited for.
    pub(super) fn let_go(&mut self) {
        self.hold = None;
    }

    /// Reads what is missing as of that checkpoint, and leaves the units out for which it became too much.
    ///
    /// # Errors
    /// [`Unavailable::Reads`] where the first unit alone asks for too much.
    pub(super) async fn read_for(
        &mut self,
        asked: &mut Asked<'_>,
        missing: Vec<(RecordKey, bool)>,
        checkpoint: u64,
    ) -> Result<(), Unavailable> {
        let missing = once_each(missing);
        let left = self.read(&missing, checkpoint, ENOUGH).await?;
        if left.is_empty() {
            return Ok(());
        }
        let unread: HashSet<&RecordKey> = left.iter().map(|(key, _)| key).collect();
        let is_read = |unit: &&super::Unit| {
            let mut keys = unit.commands().iter().map(|command| &command.key);
            !keys.any(|key| unread.contains(key))
        };
        let units = asked.units.iter().take_while(is_read).count();
        asked.keep(units.max(1));
        if units == 0 {
            let first = asked.units.iter().flat_map(super::Unit::commands);
            let keys: HashSet<&RecordKey> = first.map(|command| &command.key).collect();
            let left: Vec<_> = left
                .iter()
                .filter(|(key, _)| keys.contains(key))
                .cloned()
                .collect();
            self.read_all(&left, checkpoint).await?;
        }
        Ok(())
    }

    /// Reads what is missing for what cannot be cut.
    ///
    /// # Errors
    /// [`Unavailable::Reads`] where that is too much.
    pub(super) async fn read_all(
        &mut self,
        missing: &[(RecordKey, bool)],
        checkpoint: u64,
    ) -> Result<(), Unavailable> {
        match self
            .read(missing, checkpoint, self.engine.inner.limits.reads)
            .await?
        {
            [] => Ok(()),
            _ => Err(Unavailable::Reads),
        }
    }

    /// Reads the first of these, up to `most` bytes; what is left.
    async fn read<'k>(
        &mut self,
        keys: &'k [(RecordKey, bool)],
        checkpoint: u64,
        most: usize,
    ) -> Result<&'k [(RecordKey, bool)], Unavailable> {
        if self.fetched.checkpoints != checkpoint {
            // Void, and its bytes are given back before more are asked for.
            self.fetched = Fetched::default();
            self.fetched.checkpoints = checkpoint;
            self.redos += 1;
            if self.redos > REDOS && self.hold.is_none() {
                self.hold = Some(Hold::new(&self.engine.inner));
            }
        }
        let records = self.engine.read_some(keys, most).await?;
        let count = records.len();
        self.fetched
            .found
            .extend(keys.iter().map(|(key, _)| key.clone()).zip(records));
        Ok(keys.get(count..).unwrap_or_default())
    }
}

impl Engine {
    async fn read_some(
        &self,
        keys: &[(RecordKey, bool)],
        most: usize,
    ) -> Result<Vec<Found>, Unavailable> {
        let keys: Arc<[(RecordKey, bool)]> = keys.into();
        let mut paid = None;
        loop {
            let (reader, keys) = (self.inner.reader.clone(), Arc::clone(&keys));
            let in_flight = Arc::clone(&self.inner.in_flight);
            let read = move || {
                let mut held: Option<OwnedSemaphorePermit> = paid;
                let several = reader.get_some(&keys, most, |bytes| {
                    let enough = |held: &OwnedSemaphorePermit| held.num_permits() >= bytes;
                    if !held.as_ref().is_some_and(enough) {
                        held = None;
                        held = permits(bytes).and_then(|bytes| {
                            Arc::clone(&in_flight).try_acquire_many_owned(bytes).ok()
                        });
                    }
                    held.is_some()
                })?;
                Ok((several, held))
            };
            match self.blocking(read).await? {
                (Several::Found(records), held) => {
                    let held = held.map(Arc::new);
                    return Ok(records
                        .into_iter()
                        .map(|record| found(record, held.as_ref()))
                        .collect());
                }
                (Several::Declined(bytes), _) if bytes > self.inner.limits.reads => {
                    return Err(Unavailable::Reads);
                }
                (Several::Declined(bytes), _) => paid = Some(self.pay(bytes).await?),
            }
        }
    }

    /// Waits until so many bytes may be in flight.
    async fn pay(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Unavailable> {
        let in_flight = Arc::clone(&self.inner.in_flight);
        let permits = permits(bytes).ok_or(Unavailable::Reads)?;
        match tokio::time::timeout(PATIENCE, in_flight.acquire_many_owned(permits)).await {
            // It is never closed.
            Ok(paid) => paid.map_err(|_| Unavailable::Stopping),
            Err(_) => Err(Unavailable::Crowded),
        }
    }

    /// Runs a read of the store off the runtime. A failing read is fatal: nothing is answered around damage.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Unavailable> {
        #[cfg(test)]
        if self.inner.tap.is_simulated() {
            let result = super::sim::in_turn(read).await;
            return result.map_err(|error| {
                if !matches!(error, StoreError::Closed) {
                    self.inner.fail(EngineError::Store(error));
                }
                Unavailable::Stopping
            });
        }
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(value)) => Ok(value),
            // A read that the end of the engine overtook, as it may: no failure of the storage.
            Ok(Err(StoreError::Closed)) => Err(Unavailable::Stopping),
            Ok(Err(error)) => {
                self.inner.fail(EngineError::Store(error));
                Err(Unavailable::Stopping)
            }
            Err(_) => Err(Unavailable::Stopping),
        }
    }
}

/// What one unit may read at most where bodies have that limit.
pub(super) fn most_read(body_limit: usize, in_flight: &Semaphore) -> usize {
    // A record has up to three bodies: a payload, a result, and the one before a replay.
    MAX_READ
        .max(body_limit.saturating_mul(3))
        .min(in_flight.available_permits())
}

fn permits(bytes: usize) -> Option<u32> {
    u32::try_from(bytes).ok()
}

/// A pipeline may ask for one key many times: it is read once, with its bodies if any of them wants those. In the
/// order of asking, so that what is read first is decided first.
fn once_each(missing: Vec<(RecordKey, bool)>) -> Vec<(RecordKey, bool)> {
    let with_bodies: HashSet<RecordKey> = missing
        .iter()
        .filter(|(_, with_bodies)| *with_bodies)
        .map(|(key, _)| key.clone())
        .collect();
    let mut seen = HashSet::with_capacity(missing.len());
    missing
        .into_iter()
        .filter(|(key, _)| seen.insert(key.clone()))
        .map(|(key, _)| {
            let with_bodies = with_bodies.contains(&key);
            (key, with_bodies)
        })
        .collect()
}

/// A record as it was read, its large bodies beside it and paid for.
fn found(record: Option<Record>, held: Option<&Arc<OwnedSemaphorePermit>>) -> Found {
    let Some(mut record) = record else {
        return Found::default();
    };
    let mut bodies = record.detach_bodies();
    for bytes in bodies.iter_mut().filter_map(|body| body.bytes.as_mut()) {
        if let Some(held) = held {
            let bytes_in_flight = InFlight {
                bytes: std::mem::take(bytes),
                _held: Arc::clone(held),
            };
            *bytes = Bytes::from_owner(bytes_in_flight);
        }
    }
    Found {
        record: Some(Arc::new(record)),
        bodies,
    }
}

/// Bytes that are in flight as long as anybody has them.
struct InFlight {
    bytes: Bytes,
    /// Of all that was read together.
    _held: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for InFlight {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Options, Unit};
    use crate::model::command::{Command, Expiry, Set, StringVerb, Verb};
    use crate::model::outcome::Outcome;

    const LARGE: usize = 1 << 20;

    fn command(name: usize, verb: StringVerb) -> Command {
        let key = RecordKey::new("default", name.to_string().as_bytes()).unwrap();
        Command::new(key, Verb::String(verb))
    }

    fn read(names: std::ops::Range<usize>) -> Vec<Command> {
        names.map(|name| command(name, StringVerb::Read)).collect()
    }

    fn one_by_one(names: std::ops::Range<usize>) -> Vec<Unit> {
        read(names).into_iter().map(Unit::One).collect()
    }

    fn is_there(answer: &Result<Outcome, Unavailable>) -> bool {
        let value = answer.as_ref().unwrap().string_value().unwrap().unwrap();
        value.bytes().map(Bytes::len) == Some(LARGE)
    }

    /// An engine whose store alone has so many large values.
    async fn engine_with(dir: &std::path::Path, values: usize, in_flight: usize) -> Engine {
        let mut options = Options::default();
        options.journal.segment_size = 16 << 20;
        let (engine, _) = Engine::open(dir, options.clone()).unwrap();
        for name in 0..values {
            let set = Set {
                value: vec![7; LARGE].into(),
                when: None,
                get: false,
                expiry: Expiry::Never,
            };
            let set = command(name, StringVerb::Set(Box::new(set)));
            assert!(engine.submit(vec![Unit::One(set)]).await[0].is_ok());
        }
        engine.close().unwrap();
        options.in_flight = Arc::new(Semaphore::new(in_flight));
        Engine::open(dir, options).unwrap().0
    }

    #[tokio::test]
    async fn a_pipeline_of_large_values_is_answered_a_few_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with(dir.path(), 20, 256 << 20).await;
        let free = || engine.inner.in_flight.available_permits();
        let units = one_by_one(0..20);
        let mut rest = units.as_slice();
        while !rest.is_empty() {
            let some = engine.submit_some(rest).await;
            assert!((1..=2).contains(&some.units), "{} at once", some.units);
            assert!(some.answers.iter().all(is_there));
            assert_eq!(
                free(),
                (256 << 20) - some.units * LARGE,
                "they are in flight"
            );
            rest = &rest[some.units..];
        }
        assert_eq!(free(), 256 << 20, "and are given back");
        // The same key many times is in memory once.
        let units: Vec<_> = (0..1000).flat_map(|_| one_by_one(3..4)).collect();
        let some = engine.submit_some(&units).await;
        assert_eq!(some.units, 1000);
        assert_eq!(free(), (256 << 20) - LARGE);
        engine.close().unwrap();
    }

    #[tokio::test]
    async fn what_is_not_asked_for_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with(dir.path(), 20, 256 << 20).await;
        let add = |name| Unit::One(command(name, StringVerb::Add(1)));
        let units: Vec<_> = (0..20).map(add).collect();
        let some = engine.submit_some(&units).await;
        assert_eq!(some.units, 20, "a large value is no number, whatever it is");
        engine.close().unwrap();
    }

    #[tokio::test]
    async fn one_unit_reads_so_much_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with(dir.path(), 70, 256 << 20).await;
        let whole = engine.submit(vec![Unit::All(read(0..60))]).await;
        assert!(whole.len() == 60 && whole.iter().all(is_there));
        let mut units = vec![Unit::All(read(0..70))];
        units.extend(one_by_one(0..1));
        let mut answers = engine.submit(units).await;
        assert!(
            is_there(&answers.pop().unwrap()),
            "others are not refused with it"
        );
        assert!(
            answers.len() == 70
                && answers
                    .iter()
                    .all(|it| matches!(it, Err(Unavailable::Reads)))
        );
        engine.close().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn reading_waits_for_what_others_have_not_taken_yet() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with(dir.path(), 8, 6 << 20).await;
        let mut held = Vec::new();
        for name in 0..6 {
            held.push(engine.submit(one_by_one(name..name + 1)).await.remove(0));
        }
        let refused = engine.submit(one_by_one(7..8)).await.remove(0);
        assert!(matches!(refused, Err(Unavailable::Crowded)));
        let waits = engine.submit(one_by_one(7..8));
        tokio::pin!(waits);
        assert!(within_a_second(waits.as_mut()).await.is_none());
        held.pop();
        assert!(is_there(&waits.await.remove(0)));
        engine.close().unwrap();
    }

    /// What has come of it after a second.
    async fn within_a_second<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let second = std::time::Duration::from_secs(1);
        tokio::time::timeout(second, future).await.ok()
    }
}
