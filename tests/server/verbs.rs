//! The client verbs: their exit codes, and what they print.

use super::{data, folder};
use crate::support::{Server, onced};

/// Exit code, standard output, standard error.
fn run(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    let url = format!("http://{}", server.http_address());
    let output = onced()
        .env("ONCED_URL", url)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn exit_codes_tell_scripts_what_happened() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    // In order, on one server: tokens are 1, 2, 3 as they are granted.
    let table: [(i32, &[&str]); 27] = [
        (1, &["get", "k"]),
        (
            0,
            &[
                "claim",
                "k",
                "--owner",
                "me",
                "--payload",
                "p",
                "--lease",
                "1h",
            ],
        ),
        (75, &["claim", "k"]),
        (5, &["claim", "k", "--payload", "q"]),
        (0, &["renew", "k", "--token", "1", "--lease", "2h"]),
        (4, &["renew", "k", "--token", "9"]),
        (0, &["effect", "k", "--token", "1"]),
        (1, &["release", "k", "--token", "1"]),
        (
            0,
            &[
                "complete", "k", "--token", "1", "--result", "r", "--status", "201",
            ],
        ),
        (
            0,
            &[
                "complete", "k", "--token", "1", "--result", "r", "--status", "201",
            ],
        ),
        (1, &["complete", "k", "--token", "1", "--result", "other"]),
        (3, &["claim", "k"]),
        (3, &["replay", "k", "--generation", "1"]),
        (0, &["replay", "k", "--generation", "1", "--force"]),
        (0, &["claim", "k"]),
        (
            0,
            &[
                "fail",
                "k",
                "--token",
                "2",
                "--error",
                "e",
                "--retry-in",
                "1h",
            ],
        ),
        (75, &["claim", "k"]),
        (0, &["forget", "k"]),
        (1, &["forget", "k"]),
        (0, &["claim", "d"]),
        (0, &["fail", "d", "--token", "3", "--bury"]),
        (77, &["claim", "d"]),
        (0, &["claim", "o", "--once", "--result", "r"]),
        (3, &["claim", "o"]),
        (2, &["claim", "x", "--lease", "never"]),
        (2, &["claim", ""]),
        (2, &["claim"]),
    ];
    for (code, arguments) in table {
        let (found, stdout, stderr) = run(&server, arguments);
        assert_eq!(found, code, "onced {arguments:?}: {stdout}{stderr}");
    }
}

#[test]
fn all_that_a_filter_finds_is_replayed_page_by_page() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    for (number, key) in ["a", "b", "c", "d", "x"].iter().enumerate() {
        assert_eq!(run(&server, &["claim", key]).0, 0);
        let token = (number + 1).to_string();
        assert_eq!(
            run(&server, &["fail", key, "--token", &token, "--bury"]).0,
            0
        );
    }
    let all = [
        "replay", "--state", "dead", "--all", "--limit", "2", "--json",
    ];
    let (code, told, _) = run(&server, &all);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let expected = serde_json::json!({"replayed": 5, "skipped": {}, "next": null});
    assert_eq!((code, told), (0, expected));
    let (code, again, _) = run(&server, &["replay", "--state", "retry", "--prefix", "a"]);
    assert_eq!(
        (code, again.contains("skipped.unchanged: 1")),
        (0, true),
        "{again}"
    );
    for usage in [
        &["replay"][..],
        &["replay", "k"],
        &["replay", "k", "--state", "dead"],
        &["replay", "k", "--generation", "1", "--all"],
        &["replay", "--state", "pending"],
    ] {
        assert_eq!(run(&server, usage).0, 2, "{usage:?}");
    }
}

#[test]
fn answers_are_text_for_people_and_json_for_scripts() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let (_, text, _) = run(&server, &["claim", "k", "--ns", "orders"]);
    assert!(text.starts_with("acquired (new)\n"), "{text}");
    assert!(text.contains("\ntoken: 1\n"), "{text}");
    let (_, json, _) = run(&server, &["claim", "k", "--ns", "orders", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["outcome"], "busy");
    let (_, list, _) = run(&server, &["list", "--ns", "orders", "--state", "pending"]);
    assert!(
        list.lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("k  ")),
        "{list}"
    );
    let complete = [
        "complete", "k", "--ns", "orders", "--token", "1", "--result", "a\nb",
    ];
    assert_eq!(run(&server, &complete).0, 0);
    assert_eq!(
        run(&server, &["get", "k", "--ns", "orders", "--result"]).1,
        "a\nb"
    );
    let (code, _, error) = run(&server, &["get", "k", "--ns", "orders", "--payload"]);
    assert_eq!(
        (code, error.starts_with("onced: no payload to print")),
        (1, true),
        "{error}"
    );
}

#[test]
fn keys_of_any_bytes_arrive_as_they_were_typed() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    for key in ["..", ".", "-k", "a/b", "a%2Fb", "ä+ &?#"] {
        assert_eq!(run(&server, &["claim", "--once", "--", key]).0, 0, "{key}");
        assert_eq!(run(&server, &["claim", "--once", "--", key]).0, 3, "{key}");
    }
    assert_eq!(
        server.redis().command("DBSIZE"),
        crate::support::redis::Reply::Integer(6)
    );
}

#[test]
fn a_server_that_cannot_be_reached_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = onced()
        .args(["claim", "k", "--url", &url])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{error}");
    assert!(
        error.contains(&url) && error.contains("onced serve"),
        "{error}"
    );
    let output = onced()
        .args(["claim", "k", "--url", "ftp://x"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
