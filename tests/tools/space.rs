//! Space is used again: a store that fills and expires over and over does not grow for ever.

use std::os::unix::fs::MetadataExt;

use super::*;
use onced::model::record::Retention;
use onced::model::time::Timestamp;

const KEYS: usize = 4000;
const CYCLES: usize = 30;
/// What is kept in each cycle expires before the next one begins.
const CYCLE: u64 = 600_000;

#[test]
fn allocated_blocks_level_off_over_thirty_fill_and_expire_cycles() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let path = store_file(&dir);
    let (mut store, opened) = Store::open(&path, Options::default()).unwrap();
    let like = store
        .reader()
        .get(&key("s0"), Bodies::All)
        .unwrap()
        .unwrap();
    let mut now = like.changed_at.as_millis() + 10 * 3_600_000;
    let mut blocks = Vec::new();
    for cycle in 0..CYCLES {
        for batch in 0..8 {
            let change = |n: usize| {
                let mut record = like.clone();
                let at = Timestamp::from_millis(now + batch * 1000);
                record.retention = Retention::For(Span::from_millis(CYCLE / 4));
                record.changed_at = at;
                record.completed_at = Some(at);
                record.expires_at = Some(Timestamp::from_millis(at.as_millis() + CYCLE / 4));
                (
                    key(&format!("c{cycle}-{batch}-{n}")),
                    Some(Arc::new(record)),
                )
            };
            store
                .checkpoint(Checkpoint {
                    lsn: opened.checkpoint,
                    next_token: opened.next_token,
                    mark: opened.mark.clone(),
                    policies: Vec::new(),
                    changes: changes(&opened, (0..KEYS / 8).map(change)),
                })
                .unwrap();
        }
        now += CYCLE;
        let swept = store.sweep(Timestamp::from_millis(now), b"").unwrap();
        assert!(swept.records >= KEYS as u64, "cycle {cycle}: {swept:?}");
        blocks.push(fs::metadata(&path).unwrap().blocks());
    }
    println!("{blocks:?}");
    // A file grows in steps, and one of them may come late; without reuse each cycle would add its own records.
    let (first, rest) = blocks.split_at(CYCLES / 3);
    let (first, rest) = (first.iter().max(), rest.iter().max());
    assert!(
        first
            .zip(rest)
            .is_some_and(|(first, rest)| *rest <= first * 3 / 2),
        "{blocks:?}"
    );
}
