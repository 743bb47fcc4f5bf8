//! Secrets, from the command that makes one to what each face lets its holder do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{data, folder, text};
use crate::support::redis::{Reply, encode};
use crate::support::{Server, onced};

/// Makes a secret: the secret and the lines for the configuration.
fn token(folder: &Path, name: &str, rest: &[&str]) -> (String, String) {
    let file = folder.join(format!("{name}.secret"));
    let output = onced()
        .args(["token", "new", "--name", name, "--out", text(&file)])
        .args(rest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let secret = fs::read_to_string(&file).unwrap().trim().to_owned();
    let stanza = String::from_utf8(output.stdout).unwrap();
    assert!(!stanza.contains(&secret), "{stanza}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    (secret, stanza)
}

fn verb(server: &Server, secret: &[(&str, &str)], arguments: &[&str]) -> (i32, String) {
    let output = onced()
        .env("ONCED_URL", format!("http://{}", server.http_address()))
        .envs(secret.iter().copied())
        .args(arguments)
        .output()
        .unwrap();
    let all = [output.stdout, output.stderr].concat();
    let all = String::from_utf8(all).unwrap();
    (output.status.code().unwrap(), all)
}

#[test]
fn a_secret_that_was_made_is_let_in_on_every_face_and_nothing_else_is() {
    let folder = folder();
    let (worker, worker_lines) = token(
        folder.path(),
        "worker",
        &[
            "--rights",
            "claim,read",
            "--ns",
            "orders",
            "--ns",
            "default",
        ],
    );
    let (ops, ops_lines) = token(folder.path(), "ops", &["--rights", "read,operate"]);
    let file = folder.path().join("onced.toml");
    fs::write(&file, format!("{worker_lines}{ops_lines}")).unwrap();
    let server = Server::with(&data(&folder), &["--config", text(&file)]);
    let wrong = worker.replace("onced_secret_", "onced_secret_x");

    // Command line.
    let claim = ["claim", "k", "--ns", "orders"];
    let secret_file = folder.path().join("worker.secret");
    let by_file = [("ONCED_SECRET_FILE", text(&secret_file))];
    for (secret, code, said) in [
        (&[][..], 1, "unauthorized"),
        (&[("ONCED_SECRET", &*wrong)], 1, "unauthorized"),
        (&[("ONCED_SECRET", &*ops)], 1, "lacks the right claim"),
        (&[("ONCED_SECRET", "two words")], 2, "one line of visible"),
        (
            &[("ONCED_SECRET_FILE", "/nowhere/at/all")],
            2,
            "/nowhere/at/all",
        ),
        (&by_file, 0, "acquired"),
        (&[("ONCED_SECRET", &*worker)], 75, "busy"),
    ] {
        let (found, out) = verb(&server, secret, &claim);
        assert_eq!(found, code, "{secret:?}: {out}");
        assert!(out.contains(said), "{secret:?}: {out}");
        assert!(!out.contains(&worker) && !out.contains(&ops), "{out}");
    }
    let (code, out) = verb(&server, &by_file, &["claim", "k", "--ns", "mail"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("is not for the namespace mail"), "{out}");
    // HTTP: health is open, all else is not.
    assert_eq!(server.http().get("/readyz").status, 200);
    let refused = server.http().get("/v1/namespaces");
    assert_eq!((refused.status, refused.outcome()), (401, "unauthorized"));
    assert!(refused.header("www-authenticate").is_some());
    // Redis protocol.
    let mut redis = server.redis();
    let starts = |reply: Reply, word: &str| {
        assert!(
            matches!(&reply, Reply::Error(text) if text.starts_with(word)),
            "{reply:?}"
        );
    };
    starts(redis.command("SET k v NX"), "NOAUTH");
    redis.send(&encode(&[b"AUTH", wrong.as_bytes()]));
    starts(redis.reply(), "WRONGPASS");
    redis.send(&encode(&[b"AUTH", b"worker", worker.as_bytes()]));
    assert_eq!(redis.reply(), Reply::Status("OK".into()));
    assert_eq!(redis.command("SET s v NX EX 9"), Reply::Status("OK".into()));
    starts(redis.command("ONCE.FORGET s"), "NOPERM");
    starts(redis.command("ONCE.CLAIM k NS mail"), "NOPERM");

    let (_, record) = verb(
        &server,
        &[("ONCED_SECRET", &*ops)],
        &["get", "k", "--ns", "orders", "--json"],
    );
    assert!(record.contains("\"by\":\"worker\""), "{record}");
    let stderr = server.term().stderr;
    for secret in [&worker, &ops, &wrong] {
        assert!(!stderr.contains(secret.as_str()), "{stderr}");
    }
}

#[test]
fn without_a_file_the_secret_is_shown_once_and_apart_from_what_the_configuration_gets() {
    let output = onced()
        .args(["token", "new", "--name", "n", "--rights", "claim"])
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(stderr.matches("onced_secret_").count(), 1, "{stderr}");
    assert!(stdout.starts_with("[[token]]\n"), "{stdout}");
    assert!(!stdout.contains("onced_secret_"), "{stdout}");
    let bad: [&[&str]; 4] = [
        &["--name", "n"],
        &["--name", "n", "--rights", "all"],
        &["--name", "a b", "--rights", "claim"],
        &["--name", "n", "--rights", "claim", "--ns", "UPPER"],
    ];
    for arguments in bad {
        let output = onced()
            .args(["token", "new"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn with_tokens_other_machines_may_be_let_in_and_the_log_says_what_that_means() {
    let folder = folder();
    let (_, lines) = token(folder.path(), "n", &["--rights", "claim"]);
    let file = folder.path().join("onced.toml");
    fs::write(&file, lines).unwrap();
    let arguments = ["--config", text(&file), "--redis", "0.0.0.0:0"];
    let server = Server::with(&data(&folder), &arguments);
    let stderr = server.term().stderr;
    assert!(
        stderr.contains("can be reached from other machines; secrets"),
        "{stderr}"
    );
}
