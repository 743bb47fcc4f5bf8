//! A disk that is full: a small file system of the test's own, filled by somebody else.

use std::time::Instant;

use crate::support::redis::Reply;
use crate::support::{PATIENCE, Redis, SmallDisk};

/// The answer's outcome, or the state of a `get`, or `MISCONF`.
fn outcome(reply: &Reply) -> String {
    match reply {
        Reply::Array(_) => member(reply, "outcome")
            .or_else(|| member(reply, "state"))
            .unwrap(),
        Reply::Error(text) => text.split(' ').next().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn member(reply: &Reply, name: &str) -> Option<String> {
    let Reply::Array(members) = reply else {
        return None;
    };
    let text = |reply: &Reply| match reply {
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Status(text) => text.clone(),
        Reply::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pairs = members.chunks_exact(2);
    (pairs.map(|pair| (text(&pair[0]), &pair[1])))
        .find_map(|(key, value)| (key == name).then(|| text(value)))
}

/// Work in hand when the disk got full: keys and tokens.
type Held = Vec<(String, String)>;

/// Claims so many keys, each with a payload. `false`: the disk is full.
fn take(redis: &mut Redis, held: &mut Held, count: usize) -> bool {
    let payload = "p".repeat(3000);
    for _ in 0..count {
        let key = format!("work-{}", held.len());
        let got = redis.command(&format!("ONCE.CLAIM {key} STORE PAYLOAD {payload}"));
        match outcome(&got).as_str() {
            "acquired" => held.push((key, member(&got, "token").unwrap())),
            "MISCONF" => return false,
            other => panic!("{key}: {other}"),
        }
    }
    true
}

fn until_full(redis: &mut Redis, held: &mut Held) {
    assert!(!take(redis, held, 40_000), "it never got full");
}

/// What is asked of a store that has no room, and answered at once.
fn refuses_new_work_and_answers_for_known_keys(redis: &mut Redis, held: &Held) {
    let begun = Instant::now();
    let known = &held[0].0;
    for (line, expected) in [
        ("ONCE.CLAIM new".to_owned(), "MISCONF"),
        ("ONCE.CLAIM new ONCE".to_owned(), "MISCONF"),
        (format!("ONCE.CLAIM {known}"), "busy"),
        (format!("ONCE.GET {known}"), "pending"),
        ("ONCE.GET new".to_owned(), "not_found"),
    ] {
        assert_eq!(outcome(&redis.command(&line)), expected, "{line}");
    }
    assert!(
        matches!(redis.command("SET new v NX EX 9"), Reply::Error(text) if text.starts_with("MISCONF"))
    );
    assert!(
        begun.elapsed().as_secs() < 5,
        "nobody waits for room that does not come"
    );
}

fn is_normal_again(redis: &mut Redis) {
    let begun = Instant::now();
    while outcome(&redis.command("ONCE.CLAIM normal-again")) == "MISCONF" {
        assert!(begun.elapsed() < PATIENCE, "it stays full");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Finishes work until that is refused too. What was answered.
fn finish(redis: &mut Redis, held: &Held) -> usize {
    let result = "r".repeat(3000);
    for (done, (key, token)) in held.iter().enumerate() {
        match outcome(&redis.command(&format!("ONCE.COMPLETE {key} {token} RESULT {result}")))
            .as_str()
        {
            "completed" => {}
            "MISCONF" => return done,
            other => panic!("{key}: {other}"),
        }
    }
    held.len()
}

fn keeps(redis: &mut Redis, held: &Held, done: usize) {
    for (at, (key, token)) in held.iter().enumerate() {
        let got = redis.command(&format!("ONCE.GET {key}"));
        let state = if at < done { "done" } else { "pending" };
        assert_eq!(outcome(&got), state, "{key}");
        assert_eq!(member(&got, "token").as_ref(), Some(token), "{key}");
    }
}

#[test]
fn on_a_full_disk_work_is_finished_from_the_reserve_and_it_is_normal_again_by_itself() {
    let disk = SmallDisk::new(64);
    let server = disk.serve();
    let mut redis = server.redis();
    let mut held = Held::new();
    take(&mut redis, &mut held, 400);
    disk.fill();
    until_full(&mut redis, &mut held);
    refuses_new_work_and_answers_for_known_keys(&mut redis, &held);
    let (key, token) = held.pop().unwrap();
    for (line, expected) in [
        (format!("ONCE.RENEW {key} {token}"), "renewed"),
        (format!("ONCE.EFFECT {key} {token}"), "announced"),
        (format!("ONCE.FAIL {key} {token} BURY"), "failed"),
        (format!("ONCE.REPLAY {key} 1"), "MISCONF"),
        (format!("ONCE.FORGET {key}"), "forgotten"),
    ] {
        assert_eq!(outcome(&redis.command(&line)), expected, "{line}");
    }
    // More than memory holds: the checkpoints of these need the reserve.
    for (key, token) in &held {
        let got = redis.command(&format!("ONCE.RENEW {key} {token}"));
        assert_eq!(outcome(&got), "renewed", "{key}");
    }
    let some: Held = held[..50].to_vec();
    assert_eq!(finish(&mut redis, &some), some.len());
    disk.free();
    is_normal_again(&mut redis);
    server.kill9();
    let server = disk.serve();
    keeps(&mut server.redis(), &held, some.len());
    assert_eq!(server.term().code(), 0);
}

#[test]
fn once_the_reserve_is_used_up_reads_are_answered_also_after_a_crash_and_nothing_is_lost() {
    let disk = SmallDisk::new(64);
    let server = disk.serve();
    let mut redis = server.redis();
    let mut held = Held::new();
    // Enough work in hand to use up reserve and memory by finishing it.
    take(&mut redis, &mut held, 4000);
    disk.fill();
    until_full(&mut redis, &mut held);
    let done = finish(&mut redis, &held);
    assert!(done < held.len(), "the reserve was never used up");
    held.rotate_left(done);
    refuses_new_work_and_answers_for_known_keys(&mut redis, &held);
    held.rotate_right(done);
    keeps(&mut redis, &held, done);
    // As often as it may be: each start needs a place in the journal, and there is no space for one.
    server.kill9();
    for _ in 0..3 {
        let server = disk.serve();
        keeps(&mut server.redis(), &held, done);
        server.kill9();
    }
    let server = disk.serve();
    assert_eq!(server.term().code(), 0);
    let server = disk.serve();
    let mut redis = server.redis();
    keeps(&mut redis, &held, done);
    assert_eq!(outcome(&redis.command("ONCE.CLAIM new")), "MISCONF");
    disk.free();
    is_normal_again(&mut redis);
    keeps(&mut redis, &held, done);
    assert_eq!(server.term().code(), 0);
}

#[test]
fn deleting_ends_a_full_disk_that_was_filled_from_inside() {
    let disk = SmallDisk::new(64);
    let server = disk.serve();
    let mut redis = server.redis();
    let value = "v".repeat(3000);
    let set = |key: usize| format!("SET k{key} {value} NX EX 86400");
    for round in 0..2 {
        // Until the reserve is used up too: what was taken in waits for space that does not come.
        let (mut taken, mut refused) = (0, 0);
        while refused < 100 {
            match redis.command(&set(taken)) {
                Reply::Status(_) | Reply::Null => taken += 1,
                Reply::Error(text) => {
                    assert!(text.starts_with("MISCONF"), "{text}");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        for key in 0..taken {
            let deleted = redis.command(&format!("DEL k{key}"));
            assert_eq!(deleted, Reply::Integer(1), "{key} of {taken}, {round}");
        }
        let begun = Instant::now();
        while matches!(redis.command("SET normal-again v EX 9"), Reply::Error(_)) {
            assert!(begun.elapsed() < PATIENCE, "it stays full, {round}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(redis.command("DEL normal-again"), Reply::Integer(1));
        assert_eq!(redis.command("DBSIZE"), Reply::Integer(0));
    }
    assert_eq!(server.term().code(), 0);
}
