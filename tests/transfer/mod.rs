//! Export and import: the real binary, from one server to another.

mod damaged;
mod many;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::redis::Reply;
use crate::support::{Server, onced};

/// What a verb printed and how it ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The numbers of an import: imported, there already, expired, differing.
    fn sums(&self) -> [u64; 4] {
        let all = self.json();
        ["imported", "there", "expired", "differ"].map(|name| all[name].as_u64().unwrap())
    }
}

fn verb(name: &str, server: &Server) -> Command {
    let mut command = onced();
    let url = format!("http://{}", server.http_address());
    command.args([name, "--json", "--url", &url]);
    command
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn export(server: &Server, path: &Path) -> Ran {
    ran(verb("export", server).arg(path))
}

fn import(server: &Server, path: &Path) -> Ran {
    ran(verb("import", server).arg(path))
}

/// An export that has to come about.
fn exported(server: &Server, folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    let done = export(server, &path);
    assert_eq!(done.code, 0, "{done:?}");
    path
}

fn server(folder: &tempfile::TempDir, name: &str) -> Server {
    Server::start(&folder.path().join(name))
}

/// Records of every kind; the highest token.
fn fill(server: &Server) -> u64 {
    let mut http = server.http();
    let mut claim = |path: &str, body: &[u8]| {
        let answer = http.post(path, body);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["token"].as_u64().unwrap()
    };
    let done = claim(
        "/v1/claims/orders/done?claim_id=c&owner=worker",
        b"{\"a\":1}",
    );
    let large = claim("/v1/claims/orders/large?store=true", &vec![b'p'; 100_000]);
    let binary = claim("/v1/claims/orders/%ff%00?retention=forever", b"");
    let retry = claim("/v1/claims/default/retry?max_attempts=9", b"");
    let dead = claim("/v1/claims/default/dead", b"");
    claim("/v1/claims/default/once?mode=once&result=ok", b"");
    claim("/v1/claims/default/effect?lease=24h", b"");
    let last = claim("/v1/claims/default/pending?lease=24h", b"");
    let mut verb = |path: String, body: &[u8]| {
        let answer = http.post(&path, body);
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    verb(
        format!("/v1/claims/orders/done/complete?token={done}&status=201"),
        "{\"ok\":\"ä\"}\n".as_bytes(),
    );
    verb(
        format!("/v1/claims/orders/large/complete?token={large}"),
        &vec![0; 50_000],
    );
    verb(
        format!("/v1/claims/orders/%ff%00/complete?token={binary}"),
        b"\xff\x00\x01",
    );
    verb(
        format!("/v1/claims/default/retry/fail?token={retry}&error=no%0aluck&retry_in=1h"),
        b"",
    );
    verb(
        format!("/v1/claims/default/dead/fail?token={dead}&bury=true"),
        b"",
    );
    verb(
        format!("/v1/claims/default/effect/effect?token={}", last - 1),
        b"",
    );
    let set = server.redis().command("SET cache v EX 100000");
    assert_eq!(set, Reply::Status("OK".into()));
    last
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    text.lines().map(line).collect()
}

#[test]
fn every_record_comes_over_with_all_that_it_is_and_what_was_pending_is_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (server(&folder, "one"), server(&folder, "two"));
    let granted = fill(&one);
    let path = exported(&one, &folder, "records");
    let done = import(&two, &path);
    assert_eq!((done.code, done.sums()), (0, [9, 0, 0, 0]), "{done:?}");
    assert_eq!(done.json()["in_doubt"], 2);
    // What is not in doubt stands there byte for byte, but for the end, which names the tokens of another store.
    let (before, after) = (lines(&path), lines(&exported(&two, &folder, "again")));
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after).skip(1).take(9) {
        let key = &before["key"];
        if before["state"] == "pending" {
            assert_eq!(after["state"], "in_doubt", "{key}");
            assert_eq!(after["history"][0], before["history"][0], "{key}");
        } else if before["state"] == "retry" {
            // The clocks of the two stores need not agree on the millisecond.
            let due = |line: &Value| line["not_before_ms"].as_u64().unwrap();
            assert!(due(before).abs_diff(due(after)) < 1000, "{key}");
        } else {
            assert_eq!(before, after, "{key}");
        }
    }
    let mut http = two.http();
    let again = http.post("/v1/claims/orders/done", b"{\"a\":1}");
    assert_eq!((again.status, again.outcome()), (200, "done"));
    assert_eq!(
        http.post("/v1/claims/orders/done", b"{}").outcome(),
        "mismatch"
    );
    let large = http.get("/v1/claims/orders/large/payload");
    assert_eq!(large.body, vec![b'p'; 100_000]);
    assert_eq!(
        http.get("/v1/claims/orders/large/result").body,
        vec![0; 50_000]
    );
    let pending = http.post("/v1/claims/default/pending", b"");
    assert_eq!(pending.outcome(), "in_doubt");
    let stale = format!("/v1/claims/default/pending/complete?token={granted}");
    assert_eq!(
        http.post(&stale, b"").outcome(),
        "stale",
        "its token has ended"
    );
    let new = http.post("/v1/claims/default/new", b"");
    assert!(new.json()["token"].as_u64().unwrap() > granted, "{new:?}");
    assert_eq!(
        two.redis().command("GET cache"),
        Reply::Bytes(b"v".to_vec())
    );
}

#[test]
fn an_import_that_is_run_again_changes_nothing_also_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let one = server(&folder, "one");
    fill(&one);
    let path = exported(&one, &folder, "records");
    let two = server(&folder, "two");
    assert_eq!(import(&two, &path).sums(), [9, 0, 0, 0]);
    let before = two.http().post("/v1/claims/default/first", b"").json();
    two.kill9();
    let two = server(&folder, "two");
    assert_eq!(import(&two, &path).sums(), [0, 9, 0, 0]);
    let after = two.http().post("/v1/claims/default/second", b"").json();
    assert!(after["token"].as_u64() > before["token"].as_u64());
    let dir = folder.path().join("two");
    assert_eq!(two.term().code(), 0);
    let check = ran(onced().args(["check", "--data-dir"]).arg(&dir));
    assert_eq!(check.code, 0, "{check:?}");
}

#[test]
fn tokens_go_on_above_those_of_the_other_store_also_after_a_kill_before_any_grant() {
    let folder = tempfile::tempdir().unwrap();
    let one = server(&folder, "one");
    fill(&one);
    let path = exported(&one, &folder, "records");
    // A store whose tokens are ahead of every clock.
    let text = std::fs::read_to_string(&path).unwrap();
    let whole: Vec<&str> = text.lines().collect();
    let record = whole.iter().find(|line| line.contains("\"once\"")).unwrap();
    let high = 1_u64 << 51;
    let mut record: Value = serde_json::from_str(record).unwrap();
    record["token"] = high.into();
    let hand = folder.path().join("hand");
    std::fs::write(&hand, format!("{}\n{record}\n", whole[0])).unwrap();
    let two = server(&folder, "two");
    let done = ran(verb("import", &two).arg("--partial").arg(&hand));
    assert_eq!((done.code, done.sums()), (0, [1, 0, 0, 0]), "{done:?}");
    two.kill9();
    let two = server(&folder, "two");
    let new = two.http().post("/v1/claims/default/new", b"").json();
    assert!(new["token"].as_u64().unwrap() > high, "{new}");
}

#[test]
fn another_record_under_the_key_is_told_and_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (server(&folder, "one"), server(&folder, "two"));
    fill(&one);
    let path = exported(&one, &folder, "records");
    let mine = two.http().post("/v1/claims/orders/done", b"").json();
    let done = import(&two, &path);
    assert_eq!((done.code, done.sums()), (1, [8, 0, 0, 1]), "{done:?}");
    let named = &done.json()["named"][0];
    assert_eq!(named["key"], "done");
    assert_eq!(
        lines(&path)[named["line"].as_u64().unwrap() as usize - 1]["key"],
        "done"
    );
    let still = two.http().get("/v1/claims/orders/done").json();
    assert_eq!(
        (&still["state"], &still["token"]),
        (&"pending".into(), &mine["token"])
    );
    // Into the store that it came from, only what is pending differs.
    assert_eq!(import(&one, &path).sums(), [0, 7, 0, 2]);
}

#[test]
fn one_namespace_alone_comes_over_and_standard_output_is_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (server(&folder, "one"), server(&folder, "two"));
    fill(&one);
    let done = ran(verb("export", &one).args(["--ns", "orders"]));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        done.stderr, "",
        "nothing of its progress, where nobody looks at a terminal"
    );
    let path = folder.path().join("orders");
    std::fs::write(&path, &done.stdout).unwrap();
    assert_eq!(import(&two, &path).sums(), [3, 0, 0, 0]);
    assert_eq!(two.http().get("/v1/claims/default/dead").status, 404);
}

#[test]
fn only_the_admin_right_for_all_namespaces_exports_and_imports() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = String::new();
    let mut secret = |name: &str, arguments: &[&str]| {
        let out = folder.path().join(name);
        let new = onced()
            .args(["token", "new", "--name", name, "--out"])
            .arg(&out)
            .args(arguments)
            .output()
            .unwrap();
        file += &String::from_utf8(new.stdout).unwrap();
        out
    };
    let admin = secret("admin", &["--rights", "admin"]);
    let few = secret("few", &["--rights", "admin", "--ns", "orders"]);
    let other = secret("other", &["--rights", "claim,read,operate"]);
    let config = folder.path().join("onced.toml");
    std::fs::write(&config, file).unwrap();
    let data = folder.path().join("data");
    let server = Server::with(&data, &["--config", config.to_str().unwrap()]);
    let path = folder.path().join("records");
    for secret in [few, other] {
        let refused = ran(verb("export", &server)
            .arg(&path)
            .arg("--secret-file")
            .arg(&secret));
        assert_eq!(refused.code, 1, "{refused:?}");
        assert_eq!(refused.json()["outcome"], "forbidden");
        assert!(!path.exists());
    }
    let done = ran(verb("export", &server)
        .arg(&path)
        .arg("--secret-file")
        .arg(&admin));
    assert_eq!(done.code, 0, "{done:?}");
    let refused = import(&server, &path);
    assert_eq!(refused.code, 0, "an empty export asks nothing: {refused:?}");
    assert_eq!(
        server.http().post("/v1/import?granted=1", b"{}\n").status,
        401
    );
}
