//! Taking backups, and everything that keeps one from coming about.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;
use crate::support::{PATIENCE, SmallDisk};

/// Asks for a backup and reads only its first bytes.
fn half_taken(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.http_address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /v1/backup HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut first = [0; 64];
    stream.read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200"), "{first:?}");
    stream
}

/// More than the buffers on the way to a reader that does not read.
fn fill_beyond_buffers(server: &Server) {
    let mut http = server.http();
    let payload = vec![b'p'; 900_000];
    for at in 0..24 {
        let answer = http.post(&format!("/v1/claims/default/big{at}?store=true"), &payload);
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

#[test]
fn a_backup_is_a_new_file_of_its_owner_alone_and_nothing_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill(&server, 10);
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let path = taken(&server, &out, "one");
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&path).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", out.join("link")).unwrap();
    for (target, what) in [
        ("one", "a file"),
        (".", "a folder"),
        ("link", "a dead link"),
    ] {
        let refused = backup(&server, &out.join(target));
        assert_eq!(refused.code, 1, "{what}: {refused:?}");
        assert!(
            refused.stderr.contains("nothing is written over"),
            "{refused:?}"
        );
    }
    let nowhere = backup(&server, &out.join("missing/one"));
    assert_eq!(nowhere.code, 1, "{nowhere:?}");
    assert!(nowhere.stderr.contains("missing/one"), "{nowhere:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(names(&out), ["link", "one"], "and nothing else is left");
}

#[test]
fn only_one_is_taken_at_a_time_and_a_reader_that_goes_makes_room_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill_beyond_buffers(&server);
    let first = half_taken(&server);
    let path = folder.path().join("second");
    let refused = backup(&server, &path);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(
        refused.stdout.contains("a backup is being taken already"),
        "{refused:?}"
    );
    let answer = server.http().get("/v1/backup");
    assert_eq!((answer.status, answer.outcome()), (503, "unavailable"));
    assert!(answer.header("retry-after").is_some());
    assert!(!path.exists());
    // Only the head is asked for: nothing is taken.
    let head = server.http().request("HEAD", "/v1/backup", b"");
    assert_eq!(head.status, 200);
    drop(first);
    let begun = Instant::now();
    while backup(&server, &path).code != 0 {
        assert!(begun.elapsed() < PATIENCE, "the first one still counts");
    }
    assert_eq!(names(folder.path()), ["data", "second"]);
}

#[test]
fn a_server_that_is_killed_leaves_no_file_and_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    fill_beyond_buffers(&server);
    let mut half = half_taken(&server);
    server.kill9();
    let mut rest = Vec::new();
    let _ = half.read_to_end(&mut rest);
    let server = Server::start(&data);
    let whole = taken(&server, folder.path(), "whole");
    assert_eq!(server.term().code(), 0);
    assert_eq!(check(&data).code, 0);

    // What somebody else saved of the half is refused by name.
    let bytes = std::fs::read(whole).unwrap();
    let saved = folder.path().join("saved");
    std::fs::write(&saved, &bytes[..bytes.len() / 2]).unwrap();
    let refused = restore(&saved, &folder.path().join("new"), &[]);
    assert_eq!(refused.code, 13, "{refused:?}");
    assert!(refused.stderr.contains("is cut"), "{refused:?}");
}

#[test]
fn a_connection_that_is_cut_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill_beyond_buffers(&server);
    // Between the two: passes on so much of the answer, and hangs up.
    let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = between.local_addr().unwrap();
    let behind = server.http_address();
    let passing = std::thread::spawn(move || {
        let (mut client, _) = between.accept().unwrap();
        let mut server = TcpStream::connect(behind).unwrap();
        let mut request = vec![0; 4096];
        let read = client.read(&mut request).unwrap();
        server.write_all(&request[..read]).unwrap();
        let passed = std::io::copy(&mut server.take(2_000_000), &mut client).unwrap();
        assert_eq!(passed, 2_000_000);
    });
    let path = folder.path().join("cut");
    let mut command = onced();
    command.args(["backup", "--url", &format!("http://{address}")]);
    let failed = ran(command.arg(&path));
    passing.join().unwrap();
    assert!(matches!(failed.code, 1 | 75), "{failed:?}");
    assert!(
        failed.stderr.contains("cut") || failed.stderr.contains("broke off"),
        "{failed:?}"
    );
    assert_eq!(names(folder.path()), ["data"], "no file, under no name");
}

#[test]
fn on_a_full_disk_there_is_no_file_and_the_server_goes_on() {
    let disk = SmallDisk::new(64);
    let server = disk.serve();
    let mut redis = server.redis();
    for at in 0..3000 {
        let set = redis.command(&format!("SET k{at} {} NX EX 3600", "v".repeat(2000)));
        assert_eq!(set, Reply::Status("OK".into()));
    }
    let outside = disk.outside();
    // The backup goes to the same disk, and fills it.
    let mut ballast = std::fs::File::create(outside.join("most")).unwrap();
    while ballast.write_all(&[b'x'; 64 << 10]).is_ok() {}
    // Room for half of it.
    let len = ballast.metadata().unwrap().len();
    ballast.set_len(len - (3 << 20)).unwrap();
    let path = outside.join("backup");
    let failed = backup(&server, &path);
    assert_ne!(failed.code, 0, "{failed:?}");
    assert!(!path.exists());
    let left: Vec<String> = names(&outside);
    assert!(left.iter().all(|name| !name.contains(".part")), "{left:?}");
    assert_eq!(redis.command("GET k7"), Reply::Bytes(vec![b'v'; 2000]));
    drop(ballast);
    std::fs::remove_file(outside.join("most")).unwrap();
    let begun = Instant::now();
    while redis.command("SET again v NX EX 60") != Reply::Status("OK".into()) {
        assert!(begun.elapsed() < PATIENCE, "it stays full");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The one that failed may not have ended yet on the server's side.
    let begun = Instant::now();
    while backup(&server, &path).code != 0 {
        assert!(begun.elapsed() < PATIENCE, "no backup comes about any more");
    }
    assert_eq!(server.term().code(), 0);
}

#[test]
fn a_client_that_is_killed_leaves_no_file_of_that_name_and_makes_room_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    fill_beyond_buffers(&server);
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let url = url(&server);
    let mut client = onced()
        .args(["backup", "--url", &url])
        .arg(out.join("cut"))
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while names(&out).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "it never began");
        std::thread::yield_now();
    }
    client.kill().unwrap();
    client.wait().unwrap();
    // Killed at any moment but after its end, it leaves what its name says is a part.
    for name in names(&out) {
        let whole = name == "cut" && check_of(&out.join(&name), folder.path());
        assert!(whole || name.ends_with(".part"), "{name}");
    }
    let mut done = backup(&server, &out.join("next"));
    while done.code == 75 {
        assert!(begun.elapsed() < PATIENCE, "{done:?}");
        done = backup(&server, &out.join("next"));
    }
    assert_eq!(done.code, 0, "{done:?}");
}

/// Whether it is a whole backup.
fn check_of(path: &Path, folder: &Path) -> bool {
    restore(path, &folder.join("restored"), &[]).code == 0
}
