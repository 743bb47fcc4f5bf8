//! Starts on directories as crashes, and people, leave them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use onced::engine::Engine;
use onced::model::command::{Expiry, Verb};
use onced::model::record::{State, Token};
use onced::model::time::Span;

use super::rig::{
    acquire, ask, claim, complete, expire, open, options, overfill, set, tell, value,
};
use crate::support::Random;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What a client sees of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    state: State,
    token: Token,
    attempt: u32,
    value: Option<Vec<u8>>,
    expires_at: Option<onced::model::time::Timestamp>,
}

async fn look(engine: &Engine, names: &[String]) -> BTreeMap<String, Option<Seen>> {
    let mut all = BTreeMap::new();
    for name in names {
        let got = tell(engine, name, Verb::Get).await.record;
        let value = value(engine, name).await;
        let seen = got.map(|shown| Seen {
            state: shown.state,
            token: shown.record.token,
            attempt: shown.record.attempt,
            value,
            expires_at: shown.record.expires_at,
        });
        all.insert(name.clone(), seen);
    }
    all
}

/// A crash at any distance between what redb has and what the journal has: each earlier store, with the last
/// journal, comes to what was answered, and to a store that is sound.
#[tokio::test]
async fn any_earlier_store_with_the_whole_journal_comes_to_what_was_answered() {
    const LIVES: usize = 5;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("live");
    fs::create_dir(&data).unwrap();
    let mut random = Random::from_env();
    let names: Vec<String> = (0..60).map(|number| format!("key-{number}")).collect();
    let mut seen = BTreeMap::new();
    let mut highest = 0;
    for life in 0..LIVES {
        let engine = open(&data);
        for _ in 0..300 {
            let name = &names[random.below(60) as usize];
            let size = [10, 3000, 9000][random.below(3) as usize];
            let bytes = vec![b'a' + random.below(26) as u8; size];
            let hour = Span::from_secs(3600 + random.below(90_000));
            let token = tell(&engine, name, Verb::Get)
                .await
                .record
                .map(|shown| shown.record.token);
            let verb = match (random.below(8), token) {
                (0, Some(token)) => complete(token, bytes),
                (1, Some(token)) => Verb::Renew { token, lease: None },
                (2, Some(token)) => Verb::Release { token },
                (3, _) => Verb::Forget { force: true },
                (4, _) => expire(hour),
                (5 | 6, _) => set(&bytes, Expiry::In(hour)),
                _ => claim(),
            };
            // Whatever the answer: what counts is that it is kept.
            ask(&engine, name, verb).await.unwrap();
        }
        highest = acquire(&engine, &format!("last-of-{life}")).await.get();
        seen = look(&engine, &names).await;
        engine.close().unwrap();
        fs::copy(
            data.join("data/store.redb"),
            dir.path().join(format!("store-{life}")),
        )
        .unwrap();
    }
    for life in 0..LIVES {
        let mixed = dir.path().join(format!("mixed-{life}"));
        copy(&data, &mixed);
        fs::copy(
            dir.path().join(format!("store-{life}")),
            mixed.join("data/store.redb"),
        )
        .unwrap();
        let (engine, report) = Engine::open(&mixed, options()).unwrap();
        assert_eq!(report.redone == 0, life == LIVES - 1, "life {life}");
        assert_eq!(look(&engine, &names).await, seen, "life {life}");
        overfill(&engine).await;
        assert_eq!(
            look(&engine, &names).await,
            seen,
            "life {life}, from the store"
        );
        let next = acquire(&engine, "next").await.get();
        assert!(next > highest, "life {life}: token {next} after {highest}");
        engine.close().unwrap();
        let path = mixed.join("data/store.redb");
        let report = onced::store::check(&path, onced::store::Options::default()).unwrap();
        assert!(
            report.findings.is_empty(),
            "life {life}: {:?}",
            report.findings
        );
    }
}

/// Old frames in a segment that is written again are never taken for new ones, whatever the tail.
#[tokio::test]
async fn segments_written_again_bring_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut options = options();
        options.journal.audit_bytes = 0;
        Engine::open(dir.path(), options).unwrap().0
    };
    let mut sum = 0;
    for life in 0..6 {
        let engine = start();
        for _ in 0..4 {
            sum += 1;
            assert_eq!(super::rig::add(&engine, "sum").await, sum, "life {life}");
            overfill(&engine).await;
        }
        engine.close().unwrap();
    }
    let journal = dir.path().join("data/journal");
    let files = fs::read_dir(journal).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = files
        .map(|file| file.file_name().into_string().unwrap())
        .collect();
    names.sort();
    let segments: Vec<u64> = (names.iter())
        .filter_map(|name| name.strip_suffix(".seg")?.parse().ok())
        .collect();
    let (oldest, newest) = (segments[0], segments[segments.len() - 1]);
    assert!(
        oldest > 6 && newest - oldest < 4,
        "they were used again: {names:?}"
    );
}

/// A used directory never comes up empty, and never without saying what is wrong with it.
#[tokio::test]
async fn a_directory_that_lacks_a_part_is_refused_with_what_lacks_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    fs::create_dir(&whole).unwrap();
    let engine = open(&whole);
    acquire(&engine, "a").await;
    engine.close().unwrap();
    let table: [(&str, &str); 8] = [
        ("data", "is missing"),
        ("data/store.redb", "is missing"),
        ("data/journal", "is missing"),
        ("data/journal/highest", "is missing"),
        ("data/journal/0000000000000002.seg", "is missing"),
        ("=onced.id", "does not hold the id of a store"),
        ("=data/store.redb", "is not a store of onced"),
        ("=data/journal/highest", "too short"),
    ];
    for (part, reason) in table {
        let broken = dir.path().join("broken");
        let _ = fs::remove_dir_all(&broken);
        copy(&whole, &broken);
        let (name, emptied) = match part.strip_prefix('=') {
            Some(name) => (name, true),
            None => (part, false),
        };
        let path = broken.join(name);
        if emptied {
            fs::write(&path, b"").unwrap();
        } else if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let Err(error) = Engine::open(&broken, options()) else {
            panic!("{part}: it came up");
        };
        let text = error.to_string();
        assert!(error.is_damage(), "{part}: {text}");
        for word in [reason, &path.display().to_string(), "; "] {
            assert!(text.contains(word), "{part}: {text}");
        }
    }
    // What is written for people, or can be told from the rest, may go.
    fs::remove_file(whole.join("onced.id")).unwrap();
    let engine = open(&whole);
    assert_eq!(
        tell(&engine, "a", claim()).await.verdict,
        onced::model::outcome::Verdict::Busy
    );
    engine.close().unwrap();
    assert!(whole.join("onced.id").exists());
}
