//! Every transcript of the README and the manual, word for word: the commands are played by this test's own clients, and what
//! the server answers has to be what is written, but for times, ports, folders and what was left of a lease.

use std::fmt::Write as _;

use crate::support::{Http, Server, onced};

fn file(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(path).unwrap()
}

/// The fenced blocks of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// A command line and what it printed.
struct Step<'a> {
    command: &'a str,
    output: String,
}

fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in blocks(text, "console").into_iter().flat_map(str::lines) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step {
                command,
                output: String::new(),
            }),
            (None, Some(step)) => writeln!(step.output, "{line}").unwrap(),
            (None, None) => panic!("output before a command: {line}"),
        }
    }
    steps
}

/// The words of a command line, with single quotes as the shell has them.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// What differs from run to run, made equal: digits of times, and what is left of a lease.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.trim_end();
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, digits) = rest.split_at(at);
        plain.push_str(before);
        let end = digits.find(|c: char| !c.is_ascii_digit() && !"-:.TZ".contains(c));
        let (number, after) = digits.split_at(end.unwrap_or(digits.len()));
        let moving = number.ends_with('Z') || before.ends_with("_ms\":");
        plain.push_str(if moving { "*" } else { number });
        rest = after;
    }
    plain + rest
}

fn curl(server: &Server, words: &[String]) -> String {
    let (mut method, mut body, mut headers, mut url) = ("GET", String::new(), String::new(), "");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-d" => {
                method = "POST";
                body.clone_from(words.next().unwrap());
            }
            "-X" => method = words.next().unwrap(),
            "-H" => write!(headers, "{}\r\n", words.next().unwrap()).unwrap(),
            word => url = word,
        }
    }
    let path = url
        .strip_prefix("http://localhost:6623")
        .expect("the default address");
    if method == "POST" && !headers.to_lowercase().contains("content-type") {
        headers += "content-type: application/x-www-form-urlencoded\r\n";
    }
    let mut http = Http::connect(server.http_address());
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost:6623\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    http.send(head.as_bytes());
    String::from_utf8(http.answer().unwrap().body).unwrap()
}

fn command(server: &Server, words: &[String]) -> String {
    let url = format!("http://{}", server.http_address());
    let output = onced().env("ONCED_URL", url).args(words).output().unwrap();
    assert!(output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Plays what a text shows, on a server of its own, and tells how many commands there were.
fn play(text: &str) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut played = 0;
    for step in steps(text) {
        let words = words(step.command);
        let answer = match words.first().map(String::as_str) {
            Some("curl") => curl(&server, &words[1..]),
            Some("printf") => {
                // A line to the Redis port, as nc sends it; what comes back is not written there.
                let line = words[1].replace("\\r\\n", "\r\n");
                let mut redis = server.redis();
                redis.send(line.as_bytes());
                redis.half_close();
                assert!(redis.rest().contains("acquired"), "{}", step.command);
                String::new()
            }
            Some("cargo" | "onced") if step.command.ends_with(" serve") => {
                let shape = |line: &str| {
                    let words = line
                        .split_whitespace()
                        .map(|word| word.split('=').next().unwrap());
                    words.collect::<Vec<_>>().join(" ")
                };
                assert_eq!(shape(&step.output), shape(&server.ready));
                assert!(
                    step.output
                        .contains("http=127.0.0.1:6623 redis=127.0.0.1:6624")
                );
                step.output.clone()
            }
            Some("onced") => command(&server, &words[1..]),
            other => panic!("nobody plays {other:?}"),
        };
        assert_eq!(plain(&answer), plain(&step.output), "{}", step.command);
        played += 1;
    }
    played
}

#[test]
fn the_transcripts_of_the_readme_are_what_happens() {
    let played = play(&file("README.md"));
    assert!(played >= 6, "only {played} commands were found");
}

#[test]
fn the_transcripts_of_the_manual_are_what_happens() {
    for (chapter, least) in [("start", 4), ("http", 2), ("cli", 5)] {
        let played = play(&file(&format!("src/manual/{chapter}.md")));
        assert!(
            played >= least,
            "{chapter}: only {played} commands were found"
        );
    }
}

#[test]
fn the_readme_has_a_client_in_each_of_four_languages() {
    // Run by tests/peers/run, which has the languages.
    let text = file("README.md");
    for language in ["php", "python", "js", "ruby"] {
        assert_eq!(blocks(&text, language).len(), 1, "{language}");
    }
}
