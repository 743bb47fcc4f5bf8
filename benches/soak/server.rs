//! The server, and what the system says of its process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::Outcome;

/// A running server, on free ports.
pub struct Server {
    child: Child,
    dir: PathBuf,
    pub http: SocketAddr,
    pub redis: SocketAddr,
}

/// What its process has at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Resident memory, in bytes.
    pub memory: u64,
    /// Open files.
    pub files: usize,
    /// Blocks of its data directory, in bytes.
    pub disk: u64,
}

impl Server {
    pub fn start(binary: &Path, dir: &Path, connections: usize) -> Outcome<Server> {
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ONCED_") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(["serve", "--config", "/dev/null", "--http", "127.0.0.1:0"])
            .args(["--redis", "127.0.0.1:0", "--log", "warn", "--data-dir"])
            .arg(dir)
            .args(["--max-connections", &connections.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        let address = |name: &str| -> Outcome<SocketAddr> {
            let words = ready.split_whitespace();
            let word = words.filter_map(|word| word.strip_prefix(name)).next();
            Ok(word
                .ok_or_else(|| format!("onced did not become ready: {ready:?}"))?
                .parse()?)
        };
        let (http, redis) = (address("http=")?, address("redis=")?);
        Ok(Server {
            child,
            dir: dir.to_owned(),
            http,
            redis,
        })
    }

    pub fn sample(&self) -> Outcome<Sample> {
        let process = format!("/proc/{}", self.child.id());
        let status = fs::read_to_string(format!("{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB");
        Ok(Sample {
            memory: memory.parse::<u64>()? * 1024,
            files: fs::read_dir(format!("{process}/fd"))?.count(),
            disk: allocated(&self.dir)?,
        })
    }

    /// A polite end, which it has to come to.
    pub fn stop(mut self) -> Outcome<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("no process")?, Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the server ended with {status}").into())
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Raises this process's limit on open files; the server inherits it.
pub fn allow_files(files: u64) -> Outcome<()> {
    let now = getrlimit(Resource::Nofile);
    if now.maximum.is_some_and(|maximum| maximum < files) {
        return Err(format!("needs {files} open files, and may have {:?}", now.maximum).into());
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(files.max(now.current.unwrap_or(0))),
            maximum: now.maximum,
        },
    )?;
    Ok(())
}

/// Files come and go while they are counted.
fn allocated(path: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => bytes += allocated(&path)?,
            Ok(meta) => bytes += meta.blocks() * 512,
            Err(_) => {}
        }
    }
    Ok(bytes)
}
