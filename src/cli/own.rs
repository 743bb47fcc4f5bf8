//! A server of our own, in a folder that goes with it: for measurements and trials that touch nobody's data.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::client::Server;
use super::{Exit, Failure};

/// A new folder, removed when it is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Of that name and this process's number.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn create(inside: &Path, name: &str) -> Result<Folder, Failure> {
        let path = inside.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            let attempt = format!("cannot make the folder {}", path.display());
            let next = "give a folder that this user may write with --dir";
            Failure::new(Exit::Failure, attempt, error, next)
        })?;
        // As the server sees it, wherever that is started.
        let path = path.canonicalize().unwrap_or(path);
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed has a name that says what it is.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running server, killed when it is dropped.
pub(super) struct Own {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(super) http: String,
    pub(super) redis: String,
}

impl Own {
    /// Starts one on free ports with its data there. What the environment says to servers is not said to this one.
    ///
    /// # Errors
    /// It does not start; in its own words.
    pub(super) fn start(data: &Path) -> Result<Own, Failure> {
        Own::spawn(Own::command(data, &[])?)
    }

    /// The command that starts one.
    ///
    /// # Errors
    /// This program is not found.
    pub(super) fn command(data: &Path, arguments: &[&str]) -> Result<Command, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            let next = "give it a path that stays";
            Failure::new(Exit::Failure, "cannot find this program", error, next)
        })?;
        let mut command = Command::new(program);
        command.args(["serve", "--config", "/dev/null", "--log", "warn"]);
        command.args(["--http", "127.0.0.1:0", "--redis", "127.0.0.1:0"]);
        command.args(arguments).arg("--data-dir").arg(data);
        Ok(command)
    }

    /// Starts what [`Own::command`] made, as it is or inside another one.
    ///
    /// # Errors
    /// As [`Own::start`].
    pub(super) fn spawn(mut command: Command) -> Result<Own, Failure> {
        let failed = |cause: String| {
            let next = "see what `onced serve` says on a data directory there";
            Failure::new(Exit::Failure, "cannot start a server", cause, next)
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ONCED_") {
                command.env_remove(name);
            }
        }
        for name in [
            "NOTIFY_SOCKET",
            "LISTEN_FDS",
            "LISTEN_PID",
            "JOURNAL_STREAM",
        ] {
            command.env_remove(name);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut said = child.stderr.take();
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(said) = &mut said {
                // To the end, so that its log never fills the pipe; its first lines are what is told.
                let _ = said.take(64 << 10).read_to_end(&mut text);
                let _ = std::io::copy(said, &mut std::io::sink());
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut ready = String::new();
        if let Some(stdout) = child.stdout.take() {
            // Where it ends before it is ready, so does the pipe.
            let _ = BufReader::new(stdout).read_line(&mut ready);
        }
        let address = |name: &str| {
            let found = ready.split(' ').find_map(|part| part.strip_prefix(name));
            found.map(str::to_owned)
        };
        let own = Own {
            http: address("http=").unwrap_or_default(),
            redis: address("redis=").unwrap_or_default(),
            child,
        };
        if own.http.is_empty() || own.redis.is_empty() {
            drop(own);
            return Err(failed(stderr.join().unwrap_or_default()));
        }
        Ok(own)
    }

    /// A client of it.
    pub(super) fn client(&self) -> Server {
        Server::at(format!("http://{}", self.http))
    }

    /// Ends it as `kill -9` does.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
    }
}
