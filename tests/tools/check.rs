//! `onced check` on directories that are in order, in use, or none.

use super::*;

#[test]
fn a_sound_directory_is_clean_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let before = contents(&dir);
    for arguments in [&[][..], &["--repair"], &["--repair", "--yes"]] {
        let clean = run("check", &dir, arguments);
        assert_eq!(clean.code, 0, "{clean:?}");
        assert!(
            clean.stdout.starts_with("clean; 10 records in 2 tables"),
            "{clean:?}"
        );
    }
    let clean = run("check", &dir, &["--json"]);
    let told: serde_json::Value = serde_json::from_str(&clean.stdout).unwrap();
    assert_eq!(told["clean"], true, "{told}");
    assert_eq!(told["store"]["records"], 10, "{told}");
    assert_eq!(
        told["journal"]["last_lsn"], told["store"]["checkpoint"],
        "{told}"
    );
    assert_eq!(told["findings"], serde_json::json!([]), "{told}");
    assert!(contents(&dir) == before, "it was touched");
}

#[test]
fn after_kill_9_it_is_clean_before_anybody_recovers_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let server = Server::start(&dir);
    let set = server.redis().command("SET k v NX EX 1000");
    assert_eq!(set, Reply::Status("OK".into()));
    server.kill9();
    let clean = run("check", &dir, &[]);
    assert_eq!(clean.code, 0, "{clean:?}");
}

#[test]
fn findings_as_json_say_where_and_what_goes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let mut journal = Journal::open(&dir);
    journal.append(3);
    let (number, offset) = journal.frames[1];
    flip(&segment(&dir, number), offset + 100);
    let found = run("check", &dir, &["--json"]);
    assert_eq!(found.code, 13, "{found:?}");
    let told: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let finding = &told["findings"][0];
    assert_eq!(finding["offset"], offset, "{told}");
    assert!(
        finding["file"].as_str().unwrap().ends_with(".seg"),
        "{told}"
    );
    let drops = finding["repair_drops"].as_str().unwrap();
    let expected = format!(
        "every entry from LSN {} on: segment {number} from offset {offset} on",
        journal.first + 1
    );
    assert!(drops.starts_with(&expected), "{drops}");
    assert_eq!(
        (&told["clean"], &told["can_be_repaired"]),
        (&false.into(), &true.into())
    );
    let repaired = run("check", &dir, &["--json", "--repair", "--yes"]);
    assert_eq!(repaired.code, 0, "{repaired:?}");
    let told: serde_json::Value = serde_json::from_str(&repaired.stdout).unwrap();
    assert_eq!(
        (&told["clean"], &told["repaired"]),
        (&true.into(), &true.into())
    );
    assert_eq!(told["left"], serde_json::json!([]), "{told}");
}

#[test]
fn a_marker_that_cannot_be_read_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let marker = dir.join("onced.id");
    let sound = fs::read(&marker).unwrap();
    fs::write(&marker, "scribble").unwrap();
    assert!(Server::try_start(&dir, &[]).is_err());
    let found = run("check", &dir, &[]);
    assert_eq!(found.code, 13, "{found:?}");
    assert_eq!(run("check", &dir, &["--repair", "--yes"]).code, 0);
    assert_eq!(fs::read(&marker).unwrap(), sound);
    assert_starts(&dir, &stored(), &[], 10, "the marker");
}

#[test]
fn tools_refuse_a_directory_in_use_and_one_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let dir = used(&folder);
    let server = Server::start(&dir);
    for verb in ["check", "compact"] {
        let refused = run(verb, &dir, &[]);
        assert_eq!(refused.code, 11, "{refused:?}");
        let holder = format!("process {} holds it", server.pid());
        assert!(refused.stderr.contains(&holder), "{refused:?}");

        let nowhere = folder.path().join("nowhere");
        let refused = run(verb, &nowhere, &[]);
        assert_eq!(refused.code, 12, "{refused:?}");
        assert!(!nowhere.exists(), "{verb} makes no directory");

        let empty = tempfile::tempdir().unwrap();
        let refused = run(verb, empty.path(), &[]);
        assert_eq!(refused.code, 12, "{refused:?}");
        assert!(refused.stderr.contains("find a store in"), "{refused:?}");
    }
}
