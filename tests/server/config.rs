//! `onced config`: each value and who said so.

use std::fs;

use serde_json::Value;

use super::{folder, text};
use crate::support::onced;

#[test]
fn each_value_is_shown_with_who_said_it_and_secrets_and_hashes_are_not() {
    let folder = folder();
    let file = folder.path().join("onced.toml");
    let hash = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
    let config = format!(
        "data_dir = \"/d\"\n[limits]\ncache = \"16MiB\"\nmax_pipeline = 7\n\n[namespace.\"web.hooks\"]\n\
         lease = \"9s\"\n[[token]]\nname = \"w\"\nsha256 = \"{hash}\"\nrights = [\"read\"]\n"
    );
    fs::write(&file, config).unwrap();
    let run = |rest: &[&str]| {
        let output = onced()
            .args([
                "config",
                "--config",
                text(&file),
                "--threads",
                "3",
                "--max-pipeline",
                "8",
            ])
            .args(rest)
            .env("ONCED_REDIS", "7000,localhost:7001")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json = run(&["--json"]);
    assert!(!json.contains(hash), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let file_line = |line: usize| format!("{}:{line}", file.display());
    for (key, value, from, place) in [
        ("data_dir", "\"/d\"", "file", &*file_line(1)),
        ("limits.cache", "16777216", "file", &file_line(3)),
        ("limits.max_pipeline", "8", "flag", "--max-pipeline"),
        ("threads", "3", "flag", "--threads"),
        (
            "redis.listen",
            "[\"localhost:7000\",\"localhost:7001\"]",
            "environment",
            "ONCED_REDIS",
        ),
        ("http.listen", "[\"localhost:6623\"]", "default", "default"),
        ("http.unix", "null", "default", "default"),
        ("http.unix_mode", "null", "default", "default"),
        ("http.unix_group", "null", "default", "default"),
        ("limits.header_timeout", "\"10s\"", "default", "default"),
        (
            "namespace.\"web.hooks\".lease",
            "\"9s\"",
            "file",
            &file_line(7),
        ),
        (
            "namespace.\"web.hooks\".retention",
            "\"72h\"",
            "default",
            "default",
        ),
    ] {
        let settings = json["settings"].as_array().unwrap();
        let found = settings.iter().find(|it| it["key"] == key).expect(key);
        assert_eq!(found["value"].to_string(), value, "{key}");
        assert_eq!(
            (&found["from"], &found["where"]),
            (&from.into(), &place.into()),
            "{key}"
        );
    }
    assert_eq!(json["tokens"][0]["name"], "w");

    // What is printed for people can be read again, and says the same.
    let toml = run(&[]);
    assert!(!toml.contains(hash), "{toml}");
    assert!(toml.contains("# token w: read; all namespaces"), "{toml}");
    let copy = folder.path().join("copy.toml");
    fs::write(&copy, &toml).unwrap();
    let output = onced()
        .args(["config", "--config", text(&copy)])
        .output()
        .unwrap();
    let values = |text: &str| {
        let lines = text.lines().filter_map(|line| line.split("  # ").next());
        lines
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        values(&String::from_utf8(output.stdout).unwrap()),
        values(&toml)
    );
}

#[test]
fn a_configuration_that_would_be_refused_is_refused_here_too() {
    let folder = folder();
    let file = folder.path().join("onced.toml");
    fs::write(&file, "[limits]\ncash = 1\n").unwrap();
    let output = onced()
        .args(["config", "--config", text(&file)])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(10));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("line 2") && stderr.contains("`cache`"),
        "{stderr}"
    );
}
