//! The transcripts of the chapter on operating are played: what a command prints is what is written there, but for
//! numbers, times and ids.

use super::*;

fn chapter() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/operating.md");
    std::fs::read_to_string(path).unwrap()
}

/// The commands of the chapter in their order, with what each prints.
fn steps(text: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let blocks = text.split("```console\n").skip(1);
    for line in blocks.flat_map(|rest| rest.split("```").next().unwrap().lines()) {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push((command.to_owned(), String::new())),
            None => {
                let (_, output) = steps.last_mut().expect("output before a command");
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    steps
}

/// What differs from run to run, made equal: the digits of sizes, tokens, times and ids.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for word in text.split_inclusive([' ', '\n', ',']) {
        let bare = word.trim_end_matches([' ', '\n', ',']);
        let id = bare.len() == 32 && bare.chars().all(|c| c.is_ascii_hexdigit());
        let long = bare.len() > 2 && bare.chars().all(|c| c.is_ascii_digit());
        let time = bare.ends_with('Z') && bare.contains('T');
        if id || long || time {
            plain.push('*');
            plain.push_str(word.strip_prefix(bare).unwrap());
        } else {
            plain.push_str(word);
        }
    }
    plain
}

#[test]
fn the_transcripts_of_the_chapter_are_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    claim(&mut server.http(), "a");
    let set = server.redis().command("SET b v NX EX 3600");
    assert_eq!(set, Reply::Status("OK".into()));
    let steps = steps(&chapter());
    assert_eq!(steps.len(), 3, "{steps:?}");
    for (command, output) in &steps {
        let words = command.strip_prefix("onced ").expect("one of ours");
        let played = ran(onced()
            .args(words.split(' '))
            .current_dir(folder.path())
            .env("ONCED_URL", url(&server)));
        assert_eq!(played.code, 0, "{command}: {played:?}");
        assert_eq!(plain(&played.stdout), plain(output), "{command}");
    }
}
