//! House rules that the compiler does not know.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each layer may import; `std` and crates are another matter.
const LAYERS: [(&str, &[&str]); 12] = [
    ("model", &["model"]),
    ("sync", &["sync"]),
    ("journal", &["journal", "sync", "model"]),
    ("store", &["store", "sync", "model"]),
    ("engine", &["engine", "journal", "store", "model"]),
    ("resp", &["resp", "engine", "model"]),
    ("manual", &["manual"]),
    ("http", &["http", "engine", "manual", "model"]),
    (
        "config",
        &[
            "config", "error", "resp", "http", "engine", "journal", "store", "model",
        ],
    ),
    ("error", &["error", "engine", "model"]),
    (
        "server",
        &[
            "server", "config", "error", "resp", "http", "engine", "journal", "store", "model",
        ],
    ),
    (
        "cli",
        &[
            "cli", "server", "config", "error", "manual", "resp", "http", "engine", "journal",
            "store", "model",
        ],
    ),
];

/// Crates and calls that belong to one place: what, where, why.
const PLACES: [(&str, &[&str], &str); 9] = [
    ("redb::", &["store/"], "the store alone knows redb"),
    (
        "bincode::",
        &["store/codec.rs"],
        "one file can be rewritten when bincode has to go",
    ),
    ("fastbloom::", &["store/"], "filters belong to the store"),
    (
        "mlua::",
        &["resp/lua/"],
        "one folder is the world of scripts",
    ),
    (
        "xxhash_rust::",
        &["model/transition/"],
        "digests are compared where decisions are made",
    ),
    ("hyper::", &["http/"], "the other layers know no HTTP"),
    (
        "SystemTime::now",
        &["engine/clock.rs"],
        "one module asks the time",
    ),
    (
        "Instant::now",
        &["engine/clock.rs"],
        "one module asks the time",
    ),
    (
        "clock_gettime",
        &["engine/clock.rs"],
        "one module asks the time",
    ),
];

fn sources() -> BTreeMap<String, String> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &mut found);
    let name = |path: &Path| {
        path.strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .into_owned()
    };
    found
        .iter()
        .map(|path| (name(path), fs::read_to_string(path).unwrap()))
        .collect()
}

/// The lines that are code: tests may do what they like.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let numbered = product.lines().enumerate().map(|(at, line)| (at + 1, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn is_test(name: &str) -> bool {
    name.contains("tests") || name.ends_with("/sim.rs") || name.ends_with("/golden.rs")
}

#[test]
fn imports_point_from_the_faces_to_the_model_and_never_back() {
    let sources = sources();
    let mut seen = 0;
    for (name, text) in sources.iter().filter(|(name, _)| !is_test(name)) {
        let layer = name.split(['/', '.']).next().unwrap();
        let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| *known == layer) else {
            assert!(
                matches!(layer, "lib" | "main" | "canary"),
                "{name}: a layer that nobody declared"
            );
            continue;
        };
        for (number, line) in code(text) {
            for part in line.split("crate::").skip(1) {
                let target = part
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap();
                seen += 1;
                // Compiled out of everything that is shipped.
                let allowed = |target| target == "canary" || allowed.contains(&target);
                assert!(
                    allowed(target),
                    "src/{name}:{number}: {layer} must not know {target}"
                );
            }
        }
    }
    assert!(
        seen > 100,
        "the walk saw {seen} imports: it looks in the wrong place"
    );
}

#[test]
fn what_belongs_to_one_place_is_named_nowhere_else() {
    let sources = sources();
    for (what, places, why) in PLACES {
        let mut seen = 0;
        for (name, text) in sources.iter().filter(|(name, _)| !is_test(name)) {
            let home = places.iter().any(|place| name.starts_with(place));
            for (number, line) in code(text).filter(|(_, line)| line.contains(what)) {
                seen += 1;
                assert!(
                    home,
                    "src/{name}:{number}: {what} outside {places:?}: {why}: {line}"
                );
            }
        }
        let unused = matches!(what, "SystemTime::now" | "Instant::now");
        assert!(
            seen > 0 || unused,
            "nobody names {what}: this rule guards nothing"
        );
    }
}

#[test]
fn the_model_is_pure() {
    for (name, text) in sources()
        .iter()
        .filter(|(name, _)| name.starts_with("model/"))
    {
        for (number, line) in code(text) {
            for impure in [
                "std::fs",
                "std::io",
                "std::net",
                "std::thread",
                "tokio",
                "async ",
                "tracing",
            ] {
                assert!(
                    !line.contains(impure),
                    "src/{name}:{number}: {impure} in the model"
                );
            }
        }
    }
}
