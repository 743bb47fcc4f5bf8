//! The configuration read again while the server runs, and what the service manager is told meanwhile.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Instant;

use super::{data, folder, text};
use crate::support::{PATIENCE, Server, onced};

/// A service manager's end of the notify socket.
struct Manager(UnixDatagram);

impl Manager {
    fn new(path: &Path) -> Manager {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager(socket)
    }

    /// The next message with this in it.
    fn told(&self, part: &str) -> String {
        loop {
            let mut buffer = [0; 1024];
            let length = self.0.recv(&mut buffer).expect(part);
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.contains(part) {
                return text;
            }
        }
    }
}

/// A server with that configuration file and further names in its environment.
fn serve(dir: &Path, config: &Path, manager: &Path, environment: &[(&str, &str)]) -> Server {
    let mut command = onced();
    command
        .args(["serve", "--http", "0", "--redis", "0", "--config"])
        .arg(config)
        .arg("--data-dir")
        .arg(dir)
        .env("NOTIFY_SOCKET", manager)
        .envs(environment.iter().copied());
    Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"))
}

/// SHA-256 of the secret `a`.
const HASH: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";

#[test]
fn a_reload_changes_tokens_and_policies_and_a_broken_file_changes_nothing() {
    let folder = folder();
    let path = folder.path().join("notify");
    let manager = Manager::new(&path);
    let config = folder.path().join("onced.toml");
    fs::write(&config, "[namespace.orders]\nlease = \"7s\"\n").unwrap();
    let server = serve(&data(&folder), &config, &path, &[]);
    manager.told("READY=1\n");
    let lease = |secret: Option<&str>| {
        let mut http = server.http();
        let authorization = secret.map(|it| format!("authorization: Bearer {it}\r\n"));
        let head = format!(
            "GET /v1/namespaces/orders HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            authorization.unwrap_or_default()
        );
        http.send(head.as_bytes());
        let answer = http.answer().unwrap();
        match answer.status {
            200 => answer.json()["policy"]["lease"]
                .as_str()
                .unwrap()
                .to_owned(),
            status => status.to_string(),
        }
    };
    let reload = |text: &str| {
        fs::write(&config, text).unwrap();
        server.signal("HUP");
        let begun = manager.told("RELOADING=1\n");
        // Later than this machine's start, and in microseconds.
        let micros = begun.split("MONOTONIC_USEC=").nth(1).unwrap().trim();
        assert!(micros.parse::<u64>().unwrap() > 1_000_000, "{begun}");
        manager.told("READY=1\n");
    };
    assert_eq!(lease(None), "7s");
    let token = format!(
        "[[token]]\nname = \"reader\"\nsha256 = \"{HASH}\"\nrights = [\"read\"]\n\
         [namespace.orders]\nlease = \"8s\"\n"
    );
    reload(&token);
    assert_eq!(lease(None), "401");
    assert_eq!(lease(Some("a")), "8s");
    for broken in [
        "lease = 1",
        "[namespace.orders]\nlease = 0",
        "log = \"a=b=c\"",
        "\u{0}",
    ] {
        reload(broken);
        assert_eq!(
            (lease(None), lease(Some("a"))),
            ("401".into(), "8s".into()),
            "{broken:?}"
        );
    }
    reload("threads = 3\nlog = \"debug\"\n");
    assert_eq!(lease(None), "1m");
    let output = server.term();
    assert_eq!(output.code(), 0);
    manager.told("STOPPING=1\n");
    for part in [
        "reloaded; changed: tokens, policies",
        "nothing was reloaded, and what was in force stays: cannot use ",
        "unknown field `lease`",
        "threads changes at the next start",
    ] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}

#[test]
fn a_file_that_takes_guards_away_from_an_open_address_is_not_reloaded() {
    let folder = folder();
    let path = folder.path().join("notify");
    let manager = Manager::new(&path);
    let config = folder.path().join("onced.toml");
    let token = format!("[[token]]\nname = \"n\"\nsha256 = \"{HASH}\"\nrights = [\"read\"]\n");
    fs::write(&config, token).unwrap();
    let environment = [("ONCED_HTTP", "0.0.0.0:0")];
    let mut command = onced();
    command
        .args(["serve", "--redis", "0", "--config"])
        .arg(&config)
        .arg("--data-dir")
        .arg(data(&folder))
        .env("NOTIFY_SOCKET", &path)
        .envs(environment);
    let server = Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"));
    manager.told("READY=1\n");
    fs::write(&config, "").unwrap();
    server.signal("HUP");
    manager.told("RELOADING=1\n");
    manager.told("READY=1\n");
    assert_eq!(server.http().get("/v1/namespaces").status, 401);
    let stderr = server.term().stderr;
    assert!(stderr.contains("cannot listen on 0.0.0.0:0"), "{stderr}");
}

#[test]
fn a_watchdog_is_fed_and_a_start_asks_for_the_time_it_takes() {
    let folder = folder();
    let path = folder.path().join("notify");
    let manager = Manager::new(&path);
    let config = Path::new("/dev/null");
    let environment = [("WATCHDOG_USEC", "300000")];
    let server = serve(&data(&folder), config, &path, &environment);
    // Each from a thread of its own, so in any order.
    let (mut extended, mut ready) = (false, false);
    while !(extended && ready) {
        let text = manager.told("=");
        extended |= text.contains("EXTEND_TIMEOUT_USEC=30000000\n");
        ready |= text.contains("READY=1\n");
    }
    let begun = Instant::now();
    for _ in 0..3 {
        manager.told("WATCHDOG=1\n");
    }
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(server.term().code(), 0);
}

#[test]
fn a_reload_of_which_nobody_is_told_reloads_all_the_same() {
    let folder = folder();
    let config = folder.path().join("onced.toml");
    fs::write(&config, "").unwrap();
    let server = Server::with(&data(&folder), &["--config", text(&config)]);
    let token = format!("[[token]]\nname = \"n\"\nsha256 = \"{HASH}\"\nrights = [\"read\"]\n");
    fs::write(&config, token).unwrap();
    server.signal("HUP");
    let begun = Instant::now();
    while server.http().get("/v1/namespaces").status != 401 {
        assert!(begun.elapsed() < PATIENCE, "it was never reloaded");
    }
    assert_eq!(server.term().code(), 0);
}
