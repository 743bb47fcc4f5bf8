//! The manual's table of field cases: whole, and true.

use std::fs;
use std::path::Path;

/// Every source of the tests, in one text.
fn sources(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_chapter_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = fs::read_to_string(root.join("src/manual/testing.md")).unwrap();
    let mut tests = String::new();
    sources(&root.join("tests"), &mut tests);
    // Names of tests are sentences: nothing else in backticks has that many words.
    let names = manual.split('`').skip(1).step_by(2);
    let names: Vec<&str> = names
        .filter(|name| name.matches('_').count() >= 4)
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(
            tests.contains(&format!("fn {name}()")),
            "there is no test {name}"
        );
    }
}

#[test]
fn the_table_of_field_cases_names_all_thirty_and_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = fs::read_to_string(root.join("src/manual/testing.md")).unwrap();
    let (_, chapter) = manual.split_once("\n## Field cases\n").unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let mut tests = String::new();
    sources(&root.join("tests"), &mut tests);
    sources(&root.join("src"), &mut tests);
    let rows: Vec<Vec<&str>> = chapter
        .lines()
        .filter(|line| line.starts_with("| FO-"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let named: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let all: Vec<String> = (1..=30).map(|number| format!("FO-{number:02}")).collect();
    assert_eq!(named, all);
    for row in rows {
        let [case, _, verdict, proof] = row[..] else {
            panic!("four columns: {row:?}");
        };
        // Beside tests of Rust there are scripts.
        let names = proof.split('`').skip(1).step_by(2);
        let (scripts, names): (Vec<&str>, Vec<&str>) = names.partition(|it| it.contains('/'));
        for script in scripts {
            assert!(root.join(script).is_file(), "{case}: there is no {script}");
        }
        for name in &names {
            assert!(
                tests.contains(&format!("fn {name}()")),
                "{case}: there is no test {name}"
            );
        }
        match verdict {
            "holds" | "holds, a choice" => {
                let own = format!("fo_{}_", &case[3..]);
                let has_own = names.iter().any(|name| name.starts_with(&own));
                assert!(has_own, "{case} has no test named after it");
            }
            "later" => assert!(names.is_empty(), "{case} is there by now"),
            other => panic!("{case}: no verdict: {other:?}"),
        }
    }
}
