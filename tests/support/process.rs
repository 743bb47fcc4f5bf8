//! The real binary: started, told where it listens by its ready line, and ended in several ways.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use super::{Http, PATIENCE, Redis};

/// The binary, without what the environment of the tests may say to it.
pub fn onced() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onced"));
    let ours = |name: &OsStr| name.to_string_lossy().starts_with("ONCED_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    for name in ["STATE_DIRECTORY", "NOTIFY_SOCKET", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A running server; killed when it is dropped.
pub struct Server {
    child: Child,
    /// The line it printed when it was ready.
    pub ready: String,
    http: SocketAddr,
    redis: SocketAddr,
    stderr: Option<JoinHandle<String>>,
}

/// How a process ended, and everything it wrote.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stderr: String,
}

impl Server {
    /// Starts it on free ports with its data in `dir`.
    pub fn start(dir: &Path) -> Server {
        Server::with(dir, &[])
    }

    /// The same, with further arguments.
    pub fn with(dir: &Path, arguments: &[&str]) -> Server {
        match Server::try_start(dir, arguments) {
            Ok(server) => server,
            Err(output) => panic!("the server did not start: {output:?}"),
        }
    }

    /// The same, where it may refuse to start.
    pub fn try_start(dir: &Path, arguments: &[&str]) -> Result<Server, Output> {
        let mut command = onced();
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(dir)
            .args(arguments);
        // A file of the machine's own would say more than the test does.
        for (flag, value) in [("--config", "/dev/null"), ("--http", "0"), ("--redis", "0")] {
            if !arguments.contains(&flag) {
                command.args([flag, value]);
            }
        }
        Server::spawn(command)
    }

    /// Starts `command`, which has to be a server, and waits for its ready line.
    pub fn spawn(mut command: Command) -> Result<Server, Output> {
        let spawned = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let (line, lines) = channel();
        std::thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = line.send(text);
            }
        });
        match first_line(&lines) {
            Some(ready) => Ok(Server {
                http: address(&ready, "http="),
                redis: address(&ready, "redis="),
                child,
                ready,
                stderr: Some(stderr),
            }),
            None => {
                // Only a process that hangs is killed here; one that ended is not hurt by it.
                let status = wait(&mut child);
                let stderr = stderr.join().unwrap();
                Err(Output { status, stderr })
            }
        }
    }

    /// A new connection to the HTTP face.
    pub fn http(&self) -> Http {
        Http::connect(self.http)
    }

    /// A new connection to the Redis face.
    pub fn redis(&self) -> Redis {
        Redis::connect(self.redis)
    }

    /// Where HTTP is served.
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// Where the Redis protocol is served.
    pub fn redis_address(&self) -> SocketAddr {
        self.redis
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.pid().to_string())
            .status();
        assert!(kill.unwrap().success(), "kill -{name}");
    }

    /// Kills it, as `kill -9` does.
    pub fn kill9(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    /// Asks it to stop, and waits until it has.
    pub fn term(self) -> Output {
        self.signal("TERM");
        self.wait()
    }

    /// Waits until it has ended by itself.
    pub fn wait(mut self) -> Output {
        let status = wait(&mut self.child);
        let stderr = self.stderr.take().unwrap().join().unwrap();
        Output { status, stderr }
    }
}

impl Drop for Server {
    #[expect(
        clippy::print_stderr,
        reason = "what the server wrote belongs to a failed test"
    )]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let (true, Some(stderr)) = (std::thread::panicking(), self.stderr.take()) {
            eprintln!("--- the server wrote:\n{}---", stderr.join().unwrap());
        }
    }
}

impl Output {
    /// The exit code; a test that asks expects no signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{self:?}"))
    }
}

fn first_line(lines: &Receiver<String>) -> Option<String> {
    lines.recv_timeout(PATIENCE).ok()
}

fn address(ready: &str, name: &str) -> SocketAddr {
    let value = ready.split(' ').find_map(|part| part.strip_prefix(name));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("{ready:?}"))
}

/// Waits for the end, but not for ever.
fn wait(child: &mut Child) -> ExitStatus {
    let pid = child.id().to_string();
    let (ended, hanging) = channel::<()>();
    let guard = std::thread::spawn(move || {
        if hanging.recv_timeout(PATIENCE).is_err() {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
    });
    let status = child.wait().unwrap();
    let _ = ended.send(());
    guard.join().unwrap();
    status
}
