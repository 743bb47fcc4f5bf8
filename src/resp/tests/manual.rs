//! The manual's chapters on the Redis protocol: their examples run, and the list of commands is that of the table.

use std::path::Path;

use super::Desk;
use crate::resp::commands::listed;

const HEAD: &str = "| command | what it does | since Redis |\n|---|---|---|\n";

fn chapter(name: &str) -> (std::path::PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/manual/{name}.md"));
    let text = std::fs::read_to_string(&path).expect("the chapter");
    (path, text)
}

/// Run with `UPDATE=1` after a change of the table.
#[test]
fn the_list_of_commands_is_that_of_the_table() {
    let rows: String = listed()
        .map(|(name, summary, since)| format!("| `{name}` | {summary} | {since} |\n"))
        .collect();
    let (path, text) = chapter("redis");
    let (before, list) = text.split_once(HEAD).expect("the list has its head");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{before}{HEAD}{rows}")).expect("it can be written");
    } else {
        assert_eq!(list, rows, "UPDATE=1 cargo test writes it anew");
    }
}

/// A reply as the chapter writes it.
fn shown(parts: &mut std::str::Split<'_, &str>) -> String {
    let head = parts.next().expect("a reply");
    let (mark, rest) = head.split_at(1);
    match mark {
        "$" | "_" | "*" if rest == "-1" || mark == "_" => "nil".to_owned(),
        "$" => format!("\"{}\"", parts.next().expect("bytes")),
        "*" => {
            let count: usize = rest.parse().expect("a count");
            let items: Vec<String> = (0..count).map(|_| shown(parts)).collect();
            format!("[{}]", items.join(", "))
        }
        "-" => format!("error {rest}"),
        _ => rest.to_owned(),
    }
}

#[test]
fn every_example_is_answered_as_it_is_written() {
    let texts = ["redis", "from-redis"].map(|name| chapter(name).1);
    let examples: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.split("```redis\n").skip(1))
        .collect();
    assert!(examples.len() >= 10, "{} examples", examples.len());
    for example in examples {
        let mut desk = Desk::new();
        let (lines, _) = example.split_once("```").expect("an end");
        let mut asked = 0;
        let mut answer = String::new();
        for line in lines.lines() {
            if let Some(request) = line.strip_prefix("> ") {
                let (reply, _) = desk.talk(format!("{request}\r\n").as_bytes(), usize::MAX);
                let reply = String::from_utf8(reply).expect("text");
                answer = shown(&mut reply.split("\r\n"));
                asked += 1;
            } else {
                let expected = line.strip_prefix("< ").expect("a reply");
                assert_eq!(answer, expected, "{lines}");
            }
        }
        assert!(asked > 1 && asked * 2 == lines.lines().count(), "{lines}");
    }
}
