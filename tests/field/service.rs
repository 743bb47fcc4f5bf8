//! T9 and T10: what a service manager and the first line of every client program count on.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Case, claim, ok};
use crate::support::redis::{Reply, encode};
use crate::support::{Http, PATIENCE, Redis, Server, onced};

/// A server that tells a service manager of its start, and the socket where that listens.
struct Managed {
    manager: UnixDatagram,
    server: std::process::Child,
}

impl Managed {
    fn start(folder: &Path) -> Managed {
        let path = folder.join("notify");
        let _ = fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = onced();
        command.args([
            "serve",
            "--config",
            "/dev/null",
            "--http",
            "0",
            "--redis",
            "0",
        ]);
        command.arg("--data-dir").arg(folder.join("data"));
        command.env("NOTIFY_SOCKET", &path);
        let null = std::process::Stdio::null;
        let server = command.stdout(null()).stderr(null()).spawn().unwrap();
        Managed { manager, server }
    }

    fn told(&self) -> String {
        let mut buffer = [0; 1024];
        let length = self.manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// Where both faces are, said in the moment that counts as started.
    fn ready(&self) -> (SocketAddr, SocketAddr) {
        let told = loop {
            let told = self.told();
            if told.contains("READY=1") {
                break told;
            }
        };
        let at = |name: &str| {
            let word = told.split_whitespace().find_map(|it| it.strip_prefix(name));
            word.unwrap_or_else(|| panic!("{told:?}")).parse().unwrap()
        };
        (at("http="), at("redis="))
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Whoever starts after it may ask at once, on both faces, also where the start had to recover what a kill left. A start
/// that takes long asks for more time.
#[test]
fn fo_26_started_means_that_both_faces_answer() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    let mut redis = server.redis();
    let many = 20_000;
    let key = |number: u32| format!("k{number}");
    let sets: Vec<Vec<u8>> = (0..many)
        .map(|number| encode(&[b"SET", key(number).as_bytes(), b"v", b"NX", b"EX", b"3600"]))
        .collect();
    for some in sets.chunks(1000) {
        redis.send(&some.concat());
        for _ in some {
            assert_eq!(redis.reply(), ok());
        }
    }
    server.kill9();
    for round in 0..10 {
        let managed = Managed::start(folder.path());
        let (http, redis) = managed.ready();
        // The first thing that a dependent does, with no second try.
        let mut http = Http::connect(http);
        let claimed = claim(&mut http, &format!("dependent-{round}"), "");
        assert_eq!(claimed.outcome(), "acquired", "round {round}");
        let mut redis = Redis::connect(redis);
        let known = redis.command("SET k1 again NX PX 60000");
        assert_eq!(known, Reply::Null, "round {round}");
        assert_eq!(redis.command(&format!("SET r{round} v NX PX 60000")), ok());
    }
    let managed = Managed::start(folder.path());
    let asked = (0..10).any(|_| managed.told().contains("EXTEND_TIMEOUT_USEC=30000000"));
    assert!(asked, "a long start does not ask for more time");
}

/// A setting of the unit, in seconds or as a number.
fn setting(unit: &str, name: &str) -> u64 {
    let line = unit.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.strip_prefix('='));
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .parse()
        .unwrap()
}

/// A port in use never ends the unit, what no other try cures does at once, and every failure says what to do. The package's
/// own test has systemd do all this.
#[test]
fn fo_27_a_failed_start_is_paced_and_says_what_to_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unit = fs::read_to_string(root.join("packaging/onced.service")).unwrap();
    let (pace, limit) = (
        setting(&unit, "RestartSec"),
        setting(&unit, "StartLimitBurst"),
    );
    let interval = setting(&unit, "StartLimitIntervalSec");
    assert!(pace >= 2, "a hot loop");
    assert!(interval / pace < limit, "it gives up after {limit} tries");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    let prevented: BTreeSet<i32> = line
        .unwrap()
        .split(' ')
        .map(|code| code.parse().unwrap())
        .collect();

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let refused = |dir: &Path, arguments: &[&str]| match Server::try_start(dir, arguments) {
        Ok(server) => panic!("it started: {}", server.ready),
        Err(output) => output,
    };
    // A port in use: tried again, and back once it is free.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = refused(&data, &["--redis", &port]);
    assert!(!prevented.contains(&output.code()), "{output:?}");
    assert!(output.stderr.contains("ss -ltnp"), "{output:?}");
    drop(taken);
    let mut server = Server::with(&data, &["--redis", &port]);
    let held = claim(&mut server.http(), "k", "lease=1h");
    assert_eq!(held.outcome(), "acquired");
    // Crashes: data and starts are what they were.
    for _ in 0..20 {
        server.signal("ABRT");
        drop(server.wait());
        server = Server::with(&data, &["--redis", &port]);
        assert_eq!(claim(&mut server.http(), "k", "").outcome(), "busy");
    }
    drop(server);
    // A typo, and a place that is no directory: told with its path, not tried again, nothing made.
    let file = folder.path().join("onced.toml");
    fs::write(&file, "[limits]\nmax_paylod = 1\n").unwrap();
    let output = refused(
        &folder.path().join("new"),
        &["--config", file.to_str().unwrap()],
    );
    assert!(prevented.contains(&output.code()), "{output:?}");
    assert!(
        output.stderr.contains("did you mean `max_payload`"),
        "{output:?}"
    );
    assert!(!folder.path().join("new").exists());
    for path in [file.join("below"), Path::new("/proc/onced").to_owned()] {
        let output = refused(&path, &[]);
        assert!(prevented.contains(&output.code()), "{output:?}");
        assert!(output.stderr.contains(path.to_str().unwrap()), "{output:?}");
        assert!(output.stderr.contains("--data-dir"), "{output:?}");
    }
}

/// The addresses that a process listens on, as the kernel has them.
fn listening(pid: u32) -> Vec<IpAddr> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let own: BTreeSet<String> = links
        .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
        .filter_map(|to| {
            let to = to.to_str()?.strip_prefix("socket:[")?;
            Some(to.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let columns: Vec<&str> = line.split_whitespace().collect();
            // 0A: listening.
            if columns[3] != "0A" || !own.contains(columns[9]) {
                continue;
            }
            let hex = columns[1].split(':').next().unwrap();
            let words: Vec<[u8; 4]> = (0..hex.len() / 8)
                .map(|at| u32::from_str_radix(&hex[at * 8..at * 8 + 8], 16).unwrap())
                .map(u32::to_ne_bytes)
                .collect();
            let bytes = words.concat();
            found.push(match <[u8; 4]>::try_from(bytes.as_slice()) {
                Ok(four) => Ipv4Addr::from(four).into(),
                Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).unwrap()).into(),
            });
        }
    }
    found
}

/// By both addresses that the name has, on both faces, it is one store, and no address of another kind is listened on.
#[test]
fn fo_28_localhost_is_one_store_by_both_its_addresses() {
    let case = Case::start();
    let server = case.server();
    let six = TcpListener::bind("[::1]:0").is_ok();
    let other = |address: SocketAddr| match six {
        true => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        false => address,
    };
    let listening = listening(server.pid());
    assert_eq!(listening.len(), if six { 4 } else { 2 }, "{listening:?}");
    assert!(listening.iter().all(IpAddr::is_loopback), "{listening:?}");

    let (four, six) = (server.http_address(), other(server.http_address()));
    for (first, second, key) in [(four, six, "a"), (six, four, "b")] {
        assert_eq!(
            claim(&mut Http::connect(first), key, "").outcome(),
            "acquired"
        );
        assert_eq!(claim(&mut Http::connect(second), key, "").outcome(), "busy");
    }
    let (four, six) = (server.redis_address(), other(server.redis_address()));
    for (first, second, key) in [(four, six, "c"), (six, four, "d")] {
        let set = format!("SET {key} v NX PX 60000");
        assert_eq!(Redis::connect(first).command(&set), ok());
        assert_eq!(Redis::connect(second).command(&set), Reply::Null);
    }
    // By the name itself, whatever it means first here.
    let begun = Instant::now();
    let url = format!("http://localhost:{}", server.http_address().port());
    let asked = onced()
        .args(["claim", "a", "--url", &url])
        .output()
        .unwrap();
    assert_eq!(asked.status.code(), Some(75), "{asked:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
