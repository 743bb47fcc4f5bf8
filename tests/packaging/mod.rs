//! What is shipped beside the binary, and that it is current.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::onced;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(dir: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return BTreeMap::new();
    };
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        (entry.file_name().to_string_lossy().into_owned(), text)
    };
    entries.map(file).collect()
}

/// Holds that the folder has just these files. `UPDATE=1` writes them.
fn keep(folder: &str, expected: &BTreeMap<String, String>) {
    let folder = root(folder);
    if std::env::var_os("UPDATE").is_some() {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in expected {
            std::fs::write(folder.join(name), text).unwrap();
        }
        return;
    }
    let found = files(&folder);
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    let hint = "UPDATE=1 cargo test --test suite packaging writes it anew";
    assert_eq!(
        names(&found),
        names(expected),
        "{}: {hint}",
        folder.display()
    );
    for (name, text) in expected {
        assert!(found[name] == *text, "{}/{name}: {hint}", folder.display());
    }
}

#[test]
fn man_pages_are_those_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let done = onced().arg("man").arg(dir.path()).status().unwrap();
    assert!(done.success());
    let pages = files(dir.path());
    for name in ["onced.1", "onced-serve.1", "onced-claim.1"] {
        assert!(pages.contains_key(name), "{name}: {:?}", pages.keys());
    }
    keep("packaging/man", &pages);
}

#[test]
fn completions_are_those_of_the_command_line() {
    let mut expected = BTreeMap::new();
    for (shell, file) in [("bash", "onced"), ("zsh", "_onced"), ("fish", "onced.fish")] {
        let output = onced().args(["completions", shell]).output().unwrap();
        assert!(output.status.success(), "{shell}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("claim"), "{shell}");
        expected.insert(file.to_owned(), text);
    }
    keep("packaging/completions", &expected);
}

/// What is in force with this file: the value of each setting.
fn settings(file: &Path) -> BTreeMap<String, serde_json::Value> {
    let output = onced()
        .args(["config", "--json", "--config"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = shown["settings"].as_array().unwrap().iter();
    settings
        .map(|it| (it["key"].as_str().unwrap().to_owned(), it["value"].clone()))
        .collect()
}

#[test]
fn the_example_configuration_has_every_setting_commented_out_with_its_default() {
    let shipped = root("packaging/onced.toml");
    let defaults = settings(Path::new("/dev/null"));
    assert_eq!(settings(&shipped), defaults);

    let text = std::fs::read_to_string(&shipped).unwrap();
    let mut said = Vec::new();
    let mut table = String::new();
    let mut active = String::new();
    for line in text.lines() {
        // Words begin with a space.
        let line = line
            .strip_prefix('#')
            .filter(|rest| !rest.starts_with(' '))
            .unwrap_or(line);
        active.push_str(line);
        active.push('\n');
        if let Some(name) = line.strip_prefix('[') {
            table = name.replace(']', ".");
        } else if !line.starts_with('#')
            && let Some((name, _)) = line.split_once(" = ")
        {
            said.push(format!("{table}{name}"));
        }
    }
    said.sort();
    // How many threads there are is the machine's.
    said.push("threads".to_owned());
    said.sort();
    assert_eq!(said, defaults.keys().cloned().collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onced.toml");
    std::fs::write(&file, active).unwrap();
    let mut spoken = settings(&file);
    // These have no default: under systemd it says where, and no Unix socket is listened on.
    for (name, value) in [
        ("data_dir", "/var/lib/onced"),
        ("http.unix", "/run/onced/onced.sock"),
        ("http.unix_mode", "0660"),
        ("http.unix_group", "onced"),
    ] {
        assert_eq!(spoken[name], value);
        spoken.insert(name.to_owned(), defaults[name].clone());
    }
    assert_eq!(spoken, defaults);
}

#[test]
fn the_manual_is_part_of_the_binary() {
    let ask = |arguments: &[&str]| {
        let output = onced().arg("manual").args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, list, _) = ask(&[]);
    assert_eq!(code, Some(0));
    for line in list.lines() {
        let name = line.split(' ').next().unwrap();
        let (code, chapter, _) = ask(&[name]);
        let file = std::fs::read_to_string(root(&format!("src/manual/{name}.md"))).unwrap();
        assert_eq!((code, chapter), (Some(0), file), "{name}");
    }
    assert!(list.lines().count() >= 10, "{list}");
    let (code, _, error) = ask(&["limit"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("onced manual limits"), "{error}");
}
