//! Servers: each on a free port of the loopback, with its data in a folder of its own, gone when dropped.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Outcome, Plan};

/// How long a server may take to answer. Recovery of ten million keys is well within it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Who PostgreSQL runs as where we are root, which it refuses to be.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// A running server.
pub struct Server {
    child: Child,
    /// Where the Redis protocol, or PostgreSQL's, is spoken.
    pub address: SocketAddr,
    /// Where HTTP is.
    pub http: Option<SocketAddr>,
    /// From the start of the process to its being ready.
    pub took: Duration,
    /// What takes it down at once.
    signal: Signal,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self, signal: Signal) -> Outcome<()> {
        self.send(signal)?;
        self.child.wait()?;
        Ok(())
    }

    fn send(&self, signal: Signal) -> Outcome<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.ok_or("no process")?, signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.send(self.signal);
            let _ = self.child.wait();
        }
    }
}

/// onced, with its defaults.
pub fn onced(plan: &Plan, dir: &Path) -> Outcome<Server> {
    let log = File::create(dir.with_extension("log"))?;
    let mut command = Command::new(&plan.onced);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ONCED_") {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--config", "/dev/null", "--http", "127.0.0.1:0"])
        .args(["--redis", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().ok_or("no standard output")?;
    let mut ready = String::new();
    BufReader::new(stdout).read_line(&mut ready)?;
    let took = begun.elapsed();
    let address = |name: &str| -> Outcome<SocketAddr> {
        let word = ready
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name));
        let word = word.ok_or_else(|| {
            let log = fs::read_to_string(dir.with_extension("log")).unwrap_or_default();
            format!("onced did not become ready: {ready:?}\n{log}")
        })?;
        Ok(word.parse()?)
    };
    let (redis, http) = match (address("redis="), address("http=")) {
        (Ok(redis), Ok(http)) => (redis, http),
        (Err(error), _) | (_, Err(error)) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    };
    Ok(Server {
        child,
        address: redis,
        http: Some(http),
        took,
        signal: Signal::KILL,
    })
}

/// How Redis keeps what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// In memory alone.
    Off,
    /// A log, synced once a second: a second of answers may be lost.
    EverySecond,
    /// A log, synced before the answers: what onced promises too.
    Always,
}

/// Redis. Its log is never rewritten meanwhile, which is in its favour.
pub fn redis(dir: &Path, persistence: Persistence) -> Outcome<Server> {
    fs::create_dir_all(dir)?;
    let program = find("redis-server").ok_or("redis-server is not on the PATH")?;
    let address = free_address()?;
    let mut command = Command::new(program);
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--save", "", "--daemonize", "no", "--loglevel", "warning"])
        .args(["--auto-aof-rewrite-percentage", "0", "--dir"])
        .arg(dir);
    let sync = match persistence {
        Persistence::Off => None,
        Persistence::EverySecond => Some("everysec"),
        Persistence::Always => Some("always"),
    };
    match sync {
        None => command.args(["--appendonly", "no"]),
        Some(sync) => command.args(["--appendonly", "yes", "--appendfsync", sync]),
    };
    spawn(command, dir, address, Signal::KILL)
}

/// A data directory of PostgreSQL, made once; its servers take turns on it.
pub struct Cluster {
    dir: PathBuf,
    programs: PathBuf,
    user: Option<&'static str>,
}

impl Cluster {
    /// `None`, with the reason printed, where there is no PostgreSQL.
    pub fn create(dir: &Path) -> Outcome<Option<Cluster>> {
        let Some(programs) = postgres_programs() else {
            println!("  PostgreSQL is left out: no initdb, postgres, psql and pgbench were found");
            return Ok(None);
        };
        fs::create_dir_all(dir)?;
        let user = if rustix::process::getuid().is_root() {
            let known = fs::read_to_string("/etc/passwd")?;
            let is_there = |name: &&str| {
                known
                    .lines()
                    .any(|line| line.starts_with(&format!("{name}:")))
            };
            let Some(user) = UNPRIVILEGED.into_iter().find(is_there) else {
                println!(
                    "  PostgreSQL is left out: it refuses to run as root, and there is no user for it"
                );
                return Ok(None);
            };
            quiet(Command::new("chown").arg(user).arg(dir))?;
            Some(user)
        } else {
            None
        };
        let cluster = Cluster {
            dir: dir.to_owned(),
            programs,
            user,
        };
        let mut initdb = cluster.command("initdb");
        initdb.args([
            "--auth=trust",
            "--username=postgres",
            "--no-sync",
            "--encoding=UTF8",
        ]);
        quiet(initdb.args(["--locale=C", "--pgdata"]).arg(dir))?;
        Ok(Some(cluster))
    }

    /// Starts a server with its own defaults, but more shared memory and no rounds of cleaning.
    pub fn start(&self) -> Outcome<Server> {
        let address = free_address()?;
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(&self.dir)
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
            ])
            .args(["-c", "shared_buffers=256MB", "-c", "autovacuum=off"])
            .args([
                "-c",
                "max_connections=100",
                "-p",
                &address.port().to_string(),
            ]);
        let server = spawn(command, &self.dir, address, Signal::QUIT)?;
        // It listens before it accepts.
        let begun = Instant::now();
        while self.sql(&server, "SELECT 1").is_err() {
            if begun.elapsed() > PATIENCE {
                return Err("PostgreSQL does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Runs a statement.
    pub fn sql(&self, server: &Server, statement: &str) -> Outcome<()> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
        ]);
        psql.args(["-p", &server.address.port().to_string(), "-c", statement]);
        quiet(&mut psql)
    }

    pub fn pgbench(&self) -> PathBuf {
        self.programs.join("pgbench")
    }

    /// A program of PostgreSQL's, as the user that owns the data.
    fn command(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = match self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
                command.arg(program);
                command
            }
            None => Command::new(program),
        };
        // It wants to enter the folder it was started from.
        command.current_dir(&self.dir);
        command
    }
}

/// The folder with all programs of PostgreSQL that are needed: on the PATH, else Debian's.
fn postgres_programs() -> Option<PathBuf> {
    let whole = |folder: &PathBuf| {
        ["initdb", "postgres", "psql", "pgbench"]
            .iter()
            .all(|name| folder.join(name).is_file())
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut debian: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|it| it.path().join("bin")).collect())
        .unwrap_or_default();
    debian.sort();
    on_path
        .into_iter()
        .chain(debian.into_iter().rev())
        .find(whole)
}

/// A program on the PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Starts a server and waits until it takes connections.
fn spawn(mut command: Command, dir: &Path, address: SocketAddr, signal: Signal) -> Outcome<Server> {
    let path = dir.with_extension("log");
    let log = File::create(&path)?;
    let begun = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let mut server = Server {
        child,
        address,
        http: None,
        took: Duration::ZERO,
        signal,
    };
    while TcpStream::connect(address).is_err() {
        let ended = server.child.try_wait()?;
        if ended.is_some() || begun.elapsed() > PATIENCE {
            let log = fs::read_to_string(&path).unwrap_or_default();
            return Err(format!("{command:?} does not answer ({ended:?}):\n{log}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    server.took = begun.elapsed();
    Ok(server)
}

/// Runs a program to its end; what it says counts only if it fails.
pub fn quiet(command: &mut Command) -> Outcome<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {said}", output.status).into())
}
