//! `onced compact`: less space, the same records, and never neither file.

use std::process::Stdio;
use std::time::Duration;

use super::*;
use crate::support::Random;

/// Fills the store with so many records, and takes most of them away again.
fn bloated(folder: &tempfile::TempDir, count: usize) -> PathBuf {
    filled(folder, count, true)
}

/// Fills the store in the order of keys, and may take nine of ten away again.
fn filled(folder: &tempfile::TempDir, count: usize, emptied: bool) -> PathBuf {
    let dir = used(folder);
    let (mut store, opened) = Store::open(store_file(&dir), Options::default()).unwrap();
    let like = store
        .reader()
        .get(&key("s0"), Bodies::All)
        .unwrap()
        .unwrap();
    let mut commit = |gone: bool| {
        let change = |n: usize| {
            let record = (!gone).then(|| Arc::new(like.clone()));
            (key(&format!("b{n:07}")), record)
        };
        store
            .checkpoint(Checkpoint {
                lsn: opened.checkpoint,
                next_token: opened.next_token,
                mark: opened.mark.clone(),
                policies: Vec::new(),
                changes: changes(
                    &opened,
                    (0..count).filter(|n| !gone || n % 10 != 0).map(change),
                ),
            })
            .unwrap();
    };
    commit(false);
    if emptied {
        commit(true);
    }
    store.close().unwrap();
    dir
}

fn leftover(dir: &Path) -> PathBuf {
    dir.join("data/store.redb.compact")
}

#[test]
fn it_returns_space_and_keeps_every_record() {
    let folder = tempfile::tempdir().unwrap();
    let dir = bloated(&folder, 100_000);
    let records = run("check", &dir, &["--json"]).stdout;
    let records: serde_json::Value = serde_json::from_str(&records).unwrap();
    let done = run("compact", &dir, &["--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    let told: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let (before, after) = (
        told["before"].as_u64().unwrap(),
        told["after"].as_u64().unwrap(),
    );
    assert!(after * 3 < before, "{before} bytes before, {after} after");
    let now = run("check", &dir, &["--json"]);
    let now: serde_json::Value = serde_json::from_str(&now.stdout).unwrap();
    assert_eq!(now["clean"], true, "{now}");
    assert_eq!(now["store"], records["store"]);
    assert!(!leftover(&dir).exists());
    // Done again, it finds nothing more to return, and loses nothing.
    let again = run("compact", &dir, &["--json"]);
    let told: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    let again = told["after"].as_u64().unwrap();
    assert!(again <= after, "{after} bytes, then {again}");
    let mut there = stored();
    there.extend((0..100_000).step_by(10_000).map(|n| format!("b{n:07}")));
    assert_starts(&dir, &there, &["b0000001".to_owned()], 0, "compacted");
}

#[test]
fn rows_that_came_in_order_get_denser_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = filled(&folder, 50_000, false);
    let done = run("compact", &dir, &["--json"]);
    let told: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let (before, after) = (
        told["before"].as_u64().unwrap(),
        told["after"].as_u64().unwrap(),
    );
    // A copy in plain order would leave every page half empty, as it was.
    assert!(
        after * 4 < before * 3,
        "{before} bytes before, {after} after"
    );
    assert_starts(&dir, &stored(), &[], 10, "compacted");
    let done = run("compact", &dir, &[]);
    assert!(done.stdout.starts_with("the store had "), "{done:?}");
}

#[test]
fn too_little_space_is_refused_with_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let dir = bloated(&folder, 1000);
    let before = contents(&dir);
    let refused = store::compact(store_file(&dir), Options::default(), 1000).unwrap_err();
    let text = refused.to_string();
    let store::CompactError::NoSpace { needed, free, .. } = refused else {
        panic!("{text}");
    };
    assert_eq!(free, 1000);
    assert!(
        text.contains(&format!("free {} bytes more", needed - 1000)),
        "{text}"
    );
    assert!(contents(&dir) == before, "it was touched");
    store::compact(store_file(&dir), Options::default(), needed).unwrap();
}

#[test]
fn a_damaged_store_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let path = store_file(&dir);
    let bytes = fs::read(&path).unwrap();
    let at = bytes
        .windows(10)
        .position(|part| part == b"default\0s3")
        .unwrap();
    flip(&path, at as u64);
    let before = contents(&dir);
    let refused = run("compact", &dir, &[]);
    assert_eq!(refused.code, 13, "{refused:?}");
    assert!(contents(&dir) == before, "it was touched");
}

#[test]
fn killed_at_any_moment_it_leaves_a_whole_store_and_the_next_one_clears_up() {
    let folder = tempfile::tempdir().unwrap();
    let dir = bloated(&folder, 50_000);
    let mut random = Random::from_env();
    let mut left = 0;
    for round in 0..12 {
        let mut command = onced();
        command.arg("compact").arg("--data-dir").arg(&dir);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        // A moment of its run, whichever.
        std::thread::sleep(Duration::from_millis(random.below(400)));
        let _ = child.kill();
        child.wait().unwrap();
        left += u32::from(leftover(&dir).exists());
        let clean = run("check", &dir, &["--json"]);
        assert_eq!(clean.code, 0, "round {round}: {clean:?}");
        let told: serde_json::Value = serde_json::from_str(&clean.stdout).unwrap();
        assert_eq!(told["store"]["records"], 5010, "round {round}: {told}");
    }
    println!("{left} of 12 left a copy behind");
    // Made certain: a copy that was cut short.
    fs::write(leftover(&dir), b"half a store").unwrap();
    assert_starts(&dir, &stored(), &[], 0, "killed");
    assert!(!leftover(&dir).exists(), "a start removes it");
    fs::write(leftover(&dir), b"half a store").unwrap();
    assert_eq!(run("compact", &dir, &[]).code, 0);
    assert!(!leftover(&dir).exists());
}
