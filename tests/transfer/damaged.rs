//! Files that are cut, changed, of another format, or made by hand.

use super::*;

/// An export of [`fill`] and an empty server.
fn rig() -> (tempfile::TempDir, Server, String) {
    let folder = tempfile::tempdir().unwrap();
    let one = server(&folder, "one");
    fill(&one);
    let path = exported(&one, &folder, "whole");
    let text = std::fs::read_to_string(path).unwrap();
    let two = server(&folder, "two");
    (folder, two, text)
}

fn is_empty(server: &Server) -> bool {
    let all = server.http().get("/v1/namespaces").json();
    all["namespaces"].as_array().unwrap().is_empty()
}

#[test]
fn a_file_that_is_not_whole_is_refused_by_name_and_nothing_is_stored() {
    let (folder, two, whole) = rig();
    let end = whole.trim_end().rfind('\n').unwrap() + 1;
    let spoil_line = |number: usize, by: &str| {
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        lines[number - 1].truncate(20);
        lines[number - 1] += by;
        lines.join("\n") + "\n"
    };
    let table = [
        (spoil_line(4, "\u{0}"), "line 4: it is damaged"),
        (spoil_line(2, ""), "line 2: it is damaged"),
        (
            whole.replacen("\"attempt\":1", "\"attempt\":2", 1),
            "the checksum is another",
        ),
        (whole[..end].to_owned(), "it was cut after line 10"),
        (whole[..end - 30].to_owned(), "it was cut after line 9"),
        (
            whole.replacen("\"onced_export\":1", "\"onced_export\":2", 1),
            "format 2",
        ),
        (whole.clone() + "{}\n", "something comes behind the end"),
        (String::new(), "not the head of an export"),
        ("{}\n".to_owned(), "not the head of an export"),
    ];
    let path = folder.path().join("spoilt");
    for (text, why) in table {
        std::fs::write(&path, text).unwrap();
        let refused = import(&two, &path);
        assert_eq!(refused.code, 13, "{why}: {refused:?}");
        assert!(refused.stderr.contains(why), "{why}: {refused:?}");
        assert!(is_empty(&two), "{why}");
    }
    std::fs::write(&path, whole).unwrap();
    assert_eq!(import(&two, &path).sums(), [9, 0, 0, 0]);
}

#[test]
fn a_cut_export_is_gone_on_with_behind_its_last_whole_line() {
    let folder = tempfile::tempdir().unwrap();
    let one = server(&folder, "one");
    fill(&one);
    let whole = std::fs::read(exported(&one, &folder, "whole")).unwrap();
    let head = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let path = folder.path().join("cut");
    let step = (whole.len() - head) / 12;
    for cut in (head..whole.len()).step_by(step) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let refused = export(&one, &path);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("--continue"), "{refused:?}");
        let done = ran(verb("export", &one).arg("--continue").arg(&path));
        assert_eq!(done.code, 0, "cut at {cut}: {done:?}");
        assert!(std::fs::read(&path).unwrap() == whole, "cut at {cut}");
    }
    let again = ran(verb("export", &one).arg("--continue").arg(&path));
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("whole already"), "{again:?}");
    // Cut before anything was written.
    std::fs::write(&path, b"").unwrap();
    let done = ran(verb("export", &one).arg("--continue").arg(&path));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        super::lines(&path).len(),
        whole.split(|b| *b == b'\n').count() - 1
    );
}

#[test]
fn an_export_is_not_gone_on_with_from_another_store() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (server(&folder, "one"), server(&folder, "two"));
    fill(&one);
    fill(&two);
    let path = exported(&one, &folder, "whole");
    let whole = std::fs::read(&path).unwrap();
    let lines = whole.split_inclusive(|byte| *byte == b'\n');
    let cut: Vec<u8> = lines.take(4).flatten().copied().collect();
    std::fs::write(&path, &cut).unwrap();
    let refused = ran(verb("export", &two).arg("--continue").arg(&path));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("another store"), "{refused:?}");
    assert!(std::fs::read(&path).unwrap() == cut);
    let done = ran(verb("export", &one).arg("--continue").arg(&path));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(std::fs::read(&path).unwrap() == whole);
}

#[test]
fn an_import_has_so_many_lines_and_bytes_and_no_more() {
    let (_folder, two, whole) = rig();
    let line = whole
        .lines()
        .find(|line| line.contains("\"once\""))
        .unwrap();
    let lines = |count: usize| format!("{line}\n").repeat(count);
    let import = |body: &str| {
        two.http()
            .post("/v1/import?granted=1&first=5", body.as_bytes())
    };
    let many = import(&lines(1001));
    assert_eq!((many.status, many.outcome()), (400, "bad_input"));
    let detail = many.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("line 1005: more than 1000 lines"),
        "{detail}"
    );
    assert!(is_empty(&two));
    let large = import(&"x".repeat((8 << 20) + 1));
    assert_eq!((large.status, large.outcome()), (413, "too_large"));
    let all = import(&lines(1000));
    assert_eq!(all.status, 200, "{all:?}");
    assert_eq!(
        (&all.json()["imported"], &all.json()["there"]),
        (&1.into(), &999.into())
    );
}

#[test]
fn numbers_of_lines_and_tokens_at_their_ends_are_refused_or_taken_but_nothing_breaks() {
    let (_folder, two, whole) = rig();
    let once = whole
        .lines()
        .find(|line| line.contains("\"once\""))
        .unwrap();
    let last = u64::MAX;
    let import = |query: String, body: &str| {
        let answer = two
            .http()
            .post(&format!("/v1/import?{query}"), body.as_bytes());
        (
            answer.status,
            answer.json()["detail"].as_str().map(str::to_owned),
        )
    };
    for first in [last, last - 1, last - 2] {
        let (status, detail) = import(format!("granted=1&first={first}"), "x\nx\nx\nx");
        assert_eq!(status, 400, "{detail:?}");
        assert!(detail.unwrap().contains(&format!("line {first}: ")));
    }
    let above = 1_u64 << 52;
    let (status, detail) = import(format!("granted={above}"), once);
    assert_eq!(status, 400, "{detail:?}");
    let mut record: Value = serde_json::from_str(once).unwrap();
    record["token"] = above.into();
    let (status, detail) = import("granted=1".to_owned(), &record.to_string());
    assert_eq!(status, 400, "{detail:?}");
    assert!(is_empty(&two));
    let body = [once; 3].join("\n");
    let (status, detail) = import(format!("granted={}&first={last}", above - 1), &body);
    assert_eq!((status, detail), (200, None));
    // Tokens go on above it.
    let claim = two.http().post("/v1/claims/ns/next", b"");
    assert_eq!(claim.json()["token"], above);
}

#[test]
fn part_of_a_file_comes_over_where_that_is_asked_for() {
    let (folder, two, whole) = rig();
    let path = folder.path().join("part");
    let end = whole.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&path, &whole[..end - 30]).unwrap();
    let done = ran(verb("import", &two).arg("--partial").arg(&path));
    assert_eq!((done.code, done.sums()), (0, [8, 0, 0, 0]), "{done:?}");
}

#[test]
fn lines_made_by_hand_are_checked_one_by_one_and_expired_ones_are_left_out() {
    let (folder, two, whole) = rig();
    let once = whole
        .lines()
        .find(|line| line.contains("\"once\""))
        .unwrap();
    let once: Value = serde_json::from_str(once).unwrap();
    let head = whole.lines().next().unwrap();
    let path = folder.path().join("hand");
    let file = |spoil: &dyn Fn(&mut Value)| {
        let mut bad = once.clone();
        spoil(&mut bad);
        let mut good = once.clone();
        good["key"] = "good".into();
        std::fs::write(&path, format!("{head}\n{good}\n{bad}\n")).unwrap();
        ran(verb("import", &two).arg("--partial").arg(&path))
    };
    type Spoil = (&'static str, fn(&mut Value));
    let spoils: [Spoil; 8] = [
        ("no such state", |it| it["state"] = "gone".into()),
        ("unknown field", |it| it["more"] = 1.into()),
        ("below 2^52", |it| it["token"] = (1_u64 << 53).into()),
        ("below 2^52", |it| it["token"] = ((1_u64 << 53) - 1).into()),
        ("completed_at_ms", |it| {
            it.as_object_mut().unwrap().remove("completed_at_ms");
        }),
        ("one of them", |it| it["key_base64"] = "AA==".into()),
        ("a key has at most", |it| {
            it["key"] = "k".repeat(1025).into()
        }),
        ("a result has at most", |it| {
            it["result"]["body"] = "x".repeat((1 << 20) + 1).into();
        }),
    ];
    for (why, spoil) in spoils {
        let refused = file(&spoil);
        let detail = refused.stdout.lines().last().unwrap_or_default();
        assert_eq!(refused.code, 2, "{why}: {refused:?}");
        assert!(detail.contains("line 3: "), "{why}: {detail}");
        assert!(
            why == "below 2^52" || detail.contains(why),
            "{why}: {detail}"
        );
        assert!(is_empty(&two), "{why}");
    }
    let expired = file(&|it| {
        it["key"] = "old".into();
        it["expires_at_ms"] = 1000.into();
    });
    assert_eq!(
        (expired.code, expired.sums()),
        (0, [1, 0, 1, 0]),
        "{expired:?}"
    );
    assert_eq!(two.http().get("/v1/claims/default/old").status, 404);
}
