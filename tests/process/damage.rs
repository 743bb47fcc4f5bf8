//! Files that are damaged at random places: a start refuses and says which, or everything that was answered is
//! there. It never answers around damage, and a used directory never comes up empty.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Load;
use crate::support::{Random, Server};

/// All of it, as far as there is something in the files.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let copied = Command::new("cp")
        .args(["-r", "--sparse=always"])
        .arg(from)
        .arg(to)
        .status();
    assert!(copied.unwrap().success());
}

/// The files that are read again, longest content first, and how much of each is written.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                dirs.push(path);
            } else if name != "lock" && !name.starts_with("reserve") && !name.ends_with(".tmp") {
                let bytes = std::fs::read(&path).unwrap();
                let end = bytes
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |at| at + 1);
                found.push((path, end as u64));
            }
        }
    }
    found.sort();
    found
}

/// What happens to a file.
fn damage(path: &Path, length: u64, how: &str, random: &mut Random) -> String {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let at = random.below(length.max(1));
    match how {
        "bit" => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            byte[0] ^= 1 << random.below(8);
            file.write_all_at(&byte, at).unwrap();
        }
        "cut" => file.set_len(at).unwrap(),
        "zeroed" => file
            .write_all_at(&vec![0; 4096.min((length - at) as usize)], at)
            .unwrap(),
        "replaced" => {
            let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            file.write_all_at(&noise, 0).unwrap();
        }
        "missing" => std::fs::remove_file(path).unwrap(),
        other => panic!("{other}"),
    }
    format!("{how}: {} at {at} of {length}", path.display())
}

#[test]
fn damaged_at_fifty_places_and_in_every_file_it_refuses_or_has_everything() {
    let mut random = Random::from_env();
    let folder = tempfile::tempdir().unwrap();
    let (live, kept) = (folder.path().join("live"), folder.path().join("kept"));
    let config = folder.path().join("onced.toml");
    let text =
        "[limits]\nmax_payload = \"64KiB\"\nmax_result = \"64KiB\"\nrecent_memory = \"1MiB\"\n";
    std::fs::write(&config, text).unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    let mut load = Load::new(&random);
    let server = Server::with(&live, &arguments);
    let running = load.run(&server);
    running.until(3000);
    server.kill9();
    (load, _) = running.end();
    // What was not answered is settled first, so that a loss by damage is not taken for it.
    let server = Server::with(&live, &arguments);
    load.settle(&server);
    let running = load.run(&server);
    running.until(500);
    server.kill9();
    (load, _) = running.end();
    copy(&live, &kept);

    let all = files(&kept);
    let mut cases: Vec<(PathBuf, u64, &str)> = Vec::new();
    for (path, length) in &all {
        for how in ["cut", "zeroed", "replaced", "missing"] {
            cases.push((path.clone(), *length, how));
        }
    }
    for number in 0..50 {
        let (path, length) = &all[number % all.len()];
        cases.push((path.clone(), *length, "bit"));
    }
    let (mut refused, mut unharmed) = (0, 0);
    for (path, length, how) in cases {
        copy(&kept, &live);
        let path = live.join(path.strip_prefix(&kept).unwrap());
        let what = damage(&path, length, how, &mut random);
        match Server::try_start(&live, &arguments) {
            Ok(server) => {
                load.settle_as(&server, &what);
                unharmed += 1;
            }
            Err(output) => {
                assert!([12, 13, 15].contains(&output.code()), "{what}: {output:?}");
                assert!(output.stderr.contains("onced: "), "{what}: {output:?}");
                let names = output.stderr.contains(live.to_str().unwrap());
                assert!(names, "{what}: it names no file: {output:?}");
                refused += 1;
            }
        }
    }
    println!("damage: {refused} refused, {unharmed} without harm, none answered around");
    assert!(refused > 20, "only {refused} were refused");
}
