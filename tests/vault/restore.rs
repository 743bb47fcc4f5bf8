//! Restoring: what is there afterwards, what is refused, and what a crash leaves.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::support::Random;

const LARGE: usize = 70_000;

/// A record in each state and of each kind, and a policy. The keys.
fn one_of_each(server: &Server) -> Vec<&'static str> {
    let mut http = server.http();
    let mut post = |path: &str, body: &[u8]| {
        let answer = http.post(&format!("/v1/claims/default/{path}"), body);
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        answer.json()["token"].as_u64()
    };
    post("pending?owner=w1&store=true&lease=1h", &vec![b'p'; LARGE]);
    let token = post("done?fingerprint=f1", b"").unwrap();
    post(
        &format!("done/complete?token={token}&status=201"),
        &vec![7; LARGE],
    );
    let token = post("small?owner=w2", b"{\"a\":1}").unwrap();
    post(&format!("small/complete?token={token}"), b"ok");
    let token = post("retry?claim_id=c1", b"").unwrap();
    post(
        &format!("retry/fail?token={token}&error=no&retry_in=1h"),
        b"",
    );
    let token = post("dead", b"").unwrap();
    post(
        &format!("dead/fail?token={token}&bury=true&error=never"),
        b"",
    );
    post("held?on_lease_end=hold&lease=1ms", b"");
    post("once?mode=once&result=r&retention=forever", b"");
    let token = post("again", b"").unwrap();
    post(&format!("again/complete?token={token}"), &vec![9; LARGE]);
    post("again/replay?generation=1&force=true", b"");
    assert_eq!(
        server.redis().command("SET string v NX EX 3600"),
        Reply::Status("OK".into())
    );
    let policy = br#"{"lease":"7s","retention":"1h"}"#;
    let put = server
        .http()
        .request("PUT", "/v1/namespaces/orders", policy);
    assert_eq!(put.status, 200, "{put:?}");
    vec![
        "pending", "done", "small", "retry", "dead", "held", "once", "again", "string",
    ]
}

/// What is known of a key, but for what time does to it, and all its bytes.
fn known(server: &Server, key: &str) -> (Value, Vec<u8>, Vec<u8>) {
    let mut http = server.http();
    let mut record = http.get(&format!("/v1/claims/default/{key}")).json();
    for moving in ["lease_left_ms", "not_before", "lease_expires_at"] {
        record.as_object_mut().unwrap().remove(moving);
    }
    let mut bytes = |part: &str| {
        let answer = http.get(&format!("/v1/claims/default/{key}/{part}"));
        // A refusal tells of the state, which may change.
        Some(answer).filter(|answer| answer.status == 200)
    };
    let mut bytes = |part: &str| bytes(part).map_or_else(Vec::new, |answer| answer.body);
    (record, bytes("payload"), bytes("result"))
}

#[test]
fn every_kind_and_state_comes_back_and_what_was_pending_is_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let keys = one_of_each(&server);
    let path = taken(&server, folder.path(), "backup");
    let before: Vec<_> = keys.iter().map(|key| known(&server, key)).collect();
    let policy = server.http().get("/v1/namespaces/orders").json()["policy"].clone();
    assert_eq!(server.term().code(), 0);

    let dir = folder.path().join("new");
    let told = restored(&path, &dir);
    // `held` shows as in_doubt by its lease's end, and is written as pending.
    assert_eq!(told["in_doubt"], 2, "{told}");
    assert_eq!(told["records"], keys.len());
    assert!(
        told["recovery_point"].is_string() && told["from"] != told["store"],
        "{told}"
    );
    let server = Server::start(&dir);
    let after = server.http().get("/v1/namespaces/orders").json();
    assert_eq!(
        (after["policy"].clone(), &after["policy_from"]),
        (policy, &Value::from("put"))
    );
    for (key, before) in keys.iter().zip(before) {
        let after = known(&server, key);
        assert!((&after.1, &after.2) == (&before.1, &before.2), "{key}");
        if matches!(*key, "pending" | "held") {
            assert_eq!(after.0["state"], "in_doubt", "{key}");
            let last = after.0["history"].as_array().unwrap().last().unwrap();
            assert_eq!(last["event"], "restored");
            assert_eq!(after.0["token"], before.0["token"], "{key}");
            let token = before.0["token"].as_u64().unwrap();
            let path = format!("/v1/claims/default/{key}/complete?token={token}");
            let late = server.http().post(&path, b"late");
            assert_eq!(
                late.outcome(),
                "stale",
                "{key}: a token of before has ended"
            );
            continue;
        }
        assert_eq!(after.0, before.0, "{key}");
    }
    let mismatch = server
        .http()
        .post("/v1/claims/default/done?fingerprint=f2", b"");
    assert_eq!(mismatch.outcome(), "mismatch", "fingerprints are enforced");
    assert_eq!(server.term().code(), 0);
    assert_eq!(check(&dir).code, 0);
}

#[test]
fn restoring_one_backup_twice_grants_no_token_twice_nor_one_that_came_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let first = claim(&mut server.http(), "first");
    let path = taken(&server, folder.path(), "backup");
    let mut granted: BTreeSet<u64> = [first].into();
    for at in 0..50 {
        granted.insert(claim(&mut server.http(), &format!("later{at}")));
    }
    assert_eq!(server.term().code(), 0);
    let mut stores = BTreeSet::new();
    for name in ["a", "b"] {
        let dir = folder.path().join(name);
        let told = restored(&path, &dir);
        assert!(stores.insert(told["store"].to_string()), "an id of its own");
        let server = Server::start(&dir);
        let gone = server.http().get("/v1/claims/default/later7");
        assert_eq!(gone.status, 404, "it came after the recovery point");
        let highest = *granted.last().unwrap();
        for at in 0..50 {
            let token = claim(&mut server.http(), &format!("k{at}"));
            assert!(token > highest, "{token} after {highest}");
            assert!(token >= told["next_token"].as_u64().unwrap());
            assert!(granted.insert(token), "token {token} was granted before");
        }
        assert_eq!(server.term().code(), 0);
    }
    assert_eq!(granted.len(), 151);

    // A token that is known from elsewhere counts too.
    let after = (1_u64 << 52).to_string();
    let dir = folder.path().join("c");
    let done = restore(&path, &dir, &["--after", &after]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.json()["next_token"], (1_u64 << 52) + 1);
    for odd in ["0", "-1", "x", "9007199254740992"] {
        let refused = restore(&path, &folder.path().join("d"), &["--after", odd]);
        assert_eq!(refused.code, 2, "{refused:?}");
    }
    let none = restore(
        &path,
        &folder.path().join("d"),
        &["--after", "9007199254740991"],
    );
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.stderr.contains("no token left"), "{none:?}");
    assert_eq!(names(&folder.path().join("d")), ["lock"]);
}

#[test]
fn a_used_or_held_directory_is_refused_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    fill(&server, 3);
    let path = taken(&server, folder.path(), "backup");
    let running = restore(&path, &data, &[]);
    assert_eq!(running.code, 11, "{running:?}");
    assert_eq!(server.term().code(), 0);
    let used = restore(&path, &data, &[]);
    assert_eq!(used.code, 12, "{used:?}");
    assert!(used.stderr.contains("empty directory"), "{used:?}");
    assert_eq!(check(&data).code, 0);
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("letter"), "dear").unwrap();
    let refused = restore(&path, &other, &[]);
    assert_eq!(refused.code, 12, "{refused:?}");
    assert_eq!(names(&other), ["letter"]);
}

#[test]
fn what_is_no_sound_backup_is_refused_by_name_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill(&server, 200);
    let whole = std::fs::read(taken(&server, folder.path(), "backup")).unwrap();
    let mut newer = whole.clone();
    newer[12] = 9;
    let crc = crc32fast::hash(&newer[..40]);
    newer[40..44].copy_from_slice(&crc.to_le_bytes());
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    let mut longer = whole.clone();
    longer.push(b'\n');
    let end = whole.len();
    let cases: [(&str, &[u8], &str); 8] = [
        ("empty", b"", "no backup of onced"),
        (
            "a text",
            b"hello, this is some text and no backup",
            "no backup of onced",
        ),
        ("in its head", &whole[..20], "is cut"),
        ("in a chunk", &whole[..middle], "is cut"),
        ("before its end", &whole[..end - 8], "is cut"),
        ("a bit", &flipped, "the checksum of a chunk differs"),
        ("more", &longer, "something was appended"),
        (
            "newer",
            &newer,
            "has format 9, and this version knows formats up to 1",
        ),
    ];
    for (what, bytes, text) in cases {
        let path = folder.path().join("bad");
        std::fs::write(&path, bytes).unwrap();
        let dir = folder.path().join("new");
        let refused = restore(&path, &dir, &[]);
        assert_eq!(refused.code, 13, "{what}: {refused:?}");
        assert!(refused.stderr.contains(text), "{what}: {refused:?}");
        assert!(!dir.exists(), "{what}");
    }
    let missing = restore(&folder.path().join("none"), &folder.path().join("new"), &[]);
    assert_eq!(missing.code, 1, "{missing:?}");
}

/// Nobody may start on it, and a restore can be repeated.
fn assert_unfinished(dir: &Path) {
    match Server::try_start(dir, &[]) {
        Ok(server) => panic!("it started: {}", server.ready),
        Err(output) => {
            assert_eq!(output.code(), 13, "{output:?}");
            assert!(output.stderr.contains("onced restore"), "{output:?}");
        }
    }
    let refused = check(dir);
    assert_eq!(refused.code, 13, "{refused:?}");
}

#[test]
fn a_restore_that_is_killed_at_any_moment_leaves_nothing_that_starts_by_half() {
    let mut random = Random::from_env();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill(&server, 2000);
    let path = taken(&server, folder.path(), "backup");
    assert_eq!(server.term().code(), 0);
    let begun = std::time::Instant::now();
    restored(&path, &folder.path().join("measured"));
    let whole = u64::try_from(begun.elapsed().as_millis()).unwrap();
    let (mut unfinished, mut untouched, mut complete) = (0, 0, 0);
    for round in 0..12 {
        let dir = folder.path().join(format!("r{round}"));
        let mut command = onced();
        command
            .arg("restore")
            .arg(&path)
            .arg("--data-dir")
            .arg(&dir);
        command.stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        // Not waited for in hope: the moment is what is tried.
        std::thread::sleep(std::time::Duration::from_millis(random.below(whole)));
        let _ = child.kill();
        child.wait().unwrap();
        if dir.join("onced.restoring").exists() {
            unfinished += 1;
            assert_unfinished(&dir);
        } else if dir.join("onced.id").exists() {
            complete += 1;
            assert_eq!(check(&dir).code, 0);
            continue;
        } else {
            untouched += 1;
            assert!(!dir.join("data").exists(), "{:?}", names(&dir));
        }
        let told = restored(&path, &dir);
        assert_eq!(told["records"], 2000);
    }
    println!("unfinished {unfinished}, untouched {untouched}, complete {complete}");
}

#[test]
fn what_each_step_of_a_restore_leaves_is_refused_by_the_server_and_restored_over() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill(&server, 5);
    let path = taken(&server, folder.path(), "backup");
    assert_eq!(server.term().code(), 0);
    let whole = folder.path().join("whole");
    restored(&path, &whole);
    // (the folder of the store, the marker), beside the note
    for (data, marker) in [
        (None, false),
        (Some("data.new"), false),
        (Some("data"), false),
        (Some("data"), true),
    ] {
        let dir = tempfile::tempdir_in(folder.path()).unwrap();
        std::fs::write(dir.path().join("onced.restoring"), "").unwrap();
        if let Some(name) = data {
            let mut copy = Command::new("cp");
            copy.arg("-r")
                .arg(whole.join("data"))
                .arg(dir.path().join(name));
            let copied = copy.status();
            assert!(copied.unwrap().success());
        }
        if marker {
            std::fs::copy(whole.join("onced.id"), dir.path().join("onced.id")).unwrap();
        }
        assert_unfinished(dir.path());
        restored(&path, dir.path());
        let server = Server::start(dir.path());
        assert_eq!(
            server.redis().command("GET s0"),
            Reply::Bytes(b"v".to_vec())
        );
    }
}

#[test]
fn fo_24_a_restore_forgets_nothing_before_its_point_and_uses_no_number_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let mut http = server.http();
    let mut post = |path: &str| http.post(&format!("/v1/claims/default/{path}"), b"");
    let mut complete = |key: &str| {
        let claimed = post(&format!("{key}?fingerprint=f-{key}")).json();
        let token = claimed["token"].as_u64().unwrap();
        assert_eq!(post(&format!("{key}/complete?token={token}")).status, 200);
        token
    };
    for at in 0..500 {
        complete(&format!("a{at}"));
    }
    for at in 0..20 {
        claim(&mut server.http(), &format!("p{at}"));
    }
    for at in 0..5 {
        let token = claim(&mut server.http(), &format!("d{at}"));
        let path = format!("/v1/claims/default/d{at}/fail?token={token}&bury=true");
        assert_eq!(server.http().post(&path, b"").status, 200);
    }
    let path = taken(&server, folder.path(), "b1");
    for at in 0..499 {
        complete(&format!("b{at}"));
    }
    // Claimed after the backup, and its worker comes back after the restore.
    let highest = claim(&mut server.http(), "worker");
    assert_eq!(server.term().code(), 0);
    let dir = folder.path().join("elsewhere");
    let told = restored(&path, &dir);
    assert_eq!(
        (&told["in_doubt"], &told["records"]),
        (&20.into(), &525.into())
    );
    assert!(told["may_run_twice_until"].as_str() >= told["recovery_point"].as_str());
    let server = Server::start(&dir);
    let mut http = server.http();
    let mut post = |path: &str| http.post(&format!("/v1/claims/default/{path}"), b"");
    for at in 0..500 {
        assert_eq!(
            post(&format!("a{at}?fingerprint=f-a{at}")).outcome(),
            "done"
        );
        assert_eq!(
            post(&format!("a{at}?fingerprint=other")).outcome(),
            "mismatch"
        );
    }
    for at in 0..20 {
        assert_eq!(post(&format!("p{at}")).outcome(), "in_doubt");
    }
    for at in 0..5 {
        assert_eq!(post(&format!("d{at}")).outcome(), "dead");
    }
    let late = post(&format!("worker/complete?token={highest}"));
    assert_eq!(late.outcome(), "stale");
    for at in 0..499 {
        let claimed = post(&format!("b{at}"));
        assert_eq!(
            claimed.outcome(),
            "acquired",
            "it is in the window that was told"
        );
        assert!(claimed.json()["token"].as_u64().unwrap() > highest);
    }
}
