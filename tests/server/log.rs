//! What the log says and what it never does: stop the service, fill a disk, or speak for somebody else.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use super::{data, folder};
use crate::support::redis::Reply;
use crate::support::{Http, Server, onced};

/// A server on a socket that the test keeps, so that it is found without its ready line.
struct Mute {
    child: Child,
    address: SocketAddr,
}

impl Mute {
    fn start(folder: &tempfile::TempDir, redirect: &str, said: impl Fn() -> Stdio) -> Mute {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut command = Command::new("sh");
        let script =
            format!("exec 3<&0 </dev/null {redirect}; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"");
        command
            .args(["-c", &script, "sh"])
            .arg(onced().get_program());
        command.args([
            "serve",
            "--config",
            "/dev/null",
            "--redis",
            "0",
            "--log",
            "debug",
        ]);
        command.arg("--data-dir").arg(data(folder));
        command.env("LISTEN_FDNAMES", "http");
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
        command.stdout(said()).stderr(said());
        let mut child = command.spawn().unwrap();
        // Where they are pipes, nobody reads them.
        drop((child.stdout.take(), child.stderr.take()));
        Mute { child, address }
    }

    /// Claims, reloads, and stops as asked.
    fn serves(mut self) {
        let mut http = Http::connect(self.address);
        assert_eq!(http.get("/readyz").status, 200);
        assert_eq!(http.post("/v1/claims/default/a", b"").status, 201);
        let pid = self.child.id().to_string();
        let signal = |name: &str| {
            let sent = Command::new("kill").args([name, &pid]).status().unwrap();
            assert!(sent.success());
        };
        signal("-HUP");
        for number in 0..100 {
            let path = format!("/v1/claims/default/after-{number}");
            assert_eq!(http.post(&path, b"").status, 201);
        }
        signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn closed_pipes_for_output_and_log_stop_nothing() {
    Mute::start(&folder(), "", Stdio::piped).serves();
}

#[test]
fn a_full_disk_under_output_and_log_stops_nothing() {
    Mute::start(&folder(), ">/dev/full 2>/dev/full", Stdio::null).serves();
}

#[test]
fn no_output_and_no_log_at_all_stop_nothing() {
    Mute::start(&folder(), ">&- 2>&-", Stdio::null).serves();
}

#[test]
fn a_client_that_says_much_fills_no_log_and_forges_no_line() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let mut redis = server.redis();
    let script = b"redis.log(redis.LOG_WARNING, ARGV[1])";
    let said = b"garbage\n2026-01-02T03:04:05Z  INFO forged\x1b[2J";
    for _ in 0..500 {
        assert_eq!(redis.try_words(&[b"EVAL", script, b"0", said]), Reply::Null);
    }
    let stderr = server.term().stderr;
    let (garbage, more): (Vec<_>, Vec<_>) = stderr
        .lines()
        .filter(|line| line.contains("garbage"))
        .partition(|line| !line.contains("more like this"));
    assert!((20..=60).contains(&garbage.len()), "{}", garbage.len());
    let told: usize = more
        .iter()
        .filter_map(|line| line.split(" more").next()?.rsplit(' ').next()?.parse().ok())
        .collect::<Vec<usize>>()
        .iter()
        .sum();
    assert_eq!(garbage.len() + told, 500, "{more:?}");
    assert!(!stderr.contains('\x1b'), "{stderr}");
    assert!(
        stderr
            .lines()
            .all(|line| !line.contains("INFO forged") || line.contains("garbage")),
        "{stderr}"
    );
}

#[test]
fn secrets_are_in_no_line_whatever_is_logged() {
    let folder = folder();
    let file = folder.path().join("onced.toml");
    let out = folder.path().join("secret");
    let new = [
        "token", "new", "--name", "worker", "--rights", "claim", "--out",
    ];
    let new = onced().args(new).arg(&out).output().unwrap();
    fs::write(&file, new.stdout).unwrap();
    let secret = fs::read_to_string(out).unwrap();
    let secret = secret.trim();
    let server = Server::with(
        &data(&folder),
        &["--config", file.to_str().unwrap(), "--log", "trace"],
    );
    let mut redis = server.redis();
    redis.command("AUTH default wrong-secret-of-somebody");
    redis.try_words(&[b"AUTH", b"worker", secret.as_bytes()]);
    let mut http = server.http();
    http.send(
        format!(
            "GET /v1/stats HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {secret}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert!(http.answer().is_some());
    let stderr = server.term().stderr;
    for hidden in [secret, "wrong-secret-of-somebody"] {
        assert!(!stderr.contains(hidden), "{stderr}");
    }
}

#[test]
fn the_journal_of_systemd_is_told_levels_as_it_reads_them() {
    let folder = folder();
    let path = folder.path().join("log");
    let file = File::create(&path).unwrap();
    let found = file.metadata().unwrap();
    let start = |stream: String| {
        fs::write(&path, "").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 2>\"$LOG\"", "sh"]);
        command
            .arg(onced().get_program())
            .args(["serve", "--data-dir"]);
        command.arg(data(&folder));
        command.args(["--config", "/dev/null", "--http", "0", "--redis", "0"]);
        command.env("JOURNAL_STREAM", stream).env("LOG", &path);
        let server = Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"));
        assert_eq!(server.term().code(), 0);
        fs::read_to_string(&path).unwrap()
    };
    let log = start(format!("{}:{}", found.dev(), found.ino()));
    assert!(
        log.lines().any(|line| line.starts_with("<6>onced ready")),
        "{log}"
    );
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
    // Inherited from somebody else: standard error is not the journal.
    let log = start("1:1".to_owned());
    assert!(
        log.lines().any(|line| line.contains(" INFO onced ready")),
        "{log}"
    );
}
